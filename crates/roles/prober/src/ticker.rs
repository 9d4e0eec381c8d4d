//! The ticker of reports: the first tick at once, then one in each interval.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep_until, timeout};

/// Ticks in a fixed interval. A tick that takes too long is ended, and ticks that were due
/// meanwhile are left out and counted.
#[derive(Debug)]
pub(crate) struct Ticker {
    interval: Duration,
    next: Instant,
}

/// How a tick ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticked<T> {
    /// `None` if the tick was still running when the next one was due.
    pub(crate) result: Option<T>,
    /// Number of ticks that were due meanwhile and are left out.
    pub(crate) missed: u64,
}

impl Ticker {
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            interval: interval.max(Duration::from_millis(1)),
            next: Instant::now(),
        }
    }

    /// Waits until a tick is due.
    pub(crate) async fn due(&self) {
        sleep_until(self.next).await;
    }

    /// Runs a tick that is due, for at most the interval.
    pub(crate) async fn tick<F: Future>(&mut self, tick: F) -> Ticked<F::Output> {
        let result = timeout(self.interval, tick).await.ok();
        Ticked {
            missed: self.advance(Instant::now()),
            result,
        }
    }

    /// Moves to the next tick after `now` and returns how many were left out. The one that is due
    /// just now is not.
    fn advance(&mut self, now: Instant) -> u64 {
        self.next += self.interval;
        let late = now.saturating_duration_since(self.next);
        let missed = late.as_nanos() / self.interval.as_nanos();
        let missed = u32::try_from(missed).unwrap_or(u32::MAX);
        self.next += self.interval.saturating_mul(missed);
        missed.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::{advance, sleep};

    const INTERVAL: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn the_first_tick_is_due_at_once_and_others_keep_their_rhythm() {
        let start = Instant::now();
        let mut ticker = Ticker::new(INTERVAL);
        for turn in 0..3 {
            ticker.due().await;
            assert_eq!(start.elapsed(), INTERVAL * turn);
            let ticked = ticker.tick(sleep(Duration::from_secs(20))).await;
            assert_eq!(
                ticked,
                Ticked {
                    result: Some(()),
                    missed: 0
                }
            );
        }
    }

    /// A request without a deadline ends the reports of gke-prober for good.
    #[tokio::test(start_paused = true)]
    async fn a_tick_that_hangs_is_ended_when_the_next_is_due() {
        let mut ticker = Ticker::new(INTERVAL);
        ticker.due().await;
        let ticked = ticker.tick(std::future::pending::<()>()).await;
        assert_eq!(
            ticked,
            Ticked {
                result: None,
                missed: 0
            }
        );
        ticker.due().await;
    }

    #[tokio::test(start_paused = true)]
    async fn ticks_that_are_missed_are_counted_and_left_out() {
        let start = Instant::now();
        let mut ticker = Ticker::new(INTERVAL);
        ticker.due().await;
        // The process was suspended in the middle of a tick, for three and a half intervals.
        let ticked = ticker.tick(advance(INTERVAL * 7 / 2)).await;
        assert_eq!(ticked.missed, 2);
        ticker.due().await;
        assert_eq!(start.elapsed(), INTERVAL * 7 / 2);
        assert_eq!(ticker.tick(async {}).await.missed, 0);
        ticker.due().await;
        assert_eq!(start.elapsed(), INTERVAL * 4);
    }
}
