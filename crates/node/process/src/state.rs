//! What a worker knows of its pod, as it is kept on disk.

use k8s_openapi::api::core::v1::{Container, Pod};
use serde::{Deserialize, Serialize};

use crate::backoff::CrashBackoff;
use crate::shim::record::ExitRecord;

/// The state of a pod.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct PodState {
    /// When the runtime accepted the pod.
    pub started_ms: i64,
    /// Init containers in the order of the specification, then the main containers.
    pub containers: Vec<ContainerState>,
    /// Set once the pod is to end, with the moment at which it is killed.
    pub termination: Option<Termination>,
    /// Why the pod failed as a whole, such as `DeadlineExceeded`.
    pub failure: Option<Failure>,
    /// Whether all processes have ended and none will be started again.
    pub is_terminated: bool,
    /// The last change of each condition.
    pub transitions: Vec<(String, String, i64)>,
}

/// The end of a pod that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Termination {
    pub deadline_ms: i64,
    /// The grace as it was asked for, for hooks.
    pub grace_seconds: u64,
}

/// The reason of a failed pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub reason: String,
    pub message: String,
}

/// What a container is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Role {
    Init,
    Sidecar,
    Main,
}

/// The state of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ContainerState {
    pub name: String,
    pub role: Role,
    pub restart_count: u32,
    pub phase: Phase,
    /// The newest end.
    pub ended: Option<Ended>,
    /// The one before.
    pub earlier: Option<Ended>,
    pub backoff: Option<CrashBackoff>,
}

/// Where a container is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Phase {
    /// Not started, or waiting to be started again. Without a reason it waits for its turn.
    Waiting(Option<Waiting>),
    /// Being started.
    Starting {
        id: String,
    },
    Running(Running),
    /// Ended, as `ended` says.
    Ended,
}

/// Why a container waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Waiting {
    pub reason: String,
    pub message: String,
}

/// A running container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Running {
    pub id: String,
    pub started_ms: i64,
    /// The startup probe has succeeded, or there is none, and the postStart hook is done.
    pub is_started: bool,
    pub is_ready: bool,
    /// The postStart hook is done.
    pub is_up: bool,
}

/// The end of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ended {
    pub id: String,
    pub code: i32,
    pub signal: Option<i32>,
    pub reason: String,
    pub message: Option<String>,
    pub started_ms: Option<i64>,
    pub finished_ms: i64,
}

impl PodState {
    /// The state of a pod that is new here.
    pub(crate) fn new(pod: &Pod, started_ms: i64) -> Self {
        let containers = containers(pod)
            .map(|(role, container)| ContainerState {
                name: container.name.clone(),
                role,
                restart_count: 0,
                phase: Phase::Waiting(None),
                ended: None,
                earlier: None,
                backoff: None,
            })
            .collect();
        Self {
            started_ms,
            containers,
            ..Self::default()
        }
    }
}

impl ContainerState {
    /// Records an end.
    pub(crate) fn end(&mut self, ended: Ended) {
        self.earlier = self.ended.replace(ended);
        self.phase = Phase::Ended;
    }

    /// The id of the present instance.
    pub(crate) fn current(&self) -> Option<&str> {
        match &self.phase {
            Phase::Starting { id } => Some(id),
            Phase::Running(running) => Some(&running.id),
            Phase::Waiting(_) | Phase::Ended => None,
        }
    }

    pub(crate) fn running(&self) -> Option<&Running> {
        match &self.phase {
            Phase::Running(running) => Some(running),
            _ => None,
        }
    }

    /// Whether it has run to its end with code 0.
    pub(crate) fn has_succeeded(&self) -> bool {
        matches!(self.phase, Phase::Ended) && self.ended.as_ref().is_some_and(|one| one.code == 0)
    }
}

impl Ended {
    /// The end that a shim recorded.
    pub(crate) fn from_record(id: &str, record: &ExitRecord, message: Option<String>) -> Self {
        let reason = match record {
            ExitRecord {
                start_error: Some(_),
                ..
            } => crate::status::START_ERROR,
            ExitRecord { oom: true, .. } => "OOMKilled",
            ExitRecord { code: 0, .. } => "Completed",
            _ => "Error",
        };
        Self {
            id: id.to_owned(),
            code: record.code,
            signal: record.signal,
            reason: reason.to_owned(),
            message: record.start_error.clone().or(message),
            started_ms: record.started_ms,
            finished_ms: record.finished_ms,
        }
    }

    /// The end of a container that is gone without a trace.
    pub(crate) fn unknown(id: &str, started_ms: Option<i64>, finished_ms: i64) -> Self {
        Self {
            id: id.to_owned(),
            code: 137,
            signal: None,
            reason: "ContainerStatusUnknown".to_owned(),
            message: Some(
                "The container could not be located when the pod was terminated".to_owned(),
            ),
            started_ms,
            finished_ms,
        }
    }
}

/// All containers of a pod: init containers first.
pub(crate) fn containers(pod: &Pod) -> impl Iterator<Item = (Role, &Container)> {
    let spec = pod.spec.as_ref();
    let inits = spec
        .into_iter()
        .flat_map(|spec| spec.init_containers.iter().flatten());
    let mains = spec.into_iter().flat_map(|spec| spec.containers.iter());
    inits
        .map(|one| {
            let is_sidecar = one.restart_policy.as_deref() == Some("Always");
            (
                if is_sidecar {
                    Role::Sidecar
                } else {
                    Role::Init
                },
                one,
            )
        })
        .chain(mains.map(|one| (Role::Main, one)))
}

/// A container by name.
pub(crate) fn container<'a>(pod: &'a Pod, name: &str) -> Option<(Role, &'a Container)> {
    containers(pod).find(|(_, one)| one.name == name)
}

/// When a container that has ended is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    /// The policy of a pod.
    pub(crate) fn of(pod: &Pod) -> Self {
        let policy = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.restart_policy.as_deref());
        Self::parse(policy)
    }

    fn parse(text: Option<&str>) -> Self {
        match text {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// Whether a container is started again after an exit code, by its own rules and policy first.
    pub(crate) fn restarts(self, container: &Container, role: Role, code: i32) -> bool {
        if role == Role::Sidecar {
            return true;
        }
        for rule in container.restart_policy_rules.iter().flatten() {
            let Some(codes) = &rule.exit_codes else {
                continue;
            };
            let is_in = codes.values.iter().flatten().any(|one| *one == code);
            let matches = match codes.operator.as_str() {
                "In" => is_in,
                "NotIn" => !is_in,
                _ => false,
            };
            if matches && code != 0 && rule.action == "Restart" {
                return true;
            }
        }
        let policy = match container.restart_policy.as_deref() {
            None => self,
            own => Self::parse(own),
        };
        match (policy, role) {
            // An init container that has succeeded is done.
            (Self::Always, Role::Init) | (Self::OnFailure, _) => code != 0,
            (Self::Always, _) => true,
            (Self::Never, _) => false,
        }
    }
}
