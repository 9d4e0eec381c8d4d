//! A provider for any sink of data points: Cloud Monitoring, OpenTelemetry, JSON lines.

mod naming;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kubevitals_inventory::{
    AddonCount, AddonPods, NodeAvailabilityCount, NodeCondition, NodeConditionCount, NodeStatus,
    NotReadyCount, RestartCount, SilentNode,
};
use kubevitals_model::Timestamp;
use kubevitals_probes::{BUCKETS, Histogram, Verdict};
use kubevitals_sink::{Attributes, DataPoint, Distribution, Measurement, Number, Sink, SinkCounts};

pub use self::naming::Naming;
use self::naming::{Label, Metric};
use crate::prometheus::truth;
use crate::provider::{ClusterRecorder, NodeRecorder, ProbeRecorder, ProbeTarget, Provider};

/// Silent nodes that are exported. All are counted.
const MAX_SILENT: usize = 200;

/// The probes whose verdicts gke-prober writes as `cluster/probe/addons_condition`.
const ADDON_PROBES: [&str; 2] = ["metrics_server", "kube_dns"];

/// A queue of data points in front of a backend.
pub trait PointQueue: Send + Sync {
    /// Queues a point without waiting. What does not fit is dropped and counted.
    fn push(&self, point: DataPoint);

    /// Sends what is queued, within the grace period.
    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, SinkCounts>;
}

impl PointQueue for Sink<DataPoint> {
    fn push(&self, point: DataPoint) {
        let _ = Self::push(self, point);
    }

    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, SinkCounts> {
        Self::shutdown(self, grace).boxed()
    }
}

/// Makes data points of observations and queues them.
#[derive(Clone)]
pub struct PointsProvider {
    name: &'static str,
    recorder: Arc<Recorder>,
}

/// Where the points go, and what is the same in all of them.
struct Recorder {
    sink: Box<dyn PointQueue>,
    naming: Naming,
    /// Attributes of this process: cluster, and node in node mode.
    resource: Vec<(Arc<str>, Arc<str>)>,
    bounds: Arc<[f64]>,
}

impl PointsProvider {
    /// A provider with a name, such as `gcm`. `resource` has the attributes of every point, by
    /// semantic convention: `k8s.cluster.name`, `k8s.node.name`.
    pub fn new(
        name: &'static str,
        sink: impl PointQueue + 'static,
        naming: Naming,
        resource: Vec<(Arc<str>, Arc<str>)>,
    ) -> Self {
        Self {
            name,
            recorder: Arc::new(Recorder {
                sink: Box::new(sink),
                naming,
                resource,
                bounds: BUCKETS.into(),
            }),
        }
    }
}

impl Provider for PointsProvider {
    fn name(&self) -> &str {
        self.name
    }

    fn cluster_recorder(&self) -> Arc<dyn ClusterRecorder> {
        Arc::<Recorder>::clone(&self.recorder)
    }

    fn node_recorder(&self) -> Arc<dyn NodeRecorder> {
        Arc::<Recorder>::clone(&self.recorder)
    }

    fn probe_recorder(&self) -> Arc<dyn ProbeRecorder> {
        Arc::<Recorder>::clone(&self.recorder)
    }

    fn shutdown(&self, grace: Duration) -> BoxFuture<'_, ()> {
        async move {
            let counts = self.recorder.sink.shutdown(grace).await;
            if counts.dropped > 0 {
                tracing::warn!(
                    provider = self.name,
                    dropped = counts.dropped,
                    exported = counts.exported,
                    "dropped data points"
                );
            }
        }
        .boxed()
    }
}

impl Recorder {
    fn push(
        &self,
        at: Timestamp,
        metric: &Metric,
        labels: &[(&Label, &str)],
        measurement: Measurement,
    ) {
        self.push_with(at, metric, labels, &[], measurement);
    }

    fn push_with(
        &self,
        at: Timestamp,
        metric: &Metric,
        labels: &[(&Label, &str)],
        more: &[(Arc<str>, Arc<str>)],
        measurement: Measurement,
    ) {
        let labels = labels.iter().map(|(label, value)| {
            (
                label.name(self.naming).into(),
                label.value(self.naming, value),
            )
        });
        let all = self.resource.iter().chain(more).cloned().chain(labels);
        let point = DataPoint {
            name: metric.name(self.naming).into(),
            unit: metric.unit.into(),
            attributes: Attributes::new(all),
            timestamp: at,
            measurement,
        };
        // A counter that starts now, or on a clock that is ahead, has nothing to say yet: backends
        // reject empty intervals.
        if point.start().is_none_or(|start| start < at) {
            self.sink.push(point);
        }
    }

