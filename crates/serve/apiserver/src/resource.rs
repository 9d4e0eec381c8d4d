//! What an API consists of: groups of resources that can be read. The kit routes, authenticates,
//! authorizes, negotiates and describes; a resource answers.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{FieldTerm, LabelSelector};

use crate::body::Body;

/// A group of resources, all of which exist in all of its versions.
pub struct ApiGroup {
    /// Such as `metrics.k8s.io`.
    pub name: &'static str,
    /// Its versions, the preferred one first.
    pub versions: &'static [&'static str],
    /// Its resources.
    pub resources: Vec<Arc<dyn ApiResource>>,
}

/// What the kit must know of a resource to route to it and to describe it.
#[derive(Debug, Clone)]
pub struct ResourceFacts {
    /// As in paths: `pods`.
    pub plural: &'static str,
    /// As in discovery; may be empty.
    pub singular: &'static str,
    /// Of one object: `PodMetrics`.
    pub kind: &'static str,
    /// Of a list: `PodMetricsList`.
    pub list_kind: &'static str,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Which fields a `fieldSelector` may name; others are refused before the resource is asked.
    pub selectable_fields: &'static [&'static str],
    /// Whether `watch` is among the verbs, besides `get` and `list`.
    pub watchable: bool,
    /// OpenAPI v3 schemas by component name (`io.k8s.metrics.…`), as JSON; the one of an object and
    /// of a list must be among them. References are of the form `#/components/schemas/NAME`.
    pub schemas: &'static str,
}

/// A resource that can be read. Methods are called on the runtime's threads and must not block.
pub trait ApiResource: Send + Sync + 'static {
    /// What it is.
    fn facts(&self) -> &ResourceFacts;

    /// One object.
    fn get(&self, request: &GetRequest<'_>) -> Result<Body, Refusal>;

    /// All objects that are asked for.
    fn list(&self, request: &ListRequest<'_>) -> Result<Body, Refusal>;

    /// What changes from now on. Only called if [`ResourceFacts::watchable`].
    fn watch(&self, request: &WatchRequest<'_>) -> Result<Body, Refusal>;
}

/// What the client can read: the kit has negotiated it, and sets `Content-Type` from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// The bytes.
    pub encoding: Encoding,
    /// The shape of the object.
    pub shape: Shape,
}

/// How an object becomes bytes. YAML is made from JSON by the kit: a resource never sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `application/json`.
    Json,
    /// `application/vnd.kubernetes.protobuf`: with the magic bytes and the `runtime.Unknown` around
    /// the object.
    Protobuf,
}

/// What is made of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// Itself.
    Object,
    /// Rows and columns, for people.
    Table {
        /// Of `meta.k8s.io`: `v1` or `v1beta1`.
        version: &'static str,
        /// What of each object goes with its row.
        include: IncludeObject,
    },
    /// `PartialObjectMetadata` or a list of it.
    Metadata {
        /// Of `meta.k8s.io`: `v1` or `v1beta1`.
        version: &'static str,
    },
}

/// What of an object goes with its row of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IncludeObject {
    /// Nothing.
    None,
    /// Its metadata.
    Metadata,
    /// All of it.
    Object,
}

/// A request for one object.
#[derive(Debug, Clone, Copy)]
pub struct GetRequest<'a> {
    /// The version of the group that was asked for.
    pub version: &'a str,
    /// Empty where the resource has no namespaces.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
    /// What to answer in.
    pub form: Form,
}

/// A request for many objects.
#[derive(Debug, Clone, Copy)]
pub struct ListRequest<'a> {
    /// The version of the group that was asked for.
    pub version: &'a str,
    /// `None` for all namespaces.
    pub namespace: Option<&'a str>,
    /// Which labels they must have.
    pub labels: &'a LabelSelector,
    /// What their fields must be; each is among [`ResourceFacts::selectable_fields`].
    pub fields: &'a [FieldTerm],
    /// What to answer in.
    pub form: Form,
}

/// A request to be told of changes.
#[derive(Debug, Clone, Copy)]
pub struct WatchRequest<'a> {
    /// Which objects, and what to answer in. Each event is a `WatchEvent`: a line of JSON, or a
    /// frame of protobuf.
    pub list: ListRequest<'a>,
    /// From where on; empty and `0` mean: first everything that is there, as `ADDED`.
    pub resource_version: &'a str,
    /// When to end it, at the latest.
    pub timeout: Duration,
    /// Whether bookmarks are welcome.
    pub allow_bookmarks: bool,
    /// Whether everything that is there comes first and a bookmark ends it (`sendInitialEvents`).
    pub send_initial_events: Option<bool>,
}

/// Why a resource does not answer: becomes a `Status` body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There is no such object; the message says why, and what can be done.
    #[error("{message}")]
    NotFound {
        /// In full, as kubectl will print it.
        message: String,
    },
    /// The request makes no sense.
    #[error("{message}")]
    BadRequest {
        /// In full.
        message: String,
    },
    /// The version to watch from is gone: list again.
    #[error("{message}")]
    Expired {
        /// In full.
        message: String,
    },
    /// Too much is going on; try again after so many seconds.
    #[error("{message}")]
    TooManyRequests {
        /// In full.
        message: String,
        /// For `Retry-After`.
        retry_after_seconds: u32,
    },
    /// Nothing can be answered yet.
    #[error("{message}")]
    Unavailable {
        /// In full.
        message: String,
    },
}
