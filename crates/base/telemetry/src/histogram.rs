//! Histograms of durations, classic and, where asked for, native too.
//!
//! `prometheus_client` can count into native buckets but hands them out only through a protobuf
//! library that would have to be generated at build time. A [`HistogramFamily`] is written by the
//! exposition itself, in all of its forms, from one reading of each series: what the classic
//! buckets, the native ones, the count and the sum say is always the same.

mod native;

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

pub use self::native::{NativeBuckets, NativeOptions, Span};
use crate::Metrics;

/// The labels of one series of a [`HistogramFamily`].
pub trait LabelSet: Clone + Eq + Hash + Debug + Send + Sync + 'static {
    /// Gives each label, in any order, under a name that Prometheus accepts. Equal sets give the
    /// same labels.
    fn visit(&self, visit: &mut dyn FnMut(&str, &str));
}

/// What a family of histograms is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HistogramSpec {
    /// Its whole name, ending in `_seconds`.
    pub name: &'static str,
    /// What it tells, without a full stop.
    pub help: &'static str,
    /// The upper bounds of its classic buckets in seconds, rising; `+Inf` is understood.
    pub bounds: &'static [f64],
    /// Its native buckets.
    pub native: Option<NativeOptions>,
}

/// Histograms of durations, told apart by their labels. Clones share them.
#[derive(Debug)]
pub struct HistogramFamily<L> {
    shared: Arc<Shared<L>>,
}

#[derive(Debug)]
struct Shared<L> {
    spec: HistogramSpec,
    /// Read to find a series, written only for a new one: a scrape holds it as long as it takes to
    /// copy pointers.
    series: RwLock<HashMap<L, Arc<Mutex<Counts>>>>,
}

/// What one series has counted.
#[derive(Debug, Clone)]
struct Counts {
    /// For each bound those above the bound before, and one more for the rest.
    buckets: Box<[u64]>,
    count: u64,
    sum: f64,
    native: Option<NativeBuckets>,
}

/// Labels with their values, by name.
type Pairs = Vec<(String, String)>;

/// One series at one moment.
#[derive(Debug)]
pub(crate) struct Reading<'r> {
    /// Sorted by name.
    pub(crate) labels: &'r [(String, String)],
    /// Upper bounds with how many were not above them, without `+Inf`.
    pub(crate) buckets: &'r [(f64, u64)],
    pub(crate) count: u64,
    pub(crate) sum: f64,
    pub(crate) native: Option<&'r NativeBuckets>,
}

/// A family as the exposition reads it, whatever its labels are.
pub(crate) trait HistogramSource: Debug + Send + Sync {
    fn spec(&self) -> &HistogramSpec;

    fn is_empty(&self) -> bool;

    /// Gives each series, in the order of its label values as a Go registry has it.
    fn read(&self, visit: &mut dyn FnMut(&Reading<'_>));
}

impl<L: LabelSet> HistogramFamily<L> {
    /// Registers a family under its own name.
    pub fn register(metrics: &mut Metrics, spec: HistogramSpec) -> Self {
        let shared = Arc::new(Shared {
            spec,
            series: RwLock::default(),
        });
        let source: Arc<dyn HistogramSource> = Arc::<Shared<L>>::clone(&shared);
        metrics.add_histograms(source);
        Self { shared }
    }

    /// Takes in a duration.
    pub fn observe(&self, labels: &L, duration: Duration) {
        self.observe_times(labels, duration, 1);
    }

    /// Takes in the same duration several times.
    pub fn observe_times(&self, labels: &L, duration: Duration, times: u64) {
        if times == 0 {
            return;
        }
        let counts = self.shared.counts(labels);
        let mut counts = counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.add(self.shared.spec.bounds, duration.as_secs_f64(), times);
    }

    /// How many series there are.
    pub fn len(&self) -> usize {
        let series = self.shared.series.read();
        series.unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether nothing was taken in yet.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<L> Clone for HistogramFamily<L> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<L: LabelSet> Shared<L> {
    fn counts(&self, labels: &L) -> Arc<Mutex<Counts>> {
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = series.get(labels) {
            return Arc::clone(found);
        }
        drop(series);
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Mutex::new(Counts::new(&self.spec)));
        Arc::clone(series.entry(labels.clone()).or_insert_with(new))
    }
}

impl<L: LabelSet> HistogramSource for Shared<L> {
    fn spec(&self) -> &HistogramSpec {
        &self.spec
    }

    fn is_empty(&self) -> bool {
        let series = self.series.read();
        series.unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn read(&self, visit: &mut dyn FnMut(&Reading<'_>)) {
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<(Pairs, Arc<Mutex<Counts>>)> = series
            .iter()
            .map(|(labels, counts)| (sorted(labels), Arc::clone(counts)))
            .collect();
        drop(series);
        all.sort_by(|(one, _), (two, _)| {
            let values_of_two = two.iter().map(|pair| &pair.1);
            let by_value = || one.iter().map(|pair| &pair.1).cmp(values_of_two);
            one.len().cmp(&two.len()).then_with(by_value)
        });
        let mut buckets = Vec::with_capacity(self.spec.bounds.len());
        for (labels, counts) in all {
            let counts = counts
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            let mut below = 0;
            buckets.clear();
            buckets.extend(
                self.spec
                    .bounds
                    .iter()
                    .zip(&counts.buckets)
                    .map(|(bound, count)| {
                        below += count;
                        (*bound, below)
                    }),
            );
            visit(&Reading {
                labels: &labels,
                buckets: &buckets,
                count: counts.count,
                sum: counts.sum,
                native: counts.native.as_ref(),
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
        #[expect(
            clippy::cast_precision_loss,
            reason = "a sum of so many seconds has lost them anyway"
        )]
        let times_seconds = seconds * times as f64;
        self.sum += times_seconds;
        if let Some(native) = &mut self.native {
            native.add(seconds, times);
        }
    }
}

fn sorted(labels: &impl LabelSet) -> Pairs {
    let mut pairs = Vec::new();
    labels.visit(&mut |name, value| pairs.push((name.to_owned(), value.to_owned())));
    pairs.sort();
    pairs
}

#[cfg(test)]
mod tests;
