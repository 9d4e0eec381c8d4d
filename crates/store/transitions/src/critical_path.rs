//! The critical path from creation to ready, cut into segments.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::Timestamp;

use crate::blocker::{Blocker, BlockerKind};
use crate::moment::Moment;
use crate::record::{ContainerRecord, ContainerRole, PodRecord};
use crate::timeline::Timeline;

/// A segment of the critical path. Segments follow one another without a gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    pub phase: Phase,
    pub container: Option<Arc<str>>,
    pub from: Timestamp,
    pub to: Timestamp,
    /// Whether it completed; the last segment of a pod that never became ready did not.
    pub is_done: bool,
}

/// A phase of a start: the step that the pod waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// A scheduling gate.
    Gated,
    /// A node.
    Scheduling,
    /// A node that an autoscaler adds.
    Provisioning,
    /// Volumes that are attached and mounted.
    Volumes,
    /// Sandbox, network and volumes, which cannot be told apart.
    Sandbox,
    /// The network of the node or of the sandbox.
    Network,
    /// An image whose pulls fail.
    ImagePullFailed,
    /// An image.
    ImagePull,
    /// A container to be created and started.
    ContainerStart,
    /// An init container to finish.
    Init,
    /// A startup probe.
    StartupProbe,
    /// A readiness probe.
    Readiness,
    /// A condition that another controller sets.
    ReadinessGates,
    /// A container that crashes repeatedly.
    CrashLoop,
    /// Unknown.
    Unknown,
}

/// Collects segments.
struct PathBuilder {
    segments: Vec<Segment>,
    /// The end of the last segment.
    at: Timestamp,
    /// The end of the path.
    limit: Option<Timestamp>,
    timeline: Timeline,
}

impl Phase {
    pub const ALL: [Self; 15] = [
        Self::Gated,
        Self::Scheduling,
        Self::Provisioning,
        Self::Volumes,
        Self::Sandbox,
        Self::Network,
        Self::ImagePullFailed,
        Self::ImagePull,
        Self::ContainerStart,
        Self::Init,
        Self::StartupProbe,
        Self::Readiness,
        Self::ReadinessGates,
        Self::CrashLoop,
        Self::Unknown,
    ];

    /// The value in records and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Gated => "gated",
            Self::Scheduling => "scheduling",
            Self::Provisioning => "provisioning",
            Self::Volumes => "volumes",
            Self::Sandbox => "sandbox",
            Self::Network => "network",
            Self::ImagePullFailed => "image_pull_failed",
            Self::ImagePull => "image_pull",
            Self::ContainerStart => "container_start",
            Self::Init => "init",
            Self::StartupProbe => "startup_probe",
            Self::Readiness => "readiness",
            Self::ReadinessGates => "readiness_gates",
            Self::CrashLoop => "crash_loop",
            Self::Unknown => "unknown",
        }
    }

    /// The phase of a value in records.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == name)
    }

    fn of_blocker(kind: BlockerKind) -> Self {
        match kind {
            BlockerKind::Gated => Self::Gated,
            BlockerKind::NotScheduled | BlockerKind::Unschedulable => Self::Scheduling,
            BlockerKind::Provisioning => Self::Provisioning,
            BlockerKind::NotAccepted | BlockerKind::Sandbox => Self::Sandbox,
            BlockerKind::Volumes => Self::Volumes,
            BlockerKind::Network => Self::Network,
            BlockerKind::ImagePullFailed => Self::ImagePullFailed,
            BlockerKind::ImagePull => Self::ImagePull,
            BlockerKind::ContainerCreation => Self::ContainerStart,
            BlockerKind::Init | BlockerKind::InitFailed => Self::Init,
            BlockerKind::CrashLoop => Self::CrashLoop,
            BlockerKind::StartupProbe => Self::StartupProbe,
            BlockerKind::ReadinessProbe => Self::Readiness,
            BlockerKind::ReadinessGate => Self::ReadinessGates,
            BlockerKind::Succeeded | BlockerKind::Failed | BlockerKind::Unseen => Self::Unknown,
        }
    }
}

