//! The reason why a pod is not ready.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{
    Condition, ContainerSpec, ContainerState, ContainerStatus, Pod, PodPhase, RestartPolicy,
    Termination, Timestamp,
};

use crate::facts::ContainerFacts;
use crate::preparation::FailedPart;
use crate::record::{ContainerRecord, PodRecord};

/// A container that has run for this long is stable: the kubelet resets its back-off too, and would
/// restart it at once.
const STABLE_AFTER: Duration = Duration::from_mins(10);

/// The reason why a pod is not ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blocker {
    pub kind: BlockerKind,
    pub container: Option<Arc<str>>,
    /// The reason, as in the API: `ImagePullBackOff`.
    pub reason: Option<Arc<str>>,
    /// The human-readable message.
    pub message: Option<Arc<str>>,
}

/// The kind of a blocker, a closed set that may be the value of a label. Variants are in the order
/// of a start: of several containers, the one with the least kind is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum BlockerKind {
    /// A scheduling gate is not removed.
    Gated,
    /// The scheduler has not considered it yet.
    NotScheduled,
    /// No node fits.
    Unschedulable,
    /// No node fits, and an autoscaler adds one.
    Provisioning,
    /// The kubelet has not accepted it.
    NotAccepted,
    /// Volumes cannot be attached or mounted.
    Volumes,
    /// Sandbox, network or volumes are not ready, which cannot be told apart.
    Sandbox,
    /// The network cannot be set up.
    Network,
    /// An image cannot be pulled.
    ImagePullFailed,
    /// An image is being pulled.
    ImagePull,
    /// A container cannot be created or started.
    ContainerCreation,
    /// An init container is running.
    Init,
    /// An init container fails.
    InitFailed,
    /// A container crashes repeatedly.
    CrashLoop,
    /// A startup probe does not pass.
    StartupProbe,
    /// A readiness probe does not pass.
    ReadinessProbe,
    /// Another controller does not set the condition of a readiness gate.
    ReadinessGate,
    /// It, or one of its containers, completed before it was seen ready, as Jobs may.
    Succeeded,
    /// It failed, was evicted or was rejected by its node before it was seen ready.
    Failed,
    /// It was ready before it was observed; its state no longer has the time.
    Unseen,
}

impl BlockerKind {
    pub const ALL: [Self; 20] = [
        Self::Gated,
        Self::NotScheduled,
        Self::Unschedulable,
        Self::Provisioning,
        Self::NotAccepted,
        Self::Volumes,
        Self::Sandbox,
        Self::Network,
        Self::ImagePullFailed,
        Self::ImagePull,
        Self::ContainerCreation,
        Self::Init,
        Self::InitFailed,
        Self::CrashLoop,
        Self::StartupProbe,
        Self::ReadinessProbe,
        Self::ReadinessGate,
        Self::Succeeded,
        Self::Failed,
        Self::Unseen,
    ];

    /// The kind of a value in records.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// The value in records and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gated => "gated",
            Self::NotScheduled => "not_scheduled",
            Self::Unschedulable => "unschedulable",
            Self::Provisioning => "provisioning",
            Self::NotAccepted => "not_accepted",
            Self::Volumes => "volumes",
            Self::Sandbox => "sandbox",
            Self::Network => "network",
            Self::ImagePullFailed => "image_pull_failed",
            Self::ImagePull => "image_pull",
            Self::ContainerCreation => "container_creation",
            Self::Init => "init",
            Self::InitFailed => "init_failed",
            Self::CrashLoop => "crash_loop",
            Self::StartupProbe => "startup_probe",
            Self::ReadinessProbe => "readiness_probe",
            Self::ReadinessGate => "readiness_gate",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Unseen => "unseen",
        }
    }

    /// Whether the container that blocks has not run yet.
    pub(crate) const fn is_before_running(self) -> bool {
        matches!(
            self,
            Self::ImagePullFailed | Self::ImagePull | Self::ContainerCreation
        )
    }

    /// Whether a container failed, from which it may recover.
    pub(crate) const fn is_failure(self) -> bool {
        matches!(self, Self::InitFailed | Self::CrashLoop)
    }
}

