//! The wall clock of a component: the system's, or one that a test steps.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime};

use crate::timestamp::Timestamp;

/// A source of wall-clock time. Clones read the same clock.
#[derive(Clone, Default)]
pub struct Clock(Source);

/// A clock that stands still until it is stepped. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct SteppedClock(Arc<AtomicI64>);

#[derive(Clone, Default)]
enum Source {
    #[default]
    System,
    Stepped(SteppedClock),
}

impl Clock {
    /// The clock of the operating system.
    pub const fn system() -> Self {
        Self(Source::System)
    }

    /// The current time.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => Timestamp::from_system_time(SystemTime::now()),
            Source::Stepped(clock) => clock.now(),
        }
    }
}

impl SteppedClock {
    /// A clock that stands at `start`.
    pub fn new(start: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(start.unix_millis())))
    }

    /// The clock to pass to the component under test.
    pub fn clock(&self) -> Clock {
        Clock(Source::Stepped(self.clone()))
    }

    /// The time at which the clock stands.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_unix_millis(self.0.load(Ordering::Relaxed))
    }

    /// Sets the time, forwards or backwards.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.unix_millis(), Ordering::Relaxed);
    }

    /// Moves the clock forward and returns the new time. It stops at the last instant that fits.
    pub fn advance(&self, step: Duration) -> Timestamp {
        let now = self.now().checked_add(step);
        let now = now.unwrap_or(Timestamp::from_unix_millis(i64::MAX));
        self.set(now);
        now
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = match &self.0 {
            Source::System => "system",
            Source::Stepped(_) => "stepped",
        };
        write!(f, "Clock({source}, {})", self.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stepped_clock_moves_only_when_stepped() {
        let start = Timestamp::from_unix_millis(1_000);
        let stepped = SteppedClock::new(start);
        let clock = stepped.clock();
        assert_eq!(clock.now(), start);
        assert_eq!(stepped.advance(Duration::from_millis(5)), clock.now());
        assert_eq!(clock.clone().now(), Timestamp::from_unix_millis(1_005));
        stepped.set(start);
        assert_eq!(clock.now(), start);
    }

    #[test]
    fn a_stepped_clock_stops_at_the_last_instant() {
        let stepped = SteppedClock::new(Timestamp::from_unix_millis(0));
        stepped.advance(Duration::MAX);
        assert_eq!(stepped.now(), Timestamp::from_unix_millis(i64::MAX));
    }

    #[test]
    fn the_system_clock_reads_the_system_time() {
        let before = Timestamp::from_system_time(SystemTime::now());
        assert!(Clock::system().now() >= before);
    }
}