impl Segment {
    pub fn took(&self) -> Duration {
        self.to.since(self.from).unwrap_or_default()
    }
}

impl PodRecord {
    /// Returns the segments from creation to ready, or to where the start ended otherwise. Segments
    /// that took no time by the API's clock are left out; the rest adds up to the total.
    pub fn critical_path(&self) -> Vec<Segment> {
        let timeline = self.timeline();
        let Some(created) = timeline.api_server(self.milestones.created).best() else {
            return Vec::new();
        };
        let blocker = self.blocker();
        let reached = &self.milestones;
        let by_api_server = |moment: Option<Moment>| timeline.api_server(moment?).best();
        let by_node = |moment: Option<Moment>| timeline.node(moment?).best();
        let mut path = PathBuilder {
            segments: Vec::new(),
            at: created,
            limit: self.start_ended(),
            timeline,
        };
        path.advance_to(Phase::Gated, None, by_api_server(reached.ungated));
        self.append_scheduling(&mut path, by_api_server(reached.scheduled));
        self.append_preparation(&mut path, by_node(self.sandbox_ready()));
        for container in self.containers.iter().filter(|one| one.role.is_init()) {
            path.start_container(self, container);
            let (phase, done) = match container.role {
                ContainerRole::Sidecar => {
                    let passed = self.startup_probe_passed(container, timeline);
                    (Phase::StartupProbe, passed)
                }
                _ => (Phase::Init, by_node(container.ready)),
            };
            path.advance_to(phase, Some(container), done);
        }
        // The kubelet starts one container after another.
        let blocking = blocker
            .as_ref()
            .filter(|found| found.kind.is_before_running());
        let blocking = blocking.and_then(|found| found.container.as_ref());
        for container in self.main_containers() {
            path.start_container(self, container);
            if Some(&container.name) == blocking {
                break;
            }
        }
        if let Some(last) = self.last_to_be_ready(blocker.as_ref()) {
            if let Some(crashes) = last.restarts_before_ready() {
                path.advance_to(Phase::CrashLoop, Some(last), by_node(Some(crashes.run)));
            }
            let passed = self.startup_probe_passed(last, timeline);
            path.advance_to(Phase::StartupProbe, Some(last), passed);
            path.advance_to(Phase::Readiness, Some(last), by_node(last.ready));
        }
        if self.is_complete() {
            let last = if self.gates.is_empty() {
                Phase::Readiness
            } else {
                path.advance_to(Phase::Readiness, None, by_node(reached.containers_ready));
                Phase::ReadinessGates
            };
            path.advance_to(last, None, by_node(reached.ready));
        } else {
            self.append_open(&mut path, blocker.as_ref());
        }
        path.segments
    }

    /// The longest segment; of two, the earlier.
    pub fn longest(&self) -> Option<Segment> {
        let longest = |one: Segment, two: Segment| if two.took() > one.took() { two } else { one };
        self.critical_path().into_iter().reduce(longest)
    }

    /// The time from creation to ready, or to where the start ended otherwise.
    pub fn total(&self) -> Option<Duration> {
        let created = self.timeline().api_server(self.milestones.created);
        self.start_ended()?.since(created.best()?)
    }

    /// The time at which it was ready; if it never was, the time of its deletion or end, or the
    /// last time seen. On the clock of the API server.
    ///
    /// If it may have been ready before it was observed, the last step that its state shows.
    pub fn start_ended(&self) -> Option<Timestamp> {
        let timeline = self.timeline();
        let reached = &self.milestones;
        let by_api_server = |moment: Option<Moment>| timeline.api_server(moment?).best();
        let by_node = |moment: Option<Moment>| timeline.node(moment?).best();
        if self.is_unseen() {
            let steps = [Some(reached.created), reached.scheduled].map(by_api_server);
            let starts = self
                .containers
                .iter()
                .flat_map(|one| [one.running, one.started]);
            let starts = starts.chain([reached.sandbox]).map(by_node);
            return steps.into_iter().chain(starts).flatten().max();
        }
        by_node(reached.ready)
            .or_else(|| by_api_server(reached.deletion))
            .or_else(|| by_node(reached.stopped))
            .or_else(|| by_api_server(reached.gone))
            .or_else(|| Some(timeline.observer_time(self.latest?)))
    }

