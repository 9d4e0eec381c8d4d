//! Pods: the summary that the server keeps, and the whole pod of which it is a part.

use std::sync::Arc;

use super::condition::Condition;
use super::container::{ContainerSpec, ContainerStatus};
use super::identity::{Identity, Uid};
use super::meta::ObjectMeta;
use crate::labels::Labels;
use crate::timestamp::Timestamp;

/// The fields of a pod that serving its usage needs. A server keeps up to 150,000 of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodSummary {
    pub identity: Identity,
    pub labels: Labels,
    /// The node that the pod is bound to.
    pub node: Option<Arc<str>>,
    pub phase: PodPhase,
}

/// A pod with the fields that its lifecycle can be reconstructed from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    pub summary: PodSummary,
    pub meta: ObjectMeta,
    /// The UID in the events of a static pod, of which this object is the mirror.
    pub static_uid: Option<Box<Uid>>,
    pub containers: Box<[ContainerSpec]>,
    /// In the order in which they run.
    pub init_containers: Box<[ContainerSpec]>,
    pub scheduling_gates: Box<[Arc<str>]>,
    /// Types of conditions that must be true before the pod is ready.
    pub readiness_gates: Box<[Arc<str>]>,
    pub priority_class: Option<Arc<str>>,
    pub runtime_class: Option<Arc<str>>,
    pub host_network: bool,
    /// Of containers that do not have one of their own.
    pub restart_policy: RestartPolicy,
    /// Whether all volumes are of kinds that need no storage to be attached: Secrets, `ConfigMaps`,
    /// empty directories, the downward API, and projections of these.
    pub stateless: bool,
    /// In the order of the API.
    pub conditions: Box<[Condition]>,
    pub container_statuses: Box<[ContainerStatus]>,
    pub init_container_statuses: Box<[ContainerStatus]>,
    pub ephemeral_container_statuses: Box<[ContainerStatus]>,
    /// The reason of the phase, such as `Evicted`.
    pub reason: Option<Arc<str>>,
    /// The reason of the phase as a sentence for people.
    pub message: Option<Arc<str>>,
    pub qos_class: Option<Arc<str>>,
    /// The state of an in-place resize as kubelets up to 1.32 report it; later ones use conditions.
    pub resize: Option<Arc<str>>,
    /// When the kubelet accepted the pod.
    pub started: Option<Timestamp>,
    pub pod_ip: Option<Arc<str>>,
    pub host_ip: Option<Arc<str>>,
}

/// The phase of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PodPhase {
    /// Not all containers have been started yet.
    Pending,
    /// At least one container runs, starts or restarts.
    Running,
    /// All containers terminated successfully and will not be restarted.
    Succeeded,
    /// All containers terminated, at least one of them in failure.
    Failed,
    /// The node is unreachable; also any phase that this program does not know.
    Unknown,
}

/// What the kubelet does when a container of a pod exits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum RestartPolicy {
    /// The default of the API.
    #[default]
    Always,
    OnFailure,
    Never,
}

/// A type that contains a [`PodSummary`], so that a consumer of summaries can share a reflector of
/// whole pods.
pub trait AsPodSummary: Send + Sync + 'static {
    fn summary(&self) -> &PodSummary;
}

impl Pod {
    /// The UID in its events: kubelets write that of the manifest file for static pods.
    pub fn event_uid(&self) -> &Uid {
        self.static_uid
            .as_deref()
            .unwrap_or(&self.summary.identity.uid)
    }
}

impl PodPhase {
    /// The text that the API uses.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }

    /// Whether the pod has ended and will not run again.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

impl From<&str> for PodPhase {
    fn from(text: &str) -> Self {
        match text {
            "Pending" => Self::Pending,
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ => Self::Unknown,
        }
    }
}

impl From<&str> for RestartPolicy {
    fn from(text: &str) -> Self {
        match text {
            "OnFailure" => Self::OnFailure,
            "Never" => Self::Never,
            _ => Self::Always,
        }
    }
}

impl AsPodSummary for PodSummary {
    fn summary(&self) -> &PodSummary {
        self
    }
}

impl AsPodSummary for Pod {
    fn summary(&self) -> &PodSummary {
        &self.summary
    }
}
