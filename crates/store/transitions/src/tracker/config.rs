//! Configuration and counters of a tracker.

use std::time::Duration;

use kubevitals_model::{Condition, Pod, Timestamp};

use super::Arrival;
use super::checkpoint::Checkpoint;
use crate::lifecycle::{StartupReport, was_ready};

#[derive(Debug, Clone)]
pub struct TrackerConfig {
    /// Wait of due records for late events; `None` until
    /// [`Tracker::finish`](super::Tracker::finish).
    pub linger: Option<Duration>,
    /// The pods that existed before the tracker whose starts are emitted.
    pub existing: Existing,
    /// Whether every change before a pod is ready is emitted.
    pub progress: bool,
    /// Whether the watch selects pods by labels or fields: then a pod may leave it without being
    /// deleted.
    pub has_selector: bool,
    /// Maximum number of tracked pods; those beyond are counted and ignored.
    pub max_pods: usize,
    /// Maximum number of deleted pods that wait for late events; the oldest is emitted early.
    pub max_ended: usize,
    /// Maximum number of pods known only from events; the oldest is dropped.
    pub max_early: usize,
}

/// The pods that existed before the tracker whose starts are emitted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Those still starting, and those that started since the checkpoint of another replica.
    Unsettled {
        /// `None` if there was no other replica.
        since: Option<Checkpoint>,
    },
    All,
}

/// The inputs of a tracker by result, and the records it did not emit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// States that were new.
    pub states: u64,
    /// States that were known or older than the known one.
    pub repeated: u64,
    /// Events that were applied, or kept for a pod that is yet to be seen.
    pub events: u64,
    /// Events without relevant facts.
    pub events_ignored: u64,
    /// Events of pods whose lifecycles were emitted.
    pub events_late: u64,
    /// Old events in lists, of unknown pods.
    pub events_stale: u64,
    /// Pods whose events were dropped because they were not seen in time.
    pub early_dropped: u64,
    /// States of pods beyond [`TrackerConfig::max_pods`].
    pub rejected: u64,
    /// Pods found missing after a gap in the watch.
    pub vanished: u64,
    /// Records that the leader emitted.
    pub leader_emitted: u64,
    /// Records dropped from the full queue of a standby.
    pub standby_dropped: u64,
}

impl Default for TrackerConfig {
    fn default() -> Self {
        Self {
            linger: Some(Duration::from_secs(3)),
            existing: Existing::Unsettled { since: None },
            progress: false,
            has_selector: false,
            max_pods: 1_000_000,
            max_ended: 50_000,
            max_early: 10_000,
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
            StartupReport::Skipped
        }
    }
}

/// Whether the start of a pod that was not watched is decided.
fn has_settled(pod: &Pod) -> bool {
    pod.summary.phase.is_final()
        || pod.meta.deleted.is_some()
        || was_ready(pod)
        || Condition::find(&pod.conditions, "Ready").is_some_and(Condition::is_true)
}

/// The latest time at which the start of a pod was decided, by the API's time.
pub(super) fn settled_at(pod: &Pod) -> Option<Timestamp> {
    let ready = Condition::find(&pod.conditions, "Ready").and_then(|ready| ready.last_transition);
    if pod.summary.phase.is_final() || pod.meta.deleted.is_some() {
        // It may have been ready before: the later time is the safer.
        let grace = Duration::from_secs(pod.meta.deletion_grace.unwrap_or(0).into());
        let deleted = pod.meta.deleted.and_then(|at| at.checked_sub(grace));
        return [ready, deleted].into_iter().flatten().max();
    }
    ready
}