impl Blocker {
    fn new(kind: BlockerKind) -> Self {
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

    /// Finds what keeps a pod in this state from being ready, in the order in which a pod starts.
    pub(crate) fn find(pod: &Pod, seen: Option<Timestamp>) -> Self {
        if pod.summary.phase.is_final() {
            return Self::of_ended(pod);
        }
        Self::scheduling_blocker(pod)
            .or_else(|| Self::sandbox_blocker(pod))
            .or_else(|| Self::init_blocker(pod, seen))
            .or_else(|| Self::containers_blocker(pod, seen))
            .unwrap_or_else(|| Self::readiness_gate_blocker(pod))
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
        match (pod.summary.phase, failed) {
            (PodPhase::Failed, Some((status, end))) if pod.reason.is_none() => {
                Self::of_failed(BlockerKind::Failed, status, end)
            }
            (PodPhase::Failed, _) => {
                Self::new(BlockerKind::Failed).because(pod.reason.as_ref(), pod.message.as_ref())
            }
            _ => {
                Self::new(BlockerKind::Succeeded).because(pod.reason.as_ref(), pod.message.as_ref())
            }
        }
    }

    fn scheduling_blocker(pod: &Pod) -> Option<Self> {
        let scheduled = Condition::find(&pod.conditions, "PodScheduled");
        if scheduled.is_some_and(Condition::is_true) || pod.summary.node.is_some() {
            return None;
        }
        if let Some(gate) = pod.scheduling_gates.first() {
            return Some(Self::new(BlockerKind::Gated).because(Some(gate), None));
        }
        Some(match scheduled {
            Some(condition) => Self::new(BlockerKind::Unschedulable)
                .because(condition.reason.as_ref(), condition.message.as_ref()),
            None => Self::new(BlockerKind::NotScheduled),
        })
    }

    fn sandbox_blocker(pod: &Pod) -> Option<Self> {
        if pod.started.is_none() && pod.container_statuses.is_empty() {
            return Some(Self::new(BlockerKind::NotAccepted));
        }
        let sandbox = Condition::find(&pod.conditions, "PodReadyToStartContainers")?;
        (!sandbox.is_true()).then(|| {
            Self::new(BlockerKind::Sandbox)
                .because(sandbox.reason.as_ref(), sandbox.message.as_ref())
        })
    }

    fn init_blocker(pod: &Pod, seen: Option<Timestamp>) -> Option<Self> {
        pod.init_containers.iter().find_map(|spec| {
            let status = status_of(&pod.init_container_statuses, spec)?;
            if spec.restarts_always {
                let has_started = status.started == Some(true);
                let policy = RestartPolicy::Always;
                return (!has_started).then(|| Self::container_blocker(spec, status, policy, seen));
            }
            match &status.state {
                ContainerState::Terminated(end) if end.exit_code == 0 => None,
                ContainerState::Terminated(end) => {
                    Some(Self::of_failed(BlockerKind::InitFailed, status, end))
                }
                // A completed one runs again when the pod gets another sandbox.
                ContainerState::Running { .. } => Some(match recent_termination(status, seen) {
                    Some(end) if end.exit_code != 0 => {
                        Self::of_failed(BlockerKind::InitFailed, status, end)
                    }
                    _ => Self::new(BlockerKind::Init).of(&status.name),
                }),
                _ => Some(Self::waiting_blocker(status, BlockerKind::InitFailed)),
            }
        })
    }

    fn containers_blocker(pod: &Pod, seen: Option<Timestamp>) -> Option<Self> {
        let sidecars = pod
            .init_containers
            .iter()
            .filter(|spec| spec.restarts_always)
            .filter_map(|spec| {
                let status = status_of(&pod.init_container_statuses, spec)?;
                Some((spec, status, RestartPolicy::Always))
            });
        let containers = pod.containers.iter().filter_map(|spec| {
            let status = status_of(&pod.container_statuses, spec)?;
            Some((spec, status, pod.restart_policy))
        });
        containers
            .chain(sidecars)
            .filter(|(_, status, _)| !status.ready)
            .map(|(spec, status, policy)| Self::container_blocker(spec, status, policy, seen))
            // A container that cannot be created or pulled says more than one that waits for its
            // probe.
            .min_by_key(|found| found.kind)
    }

    /// A container that runs between two failures is not blocked by its probe: whether it is
    /// observed while it runs or while it waits is chance.
    fn container_blocker(
        spec: &ContainerSpec,
        status: &ContainerStatus,
        policy: RestartPolicy,
        seen: Option<Timestamp>,
    ) -> Self {
        let is_starting = spec.has_startup_probe && status.started != Some(true);
        let is_running = matches!(status.state, ContainerState::Running { .. });
        let termination = match &status.state {
            ContainerState::Terminated(end) => Some(&**end),
            ContainerState::Running { .. } => recent_termination(status, seen),
            _ if is_backing_off(status) => last_termination(status),
            _ => None,
        };
        match termination {
            Some(end) if !is_running && end.exit_code == 0 && policy != RestartPolicy::Always => {
                Self::new(BlockerKind::Succeeded).of(&status.name)
            }
            Some(end) if !is_running && policy == RestartPolicy::Never => {
                Self::of_failed(BlockerKind::Failed, status, end)
            }
            // The kubelet kills a container that fails its startup probe, and restarts it.
            Some(end) if is_starting && was_killed(end) => {
                Self::new(BlockerKind::StartupProbe).of(&status.name)
            }
            Some(end) => Self::of_failed(BlockerKind::CrashLoop, status, end),
            None if is_running && is_starting => {
                Self::new(BlockerKind::StartupProbe).of(&status.name)
            }
            None if is_running => Self::new(BlockerKind::ReadinessProbe).of(&status.name),
            None => Self::waiting_blocker(status, BlockerKind::CrashLoop),
        }
    }

    /// `after_failure` is the kind of a container that waits for its restart.
    fn waiting_blocker(status: &ContainerStatus, after_failure: BlockerKind) -> Self {
        if is_backing_off(status)
            && let Some(end) = last_termination(status)
        {
            return Self::of_failed(after_failure, status, end);
        }
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
            ) => BlockerKind::ImagePullFailed,
            _ => BlockerKind::ContainerCreation,
        };
        Self::new(kind).because(reason, message).of(&status.name)
    }

    fn of_failed(kind: BlockerKind, status: &ContainerStatus, end: &Termination) -> Self {
        Self::new(kind)
            .because(end.reason.as_ref(), end.message.as_ref())
            .of(&status.name)
    }

    /// All containers are ready, but the pod is not.
    fn readiness_gate_blocker(pod: &Pod) -> Self {
        let closed = pod
            .readiness_gates
            .iter()
            .find(|gate| !Condition::find(&pod.conditions, gate).is_some_and(Condition::is_true));
        match closed {
            Some(gate) => {
                let condition = Condition::find(&pod.conditions, gate);
                let message = condition.and_then(|condition| condition.message.as_ref());
                Self::new(BlockerKind::ReadinessGate).because(Some(gate), message)
            }
            None => Self::new(BlockerKind::ReadinessProbe),
        }
    }
}

