//! The time and configuration by which samples are evaluated, and compact timestamps.

use std::time::Duration;

use kubevitals_model::{Moment, Timestamp};

use crate::config::UsageConfig;

const MILLIS_PER_TICK: u64 = 100;

/// A monotonic time in tenths of a second, enough for 13 years of uptime. Half as large as a
/// [`Timestamp`], since a container has three of them. Zero means never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Tick(u32);

/// The configuration and the current time.
///
/// Ages are monotonic: a wall clock that is set forward must not expire values that were just
/// received, and one that is set back must not keep those of a dead node.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evaluation<'a> {
    pub(crate) config: &'a UsageConfig,
    /// The time of day, for what is written and for comparison with the clocks of nodes.
    pub(crate) wall: Timestamp,
    monotonic: Duration,
}

impl Tick {
    pub(crate) const NEVER: Self = Self(0);
}

impl<'a> Evaluation<'a> {
    pub(crate) fn new(config: &'a UsageConfig, now: Moment) -> Self {
        Self {
            config,
            wall: now.wall,
            monotonic: now.monotonic,
        }
    }

    /// Returns the current time, rounded down: a value never looks younger than it is.
    pub(crate) fn tick(&self) -> Tick {
        let elapsed = self.monotonic.as_millis() / u128::from(MILLIS_PER_TICK);
        Tick(u32::try_from(elapsed + 1).unwrap_or(u32::MAX))
    }

    /// Returns the time since a tick; `None` for never.
    pub(crate) fn age(&self, then: Tick) -> Option<Duration> {
        let elapsed = u64::from(then.0.checked_sub(1)?) * MILLIS_PER_TICK;
        Some(self.since(Duration::from_millis(elapsed)))
    }

    /// Returns the time since a monotonic time.
    pub(crate) fn since(&self, then: Duration) -> Duration {
        self.monotonic.saturating_sub(then)
    }

    /// Returns the monotonic time.
    pub(crate) fn monotonic(&self) -> Duration {
        self.monotonic
    }

    /// Whether a tick is within the staleness limit.
    pub(crate) fn is_fresh(&self, then: Tick) -> bool {
        self.age(then)
            .is_some_and(|age| age <= self.config.staleness)
    }

    /// Returns the end of the staleness limit, rounded down.
    pub(crate) fn fresh_until(&self, then: Tick) -> Tick {
        let ticks = self.config.staleness.as_millis() / u128::from(MILLIS_PER_TICK);
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
        Tick(then.0.saturating_add(ticks))
    }

    /// Returns the time until the scrape that follows `then`; `None` if it is overdue.
    pub(crate) fn due_in(&self, then: Tick) -> Option<Duration> {
        self.config.resolution.checked_sub(self.age(then)?)
    }

    /// Returns the time until a monotonic time; `None` if it has passed.
    pub(crate) fn until(&self, then: Duration) -> Option<Duration> {
        then.checked_sub(self.monotonic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_never_makes_a_tick_look_younger() {
        let config = UsageConfig::new(Duration::from_secs(15));
        let at = |millis| {
            let now = Moment {
                wall: Timestamp::from_unix_millis(0),
                monotonic: Duration::from_millis(millis),
            };
            Evaluation::new(&config, now)
        };
        for millis in [0, 99, 100, 4_999] {
            let then = at(millis).tick();
            let age = at(millis + 45_000).age(then).unwrap();
            assert!(
                age >= Duration::from_secs(45) && age < Duration::from_millis(45_100),
                "{age:?}"
            );
            assert_eq!(at(0).age(then), Some(Duration::ZERO));
        }
        assert_eq!(at(0).age(Tick::NEVER), None);
    }
}
