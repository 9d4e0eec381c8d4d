//! Metrics of the API.

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

use crate::api::Snapshots;

/// The buckets of metrics-server: from one second, each bound 1.364 times its predecessor.
const BUCKETS: usize = 20;

static MILLISECOND_BOUNDS: LazyLock<[u64; BUCKETS]> = LazyLock::new(|| {
    bounds().map(|seconds| {
        let bound = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        u64::try_from(bound.as_millis()).unwrap_or(u64::MAX)
    })
});

#[derive(Debug, Default)]
pub(crate) struct RequestCounters {
    pub(crate) freshness: Freshness,
    pub(crate) gets: AtomicU64,
    pub(crate) lists: AtomicU64,
    pub(crate) watches: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) aborted: AtomicU64,
    pub(crate) open_watches: AtomicUsize,
}

/// A histogram of the age of served samples.
#[derive(Debug, Default)]
pub(crate) struct Freshness {
    /// The last bucket is `+Inf`.
    buckets: [AtomicU64; BUCKETS + 1],
    milliseconds: AtomicU64,
}

/// The ages of the samples in one response, collected while it is encoded.
#[derive(Debug)]
pub(crate) struct ResponseAges {
    now: i64,
    bounds: [u64; BUCKETS],
    buckets: [u64; BUCKETS + 1],
    milliseconds: u64,
}

/// Reads the counters at collection, without keeping the API alive.
#[derive(Debug, Clone)]
pub(crate) struct ApiCollector(Weak<Snapshots>);

/// The family of metrics-server, in the registry without a prefix.
#[derive(Debug, Clone)]
struct FreshnessCollector(Weak<Snapshots>);

impl ApiCollector {
    pub(crate) fn register(snapshots: &Arc<Snapshots>, metrics: &mut Metrics) {
        let freshness = FreshnessCollector(Arc::downgrade(snapshots));
        metrics.root().register_collector(Box::new(freshness));
        let own = metrics.sub("kubevitals_metrics_api");
        own.register_collector(Box::new(Self(Arc::downgrade(snapshots))));
    }
}

impl ResponseAges {
    pub(crate) fn new(now: Timestamp) -> Self {
        Self {
            now: now.unix_millis(),
            bounds: *MILLISECOND_BOUNDS,
            buckets: [0; BUCKETS + 1],
            milliseconds: 0,
        }
    }

    /// Adds a sample with this time.
    #[inline]
    pub(crate) fn add(&mut self, sampled: i64) {
        let age = u64::try_from(self.now.saturating_sub(sampled)).unwrap_or(0);
        let bucket = self.bounds.partition_point(|bound| *bound < age);
        if let Some(count) = self.buckets.get_mut(bucket) {
            *count += 1;
        }
        self.milliseconds = self.milliseconds.saturating_add(age);
    }
}

impl Freshness {
    pub(crate) fn add(&self, ages: &ResponseAges) {
        for (total, count) in self.buckets.iter().zip(&ages.buckets) {
            if *count > 0 {
                total.fetch_add(*count, Ordering::Relaxed);
            }
        }
        self.milliseconds
            .fetch_add(ages.milliseconds, Ordering::Relaxed);
    }
}

impl Collector for FreshnessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(snapshots) = self.0.upgrade() else {
            return Ok(());
        };
        let freshness = &snapshots.counters.freshness;
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

impl Collector for ApiCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let Some(snapshots) = self.0.upgrade() else {
            return Ok(());
        };
        let snapshot = snapshots.current.load();
        let nodes = snapshot.nodes.iter().filter(|node| node.own.is_some());
        let mut family = encoder.encode_descriptor(
            "objects",
            "Number of objects served",
            None,
            MetricType::Gauge,
        )?;
        for (resource, count) in [("nodes", nodes.count()), ("pods", snapshot.pods.len())] {
            ConstGauge::new(gauge_value(count))
                .encode(family.encode_family(&[("resource", resource)])?)?;
        }
        let counters = &snapshots.counters;
        let gauges = [
            (
                "current",
                "Size of the encoded usage that is served",
                Some(&Unit::Bytes),
                snapshots.current_bytes.load(Ordering::Relaxed),
            ),
            (
                "outdated",
                "Size of outdated encoded usage that unfinished responses still hold",
                Some(&Unit::Bytes),
                snapshots.outdated_bytes(),
            ),
            (
                "watches",
                "Number of open watches",
                None,
                counters.open_watches.load(Ordering::Relaxed),
            ),
        ];
        for (name, help, unit, value) in gauges {
            ConstGauge::new(gauge_value(value)).encode(encoder.encode_descriptor(
                name,
                help,
                unit,
                MetricType::Gauge,
            )?)?;
        }
        let mut family = encoder.encode_descriptor(
            "requests",
            "Total number of requests served, by verb",
            None,
            MetricType::Counter,
        )?;
        for (verb, count) in [
            ("get", &counters.gets),
            ("list", &counters.lists),
            ("watch", &counters.watches),
        ] {
            ConstCounter::new(count.load(Ordering::Relaxed))
                .encode(family.encode_family(&[("verb", verb)])?)?;
        }
        ConstCounter::new(counters.rejected.load(Ordering::Relaxed)).encode(
            encoder.encode_descriptor(
                "rejected_requests",
                "Total number of requests rejected because too many watches are open",
                None,
                MetricType::Counter,
            )?,
        )?;
        ConstCounter::new(counters.aborted.load(Ordering::Relaxed)).encode(
            encoder.encode_descriptor(
                "aborted_responses",
                "Total number of responses aborted because unfinished ones held too much outdated usage",
                None,
                MetricType::Counter,
            )?,
        )
    }
}

fn gauge_value(count: usize) -> i64 {
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
