//! When the runs of one target are due.

use std::time::Duration;

use kubevitals_model::Rng;
use tokio::time::Instant;

/// Maximum wait for the first run: a probe with an interval of an hour should not be silent for
/// an hour after a start.
const MAX_FIRST_WAIT: Duration = Duration::from_mins(1);

/// Minimum interval, whatever is configured.
const MIN_INTERVAL: Duration = Duration::from_millis(10);

/// Ticks at equal distances, each late by a random time up to the jitter. The first one has an
/// offset that depends on the name alone, so that the targets are spread over the interval.
#[derive(Debug)]
pub(crate) struct Schedule {
    /// Interval and jitter, as they were given.
    settings: (Duration, Duration),
    interval: Duration,
    jitter: Duration,
    tick: Instant,
    due: Instant,
    rng: Rng,
}

impl Schedule {
    pub(crate) fn new(name: &str, interval: Duration, jitter: Duration, now: Instant) -> Self {
        let settings = (interval, jitter);
        let interval = interval.max(MIN_INTERVAL);
        let mut rng = Rng::named(name);
        let tick = later(now, rng.duration_up_to(interval.min(MAX_FIRST_WAIT)));
        Self {
            settings,
            interval,
            // A tick must not move past the next one.
            jitter: jitter.min(interval),
            tick,
            due: tick,
            rng,
        }
    }

    /// Whether it was made for this interval and jitter.
    pub(crate) fn is_for(&self, interval: Duration, jitter: Duration) -> bool {
        self.settings == (interval, jitter)
    }

    pub(crate) fn due(&self) -> Instant {
        self.due
    }

    /// Moves to the next tick that is not over. Returns how many were missed.
    pub(crate) fn advance(&mut self, now: Instant) -> u64 {
        let next = later(self.tick, self.interval);
        let behind = now.saturating_duration_since(next).as_nanos();
        let interval = self.interval.as_nanos().max(1);
        // A tick at this very moment is not missed.
        let missed = u32::try_from(behind.div_ceil(interval)).unwrap_or(u32::MAX);
        let skipped = self.interval.checked_mul(missed).unwrap_or(Duration::MAX);
        self.tick = later(next, skipped).max(next);
        self.due = later(self.tick, self.rng.duration_up_to(self.jitter));
        u64::from(missed)
    }
}

/// A moment that cannot be expressed is none that will be reached: an hour from `now` instead.
fn later(now: Instant, wait: Duration) -> Instant {
    let hour = Duration::from_hours(1);
    now.checked_add(wait)
        .or_else(|| now.checked_add(hour))
        .unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    #[test]
    fn the_first_run_is_spread_over_the_interval_and_the_same_for_a_name() {
        let now = Instant::now();
        let first = |name: &str| Schedule::new(name, INTERVAL, Duration::ZERO, now).due() - now;
        assert_eq!(first("a"), first("a"));
        let waits: Vec<_> = (0..200).map(|n| first(&format!("target-{n}"))).collect();
        assert!(waits.iter().all(|wait| *wait < INTERVAL));
        for third in 0..3 {
            let from = INTERVAL / 3 * third;
            let there = waits
                .iter()
                .filter(|w| **w >= from && **w < from + INTERVAL / 3);
            assert!(there.count() > 30, "few first runs in third {third}");
        }
    }

    #[test]
    fn a_long_interval_does_not_delay_the_first_run_for_long() {
        let now = Instant::now();
        let hour = Duration::from_hours(1);
        let schedule = Schedule::new("a", hour, Duration::ZERO, now);
        assert!(schedule.due() - now < MAX_FIRST_WAIT);
    }

    #[test]
    fn ticks_keep_their_distance_whatever_the_runs_take() {
        let mut schedule = Schedule::new("a", INTERVAL, Duration::ZERO, Instant::now());
        let first = schedule.due();
        assert_eq!(schedule.advance(first + Duration::from_secs(29)), 0);
        assert_eq!(schedule.due(), first + INTERVAL);
        assert_eq!(schedule.advance(first + 2 * INTERVAL), 0);
        assert_eq!(schedule.due(), first + 2 * INTERVAL);
    }

    #[test]
    fn ticks_that_are_over_are_missed_and_counted() {
        let mut schedule = Schedule::new("a", INTERVAL, Duration::ZERO, Instant::now());
        let first = schedule.due();
        assert_eq!(schedule.advance(first + Duration::from_secs(75)), 2);
        assert_eq!(schedule.due(), first + 3 * INTERVAL);
    }

    #[test]
    fn jitter_delays_each_run_by_less_than_itself() {
        let jitter = Duration::from_secs(3);
        let mut schedule = Schedule::new("a", INTERVAL, jitter, Instant::now());
        let first = schedule.due();
        let mut delays = Vec::new();
        for tick in 1..100_u32 {
            assert_eq!(schedule.advance(schedule.due()), 0);
            delays.push(schedule.due() - (first + INTERVAL * tick));
        }
        assert!(delays.iter().all(|delay| *delay < jitter));
        assert!(delays.iter().max() > delays.iter().min());
    }

    #[test]
    fn absurd_intervals_do_not_panic() {
        let now = Instant::now();
        for interval in [Duration::ZERO, Duration::MAX] {
            let mut schedule = Schedule::new("a", interval, Duration::MAX, now);
            schedule.advance(now);
            schedule.advance(now + Duration::from_secs(1_000_000));
        }
    }
}
