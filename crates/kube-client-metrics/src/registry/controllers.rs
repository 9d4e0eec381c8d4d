//! Controllers and informers.

use std::sync::Arc;
use std::time::Duration;

use super::family::{Descriptor, Family};
use super::labels::{ByInformer, Name, NameAnd};
use super::metric::{Counter, Gauge, Histogram};
use super::{MetricFamily, Registry, buckets};
use crate::bounds;
use crate::hooks::{
    ControllerMetrics, ControllerProvider, InformerId, InformerMetrics, InformerProvider,
    ReconcileResult,
};

type Named<M> = Family<Name<Arc<str>>, M>;
type Informers<M> = Family<ByInformer, M>;

/// controller-runtime's families of controllers, and client-go's of informers.
#[derive(Debug)]
pub(crate) struct Controllers {
    results: Family<NameAnd<Arc<str>>, Counter>,
    errors: Named<Counter>,
    panics: Named<Counter>,
    times: Named<Histogram>,
    max_concurrent: Named<Gauge>,
    active: Named<Gauge>,
    processing: Informers<Histogram>,
    store_version: Informers<Gauge>,
}

/// The series of one controller.
#[derive(Debug)]
struct Controller {
    registry: Registry,
    name: Arc<str>,
    errors: Counter,
    panics: Counter,
    time: Histogram,
    active: Gauge,
}

/// The series of one informer.
#[derive(Debug)]
struct Informer {
    registry: Registry,
    id: ByInformer,
    processing: Histogram,
}

fn descriptor(name: &'static str, help: &'static str) -> Descriptor {
    Descriptor {
        name,
        help,
        labels: &["controller"],
    }
}

fn informers<M>(name: &'static str, help: &'static str, make: fn() -> M) -> Informers<M> {
    let labels = &["name", "group", "version", "resource"];
    Family::new(Descriptor { name, help, labels }, make)
}

impl Controllers {
    #[rustfmt::skip] // One family per line is easier to read.
    pub(crate) fn new() -> Self {
        let counter = |name, help| Family::new(descriptor(name, help), Counter::default);
        let gauge = |name, help| Family::new(descriptor(name, help), Gauge::default);
        Self {
            results: Family::new(Descriptor {
                name: "controller_runtime_reconcile",
                help: "Total number of reconciliations per controller",
                labels: &["controller", "result"],
            }, Counter::default),
            errors: counter("controller_runtime_reconcile_errors", "Total number of reconciliation errors per controller"),
            panics: counter("controller_runtime_reconcile_panics", "Total number of reconciliation panics per controller"),
            times: Family::new(descriptor("controller_runtime_reconcile_time_seconds",
                "Length of time per reconciliation per controller"), buckets::reconcile),
            max_concurrent: gauge("controller_runtime_max_concurrent_reconciles",
                "Maximum number of concurrent reconciles per controller"),
            active: gauge("controller_runtime_active_workers", "Number of currently used workers per controller"),
            processing: informers("informer_processing_latency_seconds",
                "Time taken to process events after popping from the queue", buckets::informer),
            store_version: informers("informer_store_resource_version",
                "The 15 least significant digits of the resource version of the store", Gauge::default),
        }
    }

    pub(crate) fn gather(&self, families: &mut Vec<MetricFamily>) {
        self.results.gather(families);
        self.errors.gather(families);
        self.panics.gather(families);
        self.times.gather(families);
        self.max_concurrent.gather(families);
        self.active.gather(families);
        self.processing.gather(families);
        self.store_version.gather(families);
    }
}

impl ControllerProvider for Registry {
    /// Creates the series of the controller, as controller-runtime does: all but its limit, which
    /// there may be none of.
    fn controller(&self, name: &str) -> Arc<dyn ControllerMetrics> {
        let controllers = self.controllers();
        for result in [
            ReconcileResult::Error,
            ReconcileResult::RequeueAfter,
            ReconcileResult::Success,
        ] {
            if let Some(result) = result.as_str() {
                controllers.results.with(&NameAnd(name, result), |_| {});
            }
        }
        Arc::new(Controller {
            registry: self.clone(),
            name: name.into(),
            errors: controllers.errors.get(&Name(name)),
            panics: controllers.panics.get(&Name(name)),
            time: controllers.times.get(&Name(name)),
            active: controllers.active.get(&Name(name)),
        })
    }
}

impl ControllerMetrics for Controller {
    fn started(&self) {
        self.active.inc();
    }

    fn finished(&self, result: ReconcileResult, duration: Duration) {
        self.active.dec();
        self.time.observe(duration.as_secs_f64());
        if matches!(result, ReconcileResult::Error | ReconcileResult::Panic) {
            self.errors.inc();
        }
        if result == ReconcileResult::Panic {
            self.panics.inc();
        }
        if let Some(result) = result.as_str() {
            let results = &self.registry.controllers().results;
            results.with(&NameAnd(&*self.name, result), Counter::inc);
        }
    }

    fn max_concurrent(&self, limit: u64) {
        let limits = &self.registry.controllers().max_concurrent;
        limits.with(&Name(&*self.name), |m| m.set(limit));
    }
}

impl InformerProvider for Registry {
    fn informer(&self, id: &InformerId) -> Arc<dyn InformerMetrics> {
        let id = ByInformer(id.clone());
        Arc::new(Informer {
            registry: self.clone(),
            processing: self.controllers().processing.get(&id),
            id,
        })
    }
}

impl InformerMetrics for Informer {
    fn processed(&self, latency: Duration) {
        self.processing.observe(latency.as_secs_f64());
    }

    fn store_resource_version(&self, version: u64) {
        let versions = &self.registry.controllers().store_version;
        versions.with(&self.id, |m| m.set(version % bounds::STORE_VERSION));
    }
}
