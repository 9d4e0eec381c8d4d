//! Metrics of scraping: those of metrics-server under their names, and our own.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kubevitals_model::{NodeName, Timestamp};
use kubevitals_telemetry::{
    HistogramFamily, HistogramSeries, HistogramSpec, LabelSet, Metrics, RegistryExt,
};
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Unit;
use tokio::time::Instant;

use crate::decode::{DecodeReport, Rejection};
use crate::error::ScrapeError;
use crate::renewed_token::IssueFailure;
use crate::scraper::NodeCounts;

/// `client_golang`'s default buckets.
const DEFAULT_BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];
/// Not in the registry of `prometheus_client`: 14 series of every node, as text and parsed again,
/// would be the peak of the memory at thousands of nodes.
const REQUEST_DURATION: HistogramSpec = HistogramSpec {
    name: "metrics_server_kubelet_request_duration_seconds",
    help: "Duration of requests to Kubelet API in seconds",
    bounds: &DEFAULT_BUCKETS,
    native: None,
};
const SAMPLE_AGE_BUCKETS: [f64; 12] = [
    0.5, 1.0, 2.0, 3.0, 5.0, 7.5, 10.0, 12.5, 15.0, 20.0, 30.0, 60.0,
];

/// Metrics of all scrapes, shared by clones.
#[derive(Debug, Clone)]
pub struct ScrapeMetrics {
    durations: HistogramFamily<NodeLabel>,
    last_requests: Family<NodeLabel, Gauge<f64, AtomicU64>>,
    requests: Family<SuccessLabel, Counter>,
    ticks: Ticks,
    failures: Family<ReasonLabel, Counter>,
    rejected: Family<ReasonLabel, Counter>,
    nodes: Family<StateLabel, Gauge>,
    unchanged: Counter,
    triggers: Counter,
    bytes: Counter,
    connections: Counter,
    pub(crate) in_flight: Gauge,
    sample_age: Histogram,
}

/// The durations of ticks, in metrics-server's sense: the time from the moment at which scrapes are
/// due until the slowest of them is stored, once in a resolution. Its scrapes start together; ours
/// are spread over the resolution, and each is measured from its own due time.
#[derive(Debug, Clone)]
struct Ticks {
    histogram: Histogram,
    resolution: Duration,
    current: Arc<Mutex<Option<Tick>>>,
}

/// The scrapes of one resolution.
#[derive(Debug, Clone, Copy)]
struct Tick {
    started: Instant,
    longest: Duration,
}

/// Metrics of one node, looked up once. Dropping it removes their series.
#[derive(Debug)]
pub(crate) struct NodeMetrics {
    all: Arc<ScrapeMetrics>,
    label: NodeLabel,
    duration: HistogramSeries,
    last_request: Gauge<f64, AtomicU64>,
    state: NodeState,
}

/// Metrics of the tokens that are requested for kubelets, shared by clones.
#[derive(Debug, Clone)]
pub struct TokenMetrics {
    requests: Family<ResultLabel, Counter>,
    /// Has no series until a token was issued.
    expiration: Family<NoLabels, Gauge<f64, AtomicU64>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum NodeState {
    /// No scrape has completed yet.
    New,
    /// The last scrape succeeded.
    Ok,
    /// The last scrape failed.
    Failing,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct NodeLabel {
    node: Name,
}

/// A name that several series share.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Name(NodeName);

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SuccessLabel {
    success: &'static str,
}

type NoLabels = [(&'static str, &'static str); 0];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    state: &'static str,
}

impl prometheus_client::encoding::EncodeLabelValue for Name {
    fn encode(
        &self,
        encoder: &mut prometheus_client::encoding::LabelValueEncoder<'_>,
    ) -> Result<(), std::fmt::Error> {
        prometheus_client::encoding::EncodeLabelValue::encode(&self.0.as_str(), encoder)
    }
}

impl LabelSet for NodeLabel {
    fn visit(&self, visit: &mut dyn FnMut(&str, &str)) {
        visit("node", self.node.0.as_str());
    }
}

impl ScrapeMetrics {
    /// Registers `metrics_server_*` as metrics-server names them, and `kubevitals_scrape_*`.
    pub fn register(metrics: &mut Metrics, resolution: Duration) -> Self {
        let durations = HistogramFamily::register(metrics, REQUEST_DURATION);
        let root = metrics.root();
        let requests = root.family(
            "metrics_server_kubelet_request",
            "Number of requests sent to Kubelet API",
        );
        let last_requests = root.family(
            "metrics_server_kubelet_last_request_time_seconds",
            "Time of last request performed to Kubelet API since unix epoch in seconds",
        );
        let ticks = root.histogram(
            "metrics_server_manager_tick_duration_seconds",
            "The total time spent collecting and storing metrics in seconds",
            &tick_buckets(resolution),
        );
        let registry = metrics.sub("kubevitals_scrape");
        let sample_age = Histogram::new(SAMPLE_AGE_BUCKETS);
        registry.register_with_unit(
            "sample_age",
            "Age of the newest sample of a response at the time of its request, by the node's clock",
            Unit::Seconds,
            sample_age.clone(),
        );
        let own = Self {
            durations,
            last_requests,
            requests,
            ticks: Ticks {
                histogram: ticks,
                resolution,
                current: Arc::default(),
            },
            failures: registry.family("failures", "Total number of failed scrapes, by reason"),
            rejected: registry.family(
                "rejected_values",
                "Total number of values in responses that were ignored, by reason",
            ),
            nodes: registry.family("nodes", "Number of nodes, by state of their scrapes"),
            unchanged: registry.counter(
                "unchanged",
                "Total number of responses without a newer sample than the previous response",
            ),
            triggers: registry.counter(
                "triggers",
                "Total number of times that a pod which started triggered a scrape of its node",
            ),
            bytes: registry.counter("received_bytes", "Total number of bytes of response bodies"),
            connections: registry.counter(
                "connections",
                "Total number of connections opened to kubelets",
            ),
            in_flight: registry.gauge("in_flight", "Number of in-flight scrapes"),
            sample_age,
        };
        own.create_series();
        own
    }

