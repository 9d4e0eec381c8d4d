//! The data point: what exporters of metrics convert from, whatever the backend.
//!
//! One set of attributes names everything that a point is about, by OpenTelemetry's semantic
//! conventions (`k8s.pod.name`, `k8s.container.name`). An exporter whose protocol separates
//! resources from points, or has a fixed set of resource types, splits them by name.

use std::sync::Arc;

use kubevitals_model::Timestamp;

use crate::exporter::SinkItem;

/// A value of a metric at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct DataPoint {
    /// The name of the metric, by OpenTelemetry's conventions: `k8s.pod.cpu.usage`.
    pub name: Arc<str>,
    /// The unit, by UCUM: `s`, `By`, `{cpu}`.
    pub unit: Arc<str>,
    pub attributes: Attributes,
    /// The time of the measurement, not of the export.
    pub timestamp: Timestamp,
    pub measurement: Measurement,
}

/// Names and values, sorted by name. Points of one series share them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Attributes(Arc<[(Arc<str>, Arc<str>)]>);

/// The kind of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Gauge,
    /// Monotonic and cumulative.
    Counter,
    /// Cumulative.
    Distribution,
}

/// A measured value. Cumulative ones have the time at which they were zero.
#[derive(Debug, Clone, PartialEq)]
pub enum Measurement {
    Gauge(Number),
    Counter {
        start: Timestamp,
        total: Number,
    },
    Distribution {
        start: Timestamp,
        value: Distribution,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    Integer(i64),
    Float(f64),
}

/// Values counted by buckets.
#[derive(Debug, Clone, PartialEq)]
pub struct Distribution {
    bounds: Arc<[f64]>,
    counts: Vec<u64>,
    /// The sum of all values.
    pub sum: f64,
    pub exemplars: Vec<Exemplar>,
}

/// One of the values of a distribution.
#[derive(Debug, Clone, PartialEq)]
pub struct Exemplar {
    pub value: f64,
    pub timestamp: Timestamp,
    /// Attributes of the measured object, in addition to those of the point.
    pub attributes: Attributes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DistributionError {
    /// The bounds are not finite, or do not increase.
    Bounds,
    /// There is not one count more than there are bounds.
    Counts,
}

impl SinkItem for DataPoint {}

impl DataPoint {
    pub fn kind(&self) -> Kind {
        match self.measurement {
            Measurement::Gauge(_) => Kind::Gauge,
            Measurement::Counter { .. } => Kind::Counter,
            Measurement::Distribution { .. } => Kind::Distribution,
        }
    }

    /// The time at which a cumulative value was zero; `None` for a gauge.
    pub fn start(&self) -> Option<Timestamp> {
        match self.measurement {
            Measurement::Gauge(_) => None,
            Measurement::Counter { start, .. } | Measurement::Distribution { start, .. } => {
                Some(start)
            }
        }
    }
}

impl Attributes {
    /// Sorts the attributes; of several with the same name the last counts.
    pub fn new(attributes: impl IntoIterator<Item = (Arc<str>, Arc<str>)>) -> Self {
        let mut sorted: Vec<_> = attributes.into_iter().collect();
        sorted.reverse();
        sorted.sort_by(|a, b| a.0.cmp(&b.0));
        sorted.dedup_by(|a, b| a.0 == b.0);
        Self(sorted.into())
    }

    pub fn get(&self, name: &str) -> Option<&Arc<str>> {
        let index = self.0.binary_search_by(|(key, _)| (**key).cmp(name));
        index
            .ok()
            .and_then(|index| self.0.get(index))
            .map(|(_, value)| value)
    }

    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Arc<str>)> {
        self.0.iter().map(|(name, value)| (name, value))
    }
}

impl Distribution {
    /// Creates a distribution from upper bounds, which are inclusive, and one count for each
    /// bucket, the last being for values above all bounds.
    pub fn new(bounds: Arc<[f64]>, counts: Vec<u64>, sum: f64) -> Result<Self, DistributionError> {
        let increase = bounds.iter().zip(bounds.iter().skip(1)).all(|(a, b)| a < b);
        if !increase || !bounds.iter().all(|bound| bound.is_finite()) {
            return Err(DistributionError::Bounds);
        }
        if counts.len() != bounds.len() + 1 {
            return Err(DistributionError::Counts);
        }
        Ok(Self {
            bounds,
            counts,
            sum,
            exemplars: Vec::new(),
        })
    }

    pub fn bounds(&self) -> &[f64] {
        &self.bounds
    }

    /// Values in each bucket, one bucket more than there are bounds.
    pub fn bucket_counts(&self) -> &[u64] {
        &self.counts
    }

    /// The number of all values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

impl std::fmt::Display for DistributionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bounds => "bounds must be finite and increase",
            Self::Counts => "there must be one count more than bounds",
        })
    }
}

impl std::error::Error for DistributionError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn attributes(pairs: &[(&str, &str)]) -> Attributes {
        Attributes::new(
            pairs
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into())),
        )
    }

    #[test]
    fn attributes_are_equal_whatever_their_order() {
        let one = attributes(&[("b", "2"), ("a", "1")]);
        assert_eq!(one, attributes(&[("a", "0"), ("a", "1"), ("b", "2")]));
        assert_eq!(one.get("a").map(|value| &**value), Some("1"));
        assert_eq!(one.get("c"), None);
        let names: Vec<&str> = one.iter().map(|(name, _)| &**name).collect();
        assert_eq!(names, ["a", "b"]);
    }

    #[test]
    fn only_cumulative_points_have_a_start() {
        let at = Timestamp::from_unix_millis;
        let point = |measurement| DataPoint {
            name: "k8s.pod.cpu.time".into(),
            unit: "s".into(),
            attributes: Attributes::default(),
            timestamp: at(2_000),
            measurement,
        };
        let gauge = point(Measurement::Gauge(Number::Integer(3)));
        assert_eq!((gauge.kind(), gauge.start()), (Kind::Gauge, None));
        let counter = point(Measurement::Counter {
            start: at(1_000),
            total: Number::Float(0.5),
        });
        assert_eq!(
            (counter.kind(), counter.start()),
            (Kind::Counter, Some(at(1_000)))
        );
        assert_eq!((counter.size(), counter.records()), (1, 1));
    }

    #[test]
    fn buckets_match_their_bounds() {
        let bounds = |bounds: &[f64]| Arc::<[f64]>::from(bounds);
        let good = Distribution::new(bounds(&[0.1, 1.0]), vec![1, 2, 3], 7.5).unwrap();
        assert_eq!(
            (good.count(), good.bounds().len(), good.bucket_counts()[2]),
            (6, 2, 3)
        );
        assert!(Distribution::new(bounds(&[]), vec![4], 1.0).is_ok());
        for (at, counts, error) in [
            (&[1.0, 1.0][..], vec![0, 0, 0], DistributionError::Bounds),
            (&[f64::INFINITY], vec![0, 0], DistributionError::Bounds),
            (&[1.0], vec![0], DistributionError::Counts),
        ] {
            assert_eq!(Distribution::new(bounds(at), counts, 0.0), Err(error));
        }
    }
}
