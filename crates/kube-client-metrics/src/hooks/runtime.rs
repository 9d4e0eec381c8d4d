//! Hooks of reflectors, work queues and leader election.

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
    fn list_started(&self);

    /// A list completed.
    fn list_finished(&self, duration: Duration, items: u64);

    /// A watch started.
    fn watch_started(&self);

    /// A watch ended; `short` if it lasted less than a second and had no events.
    fn watch_finished(&self, duration: Duration, items: u64, short: bool);

    /// The last observed resource version.
    fn last_resource_version(&self, version: u64);
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
    fn added(&self);

    /// An item was taken from the queue after this time; decrements the depth.
    fn taken(&self, waited: Duration);

    /// The processing of an item ended.
    fn done(&self, worked: Duration);

    /// An item was requeued with a delay or after a failure.
    fn retried(&self);

    /// The queue was closed with this many items; reduces the depth by them.
    fn abandoned(&self, items: u64);

    /// The total processing time of all items in progress, and that of the longest.
    fn in_progress(&self, unfinished: Duration, longest: Duration);
}

/// The leases that this process holds. client-go: `leaderelection.LeaderMetric`.
pub trait LeaderElection: Send + Sync + 'static {
    /// This process leads.
    fn on(&self, name: &str);

    /// This process does not lead.
    fn off(&self, name: &str);

    /// A lease could not be renewed from the cached copy and was read first.
    fn slowpath_exercised(&self, name: &str);
}

impl ReflectorProvider for Noop {
    fn reflector(&self, _: &str) -> Arc<dyn ReflectorMetrics> {
        Arc::new(Self)
    }
}

impl ReflectorMetrics for Noop {
    fn list_started(&self) {}
    fn list_finished(&self, _: Duration, _: u64) {}
    fn watch_started(&self) {}
    fn watch_finished(&self, _: Duration, _: u64, _: bool) {}
    fn last_resource_version(&self, _: u64) {}
}

impl WorkqueueProvider for Noop {
    fn queue(&self, _: &str) -> Arc<dyn WorkqueueMetrics> {
        Arc::new(Self)
    }
}

impl WorkqueueMetrics for Noop {
    fn added(&self) {}
    fn taken(&self, _: Duration) {}
    fn done(&self, _: Duration) {}
    fn retried(&self) {}
    fn abandoned(&self, _: u64) {}
    fn in_progress(&self, _: Duration, _: Duration) {}
}

impl LeaderElection for Noop {
    fn on(&self, _: &str) {}
    fn off(&self, _: &str) {}
    fn slowpath_exercised(&self, _: &str) {}
}
