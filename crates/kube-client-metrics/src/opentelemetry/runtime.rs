//! Reflectors, work queues and leader election.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter};

use super::{OpenTelemetry, counter, gauge, level, seconds, sizes};
use crate::bounds;
use crate::hooks::{
    ControllerMetrics, ControllerProvider, InformerId, InformerMetrics, InformerProvider,
    LeaderElection, ReconcileResult, ReflectorMetrics, ReflectorProvider, WorkqueueMetrics,
    WorkqueueProvider,
};

#[derive(Debug)]
pub(super) struct Runtime {
    queue_depth: UpDownCounter<i64>,
    queue_adds: Counter<u64>,
    queue_duration: Histogram<f64>,
    queue_work_duration: Histogram<f64>,
    queue_unfinished: Gauge<f64>,
    queue_longest: Gauge<f64>,
    queue_retries: Counter<u64>,
    leader_status: Gauge<u64>,
    leader_slowpath: Counter<u64>,
    lists: Counter<u64>,
    list_duration: Histogram<f64>,
    list_items: Histogram<u64>,
    watches: Counter<u64>,
    short_watches: Counter<u64>,
    watch_duration: Histogram<f64>,
    watch_items: Histogram<u64>,
    resource_version: Gauge<u64>,
    reconciles: Counter<u64>,
    reconcile_errors: Counter<u64>,
    reconcile_panics: Counter<u64>,
    reconcile_time: Histogram<f64>,
    max_concurrent: Gauge<u64>,
    active_workers: UpDownCounter<i64>,
    informer_latency: Histogram<f64>,
    store_version: Gauge<u64>,
}

/// One queue or reflector.
#[derive(Debug)]
struct Named {
    adapter: OpenTelemetry,
    name: [KeyValue; 1],
}

impl Runtime {
    pub(super) fn new(meter: &Meter) -> Self {
        let by_queue = |name| seconds(meter, name, &bounds::QUEUE);
        let level_of = |name| meter.f64_gauge(name).with_unit("s").build();
        let items = |name| sizes(meter, name, "", &bounds::ITEMS);
        let of_watch = "kube_client_reflector_watch_duration";
        let of_list = "kube_client_reflector_list_duration";
        Self {
            queue_depth: level(meter, "workqueue_depth"),
            queue_adds: counter(meter, "workqueue_adds"),
            queue_duration: by_queue("workqueue_queue_duration"),
            queue_work_duration: by_queue("workqueue_work_duration"),
            queue_unfinished: level_of("workqueue_unfinished_work"),
            queue_longest: level_of("workqueue_longest_running_processor"),
            queue_retries: counter(meter, "workqueue_retries"),
            leader_status: gauge(meter, "leader_election_master_status"),
            leader_slowpath: counter(meter, "leader_election_slowpath"),
            lists: counter(meter, "kube_client_reflector_lists"),
            list_duration: seconds(meter, of_list, &bounds::LATENCY),
            list_items: items("kube_client_reflector_list_items"),
            watches: counter(meter, "kube_client_reflector_watches"),
            short_watches: counter(meter, "kube_client_reflector_short_watches"),
            watch_duration: seconds(meter, of_watch, &bounds::STREAM),
            watch_items: items("kube_client_reflector_watch_items"),
            resource_version: gauge(meter, "kube_client_reflector_last_resource_version"),
            reconciles: counter(meter, "controller_runtime_reconcile"),
            reconcile_errors: counter(meter, "controller_runtime_reconcile_errors"),
            reconcile_panics: counter(meter, "controller_runtime_reconcile_panics"),
            reconcile_time: seconds(
                meter,
                "controller_runtime_reconcile_time",
                &bounds::RECONCILE,
            ),
            max_concurrent: gauge(meter, "controller_runtime_max_concurrent_reconciles"),
            active_workers: level(meter, "controller_runtime_active_workers"),
            informer_latency: seconds(meter, "informer_processing_latency", &bounds::INFORMER),
            store_version: gauge(meter, "informer_store_resource_version"),
        }
    }
}

impl OpenTelemetry {
    fn runtime(&self) -> &Runtime {
        &self.instruments.runtime
    }

    fn named(&self, name: &str) -> Named {
        Named {
            adapter: self.clone(),
            name: of(name),
        }
    }
}

impl WorkqueueProvider for OpenTelemetry {
    fn queue(&self, name: &str) -> Arc<dyn WorkqueueMetrics> {
        Arc::new(self.named(name))
    }
}

impl WorkqueueMetrics for Named {
    fn added(&self) {
        self.adapter.runtime().queue_adds.add(1, &self.name);
        self.adapter.runtime().queue_depth.add(1, &self.name);
    }

    fn taken(&self, waited: Duration) {
        let runtime = self.adapter.runtime();
        runtime.queue_depth.add(-1, &self.name);
        let waited = waited.as_secs_f64();
        runtime.queue_duration.record(waited, &self.name);
    }

