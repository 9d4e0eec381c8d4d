//! The provider `prometheus`: everything at `/metrics`.

mod probes;
mod table;

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use kubevitals_inventory::{
    AddonCount, AddonPods, NodeAvailabilityCount, NodeCondition, NodeConditionCount, NodeStatus,
    NotReadyCount, RestartCount, SilentNode,
};
use kubevitals_model::Timestamp;
use kubevitals_telemetry::{Metrics, RegistryExt as _};
use prometheus_client::metrics::counter::Counter;

use self::probes::ProbeFamilies;
use self::table::{Descriptor, Kind, Row, Table};
use crate::provider::{ClusterRecorder, NodeRecorder, ProbeRecorder, Provider};

/// Silent nodes that have a series of their own. All are counted.
const MAX_SILENT: usize = 200;

/// Exposes the last tick, and every probe as it ends. Clones share the metrics.
#[derive(Debug, Clone)]
pub struct PrometheusProvider {
    cluster: ClusterTables,
    node: NodeTables,
    probes: ProbeFamilies,
}

#[derive(Debug, Clone)]
struct ClusterTables {
    conditions: Table,
    available: Table,
    expected: Table,
    not_ready: Table,
    silent: Table,
    silent_count: Table,
    dropped: Counter,
}

#[derive(Debug, Clone)]
struct NodeTables {
    conditions: Table,
    available: Table,
    addons: Table,
    control_plane: Table,
    restarts: Table,
    dropped: Counter,
}

const NODE_CONDITION: Descriptor = Descriptor {
    name: "kubevitals_prober_cluster_node_condition",
    help: "Number of nodes by condition",
    kind: Kind::Gauge,
    labels: &["nodepool", "zone", "type", "status"],
};
const NODE_AVAILABLE: Descriptor = Descriptor {
    name: "kubevitals_prober_cluster_node_available",
    help: "Number of nodes by availability",
    kind: Kind::Gauge,
    labels: &[
        "nodepool",
        "zone",
        "ready",
        "schedulable",
        "done_warming",
        "available",
    ],
};
const ADDONS_EXPECTED: Descriptor = Descriptor {
    name: "kubevitals_prober_cluster_addons_expected",
    help: "Number of pods that an addon should have",
    kind: Kind::Gauge,
    labels: &["addon", "version", "controller"],
};
const NOT_READY: Descriptor = Descriptor {
    name: "kubevitals_prober_cluster_node_not_ready",
    help: "Total number of changes of nodes from ready to not ready",
    kind: Kind::Counter,
    labels: &["nodepool", "zone"],
};
const NODE_SILENT: Descriptor = Descriptor {
    name: "kubevitals_prober_cluster_node_silent",
    help: "A node whose own prober cannot report, with the value 1; the first 200 by name",
    kind: Kind::Gauge,
    labels: &["node", "nodepool", "zone", "reason"],
};
const NODES_SILENT: Descriptor = Descriptor {
    name: "kubevitals_prober_cluster_nodes_silent",
    help: "Number of nodes whose own prober cannot report",
    kind: Kind::Gauge,
    labels: &["nodepool", "zone", "reason"],
};
const OWN_CONDITION: Descriptor = Descriptor {
    name: "kubevitals_prober_node_condition",
    help: "A condition of this node, with the value 1",
    kind: Kind::Gauge,
    labels: &["node", "nodepool", "zone", "type", "status"],
};
const OWN_AVAILABLE: Descriptor = Descriptor {
    name: "kubevitals_prober_node_available",
    help: "The availability of this node, with the value 1",
    kind: Kind::Gauge,
    labels: &[
        "node",
        "nodepool",
        "zone",
        "ready",
        "schedulable",
        "done_warming",
        "available",
    ],
};
const ADDON_AVAILABLE: Descriptor = Descriptor {
    name: "kubevitals_prober_addon_available",
    help: "Number of pods of an addon on this node by availability",
    kind: Kind::Gauge,
    labels: &[
        "node",
        "nodepool",
        "zone",
        "addon",
        "version",
        "controller",
        "available",
        "node_available",
        "running",
        "healthy",
        "stable",
    ],
};
const CONTROL_PLANE: Descriptor = Descriptor {
    name: "kubevitals_prober_addon_control_plane_available",
    help: "Whether this node and all addons on it are available, with the value 1",
    kind: Kind::Gauge,
    labels: &["node", "nodepool", "zone", "available"],
};
const ADDON_RESTART: Descriptor = Descriptor {
    name: "kubevitals_prober_addon_restart",
    help: "Total number of restarts of a container of an addon since its pod started",
    kind: Kind::Counter,
    labels: &[
        "node",
        "nodepool",
        "zone",
        "addon",
        "version",
        "controller",
        "namespace",
        "pod",
        "container_name",
        "reason",
        "exit_code",
    ],
};

impl PrometheusProvider {
    /// Registers the metrics.
    pub fn register(metrics: &mut Metrics) -> Self {
        let dropped = metrics.sub("kubevitals_prober").counter(
            "series_dropped",
            "Total number of series left out because a family has too many",
        );
        let mut table = |descriptor| {
            let table = Table::new(descriptor);
            metrics.root().register_collector(Box::new(table.clone()));
            table
        };
        let cluster = ClusterTables {
            conditions: table(NODE_CONDITION),
            available: table(NODE_AVAILABLE),
            expected: table(ADDONS_EXPECTED),
            not_ready: table(NOT_READY),
            silent: table(NODE_SILENT),
            silent_count: table(NODES_SILENT),
            dropped: dropped.clone(),
        };
        let node = NodeTables {
            conditions: table(OWN_CONDITION),
            available: table(OWN_AVAILABLE),
            addons: table(ADDON_AVAILABLE),
            control_plane: table(CONTROL_PLANE),
            restarts: table(ADDON_RESTART),
            dropped,
        };
        Self {
            cluster,
            node,
            probes: ProbeFamilies::register(metrics),
        }
    }
}

