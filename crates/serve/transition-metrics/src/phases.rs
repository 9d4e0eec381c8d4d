//! Durations of the phases of a start, from one milestone to the next.
//!
//! The critical path of a pod follows whichever container was last, which is right for one
//! pod and shifts between pods of one workload. A histogram needs a phase to mean the same thing
//! every time: it is the time between two milestones of the whole pod, by one clock.

use std::time::Duration;

use kubevitals_transitions::{ContainerRecord, ContainerRole, Moment, Phase, PodRecord};

use crate::clock::{between, last};
use crate::pulls;

/// Whether the times of a record are those of the pod's first start.
///
/// For a pod created before it was observed they may not be: once a container was restarted or the
/// pod was ready before, its state has the last times.
pub(crate) fn is_measured(record: &PodRecord) -> bool {
    let has_restarted = || record.containers.iter().any(|one| one.restarts > 0);
    !record.reconstructed || !(record.was_ready_before || has_restarted())
}

/// From creation to ready.
pub(crate) fn startup(record: &PodRecord) -> Option<Duration> {
    let (reached, timeline) = (&record.milestones, record.timeline());
    timeline
        .node(reached.ready?)
        .since(timeline.api_server(reached.created))
}

/// The completed phases.
pub(crate) fn phases(record: &PodRecord) -> impl Iterator<Item = (Phase, Duration)> {
    let timeline = record.timeline();
    let by_api_server = |moment: Option<Moment>| moment.map(|moment| timeline.api_server(moment));
    let by_node = |moment: Option<Moment>| moment.map(|moment| timeline.node(moment));
    let reached = &record.milestones;
    let gated = reached.gated;
    let [created, ungated, scheduled] =
        [Some(reached.created), reached.ungated, reached.scheduled].map(by_api_server);
    let [initialized, containers_ready, ready] =
        [reached.initialized, reached.containers_ready, reached.ready].map(by_node);
    let sandbox = by_node(record.sandbox_ready());
    let has_init = record.containers.iter().any(|one| one.role.is_init());
    let has_startup_probe = record
        .pod
        .containers
        .iter()
        .any(|one| one.has_startup_probe);
    let running = last(main(record).map(|one| by_node(one.running)));
    let started = last(main(record).map(|one| by_node(one.started)));
    let free = if gated.is_some() { ungated } else { created };
    let prepared = if has_init { initialized } else { sandbox };
    let pulling = pulls::time_of(record).filter(|took| !took.is_zero());
    [
        (Phase::Gated, between(gated.and(created), ungated)),
        (Phase::Scheduling, between(free, scheduled)),
        (Phase::Sandbox, between(scheduled, sandbox)),
        (
            Phase::Init,
            between(sandbox, initialized).filter(|_| has_init),
        ),
        (Phase::ImagePull, pulling),
        (Phase::ContainerStart, between(prepared, running)),
        (
            Phase::StartupProbe,
            between(running, started).filter(|_| has_startup_probe),
        ),
        (Phase::Readiness, between(started, containers_ready)),
        (
            Phase::ReadinessGates,
            between(containers_ready, ready).filter(|_| !record.gates.is_empty()),
        ),
    ]
    .into_iter()
    .filter_map(|(phase, took)| Some((phase, took?)))
}

/// The main containers.
pub(crate) fn main(record: &PodRecord) -> impl Iterator<Item = &ContainerRecord> {
    let containers = record.containers.iter();
    containers.filter(|one| one.role == ContainerRole::Main)
}