    fn done(&self, worked: Duration) {
        let instrument = &self.adapter.runtime().queue_work_duration;
        instrument.record(worked.as_secs_f64(), &self.name);
    }

    fn retried(&self) {
        self.adapter.runtime().queue_retries.add(1, &self.name);
    }

    fn abandoned(&self, items: u64) {
        let less = i64::try_from(items).unwrap_or(i64::MAX);
        self.adapter.runtime().queue_depth.add(-less, &self.name);
    }

    fn in_progress(&self, unfinished: Duration, longest: Duration) {
        let runtime = self.adapter.runtime();
        let unfinished = unfinished.as_secs_f64();
        runtime.queue_unfinished.record(unfinished, &self.name);
        let longest = longest.as_secs_f64();
        runtime.queue_longest.record(longest, &self.name);
    }
}

impl LeaderElection for OpenTelemetry {
    fn on(&self, name: &str) {
        self.runtime().leader_status.record(1, &of(name));
    }

    fn off(&self, name: &str) {
        self.runtime().leader_status.record(0, &of(name));
    }

    fn slowpath_exercised(&self, name: &str) {
        self.runtime().leader_slowpath.add(1, &of(name));
    }
}

impl ReflectorProvider for OpenTelemetry {
    fn reflector(&self, name: &str) -> Arc<dyn ReflectorMetrics> {
        Arc::new(self.named(name))
    }
}

impl ReflectorMetrics for Named {
    fn list_started(&self) {
        self.adapter.runtime().lists.add(1, &self.name);
    }

    fn list_finished(&self, duration: Duration, items: u64) {
        let runtime = self.adapter.runtime();
        let duration = duration.as_secs_f64();
        runtime.list_duration.record(duration, &self.name);
        runtime.list_items.record(items, &self.name);
    }

    fn watch_started(&self) {
        self.adapter.runtime().watches.add(1, &self.name);
    }

    fn watch_finished(&self, duration: Duration, items: u64, short: bool) {
        let runtime = self.adapter.runtime();
        let duration = duration.as_secs_f64();
        runtime.watch_duration.record(duration, &self.name);
        runtime.watch_items.record(items, &self.name);
        if short {
            runtime.short_watches.add(1, &self.name);
        }
    }

    fn last_resource_version(&self, version: u64) {
        let instrument = &self.adapter.runtime().resource_version;
        instrument.record(version, &self.name);
    }
}

/// One controller.
#[derive(Debug)]
struct Controller {
    adapter: OpenTelemetry,
    controller: [KeyValue; 1],
}

impl ControllerProvider for OpenTelemetry {
    fn controller(&self, name: &str) -> Arc<dyn ControllerMetrics> {
        Arc::new(Controller {
            adapter: self.clone(),
            controller: [KeyValue::new("controller", name.to_owned())],
        })
    }
}

impl ControllerMetrics for Controller {
    fn started(&self) {
        let runtime = self.adapter.runtime();
        runtime.active_workers.add(1, &self.controller);
    }

    fn finished(&self, result: ReconcileResult, duration: Duration) {
        let runtime = self.adapter.runtime();
        runtime.active_workers.add(-1, &self.controller);
        let duration = duration.as_secs_f64();
        runtime.reconcile_time.record(duration, &self.controller);
        if matches!(result, ReconcileResult::Error | ReconcileResult::Panic) {
            runtime.reconcile_errors.add(1, &self.controller);
        }
        if result == ReconcileResult::Panic {
            runtime.reconcile_panics.add(1, &self.controller);
        }
        if let Some(result) = result.as_str() {
            let [controller] = self.controller.clone();
            let attributes = [controller, KeyValue::new("result", result)];
            runtime.reconciles.add(1, &attributes);
        }
    }

    fn max_concurrent(&self, limit: u64) {
        let instrument = &self.adapter.runtime().max_concurrent;
        instrument.record(limit, &self.controller);
    }
}

/// One informer.
#[derive(Debug)]
struct Informer {
    adapter: OpenTelemetry,
    attributes: [KeyValue; 4],
}

impl InformerProvider for OpenTelemetry {
    fn informer(&self, id: &InformerId) -> Arc<dyn InformerMetrics> {
        Arc::new(Informer {
            adapter: self.clone(),
            attributes: [
                KeyValue::new("name", id.name.clone()),
                KeyValue::new("group", id.group.clone()),
                KeyValue::new("version", id.version.clone()),
                KeyValue::new("resource", id.resource.clone()),
            ],
        })
    }
}

impl InformerMetrics for Informer {
    fn processed(&self, latency: Duration) {
        let instrument = &self.adapter.runtime().informer_latency;
        instrument.record(latency.as_secs_f64(), &self.attributes);
    }

    fn store_resource_version(&self, version: u64) {
        let instrument = &self.adapter.runtime().store_version;
        instrument.record(version % bounds::STORE_VERSION, &self.attributes);
    }
}

fn of(name: &str) -> [KeyValue; 1] {
    [KeyValue::new("name", name.to_owned())]
}
