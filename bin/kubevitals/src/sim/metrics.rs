//! How large the simulated cluster is.

use std::time::Duration;

use kubevitals_sim::cluster::SimCluster;
use kubevitals_sim::objects::Resource;
use kubevitals_telemetry::registry::Registry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// How often the cluster is looked at.
const EVERY: Duration = Duration::from_secs(1);

/// What is counted, and under which name.
const COUNTED: [(Resource, &str); 3] = [
    (Resource::Nodes, "nodes"),
    (Resource::Pods, "pods"),
    (Resource::Events, "events"),
];

/// The simulated cluster's metrics.
#[derive(Debug, Clone, Default)]
pub(super) struct SimMetrics {
    /// Left out of the exposition until the cluster is up.
    objects: Family<ObjectLabels, Gauge>,
    watches: Gauge,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ObjectLabels {
    resource: &'static str,
}

impl SimMetrics {
    /// Registers the metrics; `registry` has the prefix `kubevitals_sim`.
    pub(super) fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Objects of the simulated cluster by resource";
        registry.register("objects", help, metrics.objects.clone());
        let help = "Watches of the simulated API server that are open";
        registry.register("watches", help, metrics.watches.clone());
        metrics
    }

    /// Looks at the cluster for as long as it is polled.
    pub(super) async fn follow(&self, cluster: &SimCluster) {
        let mut ticks = tokio::time::interval(EVERY);
        loop {
            ticks.tick().await;
            for (resource, name) in COUNTED {
                let count = i64::try_from(cluster.api().count(resource)).unwrap_or(i64::MAX);
                let labels = ObjectLabels { resource: name };
                self.objects.get_or_create(&labels).set(count);
            }
            let open = cluster.api().open_watches();
            self.watches.set(i64::try_from(open).unwrap_or(i64::MAX));
        }
    }
}