    fn distribution(&self, start: Timestamp, histogram: &Histogram) -> Option<Measurement> {
        let counts = histogram.counts().to_vec();
        let sum = histogram.sum().as_secs_f64();
        let value = Distribution::new(Arc::clone(&self.bounds), counts, sum).ok()?;
        Some(Measurement::Distribution { start, value })
    }
}

impl ClusterRecorder for Recorder {
    fn node_conditions(&self, at: Timestamp, counts: &[NodeConditionCount]) {
        for count in counts {
            let NodeCondition { kind, status } = &count.condition;
            let labels = [
                (&Label::POOL, &*count.pool),
                (&Label::ZONE, &count.zone),
                (&Label::CONDITION_TYPE, kind),
                (&Label::CONDITION_STATUS, status),
            ];
            self.push(at, &Metric::CLUSTER_CONDITION, &labels, gauge(count.nodes));
        }
    }

    fn node_availabilities(&self, at: Timestamp, counts: &[NodeAvailabilityCount]) {
        for count in counts {
            let labels = [
                (&Label::POOL, &*count.pool),
                (&Label::ZONE, &count.zone),
                (&Label::READY, truth(count.ready)),
                (&Label::SCHEDULABLE, truth(count.schedulable)),
                (&Label::DONE_WARMING, truth(count.done_warming)),
                (&Label::AVAILABLE, truth(count.is_available())),
            ];
            self.push(at, &Metric::CLUSTER_AVAILABLE, &labels, gauge(count.nodes));
        }
    }

    fn addons_expected(&self, at: Timestamp, counts: &[AddonCount]) {
        for AddonCount { addon, pods } in counts {
            let labels = [
                (&Label::ADDON, &*addon.name),
                (&Label::VERSION, &addon.version),
                (&Label::CONTROLLER, &addon.controller),
            ];
            self.push(at, &Metric::ADDONS_EXPECTED, &labels, gauge(*pods));
        }
    }

    fn not_ready(&self, at: Timestamp, counts: &[NotReadyCount]) {
        for count in counts {
            let labels = [(&Label::POOL, &*count.pool), (&Label::ZONE, &count.zone)];
            let total = counter(count.start, count.total);
            self.push(at, &Metric::NOT_READY, &labels, total);
        }
    }

    fn silent_nodes(&self, at: Timestamp, nodes: &[SilentNode]) {
        for one in nodes.iter().take(MAX_SILENT) {
            let labels = [
                (&Label::NODE, &*one.node),
                (&Label::POOL, &one.pool),
                (&Label::ZONE, &one.zone),
                (&Label::REASON, one.silence.as_str()),
            ];
            self.push(at, &Metric::NODE_SILENT, &labels, gauge(1));
        }
        let count = u64::try_from(nodes.len()).unwrap_or(u64::MAX);
        self.push(at, &Metric::NODES_SILENT, &[], gauge(count));
    }
}

impl NodeRecorder for Recorder {
    fn conditions(&self, at: Timestamp, node: &NodeStatus, conditions: &[NodeCondition]) {
        for NodeCondition { kind, status } in conditions {
            let labels = [
                (&Label::POOL, &*node.pool),
                (&Label::ZONE, &node.zone),
                (&Label::CONDITION_TYPE, kind),
                (&Label::CONDITION_STATUS, status),
            ];
            self.push(at, &Metric::NODE_CONDITION, &labels, gauge(1));
        }
    }

    fn availability(&self, at: Timestamp, node: &NodeStatus) {
        let labels = [
            (&Label::POOL, &*node.pool),
            (&Label::ZONE, &node.zone),
            (&Label::AVAILABLE, truth(node.is_available())),
            (&Label::READY, truth(node.ready)),
            (&Label::SCHEDULEABLE, truth(node.schedulable)),
            (&Label::DONE_WARMING, truth(node.done_warming)),
        ];
        self.push(at, &Metric::NODE_AVAILABLE, &labels, gauge(1));
    }

    fn addons(&self, at: Timestamp, node: &NodeStatus, addons: &[AddonPods]) {
        for one in addons {
            let labels = [
                (&Label::POOL, &*node.pool),
                (&Label::ZONE, &node.zone),
                (&Label::AVAILABLE, truth(one.is_available())),
                (&Label::NODE_AVAILABLE, truth(node.is_available())),
                (&Label::RUNNING, truth(one.running)),
                (&Label::STABLE, truth(one.stable)),
                (&Label::HEALTHY, one.healthy.as_str()),
                (&Label::ADDON, &one.addon.name),
                (&Label::VERSION, &one.addon.version),
                (&Label::CONTROLLER, &one.addon.controller),
            ];
            self.push(at, &Metric::ADDON_AVAILABLE, &labels, gauge(one.pods));
        }
    }

