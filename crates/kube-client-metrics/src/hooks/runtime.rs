//! Hooks of reflectors, informers, work queues, controllers and leader election.
//!
//! Methods have empty defaults: an adapter implements those that it reports.

use std::sync::Arc;
use std::time::Duration;

use super::bundle::Noop;

/// Creates the metrics of reflectors. client-go: `cache.MetricsProvider`.
pub trait ReflectorProvider: Send + Sync + 'static {
    /// Returns the metrics of the reflector with this name. Names come from the program, not from
    /// the cluster.
    fn reflector(&self, name: &str) -> Arc<dyn ReflectorMetrics>;
}

/// The metrics of one reflector. client-go declares them but no longer calls them.
pub trait ReflectorMetrics: Send + Sync + 'static {
    /// A list started.
    fn list_started(&self) {}

    /// A list completed.
    fn list_finished(&self, duration: Duration, items: u64) {
        let _ = (duration, items);
    }

    /// A watch started.
    fn watch_started(&self) {}

    /// A watch ended; `short` if it lasted less than a second and had no events.
    fn watch_finished(&self, duration: Duration, items: u64, short: bool) {
        let _ = (duration, items, short);
    }

    /// The last observed resource version.
    fn last_resource_version(&self, version: u64) {
        let _ = version;
    }
}

/// Creates the metrics of informers. client-go: `cache.InformerMetricsProvider`.
pub trait InformerProvider: Send + Sync + 'static {
    /// Returns the metrics of this informer.
    fn informer(&self, id: &InformerId) -> Arc<dyn InformerMetrics>;
}

/// The name and the resource of an informer: the labels of its metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct InformerId {
    /// The name, which comes from the program and not from the cluster.
    pub name: String,
    /// The API group; empty for the core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The plural name of the resource.
    pub resource: String,
}

impl InformerId {
    /// Names an informer of a resource.
    pub fn new(
        name: impl Into<String>,
        group: impl Into<String>,
        version: impl Into<String>,
        resource: impl Into<String>,
    ) -> Self {
        Self {
            name: name.into(),
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        }
    }
}

/// The metrics of one informer. client-go also has the length of its queue of deltas, which
/// kube-runtime does not have.
pub trait InformerMetrics: Send + Sync + 'static {
    /// An event was processed by its consumer.
    fn processed(&self, latency: Duration) {
        let _ = latency;
    }

    /// The resource version up to which the store is current.
    fn store_resource_version(&self, version: u64) {
        let _ = version;
    }
}

/// Creates the metrics of work queues. client-go: `workqueue.MetricsProvider`.
pub trait WorkqueueProvider: Send + Sync + 'static {
    /// Returns the metrics of the queue with this name. Names come from the program, not from the
    /// cluster.
    fn queue(&self, name: &str) -> Arc<dyn WorkqueueMetrics>;
}

/// The metrics of one work queue, with the semantics of client-go.
pub trait WorkqueueMetrics: Send + Sync + 'static {
    /// An item that was not queued yet was added; increments the depth.
    fn added(&self) {}

    /// An item was taken from the queue after this time; decrements the depth.
    fn taken(&self, waited: Duration) {
        let _ = waited;
    }

    /// The processing of an item ended.
    fn done(&self, worked: Duration) {
        let _ = worked;
    }

    /// An item was requeued with a delay or after a failure.
    fn retried(&self) {}

    /// The queue was closed with this many items; reduces the depth by them.
    fn abandoned(&self, items: u64) {
        let _ = items;
    }

    /// The total processing time of all items in progress, and that of the longest.
    fn in_progress(&self, unfinished: Duration, longest: Duration) {
        let _ = (unfinished, longest);
    }
}

/// Creates the metrics of controllers, which controller-runtime has.
pub trait ControllerProvider: Send + Sync + 'static {
    /// Returns the metrics of the controller with this name. Names come from the program, not from
    /// the cluster.
    fn controller(&self, name: &str) -> Arc<dyn ControllerMetrics>;
}

/// The metrics of one controller.
pub trait ControllerMetrics: Send + Sync + 'static {
    /// A reconciliation started.
    fn started(&self) {}

    /// A reconciliation ended.
    fn finished(&self, result: ReconcileResult, duration: Duration) {
        let _ = (result, duration);
    }

    /// The maximum number of reconciliations at once. Not called if there is none.
    fn max_concurrent(&self, limit: u64) {
        let _ = limit;
    }
}

/// The result of a reconciliation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReconcileResult {
    /// It succeeded, and waits for a change.
    Success,
    /// It succeeded, and runs again after a delay.
    RequeueAfter,
    /// It returned an error.
    Error,
    /// It panicked.
    Panic,
    /// It was dropped before it returned: the controller was stopped.
    Cancelled,
}

impl ReconcileResult {
    /// Returns the value of the label `result`. controller-runtime counts a panic as an error, and
    /// a reconciliation that was dropped not at all.
    pub const fn as_str(self) -> Option<&'static str> {
        match self {
            Self::Success => Some("success"),
            Self::RequeueAfter => Some("requeue_after"),
            Self::Error | Self::Panic => Some("error"),
            Self::Cancelled => None,
        }
    }
}

/// The leases that this process holds. client-go: `leaderelection.LeaderMetric`.
pub trait LeaderElection: Send + Sync + 'static {
    /// This process leads.
    fn on(&self, name: &str);

    /// This process does not lead.
    fn off(&self, name: &str);

    /// A lease could not be renewed from the cached copy and was read first.
    fn slowpath_exercised(&self, name: &str) {
        let _ = name;
    }
}

impl ReflectorProvider for Noop {
    fn reflector(&self, _: &str) -> Arc<dyn ReflectorMetrics> {
        Arc::new(Self)
    }
}

impl ReflectorMetrics for Noop {}

impl InformerProvider for Noop {
    fn informer(&self, _: &InformerId) -> Arc<dyn InformerMetrics> {
        Arc::new(Self)
    }
}

impl InformerMetrics for Noop {}

impl WorkqueueProvider for Noop {
    fn queue(&self, _: &str) -> Arc<dyn WorkqueueMetrics> {
        Arc::new(Self)
    }
}

impl WorkqueueMetrics for Noop {}

impl ControllerProvider for Noop {
    fn controller(&self, _: &str) -> Arc<dyn ControllerMetrics> {
        Arc::new(Self)
    }
}

impl ControllerMetrics for Noop {}

impl LeaderElection for Noop {
    fn on(&self, _: &str) {}
    fn off(&self, _: &str) {}
}