    /// Whether it may have been ready before it was observed, at an unknown time.
    pub fn is_unseen(&self) -> bool {
        let blocker = self.state_blocker.as_ref();
        blocker.is_some_and(|found| found.kind == BlockerKind::Unseen)
    }

    fn main_containers(&self) -> impl DoubleEndedIterator<Item = &ContainerRecord> {
        self.containers
            .iter()
            .filter(|container| container.role == ContainerRole::Main)
    }

    /// The container that became ready last, or the one that blocks. Sidecars become ready beside
    /// the main containers.
    fn last_to_be_ready(&self, blocker: Option<&Blocker>) -> Option<&ContainerRecord> {
        let blocking = blocker.and_then(|blocker| blocker.container.as_ref());
        let mut stay = self.main_containers().chain(self.sidecars());
        let found = stay.find(|container| Some(&container.name) == blocking);
        if found.is_some() {
            return found;
        }
        let ready = |container: &&ContainerRecord| {
            let facts = self.facts_of(container);
            let failures = facts.map_or(0, |facts| {
                // A startup probe of unknown time may have passed last.
                let startup = if container.is_start_unknown() {
                    facts.startup_probe.times()
                } else {
                    0
                };
                facts.readiness_probe.times().saturating_add(startup)
            });
            (container.ready.and_then(Moment::best), failures)
        };
        // Of several at one time, the one whose probes failed most, and then the first.
        self.sidecars()
            .rev()
            .chain(self.main_containers().rev())
            .max_by_key(ready)
    }

    /// The time at which the startup probe of a container passed. A state has none: in a pod that
    /// was not watched it is the time of readiness where no other probe had to pass, and otherwise
    /// at least that of the last failure.
    fn startup_probe_passed(
        &self,
        container: &ContainerRecord,
        timeline: Timeline,
    ) -> Option<Timestamp> {
        if !container.is_start_unknown() {
            return timeline.node(container.started?).best();
        }
        if self.starts_until_ready(container) {
            return timeline.node(container.ready?).best();
        }
        let failed = self.facts_of(container)?.startup_probe.last();
        failed.map(|time| timeline.node_time(time))
    }

    /// Whether the time at which its startup probe passed is taken to be that of its readiness.
    pub(crate) fn starts_until_ready(&self, container: &ContainerRecord) -> bool {
        let mut specs = self.pod.containers.iter();
        let spec = specs.find(|spec| spec.name == container.name);
        container.is_start_unknown() && spec.is_some_and(|spec| !spec.has_readiness_probe)
    }

    fn sidecars(&self) -> impl DoubleEndedIterator<Item = &ContainerRecord> {
        self.containers
            .iter()
            .filter(|container| container.role == ContainerRole::Sidecar)
    }

    fn append_scheduling(&self, path: &mut PathBuilder, scheduled: Option<Timestamp>) {
        let phase = match self.provisioning_since() {
            Some(since) => {
                let until = scheduled.map_or(since, |scheduled| since.min(scheduled));
                path.advance_to(Phase::Scheduling, None, Some(until));
                Phase::Provisioning
            }
            None => Phase::Scheduling,
        };
        path.advance_to(phase, None, scheduled);
    }

    /// The time since which it waited for a new node, if it did: since an autoscaler decided to add
    /// one. If that is unknown but the node is younger than the pod, since the pod was created.
    ///
    /// A pod that came to an older node was not waiting for the new one in the end.
    pub(crate) fn provisioning_since(&self) -> Option<Timestamp> {
        let created = self.milestones.created.best()?;
        let scheduled = self.milestones.scheduled.and_then(Moment::best);
        let decided = self.facts.preparation().map(|found| &found.provisioning);
        let decided = decided.and_then(|found| found.triggered);
        match self.node_created {
            Some(node) if node <= created => None,
            // A node that is younger than the assignment was registered again.
            Some(node) if scheduled.is_some_and(|scheduled| scheduled < node) => decided,
            Some(_) => Some(decided.unwrap_or(created)),
            None => decided,
        }
    }

