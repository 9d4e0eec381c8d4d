//! A histogram of durations in plain arrays.

use std::time::Duration;

/// Upper bounds of the buckets, in seconds: those that OpenTelemetry recommends for durations of
/// requests, and two below, because targets inside a cluster answer within a millisecond.
pub const BUCKETS: [f64; 16] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
];

/// Durations, counted by bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Histogram {
    /// Counts by bucket, not cumulative. The last one has no upper bound.
    counts: [u64; BUCKETS.len() + 1],
    sum: Duration,
}

impl Histogram {
    pub fn observe(&mut self, duration: Duration) {
        let seconds = duration.as_secs_f64();
        let bucket = BUCKETS.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count = count.saturating_add(1);
        }
        self.sum = self.sum.saturating_add(duration);
    }

    /// Number of observations.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, n| sum.saturating_add(*n))
    }

    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// Counts by bucket, not cumulative. The last one has no upper bound.
    pub fn counts(&self) -> &[u64; BUCKETS.len() + 1] {
        &self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_counts_in_the_first_bucket_that_holds_it() {
        let mut histogram = Histogram::default();
        histogram.observe(Duration::ZERO);
        histogram.observe(Duration::from_millis(1));
        histogram.observe(Duration::from_micros(1_001));
        histogram.observe(Duration::from_secs(10));
        histogram.observe(Duration::from_secs(11));
        let counts = histogram.counts();
        assert_eq!((counts[0], counts[1], counts[15], counts[16]), (2, 1, 1, 1));
        assert_eq!(histogram.count(), 5);
        assert_eq!(histogram.sum(), Duration::from_micros(21_002_001));
    }
}
