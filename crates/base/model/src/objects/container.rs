//! Containers of a pod: their spec and their status.

use std::sync::Arc;

use crate::timestamp::Timestamp;

/// A container in the spec of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSpec {
    pub name: Arc<str>,
    pub image: Option<Arc<str>>,
    /// Whether `restartPolicy` is `Always`: such an init container is a sidecar.
    pub restarts_always: bool,
    /// Without a startup probe a container has started as soon as it runs.
    pub has_startup_probe: bool,
    /// Without a readiness probe a container is ready as soon as it has started.
    pub has_readiness_probe: bool,
}

/// A container in the status of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerStatus {
    pub name: Arc<str>,
    /// The image that runs.
    pub image: Option<Arc<str>>,
    /// Whether its readiness probe passed, or for an init container whether it completed.
    pub ready: bool,
    /// Whether its startup probe passed.
    pub started: Option<bool>,
    pub restart_count: i32,
    pub state: ContainerState,
    /// The state before the last restart.
    pub last_state: ContainerState,
}

/// The state of a container.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ContainerState {
    /// Not reported yet.
    #[default]
    Unset,
    Waiting {
        reason: Option<Arc<str>>,
        message: Option<Arc<str>>,
    },
    Running {
        started_at: Option<Timestamp>,
    },
    /// Boxed: most containers never terminate.
    Terminated(Box<Termination>),
}

/// The details of a terminated container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Termination {
    pub exit_code: i32,
    pub signal: Option<i32>,
    pub reason: Option<Arc<str>>,
    pub message: Option<Arc<str>>,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
}
