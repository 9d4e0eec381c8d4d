//! Reflectors, informers, work queues, controllers and leader election.

use std::sync::Arc;
use std::time::Duration;

use metrics::Label;

use super::{Facade, count, float, label, observe};
use crate::bounds;
use crate::hooks::{
    ControllerMetrics, ControllerProvider, InformerId, InformerMetrics, InformerProvider,
    LeaderElection, ReconcileResult, ReflectorMetrics, ReflectorProvider, WorkqueueMetrics,
    WorkqueueProvider,
};

/// Something with a name, or an informer: its labels.
#[derive(Debug)]
struct Labelled(Vec<Label>);

impl Labelled {
    fn count(&self, name: &'static str) {
        count(name, self.0.clone(), 1);
    }

    fn observe(&self, name: &'static str, value: Duration) {
        observe(name, self.0.clone(), value);
    }

    fn items(&self, name: &'static str, items: u64) {
        metrics::histogram!(name, self.0.clone()).record(float(items));
    }

    fn add(&self, name: &'static str, by: f64) {
        metrics::gauge!(name, self.0.clone()).increment(by);
    }

    fn set(&self, name: &'static str, value: f64) {
        metrics::gauge!(name, self.0.clone()).set(value);
    }
}

fn named(name: &str) -> Arc<Labelled> {
    Arc::new(Labelled(vec![label("name", name.to_owned())]))
}

impl ReflectorProvider for Facade {
    fn reflector(&self, name: &str) -> Arc<dyn ReflectorMetrics> {
        named(name)
    }
}

impl ReflectorMetrics for Labelled {
    fn list_started(&self) {
        self.count("kube_client_reflector_lists_total");
    }

    fn list_finished(&self, duration: Duration, items: u64) {
        self.observe("kube_client_reflector_list_duration_seconds", duration);
        self.items("kube_client_reflector_list_items", items);
    }

    fn watch_started(&self) {
        self.count("kube_client_reflector_watches_total");
    }

    fn watch_finished(&self, duration: Duration, items: u64, short: bool) {
        self.observe("kube_client_reflector_watch_duration_seconds", duration);
        self.items("kube_client_reflector_watch_items", items);
        if short {
            self.count("kube_client_reflector_short_watches_total");
        }
    }

    fn last_resource_version(&self, version: u64) {
        let name = "kube_client_reflector_last_resource_version";
        self.set(name, float(version));
    }
}

impl InformerProvider for Facade {
    fn informer(&self, id: &InformerId) -> Arc<dyn InformerMetrics> {
        Arc::new(Labelled(vec![
            label("name", id.name.clone()),
            label("group", id.group.clone()),
            label("version", id.version.clone()),
            label("resource", id.resource.clone()),
        ]))
    }
}

impl InformerMetrics for Labelled {
    fn processed(&self, latency: Duration) {
        self.observe("informer_processing_latency_seconds", latency);
    }

    fn store_resource_version(&self, version: u64) {
        let version = float(version % bounds::STORE_VERSION);
        self.set("informer_store_resource_version", version);
    }
}

impl WorkqueueProvider for Facade {
    fn queue(&self, name: &str) -> Arc<dyn WorkqueueMetrics> {
        named(name)
    }
}

impl WorkqueueMetrics for Labelled {
    fn added(&self) {
        self.count("workqueue_adds_total");
        self.add("workqueue_depth", 1.0);
    }

    fn taken(&self, waited: Duration) {
        self.add("workqueue_depth", -1.0);
        self.observe("workqueue_queue_duration_seconds", waited);
    }

    fn done(&self, worked: Duration) {
        self.observe("workqueue_work_duration_seconds", worked);
    }

    fn retried(&self) {
        self.count("workqueue_retries_total");
    }

    fn abandoned(&self, items: u64) {
        self.add("workqueue_depth", -float(items));
    }

    fn in_progress(&self, unfinished: Duration, longest: Duration) {
        let unfinished = unfinished.as_secs_f64();
        self.set("workqueue_unfinished_work_seconds", unfinished);
        let longest = longest.as_secs_f64();
        self.set("workqueue_longest_running_processor_seconds", longest);
    }
}

impl ControllerProvider for Facade {
    fn controller(&self, name: &str) -> Arc<dyn ControllerMetrics> {
        Arc::new(Labelled(vec![label("controller", name.to_owned())]))
    }
}

impl ControllerMetrics for Labelled {
    fn started(&self) {
        self.add("controller_runtime_active_workers", 1.0);
    }

    fn finished(&self, result: ReconcileResult, duration: Duration) {
        self.add("controller_runtime_active_workers", -1.0);
        self.observe("controller_runtime_reconcile_time_seconds", duration);
        if matches!(result, ReconcileResult::Error | ReconcileResult::Panic) {
            self.count("controller_runtime_reconcile_errors_total");
        }
        if result == ReconcileResult::Panic {
            self.count("controller_runtime_reconcile_panics_total");
        }
        if let Some(result) = result.as_str() {
            let mut labels = self.0.clone();
            labels.push(label("result", result));
            count("controller_runtime_reconcile_total", labels, 1);
        }
    }

    fn max_concurrent(&self, limit: u64) {
        let name = "controller_runtime_max_concurrent_reconciles";
        self.set(name, float(limit));
    }
}

impl LeaderElection for Facade {
    fn on(&self, name: &str) {
        named(name).set("leader_election_master_status", 1.0);
    }

    fn off(&self, name: &str) {
        named(name).set("leader_election_master_status", 0.0);
    }

    fn slowpath_exercised(&self, name: &str) {
        named(name).count("leader_election_slowpath_total");
    }
}
