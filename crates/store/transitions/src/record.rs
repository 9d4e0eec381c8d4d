//! The record of a pod: what exporters receive.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Pod, PodPhase, Timestamp};

use crate::blocker::Blocker;
use crate::facts::{ContainerFacts, Facts, Pull, PullTarget};
use crate::moment::Moment;

/// The lifecycle of one pod, by UID.
#[derive(Debug, Clone, PartialEq)]
pub struct PodRecord {
    /// The last state: names, labels, owners, node.
    pub pod: Arc<Pod>,
    /// Whether it was created before it was observed, so that parts are reconstructed from its
    /// state.
    pub reconstructed: bool,
    /// Whether it was ready before it was observed, at a time that its state no longer has. Later
    /// readiness says nothing about its start.
    pub was_ready_before: bool,
    pub milestones: Milestones,
    /// When the conditions of its readiness gates were first true, in the order of the gates.
    pub gates: Box<[Option<Moment>]>,
    /// Init containers and then containers, in the order of the spec.
    pub containers: Box<[ContainerRecord]>,
    /// Facts from events.
    pub facts: Facts,
    pub unschedulable: Option<Unschedulable>,
    /// The creation of its node, where nodes were read.
    pub node_created: Option<Timestamp>,
    /// Preemption, eviction or a drain.
    pub disruption: Option<Disruption>,
    /// In-place changes of its resources.
    pub resize: Option<Resize>,
    /// What its states say about why it is not ready, or was not until its deletion; `None` once
    /// it was ready. [`blocker`](Self::blocker) adds what events say.
    pub(crate) state_blocker: Option<Blocker>,
    pub end: End,
    /// The newest time in its states.
    pub latest: Option<Timestamp>,
}

/// The milestones of the whole pod. Each is the first time, and stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Milestones {
    /// It was created.
    pub created: Moment,
    /// First seen with scheduling gates.
    pub gated: Option<Moment>,
    /// The last scheduling gate was removed; the API has no time for it.
    pub ungated: Option<Moment>,
    /// It was bound to a node.
    pub scheduled: Option<Moment>,
    /// The kubelet accepted it (`status.startTime`).
    pub accepted: Option<Moment>,
    /// Sandbox and network were ready (`PodReadyToStartContainers`).
    pub sandbox: Option<Moment>,
    /// Its init containers were done, and its sidecars had started.
    pub initialized: Option<Moment>,
    /// All containers were ready.
    pub containers_ready: Option<Moment>,
    /// It was ready, its readiness gates included.
    pub ready: Option<Moment>,
    /// Its deletion was requested.
    pub deletion: Option<Moment>,
    /// Its last container ended, for good.
    pub stopped: Option<Moment>,
    /// It was removed. The API has a time only where nothing was left to wait for.
    pub gone: Option<Moment>,
}

/// The record of one container.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerRecord {
    pub name: Arc<str>,
    pub role: ContainerRole,
    /// The image of the spec.
    pub image: Option<Arc<str>>,
    /// It first ran.
    pub running: Option<Moment>,
    /// Its startup probe first passed; without one, it first ran.
    pub started: Option<Moment>,
    /// It was first ready; for an init container, it completed.
    pub ready: Option<Moment>,
    /// It last ended.
    pub finished: Option<Moment>,
    /// The exit of its last run.
    pub last_exit: Option<Exit>,
    pub restarts: i32,
    /// The time it was down, between runs of which both ends were seen.
    pub down: Duration,
    /// The number of these times.
    pub downs: u32,
    pub restart_log: Option<Box<RestartLog>>,
}

/// Details of restarts, which most containers do not have.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestartLog {
    /// The first downtimes, 32 at most: by then a kubelet's back-off no longer grows.
    pub first_downs: Vec<Duration>,
    /// The number of restarts by kind of exit. Exits that were not seen count as the one after
    /// them.
    pub after: Vec<(ExitKind, u32)>,
    /// The restarts before the container was first ready, if it was ready after one.
    pub before_ready: Option<RestartsBeforeReady>,
}

/// The restarts of a container before it was first ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartsBeforeReady {
    pub restarts: i32,
    /// The start of the run in which it was first ready.
    pub run: Moment,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContainerRole {
    /// Completes before the next starts.
    Init,
    /// A restartable init container.
    Sidecar,
    Main,
}

/// The exit of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    pub code: i32,
    pub signal: Option<i32>,
    /// The reason, as in the API: `OOMKilled`.
    pub reason: Option<Arc<str>>,
}

/// The kind of an exit, a closed set that may be the value of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExitKind {
    /// Exit code 0, of a container that should keep running.
    Completed,
    /// Another exit code.
    Error,
    /// It was killed for lack of memory.
    OomKilled,
    /// It could not be started.
    StartError,
    /// Unknown: the runtime lost the container.
    Unknown,
    /// Any other reason.
    Other,
}

/// The scheduler found no node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unschedulable {
    pub since: Moment,
    /// The last message of the scheduler.
    pub message: Option<Arc<str>>,
}

/// The pod is being disrupted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disruption {
    pub since: Moment,
    /// The reason, as in the API: `PreemptionByScheduler`.
    pub reason: Option<Arc<str>>,
    /// The human-readable message.
    pub message: Option<Arc<str>>,
}

