//! Metrics of the store.

use kubevitals_model::NoRate;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::node::{Accounted, Published};
use crate::readiness::Counts;
use crate::series::{RateState, SampleKind};

type Labelled<M> = Family<[(&'static str, &'static str); 1], M>;

/// The reason why samples of containers are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// The API has not reported the pod.
    UnknownPod,
    /// The pod is bound to another node, or has terminated.
    Foreign,
    UnknownNode,
    /// A limit is exceeded.
    Overflow,
}

/// The metrics of a store.
#[derive(Debug, Clone)]
pub struct UsageMetrics {
    points: Labelled<Gauge>,
    node_points: Gauge,
    container_points: Gauge,
    served_pods: Gauge,
    nodes: Gauge,
    excluded_nodes: Gauge,
    settled_nodes: Gauge,
    running_pods: Gauge,
    dropped: Labelled<Counter>,
    no_rate: Labelled<Counter>,
    samples: Labelled<Counter>,
    restarts: Counter,
    pub(crate) expired: Counter,
    pub(crate) publications: Counter,
    pub(crate) cached_nodes: Gauge,
    hot: Hot,
}

/// The counters that every sample increments, without a lookup.
#[derive(Debug, Clone)]
struct Hot {
    new: Counter,
    repeated: Counter,
    older: Counter,
    without_cpu: Counter,
    invalid_time: Counter,
}

impl Dropped {
    const ALL: [Self; 4] = [
        Self::UnknownPod,
        Self::Foreign,
        Self::UnknownNode,
        Self::Overflow,
    ];

    const fn as_label(self) -> &'static str {
        match self {
            Self::UnknownPod => "unknown_pod",
            Self::Foreign => "foreign_pod",
            Self::UnknownNode => "unknown_node",
            Self::Overflow => "overflow",
        }
    }
}

/// The reasons why a new sample makes no rate.
const NO_RATE: [&str; 6] = [
    NoRate::FirstSample.as_label(),
    NoRate::CounterDecreased.as_label(),
    NoRate::StartedTooRecently.as_label(),
    NoRate::StartedAfterSample.as_label(),
    NoRate::TooFast.as_label(),
    CLOCK_STEPPED,
];

const CLOCK_STEPPED: &str = "clock_stepped";

impl UsageMetrics {
    pub(crate) fn new() -> Self {
        let points = Labelled::<Gauge>::default();
        let samples = Labelled::<Counter>::default();
        let sample = |kind| samples.get_or_create_owned(&[("kind", kind)]);
        let hot = Hot {
            new: sample("new"),
            repeated: sample("repeated"),
            older: sample("older"),
            without_cpu: sample("without_cpu"),
            invalid_time: sample("invalid_time"),
        };
        let metrics = Self {
            node_points: points.get_or_create_owned(&[("type", "node")]),
            container_points: points.get_or_create_owned(&[("type", "container")]),
            points,
            served_pods: Gauge::default(),
            nodes: Gauge::default(),
            excluded_nodes: Gauge::default(),
            settled_nodes: Gauge::default(),
            running_pods: Gauge::default(),
            dropped: Labelled::default(),
            no_rate: Labelled::default(),
            samples,
            restarts: Counter::default(),
            expired: Counter::default(),
            publications: Counter::default(),
            cached_nodes: Gauge::default(),
            hot,
        };
        // All series exist from the start, so that a missing one is an error.
        for reason in Dropped::ALL {
            metrics.dropped(reason, 0_u64);
        }
        for reason in NO_RATE {
            drop(metrics.no_rate.get_or_create(&[("reason", reason)]));
        }
        metrics
    }

