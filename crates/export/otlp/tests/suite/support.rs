//! Pods as their API objects, and a queue with its worker and receiver.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Event, Pod, Timestamp};
use kubevitals_otlp::{
    OtlpClient, Resource, Settings, SettingsSource, Signal, Span, TraceExporter, TraceQueue,
    pod_trace,
};
use kubevitals_sim::otlp::OtlpReceiver;
use kubevitals_sink::{DropReason, SinkMetrics};
use kubevitals_transitions::{Arrival, Output, PodRecord};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::lifecycles;

/// Far longer than anything here takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

pub(crate) const UID: &str = "b37f14a9-3bf4-458b-8cfd-e3c6a7a61b4a";

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_unix_millis(1_794_773_520_000 + second * 1_000)
}

pub(crate) fn stamp(second: i64) -> String {
    at(second).rfc3339_seconds().to_string()
}

/// A pod of a Deployment with one container, created at second 0.
pub(crate) fn pod(version: u32, status: &Value) -> Arc<Pod> {
    let pod = json!({
        "metadata": {
            "name": "web-7d4b-x", "namespace": "shop", "uid": UID,
            "resourceVersion": version.to_string(), "creationTimestamp": stamp(0),
            "labels": {"pod-template-hash": "7d4b"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b",
                "uid": "u", "controller": true}],
        },
        "spec": {"nodeName": "n1", "containers": [{"name": "app", "image": "shop/web:2",
            "readinessProbe": {"exec": {"command": ["true"]}}}]},
        "status": status,
    });
    lifecycles::pod(&pod.to_string())
}

pub(crate) fn condition(kind: &str, second: i64) -> Value {
    json!({"type": kind, "status": "True", "lastTransitionTime": stamp(second)})
}

pub(crate) fn event(reason: &str, message: &str, second: i64) -> Event {
    let event = json!({
        "metadata": {"name": format!("web.{reason}.{second}"), "namespace": "shop"},
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-7d4b-x", "uid": UID,
            "fieldPath": "spec.containers{app}"},
        "reason": reason, "message": message, "type": "Normal", "count": 1,
        "firstTimestamp": stamp(second), "lastTimestamp": stamp(second),
        "source": {"component": "kubelet"},
    });
    lifecycles::event(&event.to_string())
}

/// Scheduled at 1, pulled from 2 to 5, running at 6, ready at 9.
pub(crate) fn ready() -> Value {
    json!({
        "phase": "Running", "startTime": stamp(1),
        "conditions": [
            condition("PodScheduled", 1),
            condition("PodReadyToStartContainers", 2),
            condition("Initialized", 1),
            condition("ContainersReady", 9),
            condition("Ready", 9),
        ],
        "containerStatuses": [{"name": "app", "ready": true, "started": true, "restartCount": 0,
            "image": "shop/web:2", "imageID": "", "state": {"running": {"startedAt": stamp(6)}}}],
    })
}

pub(crate) fn pulls() -> Vec<Event> {
    let pulled = "Successfully pulled image \"shop/web:2\" in 3s (3s including waiting). Image size: 7000 bytes.";
    vec![
        event("Pulling", "Pulling image \"shop/web:2\"", 2),
        event("Pulled", pulled, 5),
    ]
}

/// The record of the start of a pod with these states and events.
pub(crate) fn record(states: &[Arc<Pod>], events: &[Event]) -> Arc<PodRecord> {
    let mut tracker = lifecycles::patient();
    let mut outputs = Vec::new();
    let mut out = |output| outputs.push(output);
    for state in states {
        tracker.pod(state, Arrival::Live, None, &mut out);
    }
    for event in events {
        tracker.event(event, &mut out);
    }
    tracker.finish(&mut out);
    let found = outputs.into_iter().find_map(|output| match output {
        Output::Startup(record) => Some(record),
        _ => None,
    });
    found.unwrap()
}

pub(crate) fn ready_record() -> Arc<PodRecord> {
    let pending = pod(1, &json!({"phase": "Pending"}));
    record(&[pending, pod(2, &ready())], &pulls())
}

pub(crate) fn ready_trace() -> Vec<Span> {
    pod_trace(&ready_record())
}

/// A queue that sends to a receiver.
pub(crate) struct Pipeline {
    pub(crate) queue: TraceQueue,
    pub(crate) metrics: SinkMetrics,
    worker: JoinHandle<()>,
}

impl Pipeline {
    pub(crate) fn start(settings: Settings) -> Self {
        kubevitals_tls::install_crypto_provider();
        let metrics = SinkMetrics::unregistered();
        let (queue, worker) = TraceQueue::new(metrics.clone());
        let client = OtlpClient::new(settings, None).unwrap();
        let exporter = TraceExporter::new(client, Resource::new("test-0", |_| None));
        Self {
            queue,
            metrics,
            worker: tokio::spawn(worker.run(exporter)),
        }
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.metrics.dropped(reason).get()
    }

    /// Sends what is queued, without waiting for a full batch, and ends.
    pub(crate) async fn flush(self) -> (u64, u64) {
        let counts = timeout(DEADLINE, self.queue.shutdown(DEADLINE))
            .await
            .unwrap();
        self.worker.await.unwrap();
        assert_eq!(counts.queued, 0);
        (counts.exported, counts.dropped)
    }
}

pub(crate) async fn receiver() -> OtlpReceiver {
    OtlpReceiver::start(SocketAddr::from(([127, 0, 0, 1], 0)), None)
        .await
        .unwrap()
}

/// Settings by the environment, for a receiver on the loopback.
pub(crate) fn settings(address: SocketAddr, variables: &[(&str, &str)]) -> Settings {
    let source = SettingsSource {
        endpoint: Some(format!("http://{address}")),
        ..SettingsSource::default()
    };
    settings_from(&source, variables)
}

pub(crate) fn settings_from(source: &SettingsSource, variables: &[(&str, &str)]) -> Settings {
    let get = |name: &str| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Settings::read(Signal::TRACES, source, get)
        .unwrap()
        .unwrap()
}
