//! The node's metrics.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use kubevitals_model::Timestamp;
use kubevitals_telemetry::registry::Registry;
use kubevitals_telemetry::{Buckets, RegistryExt as _};
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

const BUCKETS: [f64; 10] = [0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0];

/// The metrics of a virtual node. Clones share them.
#[derive(Debug, Clone)]
pub struct NodeMetrics {
    pods: Gauge,
    runtime_pods: Gauge,
    runtime_operations: Family<OperationLabels, Counter>,
    runtime_durations: Family<OperationLabel, Histogram, Buckets>,
    runtime_healthy: Gauge,
    status_updates: Family<UpdateLabels, Counter>,
    lease_renewals: Family<ResultLabel, Counter>,
    lease_renewed: Gauge<f64, AtomicU64>,
    events: Family<EventLabels, Counter>,
    inputs: Family<InputLabels, Counter>,
    swept: Counter,
}

/// A call of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the values of the label")]
pub(crate) enum Operation {
    sync,
    terminate,
    remove,
    list,
    ping,
}

/// The object of a status update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "the values of the label")]
pub(crate) enum Updated {
    node,
    pod,
}

/// The end of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum EventResult {
    Sent,
    /// The queue was full.
    QueueFull,
    /// Too many events of one object.
    Spam,
    Failed,
}

/// Where an input of a pod came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum InputSource {
    Cache,
    Api,
    Failed,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabels {
    operation: Operation,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OperationLabel {
    operation: Operation,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UpdateLabels {
    object: Updated,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResultLabel {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EventLabels {
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InputLabels {
    resource: &'static str,
    source: &'static str,
}

impl NodeMetrics {
    /// Registers the metrics; `registry` has the prefix `kubevitals_node`.
    pub fn register(registry: &mut Registry) -> Self {
        Self {
            pods: registry.gauge(
                "pods",
                "Number of pods that the API server has bound to the node",
            ),
            runtime_pods: registry.gauge("runtime_pods", "Number of pods that the runtime has"),
            runtime_operations: registry.family(
                "runtime_operations",
                "Total number of calls of the runtime by operation and result",
            ),
            runtime_durations: registry.histogram_family(
                "runtime_operation_duration_seconds",
                "Duration of calls of the runtime",
                &BUCKETS,
            ),
            runtime_healthy: registry.gauge(
                "runtime_healthy",
                "Whether the last ping of the runtime passed",
            ),
            status_updates: registry.family(
                "status_updates",
                "Total number of writes of a status by object and result",
            ),
            lease_renewals: registry.family(
                "lease_renewals",
                "Total number of renewals of the node's lease by result",
            ),
            lease_renewed: registry.add(
                "lease_renewed_timestamp_seconds",
                "Time of the last renewal of the node's lease",
                Gauge::default(),
            ),
            events: registry.family(
                "events",
                "Total number of events by result: sent, failed, or dropped by a full queue or a \
                 limit",
            ),
            inputs: registry.family(
                "input_reads",
                "Total number of reads of ConfigMaps, Secrets, Services and tokens by source",
            ),
            swept: registry.counter(
                "swept_pods",
                "Total number of pods that the runtime had and the API server did not",
            ),
        }
    }

    pub(crate) fn set_pods(&self, api: usize, runtime: usize) {
        self.pods.set(i64::try_from(api).unwrap_or(i64::MAX));
        self.runtime_pods
            .set(i64::try_from(runtime).unwrap_or(i64::MAX));
    }

    pub(crate) fn count_operation(&self, operation: Operation, is_ok: bool, took: Duration) {
        let result = result(is_ok);
        self.runtime_operations
            .get_or_create(&OperationLabels { operation, result })
            .inc();
        self.runtime_durations
            .get_or_create(&OperationLabel { operation })
            .observe(took.as_secs_f64());
    }

    pub(crate) fn set_healthy(&self, is_healthy: bool) {
        self.runtime_healthy.set(i64::from(is_healthy));
    }

    pub(crate) fn count_update(&self, object: Updated, is_ok: bool) {
        let result = result(is_ok);
        self.status_updates
            .get_or_create(&UpdateLabels { object, result })
            .inc();
    }

    pub(crate) fn count_renewal(&self, renewed: Option<Timestamp>) {
        let result = result(renewed.is_some());
        self.lease_renewals
            .get_or_create(&ResultLabel { result })
            .inc();
        if let Some(at) = renewed {
            #[expect(
                clippy::cast_precision_loss,
                reason = "exact for the next 200,000 years"
            )]
            self.lease_renewed.set(at.unix_millis() as f64 / 1e3);
        }
    }

    pub(crate) fn count_event(&self, result: EventResult) {
        let result = match result {
            EventResult::Sent => "sent",
            EventResult::QueueFull => "queue_full",
            EventResult::Spam => "spam",
            EventResult::Failed => "failed",
        };
        self.events.get_or_create(&EventLabels { result }).inc();
    }

    pub(crate) fn count_input(&self, resource: &'static str, source: InputSource) {
        let source = match source {
            InputSource::Cache => "cache",
            InputSource::Api => "api",
            InputSource::Failed => "error",
        };
        self.inputs
            .get_or_create(&InputLabels { resource, source })
            .inc();
    }

    pub(crate) fn count_swept(&self) {
        self.swept.inc();
    }
}

const fn result(is_ok: bool) -> &'static str {
    if is_ok { "success" } else { "error" }
}