    /// Registers the metrics. `root` has no prefix: one family is named as in metrics-server.
    pub fn register(&self, root: &mut Registry) {
        root.register(
            "metrics_server_storage_points",
            "Number of metrics points stored",
            self.points.clone(),
        );
        let own = root.sub_registry_with_prefix("kubevitals_usage");
        own.register("nodes", "Number of nodes to scrape", self.nodes.clone());
        own.register(
            "nodes_excluded",
            "Number of nodes that are excluded from scraping",
            self.excluded_nodes.clone(),
        );
        own.register(
            "nodes_settled",
            "Number of nodes to scrape that have had usage or a failed scrape",
            self.settled_nodes.clone(),
        );
        own.register(
            "pods_running",
            "Number of running pods on the nodes to scrape",
            self.running_pods.clone(),
        );
        own.register(
            "nodes_served",
            "Number of nodes with usage",
            self.node_points.clone(),
        );
        own.register(
            "pods_served",
            "Number of pods with usage",
            self.served_pods.clone(),
        );
        own.register(
            "containers_served",
            "Number of containers with usage",
            self.container_points.clone(),
        );
        own.register(
            "samples",
            "Total number of samples of nodes and containers, by kind",
            self.samples.clone(),
        );
        own.register(
            "dropped_samples",
            "Total number of samples of containers dropped, by reason",
            self.dropped.clone(),
        );
        own.register(
            "samples_without_rate",
            "Total number of new samples from which no rate could be computed, by reason",
            self.no_rate.clone(),
        );
        own.register(
            "container_restarts",
            "Total number of container restarts between two samples",
            self.restarts.clone(),
        );
        own.register(
            "nodes_cached",
            "Number of nodes whose last scrape failed and that serve cached values",
            self.cached_nodes.clone(),
        );
        own.register(
            "expired_containers",
            "Total number of containers whose usage became stale",
            self.expired.clone(),
        );
        own.register(
            "publications",
            "Total number of publications of a node",
            self.publications.clone(),
        );
    }

    pub(crate) fn dropped(&self, reason: Dropped, count: impl TryInto<u64>) {
        let Ok(count) = count.try_into() else { return };
        let counter = self.dropped.get_or_create(&[("reason", reason.as_label())]);
        counter.inc_by(count);
    }

    /// Counts a sample by its kind, and by the reason if it makes no rate.
    pub(crate) fn sample(&self, sample: SampleKind, state: RateState) {
        let kind = match sample {
            SampleKind::New { .. } => &self.hot.new,
            SampleKind::Repeated => &self.hot.repeated,
            SampleKind::Older => &self.hot.older,
            SampleKind::WithoutCpu => &self.hot.without_cpu,
            SampleKind::InvalidTime => &self.hot.invalid_time,
        };
        kind.inc();
        let SampleKind::New { restarted } = sample else {
            return;
        };
        if restarted {
            self.restarts.inc();
        }
        let reason = match state {
            RateState::NoRate(reason) => reason.as_label(),
            RateState::ClockStepped => CLOCK_STEPPED,
            RateState::Rate | RateState::KubeletAverage | RateState::NoCpu => return,
        };
        self.no_rate.get_or_create(&[("reason", reason)]).inc();
    }

    /// Updates the sums after a change of a node.
    pub(crate) fn account(&self, before: Accounted, now: Accounted) {
        change(&self.nodes, before.nodes, now.nodes);
        change(&self.excluded_nodes, before.excluded, now.excluded);
        change(&self.settled_nodes, before.settled, now.settled);
        change(&self.running_pods, before.running_pods, now.running_pods);
    }

    /// Returns the sums over all nodes, without their reasons: a few loads, whatever the size of
    /// the cluster.
    pub(crate) fn counts(&self) -> Counts {
        let count = |gauge: &Gauge| usize::try_from(gauge.get()).unwrap_or(0);
        Counts {
            nodes: count(&self.nodes),
            nodes_excluded: count(&self.excluded_nodes),
            nodes_settled: count(&self.settled_nodes),
            nodes_served: count(&self.node_points),
            running_pods: count(&self.running_pods),
            pods_served: count(&self.served_pods),
        }
    }

    /// Updates the gauges after a publication of a node.
    pub(crate) fn published(&self, before: Published, now: Published) {
        change(&self.node_points, before.nodes, now.nodes);
        change(&self.served_pods, before.pods, now.pods);
        change(&self.container_points, before.containers, now.containers);
    }
}

fn change(gauge: &Gauge, before: u32, now: u32) {
    gauge.inc_by(i64::from(now) - i64::from(before));
}
