//! Metrics about the size of the simulated cluster.

use std::time::Duration;

use kubevitals_sim::cluster::SimCluster;
use kubevitals_sim::objects::Resource;
use kubevitals_telemetry::RegistryExt;
use kubevitals_telemetry::registry::Registry;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;

/// Interval between two updates.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// The resources that are counted, with their label values.
const COUNTED: [(Resource, &str); 3] = [
    (Resource::Nodes, "nodes"),
    (Resource::Pods, "pods"),
    (Resource::Events, "events"),
];

/// The simulated cluster's metrics.
#[derive(Debug, Clone)]
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
        Self {
            objects: registry.family(
                "objects",
                "Number of objects in the simulated cluster by resource",
            ),
            watches: registry.gauge(
                "watches",
                "Number of open watches of the simulated API server",
            ),
        }
    }

    /// Updates the metrics for as long as it is polled.
    pub(super) async fn follow(&self, cluster: &SimCluster) {
        let mut ticks = tokio::time::interval(UPDATE_INTERVAL);
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