/// In-place changes of resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resize {
    /// The number of resizes seen.
    pub count: u32,
    /// The start of the last.
    pub began: Moment,
    /// The end of the last; the API has no time for it.
    pub over: Option<Moment>,
    /// The reason why the last waits or waited: `Deferred`, `Infeasible`.
    pub reason: Option<Arc<str>>,
}

/// The end of a lifecycle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// Not ended yet.
    Open,
    /// It was deleted.
    Deleted,
    /// Missing after a gap in the watch: its last states were not seen.
    Vanished,
    /// It no longer matches the selector of the watch, and still exists.
    Unselected,
}

impl PodRecord {
    /// Whether it was seen to become ready.
    pub fn is_complete(&self) -> bool {
        self.milestones.ready.is_some()
    }

    /// Whether its start is decided: it was ready, or will not be seen to become ready.
    pub fn is_settled(&self) -> bool {
        self.is_complete() || self.is_over() || self.was_ready_before
    }

    /// Whether it can no longer become ready.
    pub fn is_over(&self) -> bool {
        self.end != End::Open || self.pod.summary.phase.is_final()
    }

    pub fn phase(&self) -> PodPhase {
        self.pod.summary.phase
    }

    /// The facts of a container.
    pub fn facts_of(&self, container: &ContainerRecord) -> Option<&ContainerFacts> {
        self.facts.of(&container.name)
    }

    /// The known pulls of its images: of its containers in order, and of its volumes.
    pub fn pulls(&self) -> impl Iterator<Item = (PullTarget, &Pull)> {
        let containers = self.containers.iter().filter_map(|container| {
            let facts = self.facts_of(container)?;
            let target = PullTarget::Container(Arc::clone(&container.name));
            Some((target, &facts.pull))
        });
        let volumes = self.facts.image_volumes();
        let volumes = volumes.map(|(image, pull)| (PullTarget::Volume(Arc::clone(image)), pull));
        containers.chain(volumes)
    }

    /// Whether clocks of two hosts disagree: by what was observed, or because a milestone has an
    /// earlier time than the one before.
    pub fn is_skewed(&self) -> bool {
        let Milestones {
            created,
            scheduled,
            sandbox,
            ready,
            ..
        } = self.milestones;
        let mut reached = [Some(created), scheduled, sandbox, ready]
            .into_iter()
            .flatten();
        let mut earlier = created;
        let is_out_of_order = reached.any(|moment| {
            let is_before = moment.is_before(earlier);
            earlier = moment;
            is_before
        });
        // The mirror of a static pod may be created after the pod runs.
        let is_mirror = self.pod.static_uid.is_some();
        (is_out_of_order && !is_mirror) || self.timeline().is_skewed()
    }

    /// Sandbox and network were ready: by the condition, or earlier.
    ///
    /// Kubelets up to 1.35 set the condition after the image pull. A pull and a container need the
    /// sandbox, so that it was ready when the first of them began.
    pub fn sandbox_ready(&self) -> Option<Moment> {
        let pulls = self.pulls().filter_map(|(_, pull)| {
            let present = pull.done.as_ref().map(|done| done.at);
            let api = [pull.began, present].into_iter().flatten().min();
            Some(Moment {
                api: Some(api?),
                observed: None,
            })
        });
        let Some(condition) = self.milestones.sandbox else {
            return pulls.min_by_key(|moment| moment.api);
        };
        let runs = self.containers.iter().filter_map(|one| one.running);
        let earlier = pulls
            .chain(runs)
            .filter(|moment| moment.is_before(condition));
        earlier.min_by_key(|moment| moment.api).or(Some(condition))
    }
}

impl ContainerRecord {
    /// The restarts before it was first ready, if there were any.
    pub fn restarts_before_ready(&self) -> Option<RestartsBeforeReady> {
        self.restart_log.as_ref()?.before_ready
    }

    /// Whether it started at a time that is not known: a state has none for a startup probe that
    /// has passed.
    pub(crate) fn is_start_unknown(&self) -> bool {
        self.started.is_some_and(|started| started.best().is_none())
    }
}

impl ContainerRole {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Init => "init",
            Self::Sidecar => "sidecar",
            Self::Main => "main",
        }
    }

    /// Whether the pod lists it among its init containers.
    pub const fn is_init(self) -> bool {
        matches!(self, Self::Init | Self::Sidecar)
    }
}

impl ExitKind {
    pub const ALL: [Self; 6] = [
        Self::Completed,
        Self::Error,
        Self::OomKilled,
        Self::StartError,
        Self::Unknown,
        Self::Other,
    ];

    /// The value of labels, as in the API where it has one.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "Completed",
            Self::Error => "Error",
            Self::OomKilled => "OOMKilled",
            Self::StartError => "StartError",
            Self::Unknown => "Unknown",
            Self::Other => "Other",
        }
    }

    /// The kind of a reason of the API.
    pub fn of(reason: Option<&str>) -> Self {
        match reason {
            Some("Completed") => Self::Completed,
            Some("Error") => Self::Error,
            Some("OOMKilled") => Self::OomKilled,
            Some("StartError" | "ContainerCannotRun") => Self::StartError,
            Some("ContainerStatusUnknown" | "") | None => Self::Unknown,
            Some(_) => Self::Other,
        }
    }
}

impl End {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Deleted => "deleted",
            Self::Vanished => "vanished",
            Self::Unselected => "unselected",
        }
    }
}
