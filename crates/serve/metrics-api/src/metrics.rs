//! What the API counts.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::Duration;

use kubevitals_model::Timestamp;
use kubevitals_telemetry::Metrics;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Unit;

use crate::api::State;

/// metrics-server's: from one second on, each bound 1.364 times the one before.
const BUCKETS: usize = 20;

static MILLISECOND_BOUNDS: LazyLock<[u64; BUCKETS]> = LazyLock::new(|| {
    bounds().map(|seconds| {
        let bound = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        u64::try_from(bound.as_millis()).unwrap_or(u64::MAX)
    })
});

/// Counters that requests raise.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) freshness: Freshness,
    pub(crate) gets: AtomicU64,
    pub(crate) lists: AtomicU64,
    pub(crate) watches: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) open_watches: AtomicUsize,
}

/// How old what was served was.
#[derive(Debug, Default)]
pub(crate) struct Freshness {
    /// The last one is for all beyond the last bound.
    buckets: [AtomicU64; BUCKETS + 1],
    milliseconds: AtomicU64,
}

/// The ages of one answer, gathered while it is written.
#[derive(Debug)]
pub(crate) struct Tally {
    now: i64,
    bounds: [u64; BUCKETS],
    buckets: [u64; BUCKETS + 1],
    milliseconds: u64,
}

/// Reads the counters when they are asked for, without keeping the API alive.
#[derive(Debug, Clone)]
pub(crate) struct MetricsOfApi(Weak<State>);

/// metrics-server's own family, in the registry without prefix.
#[derive(Debug, Clone)]
struct FreshnessOfApi(Weak<State>);

impl MetricsOfApi {
    pub(crate) fn register(state: &Arc<State>, metrics: &mut Metrics) {
        let freshness = FreshnessOfApi(Arc::downgrade(state));
        metrics.root().register_collector(Box::new(freshness));
        let own = metrics.sub("kubevitals_metrics_api");
        own.register_collector(Box::new(Self(Arc::downgrade(state))));
    }
}

impl Tally {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            now: now.unix_millis(),
            bounds: *MILLISECOND_BOUNDS,
            buckets: [0; BUCKETS + 1],
            milliseconds: 0,
        }
    }

    /// Counts something that was measured then.
    #[inline]
    pub(crate) fn add(&mut self, measured: i64) {
        let age = u64::try_from(self.now.saturating_sub(measured)).unwrap_or(0);
        let bucket = self.bounds.partition_point(|bound| *bound < age);
        if let Some(count) = self.buckets.get_mut(bucket) {
            *count += 1;
        }
        self.milliseconds = self.milliseconds.saturating_add(age);
    }
}

impl Freshness {
    pub(crate) fn add(&self, tally: &Tally) {
        for (total, count) in self.buckets.iter().zip(&tally.buckets) {
            if *count > 0 {
                total.fetch_add(*count, Ordering::Relaxed);
            }
        }
        self.milliseconds
            .fetch_add(tally.milliseconds, Ordering::Relaxed);
    }
}

impl Collector for FreshnessOfApi {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(state) = self.0.upgrade() else {
            return Ok(());
        };
        let freshness = &state.counts.freshness;
        let bounds = bounds().into_iter().chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds
            .zip(&freshness.buckets)
            .map(|(bound, count)| (bound, count.load(Ordering::Relaxed)))
            .collect();
        let count = buckets.iter().map(|(_, count)| count).sum();
        let sum = Duration::from_millis(freshness.milliseconds.load(Ordering::Relaxed));
        encoder
            .encode_descriptor(
                "metrics_server_api_metric_freshness",
                "Freshness of metrics exported",
                Some(&Unit::Seconds),
                MetricType::Histogram,
            )?
            .encode_histogram::<NoLabelSet>(sum.as_secs_f64(), count, &buckets, None)
    }
}

impl Collector for MetricsOfApi {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(state) = self.0.upgrade() else {
            return Ok(());
        };
        let catalog = state.catalog.load();
        let nodes = catalog.nodes.iter().filter(|node| node.own.is_some());
        let mut family = encoder.encode_descriptor(
            "objects",
            "Objects that are served",
            None,
            MetricType::Gauge,
        )?;
        for (resource, count) in [("nodes", nodes.count()), ("pods", catalog.pods.len())] {
            ConstGauge::new(whole(count))
                .encode(family.encode_family(&[("resource", resource)])?)?;
        }
        let counts = &state.counts;
        let gauges = [
            (
                "current",
                "What is served now",
                Some(&Unit::Bytes),
                state.current.load(Ordering::Relaxed),
            ),
            (
                "outdated",
                "What is held for readers that have not finished, and no longer served",
                Some(&Unit::Bytes),
                state.outdated(),
            ),
            (
                "watches",
                "Watches that are open",
                None,
                counts.open_watches.load(Ordering::Relaxed),
            ),
        ];
        for (name, help, unit, value) in gauges {
            ConstGauge::new(whole(value)).encode(encoder.encode_descriptor(
                name,
                help,
                unit,
                MetricType::Gauge,
            )?)?;
        }
        let mut family = encoder.encode_descriptor(
            "requests",
            "Requests that were answered, by verb",
            None,
            MetricType::Counter,
        )?;
        for (verb, count) in [
            ("get", &counts.gets),
            ("list", &counts.lists),
            ("watch", &counts.watches),
        ] {
            ConstCounter::new(count.load(Ordering::Relaxed))
                .encode(family.encode_family(&[("verb", verb)])?)?;
        }
        ConstCounter::new(counts.refused.load(Ordering::Relaxed)).encode(
            encoder.encode_descriptor(
                "refused",
                "Requests that were turned away because others hold too much",
                None,
                MetricType::Counter,
            )?,
        )
    }
}

/// As a gauge takes it.
fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn bounds() -> [f64; BUCKETS] {
    let mut bound = 1.0;
    std::array::from_fn(|_| {
        let own = bound;
        bound *= 1.364;
        own
    })
}
