//! Hooks of what stands on a client: reflectors, work queues and leader election.

use std::sync::Arc;
use std::time::Duration;

use super::bundle::Nobody;

/// Gives each reflector its metrics. client-go: `cache.MetricsProvider`.
pub trait ReflectorProvider: Send + Sync + 'static {
    /// The metrics of the reflector with this name. Names come from the program, not from the
    /// cluster.
    fn reflector(&self, name: &str) -> Arc<dyn ReflectorMetrics>;
}

/// The facts of one reflector's lists and watches. client-go declares them and no longer calls
/// them.
pub trait ReflectorMetrics: Send + Sync + 'static {
    /// A list began.
    fn list_started(&self);

    /// A list is complete.
    fn list_finished(&self, duration: Duration, items: u64);

    /// A watch began.
    fn watch_started(&self);

    /// A watch ended; `short` if it ended in under a second and brought nothing.
    fn watch_finished(&self, duration: Duration, items: u64, short: bool);

    /// The last resource version that was seen.
    fn last_resource_version(&self, version: u64);
}

/// Gives each work queue its metrics. client-go: `workqueue.MetricsProvider`.
pub trait WorkqueueProvider: Send + Sync + 'static {
    /// The metrics of the queue with this name. Names come from the program, not from the cluster.
    fn queue(&self, name: &str) -> Arc<dyn WorkqueueMetrics>;
}

/// The facts of one work queue, with client-go's meaning of each.
pub trait WorkqueueMetrics: Send + Sync + 'static {
    /// An item that was not waiting yet was added: one deeper.
    fn added(&self);

    /// An item was taken out after it had waited this long: one less deep.
    fn taken(&self, waited: Duration);

    /// Work on an item is done.
    fn done(&self, worked: Duration);

    /// An item will come back later or after a failure.
    fn retried(&self);

    /// So many items that waited are dropped because their queue has ended: so much less deep.
    fn abandoned(&self, items: u64);

    /// How long all items that are worked on have been worked on together, and the longest of them.
    fn in_progress(&self, unfinished: Duration, longest: Duration);
}

/// Which leases this process holds. client-go: `leaderelection.LeaderMetric`.
pub trait LeaderElection: Send + Sync + 'static {
    /// This process leads.
    fn on(&self, name: &str);

    /// Another process leads, or none.
    fn off(&self, name: &str);

    /// A lease could not be renewed from what was remembered of it and was read again first.
    fn slowpath_exercised(&self, name: &str);
}

impl ReflectorProvider for Nobody {
    fn reflector(&self, _: &str) -> Arc<dyn ReflectorMetrics> {
        Arc::new(Self)
    }
}

impl ReflectorMetrics for Nobody {
    fn list_started(&self) {}
    fn list_finished(&self, _: Duration, _: u64) {}
    fn watch_started(&self) {}
    fn watch_finished(&self, _: Duration, _: u64, _: bool) {}
    fn last_resource_version(&self, _: u64) {}
}

impl WorkqueueProvider for Nobody {
    fn queue(&self, _: &str) -> Arc<dyn WorkqueueMetrics> {
        Arc::new(Self)
    }
}

impl WorkqueueMetrics for Nobody {
    fn added(&self) {}
    fn taken(&self, _: Duration) {}
    fn done(&self, _: Duration) {}
    fn retried(&self) {}
    fn abandoned(&self, _: u64) {}
    fn in_progress(&self, _: Duration, _: Duration) {}
}

impl LeaderElection for Nobody {
    fn on(&self, _: &str) {}
    fn off(&self, _: &str) {}
    fn slowpath_exercised(&self, _: &str) {}
}
