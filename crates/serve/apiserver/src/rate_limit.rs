//! A limit of the rate of requests to the cluster's API server.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum wait. A request that would wait longer is rejected.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// A rate, and how many requests may exceed it at once.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rate {
    pub(crate) per_second: u32,
    pub(crate) burst: u32,
}

/// A token bucket, kept as the time at which it is full again.
pub(crate) struct RateLimit {
    /// Time between two requests.
    interval: Duration,
    burst: Duration,
    full_at: Mutex<Instant>,
}

impl RateLimit {
    pub(crate) fn new(rate: Rate) -> Self {
        let interval = Duration::from_secs(1) / rate.per_second.max(1);
        Self {
            interval,
            burst: interval * rate.burst,
            full_at: Mutex::new(Instant::now()),
        }
    }

    /// Waits for a turn; `None` if the wait would be too long.
    pub(crate) async fn acquire(&self) -> Option<()> {
        let turn = self.reserve(Instant::now())?;
        if turn > Instant::now() {
            tokio::time::sleep_until(turn).await;
        }
        Some(())
    }

    fn reserve(&self, now: Instant) -> Option<Instant> {
        let mut full_at = self.full_at.lock();
        let next = (*full_at).max(now) + self.interval;
        let turn = (next - self.burst.min(next - now)).max(now);
        if turn - now > MAX_WAIT {
            return None;
        }
        *full_at = next;
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_followed_by_the_rate() {
        let limit = RateLimit::new(Rate {
            per_second: 100,
            burst: 10,
        });
        let now = Instant::now();
        let waits: Vec<_> = (0..100)
            .map_while(|_| limit.reserve(now))
            .map(|turn| turn - now)
            .collect();
        assert_eq!(waits.iter().filter(|wait| wait.is_zero()).count(), 10);
        assert_eq!(waits.get(10), Some(&Duration::from_millis(10)));
        assert_eq!(waits.last(), Some(&MAX_WAIT));
        assert_eq!(limit.reserve(now), None);
        // After a pause the burst is there again, and no more.
        let later = now + Duration::from_mins(1);
        let at_once = (0..100).map_while(|_| limit.reserve(later));
        assert_eq!(at_once.filter(|turn| *turn == later).count(), 10);
    }
}
