//! What keeps a pod from being ready.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{
    Condition, ContainerSpec, ContainerState, ContainerStatus, Pod, PodPhase, Termination,
    Timestamp,
};

/// A container that has run for so long stays up: the kubelet forgets its failures too, and would
/// restart it at once.
const STAYS_UP_AFTER: Duration = Duration::from_mins(10);

/// What keeps a pod from being ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hindrance {
    /// Of which kind it is.
    pub kind: HindranceKind,
    /// The container that it concerns.
    pub container: Option<Arc<str>>,
    /// Why, as one word of the API: `ImagePullBackOff`.
    pub reason: Option<Arc<str>>,
    /// Why, for people.
    pub message: Option<Arc<str>>,
}

/// What kinds of hindrances there are: few enough to be the value of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HindranceKind {
    /// A scheduling gate is not lifted.
    Gated,
    /// The scheduler has not looked at it yet.
    NotScheduled,
    /// No node can take it.
    Unschedulable,
    /// The kubelet of its node has not taken it on.
    NotAccepted,
    /// Sandbox, network or volumes are not there.
    Sandbox,
    /// An image cannot be pulled.
    ImagePull,
    /// A container cannot be made or started.
    ContainerCreation,
    /// An init container runs.
    Init,
    /// An init container ends badly.
    InitFailed,
    /// A container ends again and again.
    CrashLoop,
    /// A startup probe does not pass.
    StartupProbe,
    /// A readiness probe does not pass.
    ReadinessProbe,
    /// Another controller does not set the condition of a readiness gate.
    ReadinessGate,
    /// It ended before it was seen to be ready, as Jobs may.
    Ended,
    /// It was ready once, but nobody watched and its state no longer says when.
    Unseen,
}

impl HindranceKind {
    /// As it stands in records and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gated => "gated",
            Self::NotScheduled => "not_scheduled",
            Self::Unschedulable => "unschedulable",
            Self::NotAccepted => "not_accepted",
            Self::Sandbox => "sandbox",
            Self::ImagePull => "image_pull",
            Self::ContainerCreation => "container_creation",
            Self::Init => "init",
            Self::InitFailed => "init_failed",
            Self::CrashLoop => "crash_loop",
            Self::StartupProbe => "startup_probe",
            Self::ReadinessProbe => "readiness_probe",
            Self::ReadinessGate => "readiness_gate",
            Self::Ended => "ended",
            Self::Unseen => "unseen",
        }
    }

    /// Whether a container ended badly, which it may leave behind by staying up.
    pub(crate) const fn is_failure(self) -> bool {
        matches!(self, Self::InitFailed | Self::CrashLoop)
    }
}

impl Hindrance {
    fn new(kind: HindranceKind) -> Self {
        Self {
            kind,
            container: None,
            reason: None,
            message: None,
        }
    }

    fn because(mut self, reason: Option<&Arc<str>>, message: Option<&Arc<str>>) -> Self {
        self.reason = reason.cloned();
        self.message = message.cloned();
        self
    }

    fn of(mut self, container: &Arc<str>) -> Self {
        self.container = Some(Arc::clone(container));
        self
    }

    /// What keeps this state of a pod, seen at a time, from being ready, looked for in the order in
    /// which a pod starts.
    pub(crate) fn find(pod: &Pod, seen: Option<Timestamp>) -> Self {
        if pod.summary.phase.is_final() {
            return Self::of_ended(pod);
        }
        Self::before_the_node(pod)
            .or_else(|| Self::before_containers(pod))
            .or_else(|| Self::in_init_containers(pod, seen))
            .or_else(|| Self::in_containers(pod, seen))
            .unwrap_or_else(|| Self::at_the_gates(pod))
    }

    fn of_ended(pod: &Pod) -> Self {
        let failed = pod
            .init_container_statuses
            .iter()
            .chain(&pod.container_statuses)
            .find_map(|status| match &status.state {
                ContainerState::Terminated(end) if end.exit_code != 0 => Some((status, end)),
                _ => None,
            });
        let ended = Self::new(HindranceKind::Ended);
        match (pod.summary.phase, failed) {
            (PodPhase::Failed, Some((status, end))) if pod.reason.is_none() => ended
                .because(end.reason.as_ref(), end.message.as_ref())
                .of(&status.name),
            _ => ended.because(pod.reason.as_ref(), pod.message.as_ref()),
        }
    }

    fn before_the_node(pod: &Pod) -> Option<Self> {
        let scheduled = Condition::find(&pod.conditions, "PodScheduled");
        if scheduled.is_some_and(Condition::is_true) || pod.summary.node.is_some() {
            return None;
        }
        if let Some(gate) = pod.scheduling_gates.first() {
            return Some(Self::new(HindranceKind::Gated).because(Some(gate), None));
        }
        Some(match scheduled {
            Some(condition) => Self::new(HindranceKind::Unschedulable)
                .because(condition.reason.as_ref(), condition.message.as_ref()),
            None => Self::new(HindranceKind::NotScheduled),
        })
    }

    fn before_containers(pod: &Pod) -> Option<Self> {
        if pod.started.is_none() && pod.container_statuses.is_empty() {
            return Some(Self::new(HindranceKind::NotAccepted));
        }
        let sandbox = Condition::find(&pod.conditions, "PodReadyToStartContainers")?;
        (!sandbox.is_true()).then(|| {
            Self::new(HindranceKind::Sandbox)
                .because(sandbox.reason.as_ref(), sandbox.message.as_ref())
        })
    }

