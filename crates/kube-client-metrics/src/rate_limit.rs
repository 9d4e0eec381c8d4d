//! A client-side rate limiter: client-go's token bucket, as a layer.
//!
//! kube has none, since API servers have priority and fairness. Programs that come from client-go
//! know it by its flags `--kube-api-qps` and `--kube-api-burst`.

mod layer;

use std::sync::Arc;
use std::time::Duration;

pub use layer::{RateLimitLayer, RateLimited, RateLimitedFuture};
use parking_lot::Mutex;
use tokio::time::Instant;

/// A token bucket: requests per second, and how many may be sent at once after a pause. Clones
/// share it, as the clients of a process should.
#[derive(Clone, Debug)]
pub struct RateLimiter {
    bucket: Arc<Bucket>,
}

#[derive(Debug)]
struct Bucket {
    /// Tokens per second; `None` without a limit.
    rate: Option<f64>,
    burst: f64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Negative if requests wait.
    tokens: f64,
    /// When the tokens were counted.
    counted_at: Instant,
    /// When the last request that waits may be sent.
    last_turn: Instant,
}

impl RateLimiter {
    /// client-go's requests per second of a client that does not say.
    pub const DEFAULT_QPS: f64 = 5.0;

    /// client-go's burst of a client that does not say.
    pub const DEFAULT_BURST: u32 = 10;

    /// Creates a full bucket. As in client-go, a rate that is not positive does not limit; a burst
    /// of zero would block all requests and counts as one.
    pub fn new(qps: f64, burst: u32) -> Self {
        let now = Instant::now();
        let burst = f64::from(burst.max(1));
        Self {
            bucket: Arc::new(Bucket {
                rate: (qps > 0.0 && qps.is_finite()).then_some(qps),
                burst,
                state: Mutex::new(State {
                    tokens: burst,
                    counted_at: now,
                    last_turn: now,
                }),
            }),
        }
    }

    /// Takes a token and returns when the request may be sent.
    fn reserve(&self, now: Instant) -> Instant {
        let Some(rate) = self.bucket.rate else {
            return now;
        };
        let mut state = self.bucket.state.lock();
        state.count(now, rate, self.bucket.burst);
        state.tokens -= 1.0;
        let wait = Duration::try_from_secs_f64(-state.tokens / rate);
        // Negative if there was a token.
        let turn = now.checked_add(wait.unwrap_or_default()).unwrap_or(now);
        state.last_turn = turn;
        turn
    }

    /// Gives a token back that was reserved for `turn` and not used. As in Go, not what requests
    /// that wait behind it have counted on: they keep their turns.
    fn cancel(&self, turn: Instant, now: Instant) {
        let Some(rate) = self.bucket.rate else { return };
        if turn <= now {
            return;
        }
        let mut state = self.bucket.state.lock();
        let behind = state.last_turn.saturating_duration_since(turn);
        let unused = 1.0 - behind.as_secs_f64() * rate;
        if unused <= 0.0 {
            return;
        }
        state.count(now, rate, self.bucket.burst);
        state.tokens = (state.tokens + unused).min(self.bucket.burst);
        if turn == state.last_turn {
            let before = Duration::try_from_secs_f64(1.0 / rate).unwrap_or_default();
            let previous = turn.checked_sub(before).unwrap_or(now);
            state.last_turn = previous.max(now);
        }
    }
}

impl Default for RateLimiter {
    /// client-go's rate and burst of a client that does not say.
    fn default() -> Self {
        Self::new(Self::DEFAULT_QPS, Self::DEFAULT_BURST)
    }
}

impl State {
    /// Adds the tokens of the time that has passed.
    fn count(&mut self, now: Instant, rate: f64, burst: f64) {
        let passed = now.saturating_duration_since(self.counted_at);
        self.tokens = (self.tokens + passed.as_secs_f64() * rate).min(burst);
        self.counted_at = self.counted_at.max(now);
    }
}

#[cfg(test)]
mod tests;
