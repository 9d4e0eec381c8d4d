//! Records of pods as lines.

use std::sync::Arc;

use kubevitals_jsonl::TransitionLines;
use kubevitals_model::{Event, Pod, Timestamp};
use kubevitals_transitions::{Arrival, Output, Tracker, TrackerConfig};
use kubevitals_watch::{Decoder, decode_object};
use serde_json::{Value, json};

const UID: &str = "00000000-0000-4000-8000-000000000001";

fn at(second: i64) -> Timestamp {
    Timestamp::from_unix_millis(1_794_773_520_000 + second * 1_000)
}

fn stamp(second: i64) -> String {
    at(second).rfc3339_seconds().to_string()
}

fn pod(version: u32, meta: &Value, status: &Value) -> Arc<Pod> {
    let container = |name: &str, probe: &str| json!({"name": name, "image": "web:2", probe: {}});
    let mut metadata = json!({"name": "web-1", "namespace": "shop", "uid": UID,
        "resourceVersion": version.to_string(), "creationTimestamp": stamp(0)});
    for (key, value) in meta.as_object().unwrap() {
        metadata[key] = value.clone();
    }
    let containers = [
        container("app", "startupProbe"),
        container("proxy", "readinessProbe"),
    ];
    let object = json!({"metadata": metadata,
        "spec": {"nodeName": "n1", "containers": containers}, "status": status});
    Arc::new(decode_object(object.to_string().as_bytes(), &Decoder::default()).unwrap())
}

/// `app` has started, `proxy` is ready, and the pod is not.
fn status(is_ready: bool) -> Value {
    let container = |name: &str, started: i64, ready: bool| {
        json!({"name": name, "ready": ready, "started": true, "restartCount": 0,
            "state": {"running": {"startedAt": stamp(started)}}})
    };
    let ready = if is_ready { "True" } else { "False" };
    let condition = |kind: &str, status: &str, second: i64| json!({"type": kind, "status": status, "lastTransitionTime": stamp(second)});
    let second = if is_ready { 110 } else { 1 };
    json!({"phase": "Running", "startTime": stamp(1),
        "conditions": [condition("PodScheduled", "True", 1), condition("Initialized", "True", 2),
            condition("ContainersReady", ready, second), condition("Ready", ready, second)],
        "containerStatuses": [container("app", 3, is_ready), container("proxy", 4, true)]})
}

fn lines(form: &TransitionLines, outputs: &[Output]) -> Vec<Value> {
    let text: Vec<u8> = outputs
        .iter()
        .flat_map(|output| form.render(output, at(200)))
        .collect();
    let text = String::from_utf8(text).unwrap();
    let line = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    text.lines()
        .map(|text| line(text)["kube_transition_metrics"].clone())
        .collect()
}

/// The startup probe passed at second 63 and `proxy` was ready at 5; the role restarted at 100.
#[test]
fn after_a_restart_of_the_role_unknown_times_are_left_out_and_lines_are_partial() {
    let mut tracker = Tracker::new(TrackerConfig::default());
    let mut outputs = Vec::new();
    let mut out = |output| outputs.push(output);
    let none = json!({});
    let listed = pod(1, &none, &status(false));
    tracker.resync([&listed], Arrival::Listed, Some(at(100)), &mut out);
    let ready = pod(2, &none, &status(true));
    tracker.pod(&ready, Arrival::Live, Some(at(110)), &mut out);
    tracker.advance(at(120), &mut out);
    let lines = lines(&TransitionLines::default(), &outputs);
    let kinds: Vec<&Value> = lines.iter().map(|line| &line["type"]).collect();
    assert_eq!(kinds, ["pod", "container", "container"]);
    assert_eq!(lines[0]["pod"]["creation_to_ready_seconds"], json!(110.0));
    let (app, proxy) = (&lines[1], &lines[2]);
    for line in [app, proxy] {
        assert_eq!(line["partial"], json!(true), "{line}");
    }
    assert_eq!(app["container"]["running_timestamp"], json!(stamp(3)));
    for field in ["started_timestamp", "running_to_started_seconds"] {
        assert_eq!(app["container"].get(field), None, "{app}");
    }
    for field in [
        "ready_timestamp",
        "running_to_ready_seconds",
        "started_to_ready_seconds",
    ] {
        assert_eq!(proxy["container"].get(field), None, "{proxy}");
    }
}

#[test]
fn chosen_labels_and_the_cron_job_are_in_every_line() {
    let mut tracker = Tracker::new(TrackerConfig::default());
    let mut outputs = Vec::new();
    let mut out = |output| outputs.push(output);
    let minute = at(0).unix_seconds() / 60;
    let meta = json!({"labels": {"team": "shop", "other": "x"}, "ownerReferences": [
        {"apiVersion": "batch/v1", "kind": "Job", "name": format!("backup-{minute}"), "uid": "u", "controller": true}]});
    let pending = json!({"phase": "Pending"});
    tracker.pod(
        &pod(1, &meta, &pending),
        Arrival::Live,
        Some(at(0)),
        &mut out,
    );
    let event = json!({
        "metadata": {"name": "e", "namespace": "shop", "uid": "1", "resourceVersion": "1"},
        "involvedObject": {"kind": "Pod", "namespace": "shop", "name": "web-1", "uid": UID, "fieldPath": "spec.containers{app}"},
        "reason": "Pulled", "message": "Container image \"web:2\" already present on machine", "count": 1,
        "firstTimestamp": stamp(2)});
    let event: Event = decode_object(event.to_string().as_bytes(), &Decoder::default()).unwrap();
    tracker.event(&event, &mut out);
    tracker.pod(
        &pod(2, &meta, &status(true)),
        Arrival::Live,
        Some(at(110)),
        &mut out,
    );
    tracker.advance(at(120), &mut out);
    let form = TransitionLines {
        label_keys: "team,app.kubernetes.io/part-of".parse().unwrap(),
        ..TransitionLines::default()
    };
    let lines = lines(&form, &outputs);
    let kinds: Vec<&Value> = lines.iter().map(|line| &line["type"]).collect();
    assert_eq!(kinds, ["image_pull", "pod", "container", "container"]);
    for line in &lines {
        assert_eq!(line["label_team"], json!("shop"));
        assert_eq!(line["kube_cronjob"], json!("backup"));
        let labels = line.as_object().unwrap().keys();
        assert_eq!(labels.filter(|key| key.starts_with("label_")).count(), 1);
    }
}
