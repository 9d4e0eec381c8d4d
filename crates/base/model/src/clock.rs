//! The clock of a component: the system's, or one that a test steps.
//!
//! Each clock has two readings. The wall clock can be set forwards and backwards at any time: it is
//! for timestamps that are written, and to compare with those of others. Monotonic time only
//! advances: ages, timeouts and limits are measured by it.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime};

use crate::timestamp::Timestamp;

/// The origin of monotonic time in this process.
static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// A source of time. Clones read the same clock.
#[derive(Clone, Default)]
pub struct Clock(Source);

/// A clock that stands still until it is stepped. Clones are the same clock.
#[derive(Debug, Clone)]
pub struct SteppedClock(Arc<Readings>);

/// One reading of a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// The time of day.
    pub wall: Timestamp,
    /// The time since an arbitrary origin, which does not change with the wall clock.
    pub monotonic: Duration,
}

#[derive(Debug)]
struct Readings {
    wall_millis: AtomicI64,
    monotonic_millis: AtomicU64,
}

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

    /// The current time of day.
    pub fn now(&self) -> Timestamp {
        match &self.0 {
            Source::System => Timestamp::from_system_time(SystemTime::now()),
            Source::Stepped(clock) => clock.now(),
        }
    }

    /// The current time by the wall clock and by monotonic time.
    pub fn moment(&self) -> Moment {
        let monotonic = match &self.0 {
            Source::System => ORIGIN.elapsed(),
            Source::Stepped(clock) => clock.monotonic(),
        };
        Moment {
            wall: self.now(),
            monotonic,
        }
    }
}

impl SteppedClock {
    /// A clock that stands at `start`.
    pub fn new(start: Timestamp) -> Self {
        Self(Arc::new(Readings {
            wall_millis: AtomicI64::new(start.unix_millis()),
            monotonic_millis: AtomicU64::new(0),
        }))
    }

    /// The clock to pass to the component under test.
    pub fn clock(&self) -> Clock {
        Clock(Source::Stepped(self.clone()))
    }

    /// The time of day at which the clock stands.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_unix_millis(self.0.wall_millis.load(Ordering::Relaxed))
    }

    /// Sets the wall clock, forwards or backwards. Monotonic time does not change.
    pub fn set(&self, now: Timestamp) {
        self.0
            .wall_millis
            .store(now.unix_millis(), Ordering::Relaxed);
    }

    /// Lets time pass by both readings, and returns the new time of day. It stops at the last
    /// instant that fits.
    pub fn advance(&self, step: Duration) -> Timestamp {
        let now = self.now().checked_add(step);
        let now = now.unwrap_or(Timestamp::from_unix_millis(i64::MAX));
        self.set(now);
        let millis = u64::try_from(step.as_millis()).unwrap_or(u64::MAX);
        let monotonic = self.0.monotonic_millis.load(Ordering::Relaxed);
        self.0
            .monotonic_millis
            .store(monotonic.saturating_add(millis), Ordering::Relaxed);
        now
    }

    fn monotonic(&self) -> Duration {
        Duration::from_millis(self.0.monotonic_millis.load(Ordering::Relaxed))
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
    fn setting_the_wall_clock_does_not_change_monotonic_time() {
        let stepped = SteppedClock::new(Timestamp::from_unix_millis(3_600_000));
        let clock = stepped.clock();
        stepped.advance(Duration::from_secs(2));
        let before = clock.moment().monotonic;
        stepped.set(Timestamp::from_unix_millis(0));
        assert_eq!(clock.moment().monotonic, before);
        stepped.advance(Duration::from_secs(1));
        assert_eq!(
            clock.moment(),
            Moment {
                wall: Timestamp::from_unix_millis(1_000),
                monotonic: Duration::from_secs(3),
            }
        );
    }

    #[test]
    fn monotonic_time_of_the_system_advances() {
        let clock = Clock::system();
        let before = clock.moment();
        assert!(clock.moment().monotonic >= before.monotonic);
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
