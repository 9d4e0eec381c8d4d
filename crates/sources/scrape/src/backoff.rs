//! Backoff after failed scrapes.

use std::time::Duration;

/// Waits after consecutive failures: a short one after the first, since most failures are brief,
/// then doubling up to a few resolutions.
#[derive(Debug, Clone)]
pub(crate) struct Backoff {
    resolution: Duration,
    failures: u32,
    random: u64,
}

/// Maximum wait in resolutions.
const MAX_WAIT: f64 = 4.0;
const MIN_WAIT: Duration = Duration::from_secs(1);

impl Backoff {
    pub(crate) fn new(resolution: Duration, node: &str) -> Self {
        let seed = node.bytes().fold(0x9e37_79b9_7f4a_7c15, |seed: u64, byte| {
            (seed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self {
            resolution,
            failures: 0,
            random: seed | 1,
        }
    }

    /// Records a failure and returns the wait before the next attempt.
    pub(crate) fn failed(&mut self) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let doublings = i32::try_from(self.failures.min(10)).unwrap_or(10);
        // A third, then one, two, four resolutions.
        let part = match doublings {
            1 => 1.0 / 3.0,
            n => 2_f64.powi(n - 2).min(MAX_WAIT),
        };
        // Up to an eighth more, so that nodes which fail together are not retried together.
        let more = 1.0 + self.draw() / 8.0;
        self.resolution.mul_f64(part * more).max(MIN_WAIT)
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    fn draw(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let upper = u32::try_from(self.random >> 32).unwrap_or(0);
        f64::from(upper) / (f64::from(u32::MAX) + 1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_few_resolutions_and_start_over() {
        let resolution = Duration::from_secs(15);
        let mut backoff = Backoff::new(resolution, "node-a");
        let waits: Vec<f64> = (0..6).map(|_| backoff.failed().as_secs_f64()).collect();
        for (wait, least) in waits.iter().zip([5.0, 15.0, 30.0, 60.0, 60.0, 60.0]) {
            assert!((least..=least * 1.126).contains(wait), "{waits:?}");
        }
        backoff.reset();
        assert!(backoff.failed() < Duration::from_secs(6));
        let mut other = Backoff::new(resolution, "node-b");
        assert!(
            (other.failed().as_secs_f64() - waits[0]).abs() > 1e-9,
            "nodes differ"
        );
    }
}
