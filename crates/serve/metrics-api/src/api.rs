//! The two ends of the API: the publisher that the store writes to, and the group of resources that
//! requests read.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use arc_swap::ArcSwap;
use kubevitals_apiserver::{ApiGroup, ApiResource};
use kubevitals_model::NodeName;
use kubevitals_telemetry::Metrics;
use kubevitals_usage::{NodeUsage, UsagePublisher, UsageStore};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;

use crate::config::Config;
use crate::metrics::{ApiCollector, RequestCounters};
use crate::publish::Writer;
use crate::readers::Readers;
use crate::render::Kind;
use crate::resource::Resource;
use crate::snapshot::{LabelIndex, Snapshot};
use crate::versions::Versions;

/// The reading end: the resource metrics API.
pub struct MetricsApi {
    snapshots: Arc<Snapshots>,
}

/// The writing end: encodes the usage of each node as it is published.
pub struct MetricsApiPublisher {
    snapshots: Arc<Snapshots>,
}

/// The current snapshot, and what publishers and requests share around it.
pub(crate) struct Snapshots {
    pub(crate) config: Config,
    /// Readers load it without a lock.
    pub(crate) current: ArcSwap<Snapshot>,
    /// Changes when pods are added or removed. While it is locked, `current` is in step with it.
    pub(crate) label_index: RwLock<LabelIndex>,
    /// Serializes commits. Encoding happens before, without a lock.
    pub(crate) writer: Mutex<Writer>,
    /// Notifies watches of a new revision.
    pub(crate) revisions: watch::Sender<u64>,
    /// Revisions as resource versions.
    pub(crate) versions: Versions,
    /// Unfinished responses.
    pub(crate) readers: Mutex<Readers>,
    /// Bytes of all encoded nodes that are still referenced.
    pub(crate) live_bytes: Arc<AtomicUsize>,
    /// Bytes of the encoded nodes that are served.
    pub(crate) current_bytes: AtomicUsize,
    pub(crate) counters: RequestCounters,
}

impl MetricsApi {
    /// Creates an API that serves nothing yet, and the publisher that fills it.
    pub fn pair(config: Config) -> (MetricsApiPublisher, Self) {
        let revision = Versions::first_revision(config.clock.now());
        let empty = Snapshot {
            version: revision,
            ..Snapshot::default()
        };
        let snapshots = Arc::new(Snapshots {
            writer: Mutex::new(Writer::new(revision, config.limits.max_deletions)),
            current: ArcSwap::from_pointee(empty),
            label_index: RwLock::default(),
            revisions: watch::Sender::new(revision),
            versions: Versions::new(config.replica),
            readers: Mutex::default(),
            live_bytes: Arc::default(),
            current_bytes: AtomicUsize::new(0),
            counters: RequestCounters::default(),
            config,
        });
        let publisher = MetricsApiPublisher {
            snapshots: Arc::clone(&snapshots),
        };
        (publisher, Self { snapshots })
    }

    /// Returns the group `metrics.k8s.io` with its resources. They ask `store` for the reason why a
    /// pod or node has no metrics.
    pub fn group(&self, store: &Arc<UsageStore>) -> ApiGroup {
        let resource = |kind| -> Arc<dyn ApiResource> {
            let snapshots = Arc::clone(&self.snapshots);
            Arc::new(Resource::new(kind, snapshots, Arc::clone(store)))
        };
        ApiGroup {
            name: "metrics.k8s.io",
            versions: &["v1", "v1beta1"],
            resources: vec![resource(Kind::Node), resource(Kind::Pod)],
        }
    }

    /// Registers `metrics_server_api_metric_freshness_seconds` and the families with the prefix
    /// `kubevitals_metrics_api`.
    pub fn register(&self, metrics: &mut Metrics) {
        ApiCollector::register(&self.snapshots, metrics);
    }
}

impl UsagePublisher for MetricsApiPublisher {
    fn publish(&self, usage: &NodeUsage<'_>) {
        self.snapshots.publish(usage);
    }

    fn withdraw(&self, node: &NodeName) {
        self.snapshots.withdraw(node);
    }
}
