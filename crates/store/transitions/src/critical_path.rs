//! The critical path from creation to ready, cut into segments.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::Timestamp;

use crate::blocker::BlockerKind;
use crate::moment::Moment;
use crate::record::{ContainerRecord, ContainerRole, PodRecord};

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
    /// Sandbox, network and volumes.
    Sandbox,
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
}

impl Phase {
    pub const ALL: [Self; 11] = [
        Self::Gated,
        Self::Scheduling,
        Self::Sandbox,
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
            Self::Sandbox => "sandbox",
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

    fn of_blocker(kind: BlockerKind) -> Self {
        match kind {
            BlockerKind::Gated => Self::Gated,
            BlockerKind::NotScheduled | BlockerKind::Unschedulable => Self::Scheduling,
            BlockerKind::NotAccepted | BlockerKind::Sandbox => Self::Sandbox,
            BlockerKind::ImagePull => Self::ImagePull,
            BlockerKind::ContainerCreation => Self::ContainerStart,
            BlockerKind::Init | BlockerKind::InitFailed => Self::Init,
            BlockerKind::CrashLoop => Self::CrashLoop,
            BlockerKind::StartupProbe => Self::StartupProbe,
            BlockerKind::ReadinessProbe => Self::Readiness,
            BlockerKind::ReadinessGate => Self::ReadinessGates,
            BlockerKind::Ended | BlockerKind::Unseen => Self::Unknown,
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
        let Some(created) = self.milestones.created.best() else {
            return Vec::new();
        };
        let reached = &self.milestones;
        let mut path = PathBuilder {
            segments: Vec::new(),
            at: created,
            limit: self.start_ended(),
        };
        path.advance_to(Phase::Gated, None, reached.ungated);
        path.advance_to(Phase::Scheduling, None, reached.scheduled);
        path.advance_to(Phase::Sandbox, None, reached.sandbox);
        for container in self.containers.iter().filter(|one| one.role.is_init()) {
            path.start_container(self, container);
            match container.role {
                ContainerRole::Sidecar => {
                    path.advance_to(Phase::StartupProbe, Some(container), container.started);
                }
                _ => path.advance_to(Phase::Init, Some(container), container.ready),
            }
        }
        if let Some(last) = self.last_to_be_ready() {
            path.start_container(self, last);
            path.advance_to(Phase::StartupProbe, Some(last), last.started);
            path.advance_to(Phase::Readiness, Some(last), last.ready);
        }
        if self.is_complete() {
            let last = if self.gates.is_empty() {
                Phase::Readiness
            } else {
                path.advance_to(Phase::Readiness, None, reached.containers_ready);
                Phase::ReadinessGates
            };
            path.advance_to(last, None, reached.ready);
        } else {
            self.append_open(&mut path);
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
        self.start_ended()?.since(self.milestones.created.best()?)
    }

    /// The time at which it was ready; if it never was, the time of its deletion or end, or the
    /// last time seen.
    ///
    /// If it may have been ready before it was observed, the last step that its state shows.
    pub fn start_ended(&self) -> Option<Timestamp> {
        let reached = &self.milestones;
        let best = |moment: Option<Moment>| moment.and_then(Moment::best);
        if self.is_unseen() {
            let steps = [Some(reached.created), reached.scheduled, reached.sandbox];
            let starts = self
                .containers
                .iter()
                .flat_map(|one| [one.running, one.started]);
            return steps.into_iter().chain(starts).filter_map(best).max();
        }
        best(reached.ready)
            .or_else(|| best(reached.deletion))
            .or_else(|| best(reached.stopped))
            .or_else(|| best(reached.gone))
            .or(self.latest)
    }

    /// Whether it may have been ready before it was observed, at an unknown time.
    pub fn is_unseen(&self) -> bool {
        let blocker = self.blocker.as_ref();
        blocker.is_some_and(|found| found.kind == BlockerKind::Unseen)
    }

    /// The container that became ready last, or the one that blocks.
    fn last_to_be_ready(&self) -> Option<&ContainerRecord> {
        let blocker = self.blocker.as_ref();
        let blocking = blocker.and_then(|blocker| blocker.container.as_ref());
        let main = || {
            self.containers
                .iter()
                .filter(|container| container.role == ContainerRole::Main)
        };
        main()
            .find(|container| Some(&container.name) == blocking)
            .or_else(|| {
                let ready = |container: &&ContainerRecord| container.ready.and_then(Moment::best);
                // Of several at one time, the first.
                main().rev().max_by_key(ready)
            })
    }

    fn append_open(&self, path: &mut PathBuilder) {
        let blocker = self.blocker.as_ref();
        let phase = blocker.map_or(Phase::Unknown, |found| Phase::of_blocker(found.kind));
        let container = blocker
            .and_then(|found| found.container.as_ref())
            .and_then(|name| self.containers.iter().find(|one| one.name == *name));
        let before = path.segments.len();
        path.advance_to(phase, container, at(self.start_ended()));
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
        done: Option<Moment>,
    ) {
        let Some(done) = done.and_then(Moment::best) else {
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
        let pull = pod.facts_of(container).map(|facts| &facts.pull);
        let running = container.running.and_then(Moment::best);
        if let Some(pull) = pull
            && let Some(done) = &pull.done
            && !done.already_present
        {
            // The time before the pull is the kubelet's own.
            let began = pull.started().or_else(|| done.at.checked_sub(pull.took()?));
            self.advance_to(Phase::ContainerStart, Some(container), at(began));
            // An event's time is rounded: the container cannot have run before.
            let done = running.map_or(done.at, |running| done.at.min(running));
            self.advance_to(Phase::ImagePull, Some(container), at(Some(done)));
        }
        self.advance_to(Phase::ContainerStart, Some(container), container.running);
    }
}

fn at(time: Option<Timestamp>) -> Option<Moment> {
    time.map(|time| Moment {
        api: Some(time),
        observed: None,
    })
}
