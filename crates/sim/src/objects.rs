//! What the two halves of the simulated cluster agree on: simulated controllers and kubelets write
//! objects, the simulated API server keeps and serves them.

use thiserror::Error;

mod text;

pub use text::ObjectText;

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

/// Where simulated controllers and kubelets write. Objects are complete JSON objects without
/// resourceVersion; the store stamps uid (if absent), creationTimestamp (if absent),
/// resourceVersion.
///
/// Writes are those of a trusted controller: nothing is defaulted or validated beyond names, and
/// `replace` overwrites whatever is there, status included.
pub trait ObjectWriter: Send + Sync {
    /// Adds an object, and returns the resourceVersion of the write.
    fn create(&self, resource: Resource, object: serde_json::Value) -> Result<u64, WriteError>;
    /// Replaces an object as a whole. Replacing by the same contents changes nothing.
    fn replace(&self, resource: Resource, object: serde_json::Value) -> Result<u64, WriteError>;
    /// [`ObjectWriter::create`] of an object that is text already, for what is written all the
    /// time.
    fn create_text(&self, resource: Resource, object: &ObjectText) -> Result<u64, WriteError> {
        self.create(resource, object.value(resource))
    }
    /// [`ObjectWriter::replace`] by an object that is text already.
    fn replace_text(&self, resource: Resource, object: &ObjectText) -> Result<u64, WriteError> {
        self.replace(resource, object.value(resource))
    }
    /// Removes an object at once, whatever its finalizers.
    fn delete(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<u64, WriteError>;
}

/// Why a write was refused.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WriteError {
    /// `create` of an object that exists.
    #[error("{resource:?} {key} already exists")]
    AlreadyExists {
        /// The resource.
        resource: Resource,
        /// `namespace/name`, or the name.
        key: String,
    },
    /// `replace` or `delete` of an object that does not exist.
    #[error("{resource:?} {key} not found")]
    NotFound {
        /// The resource.
        resource: Resource,
        /// `namespace/name`, or the name.
        key: String,
    },
    /// The object was changed since the caller read it.
    #[error("{resource:?} {key} was changed since it was read")]
    Conflict {
        /// The resource.
        resource: Resource,
        /// `namespace/name`, or the name.
        key: String,
    },
    /// The object cannot be stored.
    #[error("{resource:?} cannot be stored: {reason}")]
    Invalid {
        /// The resource.
        resource: Resource,
        /// What is wrong with it.
        reason: String,
    },
}

/// Where `kubectl logs` against the simulated API server gets its text from.
pub trait PodLogs: Send + Sync {
    /// The log of a container; `None` if there is no such pod or container.
    fn read(&self, request: &LogRequest<'_>) -> Option<String>;
}

/// Which log is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogRequest<'a> {
    /// The namespace of the pod.
    pub namespace: &'a str,
    /// The pod.
    pub pod: &'a str,
    /// The container; `None` for the only or default one.
    pub container: Option<&'a str>,
    /// The log of the container before its last restart.
    pub previous: bool,
    /// Only that many lines from the end.
    pub tail_lines: Option<u64>,
}
