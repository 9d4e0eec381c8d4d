//! The life of a pod as far as it is known: what every exporter is given.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Pod, PodPhase, Timestamp};

use crate::facts::{ContainerFacts, Facts};
use crate::hindrance::Hindrance;
use crate::moment::Moment;

/// The life of one pod, told apart by its UID.
#[derive(Debug, Clone, PartialEq)]
pub struct PodRecord {
    /// Its last state: names, labels, owners, node.
    pub pod: Arc<Pod>,
    /// Whether it began before it was watched, so that part of this comes from what its state says
    /// of the past.
    pub reconstructed: bool,
    /// Whether it had been ready before it was watched, at a time that its state no longer says.
    /// What is ready again later says nothing about its start.
    pub was_ready_before: bool,
    /// When what the whole pod passes through was passed.
    pub milestones: Milestones,
    /// When the conditions that its readiness gates ask for first held, in the order of the gates.
    pub gates: Box<[Option<Moment>]>,
    /// Its init containers and then its containers, in the order of the pod.
    pub containers: Box<[ContainerRecord]>,
    /// What events said of it.
    pub facts: Facts,
    /// Why it could not be scheduled at first.
    pub unschedulable: Option<Unschedulable>,
    /// That something is to end it: preemption, eviction, a drain.
    pub disruption: Option<Disruption>,
    /// What became of in-place changes of its resources.
    pub resize: Option<Resize>,
    /// What keeps it from being ready, or kept it while it was wanted; none once it was ready.
    pub hindrance: Option<Hindrance>,
    /// How it ended.
    pub end: End,
    /// The newest time that its states have shown.
    pub latest: Option<Timestamp>,
}

/// When the whole pod passed what it passes through. Each is the first time, and stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Milestones {
    /// It was created.
    pub created: Moment,
    /// It was seen to be held back by scheduling gates.
    pub gated: Option<Moment>,
    /// The last of its scheduling gates was lifted; the API has no time for it.
    pub ungated: Option<Moment>,
    /// It was bound to a node.
    pub scheduled: Option<Moment>,
    /// The node's kubelet took it on.
    pub accepted: Option<Moment>,
    /// Its sandbox and network were there (`PodReadyToStartContainers`).
    pub sandbox: Option<Moment>,
    /// Its init containers were done, and its sidecars had started.
    pub initialized: Option<Moment>,
    /// All containers were ready.
    pub containers_ready: Option<Moment>,
    /// It was ready, its readiness gates included.
    pub ready: Option<Moment>,
    /// Its deletion was asked for.
    pub deletion: Option<Moment>,
    /// Its last container ended, for good.
    pub stopped: Option<Moment>,
    /// It was removed. The API states a time only where nothing was left to wait for.
    pub gone: Option<Moment>,
}

/// What became of one container.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerRecord {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it is there to prepare, to accompany or to do the work.
    pub role: ContainerRole,
    /// The image asked for.
    pub image: Option<Arc<str>>,
    /// It first ran.
    pub running: Option<Moment>,
    /// Its startup probe first passed; without one, it first ran.
    pub started: Option<Moment>,
    /// It was first ready; an init container, that it ended well.
    pub ready: Option<Moment>,
    /// It last ended.
    pub finished: Option<Moment>,
    /// How it last ended.
    pub last_exit: Option<Exit>,
    /// How often it was restarted.
    pub restarts: i32,
    /// How long it was down between the runs of which both ends were seen.
    pub down: Duration,
    /// How many times that was.
    pub downs: u32,
    /// More about its restarts, if there were any.
    pub restart_log: Option<Box<RestartLog>>,
}

/// What is known of restarts, of which most containers have none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestartLog {
    /// How long it was down each of the first times, 32 at most: by then a kubelet's back-off no
    /// longer changes.
    pub first_downs: Vec<Duration>,
    /// How often it was restarted after which kind of end. Ends that nobody saw count as the one
    /// after them.
    pub after: Vec<(ExitKind, u32)>,
}

/// What a container is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ContainerRole {
    /// Prepares, and ends before the next begins.
    Init,
    /// A restartable init container: starts before the others and accompanies them.
    Sidecar,
    /// Does the work.
    Main,
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    /// The exit status of its process.
    pub code: i32,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Why, as one word: `OOMKilled`.
    pub reason: Option<Arc<str>>,
}

/// What kinds of ends of containers there are: few enough to be the value of a label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ExitKind {
    /// It ended well, and was to run for ever.
    Completed,
    /// It ended badly.
    Error,
    /// It was killed for lack of memory.
    OomKilled,
    /// It could not be started.
    StartError,
    /// Nobody knows: the runtime lost sight of it.
    Unknown,
    /// Any other reason that a kubelet or a runtime states.
    Other,
}

/// That the scheduler found no node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unschedulable {
    /// Since when.
    pub since: Moment,
    /// Why, as it last said.
    pub message: Option<Arc<str>>,
}

/// That something is to end a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disruption {
    /// Since when.
    pub since: Moment,
    /// Why, as one word: `PreemptionByScheduler`.
    pub reason: Option<Arc<str>>,
}

/// In-place changes of resources.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resize {
    /// How many were seen to begin.
    pub count: u32,
    /// When the last began.
    pub began: Moment,
    /// When the last was over; the API has no time for it.
    pub over: Option<Moment>,
    /// Why the last waits or waited, as one word: `Deferred`, `Infeasible`.
    pub reason: Option<Arc<str>>,
}

/// How the life of a pod ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum End {
    /// It has not, as far as is known.
    Open,
    /// It was deleted.
    Deleted,
    /// It was missing after a gap in the stream: when it went, and how far it came, was not seen.
    Vanished,
}

impl PodRecord {
    /// Whether it was seen to become ready.
    pub fn is_complete(&self) -> bool {
        self.milestones.ready.is_some()
    }

    /// Whether its start is decided: it was ready, or can no longer be seen to become ready.
    pub fn is_settled(&self) -> bool {
        self.is_complete() || self.is_over() || self.was_ready_before
    }

    /// Whether nothing can make it ready any more.
    pub fn is_over(&self) -> bool {
        self.end != End::Open || self.pod.summary.phase.is_final()
    }

    /// How far it came, as the API says.
    pub fn phase(&self) -> PodPhase {
        self.pod.summary.phase
    }

    /// What events said of a container.
    pub fn facts_of(&self, container: &ContainerRecord) -> Option<&ContainerFacts> {
        self.facts.of(&container.name)
    }

    /// Whether two hosts disagree on the time: what followed is stated to have been before.
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
        reached.any(|moment| {
            let is_before = moment.is_before(earlier);
            earlier = moment;
            is_before
        })
    }
}

impl ContainerRole {
    /// In one word.
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
    /// Every kind.
    pub const ALL: [Self; 6] = [
        Self::Completed,
        Self::Error,
        Self::OomKilled,
        Self::StartError,
        Self::Unknown,
        Self::Other,
    ];

    /// As it stands in labels: the word of the API where there is one.
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

    /// Which kind a reason of the API is of.
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
    /// In one word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Deleted => "deleted",
            Self::Vanished => "vanished",
        }
    }
}