impl PodRecord {
    /// The reason why it is not ready, or was not until its deletion; `None` once it was ready.
    ///
    /// States and events arrive in any order, so that events are added here and not when a state
    /// arrives.
    pub fn blocker(&self) -> Option<Blocker> {
        self.state_blocker.clone().map(|found| self.refined(found))
    }

    /// Adds to the blocker in a state what only events say: the kubelet reports a container whose
    /// image it pulls as being created, and one that it kills for a probe as terminated.
    pub(crate) fn refined(&self, found: Blocker) -> Blocker {
        let is_waiting = match found.kind {
            BlockerKind::Sandbox => true,
            BlockerKind::ContainerCreation => matches!(
                found.reason.as_deref(),
                None | Some("ContainerCreating" | "PodInitializing")
            ),
            _ => false,
        };
        if is_waiting && let Some(container) = self.pulling() {
            return Blocker::new(BlockerKind::ImagePull).of(&container.name);
        }
        let mut volumes = self.facts.image_volumes();
        if is_waiting && volumes.any(|(_, pull)| pull.is_pending()) {
            return Blocker::new(BlockerKind::ImagePull);
        }
        // Kubelets up to 1.35 report the sandbox as not ready until all images are pulled.
        if found.kind == BlockerKind::Sandbox
            && self.sandbox_ready().is_some()
            && let Some(next) = self.containers.iter().find(|one| one.running.is_none())
        {
            return Blocker::new(BlockerKind::ContainerCreation).of(&next.name);
        }
        if is_waiting && self.sandbox_ready().is_none() {
            return self.refined_preparation(found);
        }
        if found.kind == BlockerKind::Unschedulable {
            return self.refined_scheduling(found);
        }
        if found.kind == BlockerKind::CrashLoop
            && let Some(name) = &found.container
            && self.is_killed_for_startup_probe(name)
        {
            return Blocker::new(BlockerKind::StartupProbe).of(name);
        }
        found
    }

