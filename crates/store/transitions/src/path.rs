//! The way from creation to ready, cut where each thing that had to happen was done.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::Timestamp;

use crate::hindrance::HindranceKind;
use crate::moment::Moment;
use crate::record::{ContainerRecord, ContainerRole, PodRecord};

/// One piece of the way. Pieces follow one another without a gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Segment {
    /// What was waited for.
    pub phase: Phase,
    /// The container that was waited for.
    pub container: Option<Arc<str>>,
    /// Since when.
    pub from: Timestamp,
    /// Until when.
    pub to: Timestamp,
    /// Whether it came to its end; the last piece of a pod that never became ready did not.
    pub is_done: bool,
}

/// What a pod waits for on its way.
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
    /// A container to be made and to run.
    ContainerStart,
    /// An init container to end.
    Init,
    /// A startup probe.
    StartupProbe,
    /// A readiness probe.
    Readiness,
    /// A condition that another controller sets.
    ReadinessGates,
    /// A container that ends instead of running on.
    CrashLoop,
    /// Nobody knows what.
    Unknown,
}

/// The pieces, and where the last of them ended.
struct Walk {
    segments: Vec<Segment>,
    at: Timestamp,
    /// Nothing on the way was later than its end.
    limit: Option<Timestamp>,
}

impl Phase {
    /// Every phase.
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

    /// As it stands in records and labels.
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

    fn of_hindrance(kind: HindranceKind) -> Self {
        match kind {
            HindranceKind::Gated => Self::Gated,
            HindranceKind::NotScheduled | HindranceKind::Unschedulable => Self::Scheduling,
            HindranceKind::NotAccepted | HindranceKind::Sandbox => Self::Sandbox,
            HindranceKind::ImagePull => Self::ImagePull,
            HindranceKind::ContainerCreation => Self::ContainerStart,
            HindranceKind::Init | HindranceKind::InitFailed => Self::Init,
            HindranceKind::CrashLoop => Self::CrashLoop,
            HindranceKind::StartupProbe => Self::StartupProbe,
            HindranceKind::ReadinessProbe => Self::Readiness,
            HindranceKind::ReadinessGate => Self::ReadinessGates,
            HindranceKind::Ended | HindranceKind::Unseen => Self::Unknown,
        }
    }
}

impl Segment {
    /// How long it took.
    pub fn took(&self) -> Duration {
        self.to.since(self.from).unwrap_or_default()
    }
}

impl PodRecord {
    /// The pieces of the way from creation to ready, or to where it was given up. Pieces that took
    /// no time by the API's clock are left out; the rest adds up to the whole.
    pub fn critical_path(&self) -> Vec<Segment> {
        let Some(created) = self.milestones.created.best() else {
            return Vec::new();
        };
        let reached = &self.milestones;
        let mut walk = Walk {
            segments: Vec::new(),
            at: created,
            limit: self.start_ended(),
        };
        walk.to(Phase::Gated, None, reached.ungated);
        walk.to(Phase::Scheduling, None, reached.scheduled);
        walk.to(Phase::Sandbox, None, reached.sandbox);
        for container in self.containers.iter().filter(|one| one.role.is_init()) {
            walk.start_of(self, container);
            match container.role {
                ContainerRole::Sidecar => {
                    walk.to(Phase::StartupProbe, Some(container), container.started);
                }
                _ => walk.to(Phase::Init, Some(container), container.ready),
            }
        }
        if let Some(last) = self.last_to_be_ready() {
            walk.start_of(self, last);
            walk.to(Phase::StartupProbe, Some(last), last.started);
            walk.to(Phase::Readiness, Some(last), last.ready);
        }
        if self.is_complete() {
            let last = if self.gates.is_empty() {
                Phase::Readiness
            } else {
                walk.to(Phase::Readiness, None, reached.containers_ready);
                Phase::ReadinessGates
            };
            walk.to(last, None, reached.ready);
        } else {
            self.rest_of(&mut walk);
        }
        walk.segments
    }

    /// The piece that took longest; the earlier of two.
    pub fn longest(&self) -> Option<Segment> {
        let longest = |one: Segment, two: Segment| if two.took() > one.took() { two } else { one };
        self.critical_path().into_iter().reduce(longest)
    }

    /// From creation to ready, or to where it was given up.
    pub fn total(&self) -> Option<Duration> {
        self.start_ended()?.since(self.milestones.created.best()?)
    }

    /// When it was ready; of one that never was, when nobody waited for it any longer, or the last
    /// that was seen of it.
    ///
    /// Of one that began before it was watched, and may have been ready, it is the last step that
    /// its state shows.
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

    /// Whether it began before it was watched, and its state does not say whether it was ready.
    pub fn is_unseen(&self) -> bool {
        let hindrance = self.hindrance.as_ref();
        hindrance.is_some_and(|found| found.kind == HindranceKind::Unseen)
    }

    /// The container that the others waited for, or the one that is in the way.
    fn last_to_be_ready(&self) -> Option<&ContainerRecord> {
        let hindrance = self.hindrance.as_ref();
        let in_the_way = hindrance.and_then(|hindrance| hindrance.container.as_ref());
        let main = || {
            self.containers
                .iter()
                .filter(|container| container.role == ContainerRole::Main)
        };
        main()
            .find(|container| Some(&container.name) == in_the_way)
            .or_else(|| {
                let ready = |container: &&ContainerRecord| container.ready.and_then(Moment::best);
                // Of several at one time, the first.
                main().rev().max_by_key(ready)
            })
    }

    fn rest_of(&self, walk: &mut Walk) {
        let hindrance = self.hindrance.as_ref();
        let phase = hindrance.map_or(Phase::Unknown, |found| Phase::of_hindrance(found.kind));
        let container = hindrance
            .and_then(|found| found.container.as_ref())
            .and_then(|name| self.containers.iter().find(|one| one.name == *name));
        let before = walk.segments.len();
        walk.to(phase, container, at(self.start_ended()));
        if let Some(last) = walk.segments.get_mut(before) {
            last.is_done = false;
        }
    }
}

impl Walk {
    /// Goes on to where something was done. What was done before the last thing was, or nobody
    /// knows when, is not on the way.
    fn to(&mut self, phase: Phase, container: Option<&ContainerRecord>, done: Option<Moment>) {
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

    /// Its image, and then the container itself.
    fn start_of(&mut self, pod: &PodRecord, container: &ContainerRecord) {
        let pull = pod.facts_of(container).map(|facts| &facts.pull);
        let running = container.running.and_then(Moment::best);
        if let Some(pull) = pull
            && let Some(done) = &pull.done
            && !done.already_present
        {
            // What came before the pull is the kubelet's own time.
            let began = pull.started().or_else(|| done.at.checked_sub(pull.took()?));
            self.to(Phase::ContainerStart, Some(container), at(began));
            // An event's time is rounded: the container cannot have run before.
            let done = running.map_or(done.at, |running| done.at.min(running));
            self.to(Phase::ImagePull, Some(container), at(Some(done)));
        }
        self.to(Phase::ContainerStart, Some(container), container.running);
    }
}

fn at(time: Option<Timestamp>) -> Option<Moment> {
    time.map(|time| Moment {
        api: Some(time),
        observed: None,
    })
}
