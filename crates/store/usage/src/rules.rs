//! The configuration together with the time at which something is decided.

use std::sync::OnceLock;
use std::time::Duration;

use kubevitals_model::Timestamp;

use crate::config::UsageConfig;

/// How long before the first reading of the clock times can still be told apart, should the clock
/// be set back.
const MARGIN_MILLIS: i64 = 86_400_000;

const MILLIS_PER_TICK: i64 = 100;

/// A time of this process's own clock in tenths of a second, which lasts 13 years: half as large as
/// a [`Timestamp`], and a container has three. Zero is never.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Moment(u32);

/// What moments are counted from: set by the first time that is seen.
#[derive(Debug, Default)]
pub(crate) struct Origin(OnceLock<i64>);

/// What is decided by: the configuration, and the time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules<'a> {
    pub(crate) config: &'a UsageConfig,
    pub(crate) now: Timestamp,
    origin: i64,
}

impl Moment {
    pub(crate) const NEVER: Self = Self(0);
}

impl Origin {
    pub(crate) fn rules<'a>(&self, config: &'a UsageConfig, now: Timestamp) -> Rules<'a> {
        let first = || now.unix_millis().saturating_sub(MARGIN_MILLIS);
        let origin = *self.0.get_or_init(first);
        Rules {
            config,
            now,
            origin,
        }
    }
}

impl Rules<'_> {
    /// The time now, rounded down: what is kept never looks younger than it is.
    pub(crate) fn moment(&self) -> Moment {
        let passed = self.now.unix_millis().saturating_sub(self.origin) / MILLIS_PER_TICK;
        Moment(u32::try_from(passed.max(1)).unwrap_or(u32::MAX))
    }

    /// How long ago something was; `None` if it never was.
    pub(crate) fn since(&self, then: Moment) -> Option<Duration> {
        let then = (then != Moment::NEVER).then(|| {
            self.origin
                .saturating_add(i64::from(then.0) * MILLIS_PER_TICK)
        })?;
        let then = Timestamp::from_unix_millis(then);
        Some(self.now.since(then).unwrap_or_default())
    }

    /// Whether something was, and is not too old to be served.
    pub(crate) fn is_fresh(&self, then: Moment) -> bool {
        self.since(then)
            .is_some_and(|age| age <= self.config.staleness)
    }

    /// Until when something is fresh, rounded down.
    pub(crate) fn fresh_until(&self, then: Moment) -> Moment {
        let ticks = self.config.staleness.as_millis() / u128::from(MILLIS_PER_TICK.unsigned_abs());
        let ticks = u32::try_from(ticks).unwrap_or(u32::MAX);
        Moment(then.0.saturating_add(ticks))
    }

    /// When something that is due `resolution` after `then` comes; `None` if it should have come
    /// already.
    pub(crate) fn due_in(&self, then: Moment) -> Option<Duration> {
        self.config.resolution.checked_sub(self.since(then)?)
    }

    /// How far away a time in the future is.
    pub(crate) fn until(&self, then: Timestamp) -> Option<Duration> {
        then.since(self.now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_never_looks_younger_than_it_is() {
        let config = UsageConfig::new(Duration::from_secs(15));
        let origin = Origin::default();
        for millis in [0, 99, 100, 4_999] {
            let at = |millis| origin.rules(&config, Timestamp::from_unix_millis(millis));
            let then = at(millis).moment();
            let age = at(millis + 45_000).since(then).unwrap();
            assert!(
                age >= Duration::from_secs(45) && age < Duration::from_millis(45_100),
                "{age:?}"
            );
            assert_eq!(at(millis - 5_000).since(then), Some(Duration::ZERO));
        }
        assert_eq!(
            origin
                .rules(&config, Timestamp::from_unix_millis(0))
                .since(Moment::NEVER),
            None
        );
    }
}
