//! The clock of the cluster, which a test can step.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use kubevitals_model::Timestamp;

/// The clock of kubelets and the workload.
pub trait Clock: Send + Sync {
    fn now(&self) -> Timestamp;
}

/// The system's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

/// A clock that stands still until it is advanced or set.
#[derive(Debug)]
pub struct StepClock(AtomicI64);

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_system_time(SystemTime::now())
    }
}

impl StepClock {
    /// Returns a clock set to `now`.
    pub fn new(now: Timestamp) -> Self {
        Self(AtomicI64::new(now.unix_millis()))
    }

    /// Advances the clock and returns the new time.
    pub fn advance(&self, by: Duration) -> Timestamp {
        let by = i64::try_from(by.as_millis()).unwrap_or(i64::MAX);
        Timestamp::from_unix_millis(self.0.fetch_add(by, Ordering::SeqCst).saturating_add(by))
    }

    /// Sets the time, which may also go back.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.unix_millis(), Ordering::SeqCst);
    }
}

impl Clock for StepClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_millis(self.0.load(Ordering::SeqCst))
    }
}

/// `at` plus `milliseconds`, saturating.
pub(crate) fn after(at: Timestamp, milliseconds: u64) -> Timestamp {
    Timestamp::from_unix_millis(at.unix_millis().saturating_add_unsigned(milliseconds))
}

/// Milliseconds from `earlier` to `later`, or zero if they are the other way round.
pub(crate) fn millis_between(earlier: Timestamp, later: Timestamp) -> u64 {
    u64::try_from(later.unix_millis().saturating_sub(earlier.unix_millis())).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_clock_moves_only_when_stepped() {
        let clock = StepClock::new(Timestamp::from_unix_millis(1_000));
        assert_eq!(clock.now(), clock.now());
        let later = clock.advance(Duration::from_millis(500));
        assert_eq!(later, Timestamp::from_unix_millis(1_500));
        assert_eq!(clock.now(), later);
    }
}
