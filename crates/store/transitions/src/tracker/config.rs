//! How a tracker works, and what it counts.

use std::time::Duration;

use kubevitals_model::{Condition, Pod, Timestamp};

use super::Arrival;
use super::checkpoint::Checkpoint;
use crate::life::{StartupReport, was_ready};

/// How a tracker works.
#[derive(Debug, Clone)]
pub struct TrackerConfig {
    /// How long late events are waited for; without an end, until
    /// [`Tracker::finish`](super::Tracker::finish).
    pub linger: Option<Duration>,
    /// Which of the pods that existed before the start are told of.
    pub existing: Existing,
    /// Whether every change is told until a pod is ready.
    pub progress: bool,
    /// Pods that are followed at most; those beyond are counted and left out.
    pub most_pods: usize,
    /// Pods that are gone and wait for late events at most; the oldest is told early.
    pub most_ended: usize,
    /// Pods of which events are kept before the pod itself is seen; the oldest is dropped.
    pub most_early: usize,
}

/// Which of the pods that existed before the start are told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Those that are still starting, and those that have started since another process told of
    /// all.
    Unsettled {
        /// Up to where it did; none if there was no other process.
        since: Option<Checkpoint>,
    },
    /// All.
    All,
}

/// What happened to everything that was given in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// States of pods that were news.
    pub states: u64,
    /// States that were known already or older than those known.
    pub repeated: u64,
    /// Events that were taken in.
    pub events: u64,
    /// Events that say nothing that is used here.
    pub events_unused: u64,
    /// Events of pods that had been told of already.
    pub events_late: u64,
    /// Events in lists that were old, of pods that are not known.
    pub events_stale: u64,
    /// Pods that did not come, or came too late, of which events were dropped.
    pub early_dropped: u64,
    /// States of pods that were left out because too many are followed.
    pub refused: u64,
    /// Pods that were missing after a gap.
    pub vanished: u64,
    /// What another process had told.
    pub told_elsewhere: u64,
    /// Lives that were kept back for another process to tell until there were too many.
    pub withheld_dropped: u64,
}

impl Default for TrackerConfig {
    fn default() -> Self {
        Self {
            linger: Some(Duration::from_secs(3)),
            existing: Existing::Unsettled { since: None },
            progress: false,
            most_pods: 1_000_000,
            most_ended: 50_000,
            most_early: 10_000,
        }
    }
}

impl Existing {
    pub(super) fn startup(self, pod: &Pod, arrival: Arrival) -> StartupReport {
        let is_ours = match (arrival, self) {
            (Arrival::Live | Arrival::Relisted, _) | (_, Self::All) => true,
            (Arrival::Listed, Self::Unsettled { since }) => {
                !has_settled(pod)
                    || since.is_some_and(|since| {
                        let version = pod.summary.identity.resource_version.as_number();
                        !since.covers(version, settled_at(pod))
                    })
            }
        };
        if is_ours {
            StartupReport::Open
        } else {
            StartupReport::NotOurs
        }
    }
}

/// Whether the start of a pod that nobody watched is decided.
fn has_settled(pod: &Pod) -> bool {
    pod.summary.phase.is_final()
        || pod.meta.deleted.is_some()
        || was_ready(pod)
        || Condition::find(&pod.conditions, "Ready").is_some_and(Condition::is_true)
}

/// When the start of a pod was decided, by the API's time, at the latest.
pub(super) fn settled_at(pod: &Pod) -> Option<Timestamp> {
    let ready = Condition::find(&pod.conditions, "Ready").and_then(|ready| ready.last_transition);
    if pod.summary.phase.is_final() || pod.meta.deleted.is_some() {
        // It may have been ready before: whichever is later is the safer to go by.
        let grace = Duration::from_secs(pod.meta.deletion_grace.unwrap_or(0).into());
        let deleted = pod.meta.deleted.and_then(|at| at.checked_sub(grace));
        return [ready, deleted].into_iter().flatten().max();
    }
    ready
}