    fn control_plane(&self, at: Timestamp, node: &NodeStatus, available: Option<bool>) {
        let Some(available) = available else {
            return;
        };
        let labels = [
            (&Label::POOL, &*node.pool),
            (&Label::ZONE, &node.zone),
            (&Label::AVAILABLE, truth(available)),
        ];
        self.push(at, &Metric::CONTROL_PLANE, &labels, gauge(1));
    }

    fn restarts(&self, at: Timestamp, node: &NodeStatus, counts: &[RestartCount]) {
        for count in counts {
            let exit_code = count.exit_code.map(|code| code.to_string());
            let labels = [
                (&Label::POOL, &*node.pool),
                (&Label::ZONE, &node.zone),
                (&Label::CONTAINER, &count.container),
                (&Label::REASON, &count.reason),
                (&Label::EXIT_CODE, exit_code.as_deref().unwrap_or("unknown")),
                (&Label::ADDON, &count.addon.name),
                (&Label::VERSION, &count.addon.version),
                (&Label::CONTROLLER, &count.addon.controller),
            ];
            // The series is one of the pod, which takes it along when it goes.
            let pod = [
                (
                    "k8s.namespace.name".into(),
                    Arc::clone(count.pod.namespace()),
                ),
                ("k8s.pod.name".into(), Arc::clone(count.pod.name())),
            ];
            let total = counter(count.start, count.total);
            self.push_with(at, &Metric::ADDON_RESTART, &labels, &pod, total);
        }
    }
}

impl ProbeRecorder for Recorder {
    fn targets(&self, at: Timestamp, targets: &[ProbeTarget]) {
        for target in targets {
            self.target(at, target);
        }
    }
}

impl Recorder {
    fn target(&self, at: Timestamp, target: &ProbeTarget) {
        let ProbeTarget {
            probe,
            target: name,
            start,
            statistics,
        } = target;
        let labels = [(&Label::PROBE, &*probe.name), (&Label::TARGET, name)];
        let own = &probe.labels;
        let push = |metric: &Metric, more: Option<(&Label, &str)>, value| {
            let labels: Vec<_> = labels.iter().copied().chain(more).collect();
            self.push_with(at, metric, &labels, own, value);
        };
        push(
            &Metric::PROBE_TOTAL,
            None,
            counter(*start, statistics.total),
        );
        push(
            &Metric::PROBE_SUCCESS,
            None,
            counter(*start, statistics.success),
        );
        push(
            &Metric::PROBE_TIMEOUT,
            None,
            counter(*start, statistics.timeout),
        );
        for (reason, count) in statistics.failures_by_reason() {
            let reason = Some((&Label::ERROR_TYPE, reason.as_str()));
            push(&Metric::PROBE_FAILURES, reason, counter(*start, count));
        }
        if let Some(value) = self.distribution(*start, &statistics.duration) {
            push(&Metric::PROBE_DURATION, None, value);
        }
        for (phase, histogram) in statistics.phases() {
            if let Some(value) = self.distribution(*start, histogram) {
                let phase = Some((&Label::PHASE, phase.as_str()));
                push(&Metric::PROBE_PHASE_DURATION, phase, value);
            }
        }
        let up = match statistics.verdict {
            Verdict::Unknown => return,
            Verdict::Up => true,
            Verdict::Down => false,
        };
        push(&Metric::PROBE_UP, None, gauge(u64::from(up)));
        if ADDON_PROBES.contains(&&*probe.name) {
            let failure = statistics.last_failure.as_ref().filter(|_| !up);
            // The reasons of gke-prober are free text, with ports and addresses.
            let reason = failure.map_or("", |failure| failure.reason.as_str());
            let labels = [
                (&Label::NAME, &*probe.name),
                (&Label::CONDITION, if up { "Healthy" } else { "Unhealthy" }),
                (&Label::REASON, reason),
            ];
            self.push(at, &Metric::ADDONS_CONDITION, &labels, gauge(1));
        }
    }
}

fn gauge(value: u64) -> Measurement {
    Measurement::Gauge(integer(value))
}

fn counter(start: Timestamp, total: u64) -> Measurement {
    Measurement::Counter {
        start,
        total: integer(total),
    }
}

fn integer(value: u64) -> Number {
    Number::Integer(i64::try_from(value).unwrap_or(i64::MAX))
}
