//! Reflectors, work queues and leader election.

use std::sync::Arc;
use std::time::Duration;

use super::family::{Descriptor, Family};
use super::labels::Name;
use super::metric::{Counter, FloatGauge, Gauge, Histogram};
use super::{MetricFamily, Registry, buckets};
use crate::hooks::{
    LeaderElection, ReflectorMetrics, ReflectorProvider, WorkqueueMetrics, WorkqueueProvider,
};

type Named<M> = Family<Name<Arc<str>>, M>;

/// client-go's families of work queues and leader election, and our own of reflectors.
#[derive(Debug)]
pub(crate) struct Runtime {
    queue_depth: Named<Gauge>,
    queue_adds: Named<Counter>,
    queue_duration: Named<Histogram>,
    queue_work_duration: Named<Histogram>,
    queue_unfinished: Named<FloatGauge>,
    queue_longest: Named<FloatGauge>,
    queue_retries: Named<Counter>,
    leader_status: Named<Gauge>,
    leader_slowpath: Named<Counter>,
    lists: Named<Counter>,
    list_duration: Named<Histogram>,
    list_items: Named<Histogram>,
    watches: Named<Counter>,
    short_watches: Named<Counter>,
    watch_duration: Named<Histogram>,
    watch_items: Named<Histogram>,
    resource_version: Named<Gauge>,
}

/// The series of one queue.
#[derive(Debug)]
struct Queue {
    depth: Gauge,
    adds: Counter,
    duration: Histogram,
    work_duration: Histogram,
    unfinished: FloatGauge,
    longest: FloatGauge,
    retries: Counter,
}

/// The series of one reflector, each created with its first value.
#[derive(Debug)]
struct Reflector {
    registry: Registry,
    name: Arc<str>,
}

fn named<M>(name: &'static str, help: &'static str, make: fn() -> M) -> Named<M> {
    Family::new(
        Descriptor {
            name,
            help,
            labels: &["name"],
        },
        make,
    )
}

impl Runtime {
    #[rustfmt::skip] // One family per line is easier to read.
    pub(crate) fn new() -> Self {
        Self {
            queue_depth: named("workqueue_depth", "Current depth of workqueue", Gauge::default),
            queue_adds: named("workqueue_adds", "Total number of adds handled by workqueue", Counter::default),
            queue_duration: named("workqueue_queue_duration_seconds",
                "How long in seconds an item stays in workqueue before being requested", buckets::queue),
            queue_work_duration: named("workqueue_work_duration_seconds",
                "How long in seconds processing an item from workqueue takes", buckets::queue),
            queue_unfinished: named("workqueue_unfinished_work_seconds",
                "How many seconds of work has been done that is in progress and hasn't been observed by work_duration. \
                 Large values indicate stuck threads", FloatGauge::default),
            queue_longest: named("workqueue_longest_running_processor_seconds",
                "How many seconds has the longest running processor for workqueue been running", FloatGauge::default),
            queue_retries: named("workqueue_retries", "Total number of retries handled by workqueue", Counter::default),
            leader_status: named("leader_election_master_status",
                "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates \
                 master. 'name' is the string used to identify the lease", Gauge::default),
            leader_slowpath: named("leader_election_slowpath",
                "Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify \
                 the lease", Counter::default),
            lists: named("kube_client_reflector_lists", "Number of lists started", Counter::default),
            list_duration: named("kube_client_reflector_list_duration_seconds",
                "Duration of completed lists in seconds", buckets::latency),
            list_items: named("kube_client_reflector_list_items", "Number of objects in a list", buckets::items),
            watches: named("kube_client_reflector_watches", "Number of watches started", Counter::default),
            short_watches: named("kube_client_reflector_short_watches",
                "Number of watches that ended within a second without events", Counter::default),
            watch_duration: named("kube_client_reflector_watch_duration_seconds",
                "Duration of watches in seconds", buckets::stream),
            watch_items: named("kube_client_reflector_watch_items", "Number of events in a watch", buckets::items),
            resource_version: named("kube_client_reflector_last_resource_version",
                "Last observed resource version", Gauge::default),
        }
    }

