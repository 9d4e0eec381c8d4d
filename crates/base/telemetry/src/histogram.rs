//! Histograms of durations with classic and, optionally, native buckets.
//!
//! `prometheus_client` has native buckets but exposes them only through protobuf messages that a
//! protobuf compiler must generate at build time. A [`HistogramFamily`] is written by our own
//! [exposition](crate::exposition) in every format, from one snapshot of each series: classic
//! buckets, native buckets, count and sum are always consistent.

mod native;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_promtext::MetricType;
use parking_lot::{Mutex, RwLock};

pub use self::native::{NativeBuckets, NativeOptions, Span};
use crate::Metrics;
use crate::exposition::{Descriptor, Label, Metric, MetricFamily, Value, compare_labels};

/// The labels of one series of a [`HistogramFamily`].
pub trait LabelSet: Clone + Eq + Hash + Debug + Send + Sync + 'static {
    /// Visits each label, in any order, with a name that Prometheus accepts. Equal sets have the
    /// same labels.
    fn visit(&self, visit: &mut dyn FnMut(&str, &str));
}

/// The descriptor of a family of histograms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HistogramSpec {
    /// The whole name, ending in `_seconds`.
    pub name: &'static str,
    /// The help text, without a full stop.
    pub help: &'static str,
    /// The upper bounds of the classic buckets in seconds, ascending, without `+Inf`.
    pub bounds: &'static [f64],
    pub native: Option<NativeOptions>,
}

/// Histograms of durations with labels. Clones share them.
#[derive(Debug)]
pub struct HistogramFamily<L> {
    inner: Arc<FamilyInner<L>>,
}

/// One series of a [`HistogramFamily`], looked up once. Clones share it.
#[derive(Debug, Clone)]
pub struct HistogramSeries {
    bounds: &'static [f64],
    counts: Arc<Mutex<Counts>>,
}

#[derive(Debug)]
struct FamilyInner<L> {
    spec: HistogramSpec,
    /// Write-locked only for a new series; a scrape holds the read lock just to copy pointers.
    series: RwLock<HashMap<L, Arc<Mutex<Counts>>>>,
}

/// The state of one series.
#[derive(Debug, Clone)]
struct Counts {
    /// Not cumulative: one for each bound, and one for `+Inf`.
    buckets: Box<[u64]>,
    count: u64,
    sum: f64,
    native: Option<NativeBuckets>,
}

/// A [`HistogramFamily`] with any labels.
pub(crate) trait HistogramSource: MetricFamily + Debug + Send + Sync {
    fn spec(&self) -> &HistogramSpec;

    fn is_empty(&self) -> bool;
}

impl<L: LabelSet> HistogramFamily<L> {
    /// Registers a family under its own name.
    pub fn register(metrics: &mut Metrics, spec: HistogramSpec) -> Self {
        let inner = Arc::new(FamilyInner {
            spec,
            series: RwLock::default(),
        });
        let source: Arc<dyn HistogramSource> = Arc::<FamilyInner<L>>::clone(&inner);
        metrics.add_histograms(source);
        Self { inner }
    }

    /// Records a duration.
    pub fn observe(&self, labels: &L, duration: Duration) {
        self.observe_times(labels, duration, 1);
    }

    /// Records the same duration several times.
    pub fn observe_times(&self, labels: &L, duration: Duration, times: u64) {
        if times == 0 {
            return;
        }
        let counts = self.inner.counts(labels);
        let seconds = duration.as_secs_f64();
        counts.lock().add(self.inner.spec.bounds, seconds, times);
    }

    /// Returns a series, which is exposed from now on.
    pub fn series(&self, labels: &L) -> HistogramSeries {
        HistogramSeries {
            bounds: self.inner.spec.bounds,
            counts: self.inner.counts(labels),
        }
    }

    /// Removes a series.
    pub fn remove(&self, labels: &L) {
        self.inner.series.write().remove(labels);
    }