    fn in_init_containers(pod: &Pod, seen: Option<Timestamp>) -> Option<Self> {
        pod.init_containers.iter().find_map(|spec| {
            let status = status_of(&pod.init_container_statuses, spec)?;
            if spec.restarts_always {
                let has_started = status.started == Some(true);
                return (!has_started).then(|| Self::in_container(spec, status, seen));
            }
            match &status.state {
                ContainerState::Terminated(end) if end.exit_code == 0 => None,
                ContainerState::Terminated(end) => {
                    Some(Self::of_failed(HindranceKind::InitFailed, status, end))
                }
                // One that ended well runs again where the pod got another sandbox.
                ContainerState::Running { .. } => Some(match failed_lately(status, seen) {
                    Some(end) if end.exit_code != 0 => {
                        Self::of_failed(HindranceKind::InitFailed, status, end)
                    }
                    _ => Self::new(HindranceKind::Init).of(&status.name),
                }),
                _ => Some(Self::in_waiting(status, HindranceKind::InitFailed)),
            }
        })
    }

    fn in_containers(pod: &Pod, seen: Option<Timestamp>) -> Option<Self> {
        let sidecars = pod
            .init_containers
            .iter()
            .filter(|spec| spec.restarts_always)
            .filter_map(|spec| Some((spec, status_of(&pod.init_container_statuses, spec)?)));
        let containers = pod
            .containers
            .iter()
            .filter_map(|spec| Some((spec, status_of(&pod.container_statuses, spec)?)));
        containers
            .chain(sidecars)
            .filter(|(_, status)| !status.ready)
            .map(|(spec, status)| Self::in_container(spec, status, seen))
            // One that cannot be made or pulled says more than another that merely waits for its
            // probe.
            .min_by_key(|found| found.kind)
    }

    /// One that runs between two failures is not kept by its probe: whether it is looked at while
    /// it runs or while it waits is chance.
    fn in_container(
        spec: &ContainerSpec,
        status: &ContainerStatus,
        seen: Option<Timestamp>,
    ) -> Self {
        let is_starting = spec.has_startup_probe && status.started != Some(true);
        match (&status.state, failed_lately(status, seen)) {
            // The kubelet kills what does not pass its startup probe, and begins anew.
            (ContainerState::Running { .. }, Some(end)) if !(is_starting && was_killed(end)) => {
                Self::of_failed(HindranceKind::CrashLoop, status, end)
            }
            (ContainerState::Running { .. }, _) if is_starting => {
                Self::new(HindranceKind::StartupProbe).of(&status.name)
            }
            (ContainerState::Running { .. }, _) => {
                Self::new(HindranceKind::ReadinessProbe).of(&status.name)
            }
            (ContainerState::Terminated(end), _) => {
                Self::of_failed(HindranceKind::CrashLoop, status, end)
            }
            _ => Self::in_waiting(status, HindranceKind::CrashLoop),
        }
    }

    /// `after_failure` is what it means if it waits to be run again.
    fn in_waiting(status: &ContainerStatus, after_failure: HindranceKind) -> Self {
        let (reason, message) = match &status.state {
            ContainerState::Waiting { reason, message } => (reason.as_ref(), message.as_ref()),
            _ => (None, None),
        };
        let kind = match reason.map(|reason| &**reason) {
            Some("CrashLoopBackOff") => after_failure,
            Some(
                "ErrImagePull"
                | "ImagePullBackOff"
                | "InvalidImageName"
                | "ErrImageNeverPull"
                | "ImageInspectError"
                | "RegistryUnavailable"
                | "SignatureValidationFailed",
            ) => HindranceKind::ImagePull,
            _ => HindranceKind::ContainerCreation,
        };
        Self::new(kind).because(reason, message).of(&status.name)
    }

    fn of_failed(kind: HindranceKind, status: &ContainerStatus, end: &Termination) -> Self {
        Self::new(kind)
            .because(end.reason.as_ref(), end.message.as_ref())
            .of(&status.name)
    }

    /// All containers are ready and the pod is not.
    fn at_the_gates(pod: &Pod) -> Self {
        let closed = pod
            .readiness_gates
            .iter()
            .find(|gate| !Condition::find(&pod.conditions, gate).is_some_and(Condition::is_true));
        match closed {
            Some(gate) => {
                let condition = Condition::find(&pod.conditions, gate);
                let message = condition.and_then(|condition| condition.message.as_ref());
                Self::new(HindranceKind::ReadinessGate).because(Some(gate), message)
            }
            None => Self::new(HindranceKind::ReadinessProbe),
        }
    }
}

fn status_of<'s>(
    statuses: &'s [ContainerStatus],
    spec: &ContainerSpec,
) -> Option<&'s ContainerStatus> {
    statuses.iter().find(|status| status.name == spec.name)
}

/// How a container that runs ended before, unless it has stayed up since.
fn failed_lately(status: &ContainerStatus, seen: Option<Timestamp>) -> Option<&Termination> {
    let (ContainerState::Running { started_at }, ContainerState::Terminated(end)) =
        (&status.state, &status.last_state)
    else {
        return None;
    };
    let ran = seen
        .zip(*started_at)
        .and_then(|(seen, since)| seen.since(since));
    let has_stayed_up = ran.is_some_and(|ran| ran >= STAYS_UP_AFTER);
    (!has_stayed_up).then_some(end)
}

/// Whether it did not end by itself, nor for want of memory.
fn was_killed(end: &Termination) -> bool {
    let by_signal = [128 + 9, 128 + 15].contains(&end.exit_code);
    by_signal && end.reason.as_deref() != Some("OOMKilled")
}
