//! The schedule of scrapes: each node once per resolution, at its own offset.
//!
//! cAdvisor samples each container by its own timer with jitter: a wait of once to twice its
//! interval, drawn anew each time. At every moment some samples are new and some are old, so
//! that no moment is better than another. Scrapes that are evenly apart give the freshest values
//! (ADR 0022).

use std::time::Duration;

use kubevitals_model::{Rng, Timestamp};

/// Minimum time between two scrapes.
const MIN_WAIT: Duration = Duration::from_secs(1);
/// Maximum wait for the second samples that rates need: about a third of all containers have one by
/// then.
const MAX_SETTLING_WAIT: Duration = Duration::from_secs(5);

/// The schedule of one node.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    resolution: Duration,
    /// The node's slot in the resolution. It depends on the name alone and spreads the nodes.
    offset: Duration,
    /// Wait for second samples, spread likewise.
    settling_wait: Duration,
    /// The newest sample of the last response, by the kubelet's clock.
    newest: Option<Timestamp>,
    /// Whether usage depends on a second sample that is yet to come.
    needs_second_sample: bool,
}

impl Schedule {
    pub(crate) fn new(resolution: Duration, node: &str) -> Self {
        let resolution = resolution.max(MIN_WAIT);
        let position = Rng::named(node).fraction();
        let spread = Duration::from_secs(1).mul_f64(position);
        Self {
            resolution,
            offset: whole_millis(resolution.mul_f64(position)),
            settling_wait: whole_millis(MAX_SETTLING_WAIT.saturating_sub(spread)).min(resolution),
            newest: None,
            needs_second_sample: true,
        }
    }

    /// Records that the kubelet reported usage itself, which then needs no second sample.
    pub(crate) fn set_warm(&mut self) {
        self.needs_second_sample = false;
    }

    /// Records the newest sample of a response. Returns whether it is newer than that of the
    /// previous response; a response without timestamps always counts as new.
    pub(crate) fn observe(&mut self, newest: Option<Timestamp>) -> bool {
        let Some(newest) = newest else {
            return true;
        };
        match self.newest.replace(newest) {
            None => true,
            Some(previous) => {
                self.needs_second_sample = false;
                newest > previous
            }
        }
    }

    /// Returns the wait from a scrape, which began `since_start` after the scraper did, until the
    /// next one. It is never longer than the resolution.
    pub(crate) fn next_wait(&self, since_start: Duration) -> Duration {
        let wait = if self.newest.is_some() && self.needs_second_sample {
            self.settling_wait
        } else {
            self.wait_for_slot(since_start)
        };
        wait.max(MIN_WAIT)
    }

    /// Returns the wait until the node's slot in the resolution. A wait is shortened by at most a
    /// quarter of the resolution until scrapes fall on the slot: no wait is longer than the
    /// resolution, and the burst of a start is spread within four scrapes.
    fn wait_for_slot(&self, since_start: Duration) -> Duration {
        let since_slot = (since_start + self.resolution).saturating_sub(self.offset);
        let late = since_slot.as_nanos() % self.resolution.as_nanos();
        let late = Duration::from_nanos(u64::try_from(late).unwrap_or(0));
        self.resolution
            .saturating_sub(late.min(self.resolution / 4))
    }
}

fn whole_millis(duration: Duration) -> Duration {
    Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
