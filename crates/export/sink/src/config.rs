use std::time::Duration;

use kubevitals_model::Rng;

/// Limits of a sink. Sizes are in the unit of [`SinkItem::size`](crate::SinkItem::size).
#[derive(Debug, Clone, PartialEq)]
pub struct SinkConfig {
    /// The name of the sink in logs.
    pub name: &'static str,
    /// Maximum size of all items that are queued or in flight.
    pub capacity: usize,
    /// Maximum size of a batch. An item that is larger is a batch by itself.
    pub max_batch: usize,
    /// Maximum wait of a batch that is not full for more items.
    pub linger: Duration,
    pub retry: RetryPolicy,
}

/// Exponential back-off with jitter, for failures without a delay of their own.
#[derive(Debug, Clone, PartialEq)]
pub struct RetryPolicy {
    pub initial_delay: Duration,
    pub max_delay: Duration,
    /// The random part of a delay, from 0 (none) to 1 (all of it).
    pub jitter: f64,
    /// Time after which a batch is dropped; `None` to retry until shutdown.
    pub max_elapsed: Option<Duration>,
}

impl SinkConfig {
    /// The defaults of OpenTelemetry's batch processors, with room for a longer outage.
    pub fn new(name: &'static str) -> Self {
        Self {
            name,
            capacity: 16_384,
            max_batch: 512,
            linger: Duration::from_secs(5),
            retry: RetryPolicy::default(),
        }
    }
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            initial_delay: Duration::from_secs(1),
            max_delay: Duration::from_secs(30),
            jitter: 0.5,
            max_elapsed: Some(Duration::from_mins(5)),
        }
    }
}

impl RetryPolicy {
    /// Returns the delay after `failures` failures in a row, the first being 0.
    pub(crate) fn delay(&self, failures: u32) -> Duration {
        let factor = 1_u32.checked_shl(failures).unwrap_or(u32::MAX);
        let delay = self
            .initial_delay
            .saturating_mul(factor)
            .min(self.max_delay);
        delay.mul_f64(1.0 - self.jitter.clamp(0.0, 1.0) * Rng::random().fraction())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum_and_jitter_shortens_them() {
        let exact = RetryPolicy {
            jitter: 0.0,
            ..RetryPolicy::default()
        };
        let seconds: Vec<u64> = (0..7).map(|n| exact.delay(n).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30]);
        assert_eq!(exact.delay(1_000), exact.max_delay);
        let jittered = RetryPolicy::default();
        for _ in 0..100 {
            let delay = jittered.delay(3);
            assert!(delay >= Duration::from_secs(4) && delay <= Duration::from_secs(8));
        }
    }
}
