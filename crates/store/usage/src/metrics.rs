//! What the store counts.

use kubevitals_model::NoRate;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::node::Told;
use crate::series::{State, Taken};

type Labelled<M> = Family<[(&'static str, &'static str); 1], M>;

/// Why samples of containers are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// The API never told of the pod.
    UnknownPod,
    /// The pod is bound to another node, or has ended.
    Foreign,
    /// The node is not known.
    UnknownNode,
    /// More were said than is kept.
    Overflow,
}

/// The metrics of a store.
#[derive(Debug, Clone)]
pub struct UsageMetrics {
    points: Labelled<Gauge>,
    node_points: Gauge,
    container_points: Gauge,
    served_pods: Gauge,
    pub(crate) known_nodes: Gauge,
    dropped: Labelled<Counter>,
    no_rate: Labelled<Counter>,
    samples: Labelled<Counter>,
    restarts: Counter,
    pub(crate) expired: Counter,
    pub(crate) publications: Counter,
    pub(crate) kept_nodes: Gauge,
    hot: Hot,
}

/// The series that every sample counts in, without a lookup.
#[derive(Debug, Clone)]
struct Hot {
    new: Counter,
    repeated: Counter,
    older: Counter,
    without_cpu: Counter,
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

/// Every reason for which a new sample makes no rate.
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
        };
        let metrics = Self {
            node_points: points.get_or_create_owned(&[("type", "node")]),
            container_points: points.get_or_create_owned(&[("type", "container")]),
            points,
            served_pods: Gauge::default(),
            known_nodes: Gauge::default(),
            dropped: Labelled::default(),
            no_rate: Labelled::default(),
            samples,
            restarts: Counter::default(),
            expired: Counter::default(),
            publications: Counter::default(),
            kept_nodes: Gauge::default(),
            hot,
        };
        // A series that is not there cannot be told from one that stays at zero.
        for reason in Dropped::ALL {
            metrics.dropped(reason, 0_u64);
        }
        for reason in NO_RATE {
            drop(metrics.no_rate.get_or_create(&[("reason", reason)]));
        }
        metrics
    }

    /// Registers the metrics. `root` has no prefix: one family has metrics-server's name.
    pub fn register(&self, root: &mut Registry) {
        root.register(
            "metrics_server_storage_points",
            "Number of metrics points stored",
            self.points.clone(),
        );
        let own = root.sub_registry_with_prefix("kubevitals_usage");
        own.register(
            "nodes_known",
            "Nodes that are to be asked",
            self.known_nodes.clone(),
        );
        own.register(
            "nodes_served",
            "Nodes of which usage is served",
            self.node_points.clone(),
        );
        own.register(
            "pods_served",
            "Pods of which usage is served",
            self.served_pods.clone(),
        );
        own.register(
            "containers_served",
            "Containers of which usage is served",
            self.container_points.clone(),
        );
        own.register(
            "samples",
            "Samples of nodes and containers, by what they were",
            self.samples.clone(),
        );
        own.register(
            "dropped_samples",
            "Samples of containers that were not taken, by reason",
            self.dropped.clone(),
        );
        own.register(
            "no_rate",
            "New samples that made no rate, by reason",
            self.no_rate.clone(),
        );
        own.register(
            "restarts",
            "Containers that started again between two samples",
            self.restarts.clone(),
        );
        own.register(
            "nodes_kept",
            "Nodes that were last asked in vain and are served with their last good values",
            self.kept_nodes.clone(),
        );
        own.register(
            "expired_containers",
            "Containers whose last good value became too old to be served",
            self.expired.clone(),
        );
        own.register(
            "publications",
            "Times a node was published",
            self.publications.clone(),
        );
    }

    pub(crate) fn dropped(&self, reason: Dropped, count: impl TryInto<u64>) {
        let Ok(count) = count.try_into() else { return };
        let counter = self.dropped.get_or_create(&[("reason", reason.as_label())]);
        counter.inc_by(count);
    }

    /// Counts a sample, and what came of it.
    pub(crate) fn took(&self, taken: Taken, state: State) {
        let kind = match taken {
            Taken::New { .. } => &self.hot.new,
            Taken::Repeated => &self.hot.repeated,
            Taken::Older => &self.hot.older,
            Taken::WithoutCpu => &self.hot.without_cpu,
        };
        kind.inc();
        let Taken::New { restarted } = taken else {
            return;
        };
        if restarted {
            self.restarts.inc();
        }
        let reason = match state {
            State::NoRate(why) => why.as_label(),
            State::ClockStepped => CLOCK_STEPPED,
            State::Rate | State::KubeletAverage | State::NoCpu => return,
        };
        self.no_rate.get_or_create(&[("reason", reason)]).inc();
    }

    /// Counts what is served of a node now instead of before.
    pub(crate) fn told(&self, before: Told, now: Told) {
        let change = |gauge: &Gauge, before: u32, now: u32| {
            gauge.inc_by(i64::from(now) - i64::from(before));
        };
        change(&self.node_points, before.nodes, now.nodes);
        change(&self.served_pods, before.pods, now.pods);
        change(&self.container_points, before.containers, now.containers);
    }
}