impl Provider for PrometheusProvider {
    fn name(&self) -> &'static str {
        "prometheus"
    }

    fn cluster_recorder(&self) -> Arc<dyn ClusterRecorder> {
        Arc::new(self.cluster.clone())
    }

    fn node_recorder(&self) -> Arc<dyn NodeRecorder> {
        Arc::new(self.node.clone())
    }

    fn probe_recorder(&self) -> Arc<dyn ProbeRecorder> {
        Arc::new(self.probes.clone())
    }

    /// Nothing is queued: a scrape reads what is there.
    fn shutdown(&self, _grace: Duration) -> BoxFuture<'_, ()> {
        async {}.boxed()
    }
}

impl ClusterRecorder for ClusterTables {
    fn node_conditions(&self, _at: Timestamp, counts: &[NodeConditionCount]) {
        let rows = counts.iter().map(|count| {
            let NodeCondition { kind, status } = &count.condition;
            Row::new([&count.pool, &count.zone, kind, status], count.nodes)
        });
        self.dropped.inc_by(self.conditions.replace(rows));
    }

    fn node_availabilities(&self, _at: Timestamp, counts: &[NodeAvailabilityCount]) {
        let rows = counts.iter().map(|count| {
            let labels = [
                &*count.pool,
                &count.zone,
                truth(count.ready),
                truth(count.schedulable),
                truth(count.done_warming),
                truth(count.is_available()),
            ];
            Row::new(labels, count.nodes)
        });
        self.dropped.inc_by(self.available.replace(rows));
    }

    fn addons_expected(&self, _at: Timestamp, counts: &[AddonCount]) {
        let rows = counts.iter().map(|AddonCount { addon, pods }| {
            Row::new([&*addon.name, &addon.version, &addon.controller], *pods)
        });
        self.dropped.inc_by(self.expected.replace(rows));
    }

    fn not_ready(&self, _at: Timestamp, counts: &[NotReadyCount]) {
        let rows = counts.iter();
        let rows = rows.map(|count| Row::new([&*count.pool, &count.zone], count.total));
        self.dropped.inc_by(self.not_ready.replace(rows));
    }

    fn silent_nodes(&self, _at: Timestamp, nodes: &[SilentNode]) {
        let rows = nodes.iter().take(MAX_SILENT).map(|one| {
            let labels = [&*one.node, &one.pool, &one.zone, one.silence.as_str()];
            Row::new(labels, 1)
        });
        self.silent.replace(rows);
        let mut counts = std::collections::BTreeMap::new();
        for one in nodes {
            let key = (&*one.pool, &*one.zone, one.silence.as_str());
            *counts.entry(key).or_insert(0) += 1;
        }
        let rows = counts.into_iter();
        let rows = rows.map(|((pool, zone, reason), count)| Row::new([pool, zone, reason], count));
        self.dropped.inc_by(self.silent_count.replace(rows));
    }

    fn ended(&self) {
        self.conditions.clear();
        self.available.clear();
        self.expected.clear();
        self.not_ready.clear();
        self.silent.clear();
        self.silent_count.clear();
    }
}

impl NodeRecorder for NodeTables {
    fn conditions(&self, _at: Timestamp, node: &NodeStatus, conditions: &[NodeCondition]) {
        let rows = conditions.iter().map(|NodeCondition { kind, status }| {
            Row::new([&*node.name, &node.pool, &node.zone, kind, status], 1)
        });
        self.conditions.replace(rows);
    }

    fn availability(&self, _at: Timestamp, node: &NodeStatus) {
        let labels = [
            &*node.name,
            &node.pool,
            &node.zone,
            truth(node.ready),
            truth(node.schedulable),
            truth(node.done_warming),
            truth(node.is_available()),
        ];
        self.available.replace([Row::new(labels, 1)]);
    }

    fn addons(&self, _at: Timestamp, node: &NodeStatus, addons: &[AddonPods]) {
        let rows = addons.iter().map(|one| {
            let labels = [
                &*node.name,
                &node.pool,
                &node.zone,
                &one.addon.name,
                &one.addon.version,
                &one.addon.controller,
                truth(one.is_available()),
                truth(node.is_available()),
                truth(one.running),
                one.healthy.as_str(),
                truth(one.stable),
            ];
            Row::new(labels, one.pods)
        });
        self.dropped.inc_by(self.addons.replace(rows));
    }

    fn control_plane(&self, _at: Timestamp, node: &NodeStatus, available: Option<bool>) {
        let rows = available
            .map(|available| Row::new([&*node.name, &node.pool, &node.zone, truth(available)], 1));
        self.control_plane.replace(rows);
    }

    fn restarts(&self, _at: Timestamp, node: &NodeStatus, counts: &[RestartCount]) {
        let rows = counts.iter().map(|count| {
            let exit_code = count.exit_code.map(|code| code.to_string());
            let labels = [
                &*node.name,
                &node.pool,
                &node.zone,
                &count.addon.name,
                &count.addon.version,
                &count.addon.controller,
                count.pod.namespace(),
                count.pod.name(),
                &count.container,
                &count.reason,
                exit_code.as_deref().unwrap_or("unknown"),
            ];
            Row::new(labels, count.total)
        });
        self.dropped.inc_by(self.restarts.replace(rows));
    }

    fn ended(&self) {
        self.conditions.clear();
        self.available.clear();
        self.addons.clear();
        self.control_plane.clear();
        self.restarts.clear();
    }
}

/// Booleans as gke-prober writes them.
pub(crate) const fn truth(value: bool) -> &'static str {
    if value { "True" } else { "False" }
}