    pub(crate) fn gather(&self, families: &mut Vec<MetricFamily>) {
        self.queue_depth.gather(families);
        self.queue_adds.gather(families);
        self.queue_duration.gather(families);
        self.queue_work_duration.gather(families);
        self.queue_unfinished.gather(families);
        self.queue_longest.gather(families);
        self.queue_retries.gather(families);
        self.leader_status.gather(families);
        self.leader_slowpath.gather(families);
        self.lists.gather(families);
        self.list_duration.gather(families);
        self.list_items.gather(families);
        self.watches.gather(families);
        self.short_watches.gather(families);
        self.watch_duration.gather(families);
        self.watch_items.gather(families);
        self.resource_version.gather(families);
    }
}

impl WorkqueueProvider for Registry {
    /// Creates all series of the queue, as client-go does for a named queue.
    fn queue(&self, name: &str) -> Arc<dyn WorkqueueMetrics> {
        let runtime = self.runtime();
        Arc::new(Queue {
            depth: runtime.queue_depth.get(&Name(name)),
            adds: runtime.queue_adds.get(&Name(name)),
            duration: runtime.queue_duration.get(&Name(name)),
            work_duration: runtime.queue_work_duration.get(&Name(name)),
            unfinished: runtime.queue_unfinished.get(&Name(name)),
            longest: runtime.queue_longest.get(&Name(name)),
            retries: runtime.queue_retries.get(&Name(name)),
        })
    }
}

impl WorkqueueMetrics for Queue {
    fn added(&self) {
        self.adds.inc();
        self.depth.inc();
    }

    fn taken(&self, waited: Duration) {
        self.depth.dec();
        self.duration.observe(waited.as_secs_f64());
    }

    fn done(&self, worked: Duration) {
        self.work_duration.observe(worked.as_secs_f64());
    }

    fn retried(&self) {
        self.retries.inc();
    }

    fn abandoned(&self, items: u64) {
        self.depth.dec_by(items);
    }

    fn in_progress(&self, unfinished: Duration, longest: Duration) {
        self.unfinished.set(unfinished.as_secs_f64());
        self.longest.set(longest.as_secs_f64());
    }
}

impl LeaderElection for Registry {
    fn on(&self, name: &str) {
        self.runtime().leader_status.with(&Name(name), |m| {
            m.set(1);
        });
    }

    fn off(&self, name: &str) {
        self.runtime().leader_status.with(&Name(name), |m| {
            m.set(0);
        });
    }

    fn slowpath_exercised(&self, name: &str) {
        self.runtime().leader_slowpath.with(&Name(name), |m| {
            m.inc();
        });
    }
}

impl ReflectorProvider for Registry {
    fn reflector(&self, name: &str) -> Arc<dyn ReflectorMetrics> {
        Arc::new(Reflector {
            registry: self.clone(),
            name: name.into(),
        })
    }
}

impl ReflectorMetrics for Reflector {
    fn list_started(&self) {
        self.registry.runtime().lists.with(&Name(&*self.name), |m| {
            m.inc();
        });
    }

    fn list_finished(&self, duration: Duration, items: u64) {
        let (runtime, name) = (self.registry.runtime(), Name(&*self.name));
        runtime
            .list_duration
            .with(&name, |m| m.observe(duration.as_secs_f64()));
        runtime.list_items.with(&name, |m| m.observe(float(items)));
    }

    fn watch_started(&self) {
        self.registry
            .runtime()
            .watches
            .with(&Name(&*self.name), |m| {
                m.inc();
            });
    }

    fn watch_finished(&self, duration: Duration, items: u64, short: bool) {
        let (runtime, name) = (self.registry.runtime(), Name(&*self.name));
        runtime
            .watch_duration
            .with(&name, |m| m.observe(duration.as_secs_f64()));
        runtime.watch_items.with(&name, |m| m.observe(float(items)));
        if short {
            runtime.short_watches.with(&name, |m| {
                m.inc();
            });
        }
    }

    fn last_resource_version(&self, version: u64) {
        self.registry
            .runtime()
            .resource_version
            .with(&Name(&*self.name), |m| {
                m.set(version);
            });
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts above 2^53 may be rounded"
)]
fn float(items: u64) -> f64 {
    items as f64
}
