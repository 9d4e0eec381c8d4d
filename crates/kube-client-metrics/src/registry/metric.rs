//! Counters, gauges and histograms. Clones share their value.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

use super::{Buckets, Kind, Value};

/// A metric of a family.
pub(crate) trait Metric {
    const KIND: Kind;

    fn value(&self) -> Value;
}

/// A number that only grows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counter(Arc<AtomicU64>);

/// A whole number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gauge(Arc<AtomicI64>);

/// A number, as bits.
#[derive(Clone, Debug, Default)]
pub(crate) struct FloatGauge(Arc<AtomicU64>);

/// The distribution of a measurement.
#[derive(Clone, Debug)]
pub(crate) struct Histogram(Arc<Distribution>);

#[derive(Debug)]
struct Distribution {
    /// Upper bounds, in order.
    bounds: &'static [f64],
    /// One for each bound, and one beyond the last.
    counts: Box<[AtomicU64]>,
    /// The bits of the sum.
    sum: AtomicU64,
}

impl Counter {
    pub(crate) fn inc(&self) {
        self.inc_by(1);
    }

    pub(crate) fn inc_by(&self, by: u64) {
        self.0.fetch_add(by, Relaxed);
    }
}

impl Gauge {
    pub(crate) fn inc(&self) {
        self.0.fetch_add(1, Relaxed);
    }

    pub(crate) fn dec(&self) {
        self.dec_by(1);
    }

    pub(crate) fn dec_by(&self, by: u64) {
        let by = i64::try_from(by).unwrap_or(i64::MAX);
        self.0.fetch_sub(by, Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.0.store(value, Relaxed);
    }
}

impl FloatGauge {
    pub(crate) fn set(&self, value: f64) {
        self.0.store(value.to_bits(), Relaxed);
    }
}

impl Histogram {
    pub(crate) fn new(bounds: &'static [f64]) -> Self {
        Self(Arc::new(Distribution {
            bounds,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }))
    }

    pub(crate) fn observe(&self, value: f64) {
        let Distribution {
            bounds,
            counts,
            sum,
        } = &*self.0;
        let bucket = bounds.partition_point(|bound| *bound < value);
        if let Some(count) = counts.get(bucket) {
            count.fetch_add(1, Relaxed);
        }
        let add = |bits| Some((f64::from_bits(bits) + value).to_bits());
        // It never gives up: the function always returns a value.
        let _ = sum.fetch_update(Relaxed, Relaxed, add);
    }
}

impl Metric for Counter {
    const KIND: Kind = Kind::Counter;

    fn value(&self) -> Value {
        Value::Counter(self.0.load(Relaxed))
    }
}

impl Metric for Gauge {
    const KIND: Kind = Kind::Gauge;

    fn value(&self) -> Value {
        Value::Integer(self.0.load(Relaxed))
    }
}

impl Metric for FloatGauge {
    const KIND: Kind = Kind::Gauge;

    fn value(&self) -> Value {
        Value::Gauge(f64::from_bits(self.0.load(Relaxed)))
    }
}

impl Metric for Histogram {
    const KIND: Kind = Kind::Histogram;

    fn value(&self) -> Value {
        let Distribution {
            bounds,
            counts,
            sum,
        } = &*self.0;
        let sum = f64::from_bits(sum.load(Relaxed));
        let upper = bounds.iter().copied().chain([f64::INFINITY]);
        let counts = counts.iter().map(|count| count.load(Relaxed));
        Value::Histogram(Buckets {
            counts: upper.zip(counts).collect(),
            sum,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_on_a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::new(&[1.0, 2.0]);
        for value in [0.5, 1.0, 1.5, 2.0, 7.0] {
            histogram.observe(value);
        }
        let Value::Histogram(buckets) = histogram.value() else {
            panic!("not a histogram");
        };
        assert_eq!(buckets.counts, [(1.0, 2), (2.0, 2), (f64::INFINITY, 1)]);
        assert_eq!(buckets.count(), 5);
        assert!((buckets.sum - 12.0).abs() < f64::EPSILON);
    }
}