    /// Appends what happened between the assignment to a node and the first container. The kubelet
    /// waits for the network of its node, then for volumes, and then creates the sandbox, to which
    /// the runtime adds the network.
    fn append_preparation(&self, path: &mut PathBuilder, ready: Option<Timestamp>) {
        let Some(found) = self.facts.preparation() else {
            path.advance_to(Phase::Sandbox, None, ready);
            return;
        };
        let timeline = path.timeline;
        let until = |time: Timestamp| ready.map_or(time, |ready| time.min(ready));
        // Mounts of a running pod may fail too.
        let in_time = |time: &Timestamp| ready.is_none_or(|ready| *time <= ready);
        let by_node = |time: Timestamp| timeline.node_time(time);
        let last_not_ready = found.network_not_ready.failures.last();
        if found
            .network_not_ready
            .first
            .map(by_node)
            .is_some_and(|first| in_time(&first))
        {
            path.advance_to(Phase::Network, None, last_not_ready.map(by_node).map(until));
        }
        let sandbox_failed = found.sandbox_failed().map(by_node).filter(in_time);
        let volumes = if found.volumes_failed().is_some_and(|first| in_time(&first)) {
            // The kubelet retries until they are mounted.
            sandbox_failed.or(ready)
        } else {
            found.volumes.attached.filter(in_time)
        };
        path.advance_to(Phase::Volumes, None, volumes.map(until));
        let is_network = found.network.failures.last() >= found.sandbox.failures.last();
        if sandbox_failed.is_some() && is_network {
            path.advance_to(Phase::Sandbox, None, sandbox_failed.map(until));
            path.advance_to(Phase::Network, None, ready);
        }
        path.advance_to(Phase::Sandbox, None, ready);
    }

    fn append_open(&self, path: &mut PathBuilder, blocker: Option<&Blocker>) {
        let phase = blocker.map_or(Phase::Unknown, |found| Phase::of_blocker(found.kind));
        let container = blocker
            .and_then(|found| found.container.as_ref())
            .and_then(|name| self.containers.iter().find(|one| one.name == *name));
        let before = path.segments.len();
        path.advance_to(phase, container, self.start_ended());
        if let Some(last) = path.segments.get_mut(before) {
            last.is_done = false;
        }
    }
}

impl PathBuilder {
    /// Appends a segment up to `done`, unless that is unknown or before the end of the last one.
    fn advance_to(
        &mut self,
        phase: Phase,
        container: Option<&ContainerRecord>,
        done: Option<Timestamp>,
    ) {
        let Some(done) = done else {
            return;
        };
        let done = self.limit.map_or(done, |limit| done.min(limit));
        if done > self.at {
            self.segments.push(Segment {
                phase,
                container: container.map(|container| Arc::clone(&container.name)),
                from: self.at,
                to: done,
                is_done: true,
            });
            self.at = done;
        }
    }

    /// Appends the image pull and the start of a container.
    fn start_container(&mut self, pod: &PodRecord, container: &ContainerRecord) {
        let timeline = self.timeline;
        let running = container.running.and_then(|run| timeline.node(run).best());
        if let Some(facts) = pod.facts_of(container) {
            let pull = &facts.pull;
            let is_present = pull.done.as_ref().is_some_and(|done| done.already_present);
            // An event's time is rounded: the container cannot have run before.
            let by_event = |time: Timestamp| {
                let time = timeline.node_time(time);
                running.map_or(time, |running| time.min(running))
            };
            if !is_present {
                // The time before the pull is the kubelet's own.
                let began = pull.started().map(by_event);
                self.advance_to(Phase::ContainerStart, Some(container), began);
            }
            let retried = pull.retried().map(by_event);
            self.advance_to(Phase::ImagePullFailed, Some(container), retried);
            if let Some(done) = pull.done.as_ref().filter(|done| !done.already_present) {
                self.advance_to(Phase::ImagePull, Some(container), Some(by_event(done.at)));
            }
        }
        self.advance_to(Phase::ContainerStart, Some(container), running);
    }
}
