//! The official service level indicator of pod starts, computed as the kubelet does.
//!
//! > Startup latency of schedulable stateless pods, excluding time to pull images and run init
//! > containers, measured from pod creation timestamp to when all its containers are reported as
//! > started and observed via watch.
//!
//! As in the kubelet (1.37) only pods count that are observed from creation, that mount no
//! storage, that were never unschedulable, and whose containers were all seen running. Parallel
//! pulls count once; init containers count while they run, not while they wait for a restart;
//! sidecars are not init containers.
//!
//! What differs: the kubelet measures from the creation timestamp, which has whole seconds and
//! another host's clock, to when its own watch shows what it reported. Here both ends are
//! observed by one watch where both were, or else both are the API's times. And a kubelet sees a
//! pod only when it is bound, when its state no longer shows that it was unschedulable.

use std::time::Duration;

use kubevitals_transitions::{ContainerRecord, ContainerRole, Moment, PodRecord};

use crate::clock::last;
use crate::phases::main;
use crate::pulls;

/// The reason why a pod's start does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Excluded {
    /// It was created before it was observed.
    Reconstructed,
    /// It was gated or unschedulable.
    Unschedulable,
    /// It mounts a volume that needs storage.
    Stateful,
    /// Not all of its containers were seen running.
    NotStarted,
    /// The duration of its image pulls is unknown.
    PullsUnknown,
    /// No clock has both ends.
    TimeUnknown,
}

impl Excluded {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Reconstructed => "reconstructed",
            Self::Unschedulable => "unschedulable",
            Self::Stateful => "stateful",
            Self::NotStarted => "not_started",
            Self::PullsUnknown => "pulls_unknown",
            Self::TimeUnknown => "time_unknown",
        }
    }
}

/// Measures the start of a pod.
pub(crate) fn measure(record: &PodRecord) -> Result<Duration, Excluded> {
    let reached = &record.milestones;
    if record.reconstructed {
        return Err(Excluded::Reconstructed);
    }
    if record.unschedulable.is_some() || reached.gated.is_some() {
        return Err(Excluded::Unschedulable);
    }
    if !record.pod.stateless {
        return Err(Excluded::Stateful);
    }
    let started = last(main(record).map(|one| one.running.filter(|_| was_seen_to_run(one))));
    let started = started.ok_or(Excluded::NotStarted)?;
    if !pulls::are_known(record) {
        return Err(Excluded::PullsUnknown);
    }
    let whole = observed(reached.created, started).ok_or(Excluded::TimeUnknown)?;
    let pulling = pulls::time_of(record).unwrap_or_default();
    let preparing: Duration = record
        .containers
        .iter()
        .filter(|one| one.role == ContainerRole::Init)
        .map(running_time)
        .sum();
    Ok(whole.saturating_sub(pulling).saturating_sub(preparing))
}

/// Prefers the observer's clock: the definition is of what is observed, and it is finer than whole
/// seconds.
fn observed(from: Moment, to: Moment) -> Option<Duration> {
    let seen = |moment: Moment| Moment {
        api: None,
        ..moment
    };
    seen(to).since(seen(from)).or_else(|| to.since(from))
}

/// A container that had finished when it was first seen was never reported as running.
fn was_seen_to_run(container: &ContainerRecord) -> bool {
    let seen = |moment: Option<Moment>| moment.and_then(|moment| moment.observed);
    match (seen(container.running), seen(container.finished)) {
        (Some(running), Some(finished)) => running < finished,
        _ => true,
    }
}

/// The time an init container ran until it succeeded, without the time between its runs.
fn running_time(init: &ContainerRecord) -> Duration {
    let whole = init
        .ready
        .zip(init.running)
        .and_then(|(end, start)| end.since(start));
    whole.unwrap_or_default().saturating_sub(init.down)
}
