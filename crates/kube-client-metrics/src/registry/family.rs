//! A family of series with lookups that do not allocate.
//!
//! A series is found by borrowed label values with a fast hash, and a family is shared without
//! registration.

use std::fmt;
use std::hash::Hash;

use hashbrown::{Equivalent, HashMap};
use parking_lot::RwLock;

use super::metric::Metric;
use super::{MetricFamily, Series};

/// The name, help and label names of a family.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Descriptor {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) labels: &'static [&'static str],
}

/// The label values of one series.
pub(crate) trait Labels: Eq + Hash + fmt::Debug + Send + Sync + 'static {
    /// Returns the values, in the order of the family's labels.
    fn values(&self) -> Vec<&str>;
}

/// The series of one name.
pub(crate) struct Family<K, M> {
    descriptor: Descriptor,
    series: RwLock<HashMap<K, M>>,
    make: fn() -> M,
}

impl<K: Labels, M> Family<K, M> {
    pub(crate) fn new(descriptor: Descriptor, make: fn() -> M) -> Self {
        Self {
            descriptor,
            series: RwLock::new(HashMap::new()),
            make,
        }
    }

    /// Calls a function with the series of these labels, which is created if there is none yet.
    pub(crate) fn with<'k, Q>(&self, labels: &'k Q, use_it: impl FnOnce(&M))
    where
        Q: Hash + Equivalent<K>,
        K: From<&'k Q>,
    {
        {
            let series = self.series.read();
            if let Some(metric) = series.get(labels) {
                return use_it(metric);
            }
        }
        let mut series = self.series.write();
        use_it(series.entry(labels.into()).or_insert_with(self.make));
    }
}

impl<K: Labels, M: Clone> Family<K, M> {
    /// Returns the series of these labels, to be kept by the caller.
    pub(crate) fn get<'k, Q>(&self, labels: &'k Q) -> M
    where
        Q: Hash + Equivalent<K>,
        K: From<&'k Q>,
    {
        let mut found = None;
        self.with(labels, |metric| found = Some(metric.clone()));
        found.expect("`with` calls exactly once")
    }
}

impl<K: Labels, M: Metric> Family<K, M> {
    /// Adds all series in the order of their labels; nothing if there is none.
    pub(crate) fn gather(&self, families: &mut Vec<MetricFamily>) {
        let series = self.series.read();
        if series.is_empty() {
            return;
        }
        let Descriptor { name, help, labels } = self.descriptor;
        let mut rows: Vec<(Vec<&str>, &M)> = series
            .iter()
            .map(|(labels, metric)| (labels.values(), metric))
            .collect();
        rows.sort_unstable_by(|(left, _), (right, _)| left.cmp(right));
        let series = rows.into_iter().map(|(values, metric)| Series {
            labels: labels
                .iter()
                .zip(values)
                .map(|(name, value)| (*name, value.to_owned()))
                .collect(),
            value: metric.value(),
        });
        families.push(MetricFamily {
            name,
            help,
            kind: M::KIND,
            series: series.collect(),
        });
    }
}

impl<K, M> fmt::Debug for Family<K, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Family")
            .field(&self.descriptor.name)
            .finish()
    }
}
