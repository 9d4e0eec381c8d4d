//! The interface between the parts: simulated controllers and kubelets write objects, the simulated
//! API server stores and serves them.

use thiserror::Error;

mod text;

pub use text::ObjectText;

pub(crate) const TOPOLOGY_REGION: &str = "topology.kubernetes.io/region";
pub(crate) const TOPOLOGY_ZONE: &str = "topology.kubernetes.io/zone";

/// A resource that the simulated API server serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Resource {
    /// `v1` Node.
    Nodes,
    /// `v1` Pod.
    Pods,
    /// `v1` Event.
    Events,
    /// `v1` Namespace.
    Namespaces,
    /// `v1` Service.
    Services,
    /// `v1` Endpoints.
    Endpoints,
    /// `discovery.k8s.io/v1` `EndpointSlice`.
    EndpointSlices,
    /// `v1` `ConfigMap`.
    ConfigMaps,
    /// `v1` Secret.
    Secrets,
    /// `v1` `ServiceAccount`.
    ServiceAccounts,
    /// `apps/v1` `DaemonSet`.
    DaemonSets,
    /// `apps/v1` Deployment.
    Deployments,
    /// `apps/v1` `ReplicaSet`.
    ReplicaSets,
    /// `apps/v1` `StatefulSet`.
    StatefulSets,
    /// `batch/v1` Job.
    Jobs,
    /// `coordination.k8s.io/v1` Lease.
    Leases,
    /// `apiregistration.k8s.io/v1` `APIService`.
    ApiServices,
    /// `batch/v1` `CronJob`.
    CronJobs,
    /// `v1` `ReplicationController`.
    ReplicationControllers,
    /// `v1` `PersistentVolumeClaim`.
    PersistentVolumeClaims,
    /// `v1` `PersistentVolume`.
    PersistentVolumes,
    /// `v1` `ResourceQuota`.
    ResourceQuotas,
    /// `v1` `LimitRange`.
    LimitRanges,
}

/// Writes objects for simulated controllers and kubelets. Objects are complete JSON objects without
/// resourceVersion; the store sets uid (if absent), creationTimestamp (if absent) and
/// resourceVersion.
///
/// Writes are those of a trusted controller: nothing is defaulted or validated beyond names, and
/// `replace` overwrites the object, status included.
pub trait ObjectWriter: Send + Sync {
    /// Creates an object, and returns the resourceVersion of the write.
    fn create(&self, resource: Resource, object: serde_json::Value) -> Result<u64, WriteError>;
    /// Replaces a whole object. Replacing it with the same contents changes nothing.
    fn replace(&self, resource: Resource, object: serde_json::Value) -> Result<u64, WriteError>;
    /// [`ObjectWriter::create`] for an object that is already text, for frequent writes.
    fn create_text(&self, resource: Resource, object: &ObjectText) -> Result<u64, WriteError> {
        self.create(resource, object.value(resource))
    }
    /// [`ObjectWriter::replace`] for an object that is already text.
    fn replace_text(&self, resource: Resource, object: &ObjectText) -> Result<u64, WriteError> {
        self.replace(resource, object.value(resource))
    }
    /// Removes an object at once, regardless of finalizers.
    fn delete(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<u64, WriteError>;
}

/// An error of a write.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// `create` of an object that exists.
    #[error("{resource:?} {key} already exists")]
    AlreadyExists {
        resource: Resource,
        /// `namespace/name`, or the name.
        key: String,
    },
    /// `replace` or `delete` of an object that does not exist.
    #[error("{resource:?} {key} not found")]
    NotFound {
        resource: Resource,
        /// `namespace/name`, or the name.
        key: String,
    },
    /// The object has changed since the caller read it.
    #[error("{resource:?} {key} has changed since it was read")]
    Conflict {
        resource: Resource,
        /// `namespace/name`, or the name.
        key: String,
    },
    #[error("{resource:?} cannot be stored: {reason}")]
    Invalid { resource: Resource, reason: String },
}

/// Source of the text of `kubectl logs`.
pub trait PodLogs: Send + Sync {
    /// Returns the log of a container; `None` if the pod or container does not exist.
    fn read(&self, request: &LogRequest<'_>) -> Option<String>;
}

/// The log to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRequest<'a> {
    pub namespace: &'a str,
    pub pod: &'a str,
    /// `None` for the only or default container.
    pub container: Option<&'a str>,
    /// Whether to read the log of the previous run.
    pub previous: bool,
    /// Limit of lines from the end.
    pub tail_lines: Option<u64>,
}
