//! Metrics of the runtime.

use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::probe::{Outcome, ProbeKind};

/// Metrics of all pods, shared by clones.
#[derive(Debug, Clone, Default)]
pub struct ProcessMetrics {
    pods: Gauge,
    starts: Counter,
    exits: Family<ReasonLabel, Counter>,
    probes: Family<ProbeLabels, Counter>,
    sessions: Family<SessionLabel, Counter>,
    dropped_events: Counter,
    adopted: Counter,
    swept: Counter,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabel {
    reason: ExitReason,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
enum ExitReason {
    Completed,
    Error,
    OOMKilled,
    StartError,
    ContainerStatusUnknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProbeLabels {
    probe_type: &'static str,
    result: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SessionLabel {
    kind: &'static str,
}

impl ProcessMetrics {
    /// Registers all metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "kubevitals_process_pods",
            "Number of pods that the process runtime has",
            metrics.pods.clone(),
        );
        registry.register(
            "kubevitals_process_container_starts",
            "Number of containers that were started",
            metrics.starts.clone(),
        );
        registry.register(
            "kubevitals_process_container_exits",
            "Number of containers that ended, by reason",
            metrics.exits.clone(),
        );
        registry.register(
            "kubevitals_process_probes",
            "Number of probes that were run, by type and result",
            metrics.probes.clone(),
        );
        registry.register(
            "kubevitals_process_sessions",
            "Number of exec, attach, port-forward and log requests",
            metrics.sessions.clone(),
        );
        registry.register(
            "kubevitals_process_dropped_events",
            "Number of events of pods that were dropped because the queue was full",
            metrics.dropped_events.clone(),
        );
        registry.register(
            "kubevitals_process_adopted_pods",
            "Number of pods of an earlier process that were adopted",
            metrics.adopted.clone(),
        );
        registry.register(
            "kubevitals_process_swept_pods",
            "Number of pods of an earlier process that were killed because their records are unusable",
            metrics.swept.clone(),
        );
        metrics
    }

    pub(crate) fn set_pods(&self, count: usize) {
        self.pods.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    pub(crate) fn started(&self) {
        self.starts.inc();
    }

    pub(crate) fn ended(&self, reason: &str) {
        let reason = match reason {
            "Completed" => ExitReason::Completed,
            "OOMKilled" => ExitReason::OOMKilled,
            "StartError" => ExitReason::StartError,
            "ContainerStatusUnknown" => ExitReason::ContainerStatusUnknown,
            _ => ExitReason::Error,
        };
        self.exits.get_or_create(&ReasonLabel { reason }).inc();
    }

    pub(crate) fn probe(&self, kind: ProbeKind, outcome: &Outcome) {
        let labels = ProbeLabels {
            probe_type: kind.as_str(),
            result: match outcome {
                Outcome::Success => "successful",
                Outcome::Failure(_) => "failed",
                Outcome::Error(_) => "unknown",
            },
        };
        self.probes.get_or_create(&labels).inc();
    }

    pub(crate) fn session(&self, kind: &'static str) {
        self.sessions.get_or_create(&SessionLabel { kind }).inc();
    }

    pub(crate) fn dropped_event(&self) {
        self.dropped_events.inc();
    }

    pub(crate) fn adopted(&self) {
        self.adopted.inc();
    }

    pub(crate) fn swept(&self) {
        self.swept.inc();
    }
}
