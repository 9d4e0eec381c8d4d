//! How large the simulated cluster is.

use kubevitals_sim::cluster::SimCluster;
use kubevitals_sim::objects::Resource;
use kubevitals_telemetry::registry::Registry;
use prometheus_client::metrics::gauge::Gauge;

/// The simulated cluster's metrics.
#[derive(Debug, Clone, Default)]
pub(super) struct SimMetrics {
    nodes: Gauge,
    initial_pods: Gauge,
}

impl SimMetrics {
    /// Registers the metrics; `registry` has the prefix `kubevitals_sim`.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register("nodes", "Nodes of the cluster", metrics.nodes.clone());
        let help = "Pods that the cluster had when it was populated";
        registry.register("initial_pods", help, metrics.initial_pods.clone());
        metrics
    }

    pub(super) fn follow(&self, cluster: &SimCluster) {
        let count = |resource| i64::try_from(cluster.api().count(resource)).unwrap_or(i64::MAX);
        self.nodes.set(count(Resource::Nodes));
        self.initial_pods.set(count(Resource::Pods));
    }
}