    /// Creates all series with a value of zero: alerts need them to exist.
    fn create_series(&self) {
        for success in ["true", "false"] {
            drop(self.requests.get_or_create(&SuccessLabel { success }));
        }
        for reason in ScrapeError::REASONS {
            drop(self.failures.get_or_create(&ReasonLabel { reason }));
        }
        for reason in Rejection::ALL.map(Rejection::as_str) {
            drop(self.rejected.get_or_create(&ReasonLabel { reason }));
        }
        for state in [NodeState::New, NodeState::Ok, NodeState::Failing] {
            self.nodes_in(state);
        }
        self.set_excluded(0);
    }

    /// Returns the metrics of a new node.
    pub(crate) fn node(self: &Arc<Self>, node: &NodeName) -> NodeMetrics {
        let label = NodeLabel {
            node: Name(node.clone()),
        };
        self.nodes_in(NodeState::New).inc();
        NodeMetrics {
            duration: self.durations.series(&label),
            last_request: self.last_requests.get_or_create_owned(&label),
            all: Arc::clone(self),
            label,
            state: NodeState::New,
        }
    }

    pub(crate) fn counts(&self) -> NodeCounts {
        let count = |state| usize::try_from(self.nodes_in(state).get()).unwrap_or(0);
        NodeCounts {
            new: count(NodeState::New),
            ok: count(NodeState::Ok),
            failing: count(NodeState::Failing),
        }
    }

    /// Records a scrape that was due at one time and stored at another.
    pub(crate) fn observe_scrape(&self, due: Instant, stored: Instant) {
        self.ticks.observe(due, stored);
    }

    /// Records the number of nodes that are excluded from scraping.
    pub(crate) fn set_excluded(&self, nodes: usize) {
        self.nodes_labelled("excluded")
            .set(i64::try_from(nodes).unwrap_or(i64::MAX));
    }

    pub(crate) fn triggered(&self) {
        self.triggers.inc();
    }

    pub(crate) fn connection_opened(&self) {
        self.connections.inc();
    }

    fn nodes_in(&self, state: NodeState) -> Gauge {
        let state = match state {
            NodeState::New => "new",
            NodeState::Ok => "ok",
            NodeState::Failing => "failing",
        };
        self.nodes_labelled(state)
    }

    fn nodes_labelled(&self, state: &'static str) -> Gauge {
        self.nodes.get_or_create_owned(&StateLabel { state })
    }
}

impl Ticks {
    fn observe(&self, due: Instant, stored: Instant) {
        let duration = stored.saturating_duration_since(due);
        let mut current = self.current.lock();
        let tick = current.get_or_insert(Tick {
            started: due,
            longest: Duration::ZERO,
        });
        if stored.saturating_duration_since(tick.started) >= self.resolution {
            self.histogram.observe(tick.longest.as_secs_f64());
            *tick = Tick {
                started: stored,
                longest: Duration::ZERO,
            };
        }
        tick.longest = tick.longest.max(duration);
    }
}

impl TokenMetrics {
    const SUCCESS: &'static str = "success";

    /// Registers `kubevitals_scrape_token_*`.
    pub fn register(metrics: &mut Metrics) -> Self {
        let registry = metrics.sub("kubevitals_scrape");
        let own = Self {
            requests: registry.family(
                "token_requests",
                "Total number of requests for the token that is sent to kubelets, by result",
            ),
            expiration: registry.family(
                "token_expiration_timestamp_seconds",
                "Time at which the token that is sent to kubelets expires, since unix epoch in seconds",
            ),
        };
        let failures = IssueFailure::ALL.map(IssueFailure::as_str);
        for result in failures.into_iter().chain([Self::SUCCESS]) {
            drop(own.requests.get_or_create(&ResultLabel { result }));
        }
        own
    }

