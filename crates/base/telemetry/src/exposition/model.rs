//! Metric families independent of any format, as every writer reads them.

use std::borrow::Cow;
use std::cmp::Ordering;

use kubevitals_promtext::MetricType;

use crate::histogram::NativeBuckets;

/// A metric family with at least one series.
pub(crate) trait MetricFamily {
    fn descriptor(&self) -> Descriptor<'_>;

    /// Visits each series, in the order of [`compare_labels`].
    fn visit(&self, visit: &mut dyn FnMut(&Metric<'_>));
}

pub(crate) struct Descriptor<'d> {
    /// With the `_total` of a counter.
    pub(crate) name: Cow<'d, str>,
    pub(crate) help: Option<Cow<'d, str>>,
    pub(crate) kind: MetricType,
}

/// One series at one moment.
#[derive(Debug)]
pub(crate) struct Metric<'m> {
    /// Sorted by name.
    pub(crate) labels: &'m [Label<'m>],
    pub(crate) value: Value<'m>,
    pub(crate) timestamp_ms: Option<i64>,
}

/// Name and value, unescaped.
pub(crate) type Label<'m> = (Cow<'m, str>, Cow<'m, str>);

#[derive(Debug)]
pub(crate) enum Value<'m> {
    /// Of a counter, a gauge or an untyped metric.
    Number(f64),
    Histogram {
        count: u64,
        sum: f64,
        /// Upper bounds with cumulative counts, without `+Inf`.
        buckets: &'m [(f64, u64)],
        native: Option<&'m NativeBuckets>,
    },
    Summary {
        count: u64,
        sum: f64,
        quantiles: &'m [(f64, f64)],
    },
}

/// Compares label sets as a Go registry does: fewer labels first, then by values, then by names.
pub(crate) fn compare_labels(a: &[Label<'_>], b: &[Label<'_>]) -> Ordering {
    a.len()
        .cmp(&b.len())
        .then_with(|| a.iter().map(|l| &l.1).cmp(b.iter().map(|l| &l.1)))
        .then_with(|| a.iter().map(|l| &l.0).cmp(b.iter().map(|l| &l.0)))
}
