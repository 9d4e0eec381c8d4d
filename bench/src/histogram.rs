//! Latencies: every value is kept as measured, so that quantiles are exact, up to a limit.

use std::time::Duration;

/// Maximum values, four bytes each: more than any of our plans produces.
const MAX_VALUES: usize = 4_000_000;

/// Recorded durations, in whole microseconds.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    microseconds: Vec<u32>,
    dropped: u64,
}

/// The values of a histogram in order.
#[derive(Debug, Clone)]
pub struct Quantiles {
    sorted: Vec<u32>,
}

impl Histogram {
    /// Records a duration; one beyond an hour counts as about 71 minutes.
    pub fn record(&mut self, duration: Duration) {
        if self.microseconds.len() >= MAX_VALUES {
            self.dropped = self.dropped.saturating_add(1);
            return;
        }
        let value = u32::try_from(duration.as_micros()).unwrap_or(u32::MAX);
        self.microseconds.push(value);
    }

    /// Number of recorded values.
    pub fn count(&self) -> usize {
        self.microseconds.len()
    }

    /// Number of values dropped because of the limit.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Sorts the values.
    pub fn quantiles(&self) -> Quantiles {
        let mut sorted = self.microseconds.clone();
        sorted.sort_unstable();
        Quantiles { sorted }
    }
}

impl Quantiles {
    /// Returns the smallest value that at least this share of all values (0 to 1) does not exceed;
    /// none if there are no values.
    pub fn at(&self, share: f64) -> Option<Duration> {
        let count = self.sorted.len();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "counts are far below 2^53, and the share is kept between 0 and 1"
        )]
        let rank = (share.clamp(0.0, 1.0) * count as f64).ceil() as usize;
        let value = self.sorted.get(rank.saturating_sub(1))?;
        Some(Duration::from_micros(u64::from(*value)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn of_a_hundred_values_the_99th_is_p99() {
        let mut histogram = Histogram::default();
        (1..=100)
            .rev()
            .for_each(|n| histogram.record(Duration::from_micros(n)));
        let quantiles = histogram.quantiles();
        for (share, expected) in [(0.0, 1), (0.5, 50), (0.99, 99), (0.991, 100), (1.0, 100)] {
            assert_eq!(
                quantiles.at(share),
                Some(Duration::from_micros(expected)),
                "{share}"
            );
        }
    }

    #[test]
    fn an_empty_histogram_has_no_quantiles() {
        assert_eq!(Histogram::default().quantiles().at(0.5), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn a_quantile_splits_the_values(values in prop::collection::vec(0..10_000_u64, 1..200), share in 0.0..=1.0) {
            let mut histogram = Histogram::default();
            for value in &values {
                histogram.record(Duration::from_micros(*value));
            }
            let found = histogram.quantiles().at(share).unwrap();
            let below = values.iter().filter(|value| Duration::from_micros(**value) < found).count();
            let up_to = values.iter().filter(|value| Duration::from_micros(**value) <= found).count();
            #[expect(clippy::cast_precision_loss, reason = "a few hundred values")]
            let wanted = share * values.len() as f64;
            #[expect(clippy::cast_precision_loss, reason = "a few hundred values")]
            {
                prop_assert!(up_to as f64 >= wanted);
                prop_assert!((below as f64) < wanted.max(1.0));
            }
        }
    }
}
