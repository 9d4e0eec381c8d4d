//! The schedule of scrapes: each node once per resolution, at its own offset.
//!
//! cAdvisor samples each container by its own timer with jitter: a wait of once to twice its
//! interval, drawn anew each time. At every moment some samples are new and some are old, so
//! that no moment is better than another. Scrapes that are evenly apart give the freshest values
//! (ADR 0022).
//!
//! The offset is anchored at the wall clock: all replicas scrape a node at the same moment and
//! serve the same sample of it (ADR 0033).

use std::time::Duration;

use kubevitals_model::{Rng, Timestamp};

use crate::inner::START_INTERVAL;
use crate::sink::Coverage;

/// Minimum time between two scrapes.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// The wait for second samples. Kubelets sample every 10 to 15 s, some containers every 20 s: the
/// third early scrape comes when nearly all have been sampled again.
const EARLY_WAIT: Duration = Duration::from_secs(5);

/// The spread of early scrapes of nodes that were first scraped together.
const EARLY_SPREAD: Duration = Duration::from_millis(100);

/// Maximum number of early scrapes after a start or an outage: a container that is stuck never has
/// a second sample.
const MAX_EARLY: u8 = 4;

/// The schedule of one node.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    resolution: Duration,
    /// The node's slot in the resolution. It depends on the name alone and spreads the nodes.
    offset: Duration,
    early_wait: Duration,
    /// Number of early scrapes that are left.
    early: u8,
    /// The time from the last scrape until the next early one.
    until_early: Duration,
    /// The newest sample of the last response, by the kubelet's clock.
    newest: Option<Timestamp>,
    /// The number of the last slot that was scraped; 0 for none.
    slot: u32,
}

impl Schedule {
    pub(crate) fn new(resolution: Duration, node: &str) -> Self {
        let resolution = resolution.max(MIN_WAIT);
        let position = Rng::named(node).fraction();
        let offset = resolution.mul_f64(position);
        let early_wait = EARLY_WAIT + EARLY_SPREAD.mul_f64(position);
        Self {
            resolution,
            offset: offset.saturating_sub(remainder(offset, START_INTERVAL)),
            early_wait,
            early: MAX_EARLY,
            until_early: early_wait,
            newest: None,
            slot: 0,
        }
    }

    pub(crate) fn resolution(&self) -> Duration {
        self.resolution
    }

    /// Allows early scrapes again, since an outage may have cost the samples that rates need.
    pub(crate) fn on_failure(&mut self) {
        self.early = MAX_EARLY;
        self.until_early = self.early_wait;
    }

    /// Records the newest sample of a response. Returns whether it is newer than that of the
    /// previous response; a response without timestamps always counts as new.
    pub(crate) fn observe(&mut self, newest: Option<Timestamp>) -> bool {
        let Some(newest) = newest else {
            return true;
        };
        self.newest
            .replace(newest)
            .is_none_or(|previous| newest > previous)
    }

    /// Returns the wait until the next scrape after one that began at `wall`, a time since the
    /// epoch by the wall clock. It is at most a second longer than the resolution.
    pub(crate) fn next_wait(&mut self, wall: Duration, coverage: Coverage) -> Duration {
        let slot = self.wait_for_slot(wall);
        let early = match coverage {
            Coverage::Complete => {
                self.early = 0;
                return slot;
            }
            Coverage::AwaitsSamples => self.until_early.max(MIN_WAIT),
            Coverage::UnknownNode => MIN_WAIT,
        };
        if self.early == 0 {
            return slot;
        }
        if slot < early {
            self.until_early = self.until_early.saturating_sub(slot);
            return slot;
        }
        self.early -= 1;
        // A scrape just before the slot would take its place, and show an older sample than other
        // replicas: the slot takes its place instead.
        if slot < early + self.lead() {
            self.until_early = self.early_wait.saturating_sub(slot.saturating_sub(early));
            return slot;
        }
        self.until_early = self.early_wait;
        early
    }

    /// Returns the wait until the node's next slot by the wall clock. It is computed anew for each
    /// scrape: a clock that is set forward or back moves one scrape, and none is left out. A slot
    /// that is too close, since the clock was adjusted or the server has just started, is left to
    /// the scrape that has just begun.
    pub(crate) fn wait_for_slot(&self, wall: Duration) -> Duration {
        let phase = remainder(wall, self.resolution);
        let next = (self.offset + self.resolution).saturating_sub(phase);
        let wait = self.offset.checked_sub(phase).unwrap_or(next);
        if wait < self.lead() {
            wait + self.resolution
        } else {
            wait
        }
    }

    /// Whether a scrape that began at `wall` is the first since the node's slot.
    pub(crate) fn is_slot_due(&self, wall: Duration) -> bool {
        self.slot != self.slot_at(wall)
    }

    /// Records that a scrape that began at `wall` has succeeded.
    pub(crate) fn scraped_slot(&mut self, wall: Duration) {
        self.slot = self.slot_at(wall);
    }

    /// Returns the number of the slot that a scrape belongs to: the last one, or one that is too
    /// close for another scrape.
    fn slot_at(&self, wall: Duration) -> u32 {
        let until = wall + self.resolution + self.lead();
        let since = until.saturating_sub(self.offset + Duration::from_nanos(1));
        u32::try_from(since.as_nanos() / self.resolution.as_nanos().max(1)).unwrap_or(u32::MAX)
    }

    /// The time before a slot in which a scrape takes its place.
    pub(crate) fn lead(&self) -> Duration {
        MIN_WAIT.min(self.resolution / 4)
    }
}

fn remainder(duration: Duration, divisor: Duration) -> Duration {
    let nanos = duration.as_nanos() % divisor.as_nanos().max(1);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

#[cfg(test)]
mod tests;