    /// Removes the series whose labels are not to be kept.
    pub fn retain(&self, keep: impl Fn(&L) -> bool) {
        self.inner.series.write().retain(|labels, _| keep(labels));
    }

    /// Returns the number of series.
    pub fn len(&self) -> usize {
        self.inner.series.read().len()
    }

    /// Returns whether there is no series yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl HistogramSeries {
    /// Records a duration.
    pub fn observe(&self, duration: Duration) {
        self.counts
            .lock()
            .add(self.bounds, duration.as_secs_f64(), 1);
    }
}

impl<L> Clone for HistogramFamily<L> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<L: LabelSet> FamilyInner<L> {
    fn counts(&self, labels: &L) -> Arc<Mutex<Counts>> {
        if let Some(counts) = self.series.read().get(labels) {
            return Arc::clone(counts);
        }
        let mut series = self.series.write();
        let new = || Arc::new(Mutex::new(Counts::new(&self.spec)));
        Arc::clone(series.entry(labels.clone()).or_insert_with(new))
    }
}

impl<L: LabelSet> HistogramSource for FamilyInner<L> {
    fn spec(&self) -> &HistogramSpec {
        &self.spec
    }

    fn is_empty(&self) -> bool {
        self.series.read().is_empty()
    }
}

impl<L: LabelSet> MetricFamily for FamilyInner<L> {
    fn descriptor(&self) -> Descriptor<'_> {
        Descriptor {
            name: Cow::Borrowed(self.spec.name),
            // With a full stop, as the library writes help texts.
            help: Some(Cow::Owned(format!("{}.", self.spec.help))),
            kind: MetricType::Histogram,
        }
    }

    fn visit(&self, visit: &mut dyn FnMut(&Metric<'_>)) {
        let mut series: Vec<(Vec<Label<'_>>, Arc<Mutex<Counts>>)> = self
            .series
            .read()
            .iter()
            .map(|(labels, counts)| (sorted(labels), Arc::clone(counts)))
            .collect();
        series.sort_by(|a, b| compare_labels(&a.0, &b.0));
        let mut buckets = Vec::with_capacity(self.spec.bounds.len());
        for (labels, counts) in series {
            let counts = counts.lock().clone();
            let mut below = 0;
            buckets.clear();
            let bounds = self.spec.bounds.iter().zip(&counts.buckets);
            buckets.extend(bounds.map(|(bound, count)| {
                below += count;
                (*bound, below)
            }));
            visit(&Metric {
                labels: &labels,
                value: Value::Histogram {
                    count: counts.count,
                    sum: counts.sum,
                    buckets: &buckets,
                    native: counts.native.as_ref(),
                },
                timestamp_ms: None,
            });
        }
    }
}

impl Counts {
    fn new(spec: &HistogramSpec) -> Self {
        Self {
            buckets: vec![0; spec.bounds.len() + 1].into(),
            count: 0,
            sum: 0.0,
            native: spec.native.map(NativeBuckets::new),
        }
    }

    fn add(&mut self, bounds: &[f64], seconds: f64, times: u64) {
        let at = bounds.partition_point(|bound| *bound < seconds);
        if let Some(bucket) = self.buckets.get_mut(at) {
            *bucket = bucket.saturating_add(times);
        }
        self.count = self.count.saturating_add(times);
        #[expect(clippy::cast_precision_loss, reason = "the sum is a float anyway")]
        let times_seconds = seconds * times as f64;
        self.sum += times_seconds;
        if let Some(native) = &mut self.native {
            native.add(seconds, times);
        }
    }
}

fn sorted(labels: &impl LabelSet) -> Vec<Label<'static>> {
    let mut pairs = Vec::new();
    labels.visit(&mut |name, value| {
        pairs.push((Cow::Owned(name.to_owned()), Cow::Owned(value.to_owned())));
    });
    pairs.sort();
    pairs
}

#[cfg(test)]
mod tests;
