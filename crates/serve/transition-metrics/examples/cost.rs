//! Cost of recording and scraping many label sets, and a server to scrape.
//!
//! `cargo run --profile dist -p kubevitals-transition-metrics --example cost -- 300
//! [127.0.0.1:9100]` records starts and lifecycles in this many namespaces, prints the time and
//! the size of each format, and then serves them if an address is given.
#![expect(
    clippy::print_stdout,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "a program for one's own terminal"
)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use kubevitals_model::{Event, Pod};
use kubevitals_telemetry::exposition::Format;
use kubevitals_telemetry::{
    Admin, AdminMetrics, AdminServer, Health, Limits, Metrics, Profiling, SharedRegistry,
};
use kubevitals_transition_metrics::{FamilyConfig, Topology, TransitionMetrics};
use kubevitals_transitions::{Arrival, Existing, Output, PodRecord, Tracker, TrackerConfig};
use kubevitals_watch::{Decoder, TypedKind, decode_object};
use serde_json::{Value, json};

/// The number of pods that each namespace has had.
const PODS: usize = 20;

const UID: &str = "00000000-0000-4000-8000-000000000001";

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut arguments = std::env::args().skip(1);
    let sets: usize = arguments.next().map_or(300, |text| text.parse().unwrap());
    let mut metrics = Metrics::new();
    let own = AdminMetrics::register(metrics.sub("kubevitals_admin"));
    let config = FamilyConfig {
        native_histograms: true,
        series_limit: sets,
        ..FamilyConfig::default()
    };
    let families = TransitionMetrics::register(&mut metrics, config);
    let registry = metrics.freeze();
    record_all(&families, sets);
    for format in [Format::Prometheus, Format::OpenMetrics, Format::Protobuf] {
        let begun = Instant::now();
        let body = registry.encode(format).unwrap();
        let took = begun.elapsed();
        let lines = body.split(|byte| *byte == b'\n').count();
        println!("{format:?}: {} bytes, {lines} lines, {took:?}", body.len());
    }
    if let Some(address) = arguments.next() {
        serve(address.parse().unwrap(), registry, own).await;
    }
}

fn record_all(families: &TransitionMetrics, sets: usize) {
    let (start, lifecycle) = outputs();
    let begun = Instant::now();
    let mut outputs = 0_u32;
    for set in 0..sets {
        let elsewhere = |output: &Output| match output {
            Output::Startup(record) => {
                let mut record = PodRecord::clone(record);
                let pod = Arc::make_mut(&mut record.pod);
                pod.summary.identity.namespace = format!("namespace-{set}").into();
                Output::Startup(Arc::new(record))
            }
            Output::Lifecycle(record) => {
                let mut record = PodRecord::clone(record);
                let pod = Arc::make_mut(&mut record.pod);
                pod.summary.identity.namespace = format!("namespace-{set}").into();
                Output::Lifecycle(Arc::new(record))
            }
            other => other.clone(),
        };
        let (start, lifecycle) = (elsewhere(&start), elsewhere(&lifecycle));
        for _ in 0..PODS {
            families.record(&start, Topology::default());
            families.record(&lifecycle, Topology::default());
            outputs += 1;
        }
    }
    let took = begun.elapsed();
    println!(
        "{outputs} pods outputs in {took:?}: {:?} each",
        took / outputs.max(1)
    );
}

/// The start and the lifecycle of a pod that pulled an image, was ready after six seconds and was
/// deleted.
fn outputs() -> (Output, Output) {
    let mut tracker = Tracker::new(TrackerConfig {
        linger: None,
        existing: Existing::All,
        ..TrackerConfig::default()
    });
    let pod = |object: String| Arc::new(read::<Pod>(&object));
    let mut outputs = Vec::new();
    let message = "Successfully pulled image \"i\" in 900ms (1.1s including waiting). Image size: 20000000 bytes.";
    let pulled = json!({
        "metadata": {"name": "e", "namespace": "default", "uid": "1", "resourceVersion": "1"},
        "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p", "uid": UID, "fieldPath": "spec.containers{main}"},
        "reason": "Pulled", "message": message, "type": "Normal", "count": 1, "firstTimestamp": stamp(3),
    });
    let pulled = read::<Event>(&pulled.to_string());
    let condition = |kind: &str, second: u32| json!({"type": kind, "status": "True", "lastTransitionTime": stamp(second)});
    let ready = json!({"phase": "Running", "startTime": stamp(1),
        "conditions": [condition("PodScheduled", 1), condition("PodReadyToStartContainers", 2),
                       condition("ContainersReady", 6), condition("Ready", 6)],
        "containerStatuses": [{"name": "main", "ready": true, "started": true, "restartCount": 0,
                               "state": {"running": {"startedAt": stamp(4)}}}]});
    let out = &mut |output| outputs.push(output);
    tracker.pod(
        &pod(state(1, &json!({}), &json!({}))),
        Arrival::Live,
        None,
        out,
    );
    tracker.event(&pulled, out);
    tracker.pod(&pod(state(2, &json!({}), &ready)), Arrival::Live, None, out);
    let deleting = json!({"deletionTimestamp": stamp(59), "deletionGracePeriodSeconds": 30});
    tracker.pod(&pod(state(3, &deleting, &ready)), Arrival::Live, None, out);
    let gone = json!({"deletionTimestamp": stamp(40), "deletionGracePeriodSeconds": 0});
    tracker.deleted(&pod(state(4, &gone, &ready)), Arrival::Live, None, out);
    tracker.finish(out);
    let of = |is: fn(&Output) -> bool| outputs.iter().find(|output| is(output)).unwrap().clone();
    (
        of(|output| matches!(output, Output::Startup(_))),
        of(|output| matches!(output, Output::Lifecycle(_))),
    )
}

fn state(version: u32, meta: &Value, status: &Value) -> String {
    let mut metadata = json!({
        "name": "p", "namespace": "default", "uid": UID, "resourceVersion": version.to_string(),
        "creationTimestamp": stamp(0), "labels": {"pod-template-hash": "5d4"},
        "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "frontend-5d4", "uid": "u", "controller": true}],
    });
    for (key, value) in meta.as_object().unwrap() {
        metadata[key] = value.clone();
    }
    let object = json!({"metadata": metadata, "spec": {"containers": [{"name": "main", "image": "i"}]}, "status": status});
    object.to_string()
}

fn stamp(second: u32) -> String {
    format!("2026-11-16T06:00:{second:02}Z")
}

async fn serve(address: SocketAddr, registry: SharedRegistry, metrics: AdminMetrics) {
    let admin = Admin {
        health: Health::new(),
        registry,
        logs: None,
        metrics,
        profiling: Profiling::Off,
    };
    let server = AdminServer::bind(address, admin, Limits::default())
        .await
        .unwrap();
    println!("http://{}/metrics", server.local_addr());
    server.serve(std::future::pending()).await;
}

fn read<K: TypedKind>(object: &str) -> K {
    decode_object(object.as_bytes(), &Decoder::default()).unwrap()
}
