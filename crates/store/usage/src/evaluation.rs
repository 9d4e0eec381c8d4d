//! The time and configuration by which samples are evaluated, and compact timestamps.

use std::sync::OnceLock;
use std::time::Duration;

use kubevitals_model::Timestamp;

use crate::config::UsageConfig;

/// The time before the first tick that can still be represented, in case the clock is set back.
const MARGIN_MILLIS: i64 = 86_400_000;

const MILLIS_PER_TICK: i64 = 100;

/// A time by the clock of this process in tenths of a second, enough for 13 years. Half as large as
/// a [`Timestamp`], since a container has three of them. Zero means never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Tick(u32);

/// The origin of ticks, set by the first evaluation.
#[derive(Debug, Default)]
pub(crate) struct TickOrigin(OnceLock<i64>);

/// The configuration and the current time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Evaluation<'a> {
    pub(crate) config: &'a UsageConfig,
    pub(crate) now: Timestamp,
    origin: i64,
}

impl Tick {
    pub(crate) const NEVER: Self = Self(0);
}

impl TickOrigin {
    pub(crate) fn evaluate<'a>(&self, config: &'a UsageConfig, now: Timestamp) -> Evaluation<'a> {
        let first = || now.unix_millis().saturating_sub(MARGIN_MILLIS);
        let origin = *self.0.get_or_init(first);
        Evaluation {
            config,
            now,
            origin,
        }
    }
}

impl Evaluation<'_> {
    /// Returns the current time, rounded down: a value never looks younger than it is.
    pub(crate) fn tick(&self) -> Tick {
        let elapsed = self.now.unix_millis().saturating_sub(self.origin) / MILLIS_PER_TICK;
        Tick(u32::try_from(elapsed.max(1)).unwrap_or(u32::MAX))
    }

    /// Returns the time since a tick; `None` for never.
    pub(crate) fn age(&self, then: Tick) -> Option<Duration> {
        let then = (then != Tick::NEVER).then(|| {
            self.origin
                .saturating_add(i64::from(then.0) * MILLIS_PER_TICK)
        })?;
        let then = Timestamp::from_unix_millis(then);
        Some(self.now.since(then).unwrap_or_default())
    }

    /// Whether a tick is within the staleness limit.
    pub(crate) fn is_fresh(&self, then: Tick) -> bool {
        self.age(then)
            .is_some_and(|age| age <= self.config.staleness)
    }

    /// Returns the end of the staleness limit, rounded down.
    pub(crate) fn fresh_until(&self, then: Tick) -> Tick {
        let ticks = self.config.staleness.as_millis() / u128::from(MILLIS_PER_TICK.unsigned_abs());
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
        Tick(then.0.saturating_add(ticks))
    }

    /// Returns the time until the scrape that follows `then`; `None` if it is overdue.
    pub(crate) fn due_in(&self, then: Tick) -> Option<Duration> {
        self.config.resolution.checked_sub(self.age(then)?)
    }

    /// Returns the time until `then`; `None` if it has passed.
    pub(crate) fn until(&self, then: Timestamp) -> Option<Duration> {
        then.since(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_never_makes_a_tick_look_younger() {
        let config = UsageConfig::new(Duration::from_secs(15));
        let origin = TickOrigin::default();
        for millis in [0, 99, 100, 4_999] {
            let at = |millis| origin.evaluate(&config, Timestamp::from_unix_millis(millis));
            let then = at(millis).tick();
            let age = at(millis + 45_000).age(then).unwrap();
            assert!(
                age >= Duration::from_secs(45) && age < Duration::from_millis(45_100),
                "{age:?}"
            );
            assert_eq!(at(millis - 5_000).age(then), Some(Duration::ZERO));
        }
        assert_eq!(
            origin
                .evaluate(&config, Timestamp::from_unix_millis(0))
                .age(Tick::NEVER),
            None
        );
    }
}
