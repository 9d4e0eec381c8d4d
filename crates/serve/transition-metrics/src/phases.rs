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
    let has_crashed = main(record).any(|one| one.restarts_before_ready().is_some());
    let running = last(main(record).map(|one| by_node(one.running)));
    // The start of the run in which each was first ready.
    let stable = last(main(record).map(|one| {
        let crashes = one.restarts_before_ready();
        by_node(crashes.map_or(one.running, |crashes| Some(crashes.run)))
    }));
    let started = last(main(record).map(|one| by_node(one.started)));
    let started = if has_crashed {
        last([started, stable])
    } else {
        started
    };
    let free = if gated.is_some() { ungated } else { created };
    let prepared = if has_init { initialized } else { sandbox };
    let parts = Parts::of(record);
    let pulling = pulls::time_of(record).map(|took| took.saturating_sub(parts.failed_pulls));
    let prepared_by = |parts: Duration| scheduled.and(sandbox).map(|_| parts);
    let known = |took: Duration| Some(took).filter(|took| !took.is_zero());
    let less = |whole: Option<Duration>, part: Duration| Some(whole?.saturating_sub(part));
    [
        (Phase::Gated, between(gated.and(created), ungated)),
        (
            Phase::Scheduling,
            less(between(free, scheduled), parts.provisioning),
        ),
        (
            Phase::Provisioning,
            scheduled.and_then(|_| known(parts.provisioning)),
        ),
        (Phase::Volumes, prepared_by(parts.volumes).and_then(known)),
        (Phase::Network, prepared_by(parts.network).and_then(known)),
        (
            Phase::Sandbox,
            less(between(scheduled, sandbox), parts.volumes + parts.network),
        ),
        (
            Phase::Init,
            between(sandbox, initialized).filter(|_| has_init),
        ),
        (Phase::ImagePullFailed, known(parts.failed_pulls)),
        (Phase::ImagePull, pulling.and_then(known)),
        (Phase::ContainerStart, between(prepared, running)),
        (
            Phase::CrashLoop,
            between(running, stable).filter(|_| has_crashed),
        ),
        (
            Phase::StartupProbe,
            between(stable, started).filter(|_| has_startup_probe),
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

/// Parts of a start that only events tell apart. They are of the whole pod on its path too.
#[derive(Debug, Default)]
struct Parts {
    /// Within scheduling.
    provisioning: Duration,
    /// Within the sandbox.
    volumes: Duration,
    network: Duration,
    /// Within the pulls.
    failed_pulls: Duration,
}

impl Parts {
    fn of(record: &PodRecord) -> Self {
        let mut parts = Self::default();
        let has_failed_pulls = || record.pulls().any(|(_, pull)| pull.retried().is_some());
        let is_waited_for = record.node_created > record.milestones.created.best();
        // Most pods have none of these, and need no path.
        if record.facts.preparation().is_none() && !is_waited_for && !has_failed_pulls() {
            return parts;
        }
        for segment in record.critical_path() {
            let part = match segment.phase {
                Phase::Provisioning => &mut parts.provisioning,
                Phase::Volumes => &mut parts.volumes,
                Phase::Network => &mut parts.network,
                Phase::ImagePullFailed => &mut parts.failed_pulls,
                _ => continue,
            };
            if segment.is_done {
                *part += segment.took();
            }
        }
        parts
    }
}

/// The main containers.
pub(crate) fn main(record: &PodRecord) -> impl Iterator<Item = &ContainerRecord> {
    let containers = record.containers.iter();
    containers.filter(|one| one.role == ContainerRole::Main)
}
