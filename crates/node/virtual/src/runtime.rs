//! What runs the pods of a virtual node.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, PodStatus, Secret};
use kubevitals_model::{PodKey, Uid};
use tokio::sync::mpsc;

/// The response of a runtime.
pub type RuntimeFuture<'a, T> = BoxFuture<'a, Result<T, RuntimeError>>;

/// Runs pods. All methods return quickly: they change what is desired, and the runtime works
/// towards it. Each change of a pod's status is announced by [`RuntimeChange`].
pub trait PodRuntime: Send + Sync + 'static {
    /// Runs a pod, or changes a running one to a new version of its object. The runtime reads
    /// only what may change: labels, annotations, images, resources, `activeDeadlineSeconds`.
    fn sync_pod(&self, pod: Arc<Pod>) -> RuntimeFuture<'_, ()>;

    /// Terminates a pod within `grace`. A pod that is terminating already gets the shorter grace.
    fn terminate_pod(&self, pod: &PodId, grace: Duration) -> RuntimeFuture<'_, ()>;

    /// Removes what is left of a terminated pod: folders, cgroups, records. Logs too.
    fn remove_pod(&self, pod: &PodId) -> RuntimeFuture<'_, ()>;

    /// Returns all pods that the runtime has, those of an earlier process included.
    fn pods(&self) -> RuntimeFuture<'_, Vec<RuntimePod>>;

    /// Checks that the runtime can run pods; it gates the lease and the `Ready` condition.
    fn ping(&self) -> RuntimeFuture<'_, ()>;
}

/// A pod by its UID, with its name for messages.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodId {
    pub uid: Uid,
    pub key: PodKey,
}

/// A pod of a runtime.
#[derive(Debug, Clone)]
pub struct RuntimePod {
    pub id: PodId,
    /// Phase, conditions and statuses of containers, without those that the virtual node sets
    /// (`PodScheduled`, observed generation).
    pub status: PodStatus,
    /// Whether all processes have ended and none will be started again.
    pub is_terminated: bool,
}

/// What a runtime announces to the virtual node, over a bounded channel.
#[derive(Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "statuses are most of what is sent, and the channel is short"
)]
pub enum RuntimeChange {
    /// The status of a pod changed. Several changes may be one.
    Status(RuntimePod),
    /// An event of a pod, as a kubelet emits it.
    Event(PodEvent),
}

/// The sending half of the channel of a runtime.
pub type RuntimeChanges = mpsc::Sender<RuntimeChange>;

/// An event of a pod or of one of its containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodEvent {
    pub pod: PodId,
    /// `spec.containers{name}`, or empty for the pod itself.
    pub field_path: String,
    /// Whether the type is `Warning` rather than `Normal`.
    pub is_warning: bool,
    /// As the kubelet's: `Pulled`, `Created`, `Started`, `Unhealthy`, `BackOff`, `Killing` …
    pub reason: &'static str,
    pub message: String,
}

/// What containers read from the API server: values and files of their environment.
pub trait PodInputs: Send + Sync + 'static {
    /// Returns a ConfigMap, or `None` if there is none.
    fn config_map(&self, namespace: &str, name: &str) -> RuntimeFuture<'_, Option<Arc<ConfigMap>>>;

    /// Returns a Secret, or `None` if there is none.
    fn secret(&self, namespace: &str, name: &str) -> RuntimeFuture<'_, Option<Arc<Secret>>>;

    /// Returns a token of the pod's service account.
    fn service_account_token(&self, request: TokenRequest) -> RuntimeFuture<'_, ServiceToken>;

    /// Returns the services of a namespace as environment variables, as Docker links name them.
    fn service_environment(&self, namespace: &str) -> RuntimeFuture<'_, Vec<(String, String)>>;
}

/// A token to request for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRequest {
    pub pod: PodId,
    pub service_account: String,
    pub audiences: Vec<String>,
    pub expiration: Duration,
}

/// A token of a service account.
pub struct ServiceToken {
    pub token: String,
    /// When to request the next.
    pub renew_after: Duration,
}

/// Why a runtime did not do something.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The pod cannot run here, and never will: the pod fails with this reason.
    #[error("{message}")]
    Rejected {
        /// A reason in CamelCase, for the status of the pod.
        reason: &'static str,
        /// The explanation.
        message: String,
    },
    /// There is no such pod.
    #[error("pod {0} is not known to the runtime")]
    NotFound(PodKey),
    /// A failure that a retry may get over.
    #[error("{context}: {source}")]
    Failed {
        /// What failed.
        context: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}
