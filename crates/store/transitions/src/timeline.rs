//! One clock for the times of a record.
//!
//! The times of a record come from three hosts: the API server stamps creation, scheduling and
//! deletion, the node everything that the kubelet reports, and this process the receipt of states.
//! A pod that is watched from its creation shows how far the three disagree: the receipt of a state
//! follows its stamp within a second or two.

use kubevitals_model::Timestamp;

use crate::moment::Moment;
use crate::record::PodRecord;

/// A smaller difference is not corrected: stamps have whole seconds, and states take a moment to
/// arrive.
const TOLERANCE_MS: i64 = 2_000;

/// Corrections that put the times of a record on the clock of the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Timeline {
    /// Added to stamps of the node.
    node_ms: i64,
    /// Added to times of the observer.
    observer_ms: i64,
}

impl Timeline {
    /// A moment that the API server stamped: creation, scheduling, deletion.
    pub fn api_server(self, moment: Moment) -> Moment {
        Moment {
            api: moment.api,
            observed: moment.observed.map(|time| shifted(time, self.observer_ms)),
        }
    }

    /// A moment that the kubelet stamped.
    pub fn node(self, moment: Moment) -> Moment {
        Moment {
            api: moment.api.map(|time| self.node_time(time)),
            ..self.api_server(moment)
        }
    }

    /// A stamp of the kubelet, such as the time of an event.
    pub fn node_time(self, time: Timestamp) -> Timestamp {
        shifted(time, self.node_ms)
    }

    /// Whether the clocks of the API server and the node disagree.
    pub fn is_skewed(self) -> bool {
        self.node_ms != 0
    }

    pub(crate) fn observer_time(self, time: Timestamp) -> Timestamp {
        shifted(time, self.observer_ms)
    }
}

impl PodRecord {
    /// The corrections of this record: none where it was not watched from its creation.
    pub fn timeline(&self) -> Timeline {
        let reached = &self.milestones;
        let by_api_server = [Some(reached.created), reached.scheduled];
        let Some(api_server) = delay(by_api_server).filter(|_| !self.reconstructed) else {
            return Timeline::default();
        };
        let by_node = [
            reached.accepted,
            reached.sandbox,
            reached.initialized,
            reached.containers_ready,
            reached.ready,
        ];
        let runs = self.containers.iter().map(|container| container.running);
        let by_node = || by_node.into_iter().chain(runs.clone());
        let node_ms = delay(by_node()).map_or(0, |node| node.saturating_sub(api_server));
        // A clock that is behind looks like one late report, but not like several.
        let node_ms = if node_ms > 0 && !are_several_states(by_node()) {
            0
        } else {
            node_ms
        };
        let beyond_tolerance = |difference: i64| {
            if difference.abs() > TOLERANCE_MS {
                difference
            } else {
                0
            }
        };
        Timeline {
            node_ms: beyond_tolerance(node_ms),
            observer_ms: beyond_tolerance(api_server.saturating_neg()),
        }
    }
}

/// The shortest time from a stamp to its receipt, in milliseconds: the others arrived late.
fn delay(moments: impl IntoIterator<Item = Option<Moment>>) -> Option<i64> {
    let delay = |moment: Moment| {
        let (api, observed) = moment.api.zip(moment.observed)?;
        Some(observed.unix_millis().saturating_sub(api.unix_millis()))
    };
    moments.into_iter().flatten().filter_map(delay).min()
}

/// Whether the moments were observed in more than one state.
fn are_several_states(moments: impl IntoIterator<Item = Option<Moment>>) -> bool {
    let mut observed = moments
        .into_iter()
        .flatten()
        .filter_map(|moment| moment.observed);
    let first = observed.next();
    observed.any(|time| Some(time) != first)
}

fn shifted(time: Timestamp, by_ms: i64) -> Timestamp {
    Timestamp::from_unix_millis(time.unix_millis().saturating_add(by_ms))
}
