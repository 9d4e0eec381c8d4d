//! API groups and their resources. The kit routes, authenticates, authorizes, negotiates and
//! describes; a resource returns objects.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{FieldTerm, LabelSelector};

use crate::body::Body;

/// A group of resources, all of which exist in all of its versions.
pub struct ApiGroup {
    /// Such as `metrics.k8s.io`.
    pub name: &'static str,
    /// The preferred version first.
    pub versions: &'static [&'static str],
    pub resources: Vec<Arc<dyn ApiResource>>,
}

/// The description of a resource, for routing and discovery.
#[derive(Debug, Clone)]
pub struct ResourceInfo {
    /// The name in paths: `pods`.
    pub plural: &'static str,
    /// The name in discovery; may be empty.
    pub singular: &'static str,
    /// The kind of an object: `PodMetrics`.
    pub kind: &'static str,
    /// The kind of a list: `PodMetricsList`.
    pub list_kind: &'static str,
    pub namespaced: bool,
    /// Fields that a `fieldSelector` may name; others are rejected before the resource is called.
    pub selectable_fields: &'static [&'static str],
    /// Whether `watch` is among the verbs, besides `get` and `list`.
    pub watchable: bool,
    /// OpenAPI v3 schemas by component name (`io.k8s.metrics.…`), as JSON; the one of an object and
    /// of a list must be among them. References are of the form `#/components/schemas/NAME`.
    pub schemas: &'static str,
}

/// A resource that can be read. Methods are called on the runtime's threads and must not block.
pub trait ApiResource: Send + Sync + 'static {
    fn info(&self) -> &ResourceInfo;

    /// Returns one object.
    fn get(&self, request: &GetRequest<'_>) -> Result<Body, StatusError>;

    /// Returns all selected objects.
    fn list(&self, request: &ListRequest<'_>) -> Result<Body, StatusError>;

    /// Streams changes. Called only if [`ResourceInfo::watchable`].
    fn watch(&self, request: &WatchRequest<'_>) -> Result<Body, StatusError>;
}

/// The negotiated representation of a response; the kit sets `Content-Type` from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Representation {
    pub encoding: Encoding,
    pub shape: Shape,
}

/// The encoding of an object. The kit converts JSON to YAML, so resources never see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// `application/json`.
    Json,
    /// `application/vnd.kubernetes.protobuf`: with the magic bytes and the `runtime.Unknown` around
    /// the object.
    Protobuf,
}

/// The shape of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Shape {
    /// The object or list itself.
    Object,
    /// A `Table` for kubectl.
    Table {
        /// Of `meta.k8s.io`: `v1` or `v1beta1`.
        version: &'static str,
        include: IncludeObject,
    },
    /// `PartialObjectMetadata` or a list of it.
    Metadata {
        /// Of `meta.k8s.io`: `v1` or `v1beta1`.
        version: &'static str,
    },
}

/// The part of an object that is included in its table row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IncludeObject {
    None,
    Metadata,
    Object,
}

/// A request for one object.
#[derive(Debug, Clone, Copy)]
pub struct GetRequest<'a> {
    /// The requested version of the group.
    pub version: &'a str,
    /// Empty for cluster-scoped resources.
    pub namespace: &'a str,
    pub name: &'a str,
    pub representation: Representation,
}

/// A request for a list.
#[derive(Debug, Clone, Copy)]
pub struct ListRequest<'a> {
    /// The requested version of the group.
    pub version: &'a str,
    /// `None` for all namespaces.
    pub namespace: Option<&'a str>,
    pub labels: &'a LabelSelector,
    /// Each field is among [`ResourceInfo::selectable_fields`].
    pub fields: &'a [FieldTerm],
    pub representation: Representation,
}

/// A request for a watch.
#[derive(Debug, Clone, Copy)]
pub struct WatchRequest<'a> {
    /// Selector and representation. Each event is a `WatchEvent`: a line of JSON, or a frame of
    /// protobuf.
    pub list: ListRequest<'a>,
    /// The version to start from; empty and `0` begin with all objects as `ADDED`.
    pub resource_version: &'a str,
    /// Maximum duration.
    pub timeout: Duration,
    pub allow_bookmarks: bool,
    /// Whether all objects come first, followed by a bookmark (`sendInitialEvents`).
    pub send_initial_events: Option<bool>,
}

/// An error of a resource; the response is a `Status`. Messages are complete sentences that kubectl
/// prints.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StatusError {
    /// The object does not exist; the message names the reason and a remedy.
    #[error("{message}")]
    NotFound { message: String },
    #[error("{message}")]
    BadRequest { message: String },
    /// The resource version is too old: list again.
    #[error("{message}")]
    Expired { message: String },
    #[error("{message}")]
    TooManyRequests {
        message: String,
        retry_after_seconds: u32,
    },
    /// The resource is not ready yet.
    #[error("{message}")]
    Unavailable { message: String },
}