    /// Names the part that failed last.
    fn refined_preparation(&self, found: Blocker) -> Blocker {
        let failed = self
            .facts
            .preparation()
            .and_then(|facts| Some((facts, facts.failed_last()?)));
        let Some((facts, part)) = failed else {
            return found;
        };
        let kind = match part {
            FailedPart::Volumes => BlockerKind::Volumes,
            FailedPart::Network => BlockerKind::Network,
            FailedPart::Sandbox => BlockerKind::Sandbox,
        };
        Blocker::new(kind).because(None, facts.failures(part).message.as_ref())
    }

    fn refined_scheduling(&self, found: Blocker) -> Blocker {
        let facts = self.facts.preparation().map(|facts| &facts.provisioning);
        match facts.filter(|facts| facts.is_under_way()) {
            Some(facts) => Blocker::new(BlockerKind::Provisioning)
                .because(found.reason.as_ref(), facts.message.as_ref()),
            None => found,
        }
    }

    /// The first container whose image is being pulled.
    fn pulling(&self) -> Option<&ContainerRecord> {
        self.containers.iter().find(|container| {
            let facts = self.facts_of(container);
            container.running.is_none() && facts.is_some_and(|facts| facts.pull.is_pending())
        })
    }

    fn is_killed_for_startup_probe(&self, name: &str) -> bool {
        let mut containers = self.containers.iter();
        let has_started = containers
            .find(|container| &*container.name == name)
            .is_some_and(|container| container.started.is_some());
        let facts = self.facts.of(name);
        !has_started && facts.is_some_and(ContainerFacts::was_killed_for_startup_probe)
    }
}

fn status_of<'s>(
    statuses: &'s [ContainerStatus],
    spec: &ContainerSpec,
) -> Option<&'s ContainerStatus> {
    statuses.iter().find(|status| status.name == spec.name)
}

/// Returns how the previous run of a running container ended, unless it has been stable since. Only
/// init containers are meant to end: for others, exit code 0 is a restart too.
fn recent_termination(status: &ContainerStatus, seen: Option<Timestamp>) -> Option<&Termination> {
    let (ContainerState::Running { started_at }, ContainerState::Terminated(end)) =
        (&status.state, &status.last_state)
    else {
        return None;
    };
    let ran = seen
        .zip(*started_at)
        .and_then(|(seen, since)| seen.since(since));
    let has_stayed_up = ran.is_some_and(|ran| ran >= STABLE_AFTER);
    (!has_stayed_up).then_some(end)
}

fn is_backing_off(status: &ContainerStatus) -> bool {
    matches!(&status.state, ContainerState::Waiting { reason: Some(reason), .. } if &**reason == "CrashLoopBackOff")
}

fn last_termination(status: &ContainerStatus) -> Option<&Termination> {
    match &status.last_state {
        ContainerState::Terminated(end) => Some(end),
        _ => None,
    }
}

/// Whether it was killed by a signal, but not for lack of memory.
fn was_killed(end: &Termination) -> bool {
    let by_signal = [128 + 9, 128 + 15].contains(&end.exit_code);
    by_signal && end.reason.as_deref() != Some("OOMKilled")
}