    pub(crate) fn issued(&self, lifetime: Duration) {
        self.count(Self::SUCCESS);
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let expires = now.unwrap_or_default() + lifetime;
        self.expiration
            .get_or_create(&[])
            .set(expires.as_secs_f64());
    }

    pub(crate) fn failed(&self, failure: IssueFailure) {
        self.count(failure.as_str());
    }

    fn count(&self, result: &'static str) {
        self.requests.get_or_create(&ResultLabel { result }).inc();
    }
}

impl NodeMetrics {
    /// Records a request that succeeded or failed.
    pub(crate) fn observe_request(&self, at: Timestamp, duration: Duration, success: bool) {
        self.duration.observe(duration);
        #[expect(
            clippy::cast_precision_loss,
            reason = "milliseconds of this era fit 2^53"
        )]
        self.last_request.set(at.unix_millis() as f64 / 1e3);
        let success = if success { "true" } else { "false" };
        self.all
            .requests
            .get_or_create(&SuccessLabel { success })
            .inc();
    }

    /// Records a decoded response.
    pub(crate) fn observe_response(
        &self,
        bytes: usize,
        report: &DecodeReport,
        requested_at: Timestamp,
        is_new: bool,
    ) {
        self.all
            .bytes
            .inc_by(u64::try_from(bytes).unwrap_or(u64::MAX));
        for (rejection, count) in Rejection::ALL.iter().zip(report.rejected) {
            if count > 0 {
                let reason = rejection.as_str();
                self.all
                    .rejected
                    .get_or_create(&ReasonLabel { reason })
                    .inc_by(count);
            }
        }
        if !is_new {
            self.all.unchanged.inc();
        } else if let Some(age) = report.newest.and_then(|newest| requested_at.since(newest)) {
            self.all.sample_age.observe(age.as_secs_f64());
        }
    }

    pub(crate) fn record_failure(&self, error: &ScrapeError) {
        let reason = error.reason();
        self.all
            .failures
            .get_or_create(&ReasonLabel { reason })
            .inc();
    }

    pub(crate) fn set_state(&mut self, state: NodeState) {
        if self.state != state {
            self.all.nodes_in(self.state).dec();
            self.all.nodes_in(state).inc();
            self.state = state;
        }
    }
}

impl Drop for NodeMetrics {
    fn drop(&mut self) {
        self.all.nodes_in(self.state).dec();
        self.all.durations.remove(&self.label);
        self.all.last_requests.remove(&self.label);
    }
}

/// Returns the default buckets and some around the resolution, which scrapes must keep up with.
fn tick_buckets(resolution: Duration) -> Vec<f64> {
    let resolution = resolution.as_secs_f64();
    let around = [0.25, 0.5, 0.75, 0.9, 1.0, 1.5, 2.0].map(|part| part * resolution);
    let mut buckets: Vec<f64> = DEFAULT_BUCKETS.into_iter().chain(around).collect();
    buckets.sort_by(f64::total_cmp);
    buckets.dedup();
    buckets
}

/// Counts a scrape as in-flight until dropped.
#[derive(Debug)]
pub(crate) struct InFlight(Gauge);

impl InFlight {
    pub(crate) fn new(metrics: &Arc<ScrapeMetrics>) -> Self {
        metrics.in_flight.inc();
        Self(metrics.in_flight.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use kubevitals_telemetry::exposition::Format;

    use super::*;

    /// There was once an observation for each scrape: a count of nodes times ticks, and quantiles
    /// that one slow node did not change.
    #[tokio::test]
    async fn a_tick_is_the_slowest_scrape_of_a_resolution() {
        let mut registry = Metrics::new();
        let metrics = ScrapeMetrics::register(&mut registry, Duration::from_secs(15));
        let registry = registry.freeze();
        let begun = Instant::now();
        for resolution in 0..3 {
            for (offset, took) in [(0, 20), (5_000, 700), (10_000, 40)] {
                let due = begun + Duration::from_millis(resolution * 15_000 + offset);
                metrics.observe_scrape(due, due + Duration::from_millis(took));
            }
        }
        let text = String::from_utf8(registry.encode(Format::OpenMetrics).unwrap()).unwrap();
        for line in [
            r#"metrics_server_manager_tick_duration_seconds_bucket{le="0.5"} 0"#,
            r#"metrics_server_manager_tick_duration_seconds_bucket{le="1.0"} 2"#,
            "metrics_server_manager_tick_duration_seconds_count 2",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
    }
}
