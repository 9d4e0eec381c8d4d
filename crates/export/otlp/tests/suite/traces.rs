//! What the spans of a start say.

use std::collections::{BTreeMap, BTreeSet};

use kubevitals_otlp::{Span, SpanId, Status, Value, encode_spans, pod_trace};
use kubevitals_transitions::{Output, PodRecord};
use serde_json::json;
use std::sync::Arc;

use crate::lifecycles::replay;
use crate::support::{at, condition, event, pod, pulls, ready, ready_record, record, stamp};

const PODS: &str = include_str!("../../../../sources/watch/tests/fixtures/pods.watch.jsonl");
const EVENTS: &str = include_str!("../../../../sources/watch/tests/fixtures/events.watch.jsonl");

fn text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.to_string(),
        Value::Texts(texts) => texts.join(","),
        Value::Integer(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
    }
}

fn attributes(span: &Span) -> BTreeMap<String, String> {
    let each = span.attributes.iter();
    each.map(|one| (one.key.to_string(), text(&one.value)))
        .collect()
}

/// Name, start and end in seconds after the creation, and the depth below the root.
fn outline(spans: &[Span]) -> Vec<(&'static str, i64, i64, usize)> {
    let parents: BTreeMap<SpanId, Option<SpanId>> =
        spans.iter().map(|span| (span.id, span.parent)).collect();
    let depth = |mut id: SpanId| {
        let mut depth = 0;
        while let Some(parent) = parents[&id] {
            (id, depth) = (parent, depth + 1);
        }
        depth
    };
    let second =
        |time: kubevitals_model::Timestamp| (time.unix_millis() - at(0).unix_millis()) / 1_000;
    let line = |span: &Span| {
        (
            span.name,
            second(span.start),
            second(span.end),
            depth(span.id),
        )
    };
    spans.iter().map(line).collect()
}

#[test]
fn a_start_is_a_root_with_its_path_and_its_containers() {
    let spans = pod_trace(&ready_record());
    assert_eq!(
        outline(&spans),
        [
            ("pod start", 0, 9, 0),
            ("scheduling", 0, 1, 1),
            ("sandbox", 1, 2, 1),
            ("image_pull", 2, 5, 1),
            ("container_start", 5, 6, 1),
            ("readiness", 6, 9, 1),
            ("container", 2, 9, 1),
            ("image pull", 2, 5, 2),
        ]
    );
    let root = attributes(&spans[0]);
    for (key, value) in [
        ("k8s.namespace.name", "shop"),
        ("k8s.pod.name", "web-7d4b-x"),
        ("k8s.pod.uid", crate::support::UID),
        ("k8s.node.name", "n1"),
        ("k8s.replicaset.name", "web-7d4b"),
        ("k8s.deployment.name", "web"),
        ("kubevitals.result", "ready"),
    ] {
        assert_eq!(root[key], value, "{key}");
    }
    assert!(root["kubevitals.cause"].contains("3 s of 9 s"), "{root:?}");
    assert_eq!(spans[0].status, Status::Unset);
    let pull = attributes(spans.last().unwrap());
    for (key, value) in [
        ("k8s.container.name", "app"),
        ("container.image.name", "docker.io/shop/web"),
        ("container.image.tags", "2"),
        ("kubevitals.image.size", "7000"),
    ] {
        assert_eq!(pull[key], value, "{key}");
    }
    assert_eq!(
        spans[0].trace.to_string(),
        crate::support::UID.replace('-', "")
    );
}

#[test]
fn a_pod_that_never_became_ready_is_an_error_with_its_cause() {
    let mut status = ready();
    status["conditions"] = json!([
        condition("PodScheduled", 1),
        condition("PodReadyToStartContainers", 2),
        condition("Initialized", 1),
        {"type": "Ready", "status": "False", "lastTransitionTime": stamp(1)},
    ]);
    status["containerStatuses"][0]["ready"] = json!(false);
    let failed = "Readiness probe failed: connection refused";
    let mut events = pulls();
    events.extend([7, 8].map(|second| event("Unhealthy", failed, second)));
    // A later one is not about the start.
    let mut deleted = serde_json::Map::new();
    deleted.insert("phase".into(), json!("Running"));
    let mut last = (*pod(3, &status)).clone();
    last.meta.deleted = Some(at(20));
    last.meta.deletion_grace = Some(0);
    let record = record(
        &[
            pod(1, &json!({"phase": "Pending"})),
            pod(2, &status),
            Arc::new(last),
        ],
        &events,
    );
    let spans = pod_trace(&record);
    let root = &spans[0];
    assert_eq!(root.end, at(20));
    let Status::Error(cause) = &root.status else {
        panic!("{root:?}");
    };
    assert!(cause.contains("connection refused"), "{cause}");
    assert_eq!(attributes(root)["error.type"], "readiness_probe");
    let last = spans.iter().find(|span| span.name == "readiness").unwrap();
    assert!(matches!(last.status, Status::Error(_)), "{last:?}");
    let container = spans.iter().find(|span| span.name == "container").unwrap();
    assert_eq!((container.start, container.end), (at(2), at(20)));
    assert!(
        matches!(container.status, Status::Error(_)),
        "{container:?}"
    );
    let [probe] = &container.events[..] else {
        panic!("{:?}", container.events);
    };
    assert_eq!((probe.name, probe.time), ("readiness probe failed", at(8)));
    let about: BTreeMap<_, _> = probe
        .attributes
        .iter()
        .map(|one| (&*one.key, text(&one.value)))
        .collect();
    assert_eq!(about["kubevitals.failures"], "2");
    assert_eq!(about["kubevitals.message"], "connection refused");
}

#[test]
fn failures_after_the_start_are_no_part_of_it() {
    let mut events = pulls();
    events.push(event("Unhealthy", "Readiness probe failed: late", 12));
    let pending = pod(1, &json!({"phase": "Pending"}));
    let spans = pod_trace(&record(&[pending, pod(2, &ready())], &events));
    assert!(
        spans.iter().all(|span| span.events.is_empty()),
        "{spans:#?}"
    );
}

#[test]
fn a_span_with_an_unknown_time_is_left_out() {
    let mut status = ready();
    status["containerStatuses"][0]["state"] = json!({"running": {}});
    let spans = pod_trace(&record(&[pod(2, &status)], &[]));
    assert!(
        spans.iter().all(|span| span.name != "container"),
        "{spans:#?}"
    );
    assert!(spans.iter().all(|span| span.name != "image pull"));
    assert_eq!(spans[0].name, "pod start");
}

/// What cannot be known is not sent as a trace that ends too early.
#[test]
fn a_pod_that_was_ready_before_has_no_trace() {
    let mut status = ready();
    status["conditions"] = json!([
        condition("PodScheduled", 1),
        {"type": "Ready", "status": "False", "lastTransitionTime": stamp(50)},
    ]);
    status["containerStatuses"][0]["ready"] = json!(false);
    let mut last = (*pod(3, &status)).clone();
    last.meta.deleted = Some(at(90));
    let record = record(&[Arc::new(last)], &[]);
    assert!(record.is_unseen());
    assert_eq!(pod_trace(&record), []);
}

/// The starts in the recordings of a real cluster.
fn recorded() -> Vec<Arc<PodRecord>> {
    let outputs = replay(&[PODS, EVENTS]).into_iter();
    let starts = outputs.filter_map(|output| match output {
        Output::Startup(record) => Some(record),
        _ => None,
    });
    starts.collect()
}

#[test]
fn traces_of_a_recorded_cluster_are_sound() {
    let records = recorded();
    let mut traces = BTreeSet::new();
    for record in &records {
        let name = &record.pod.summary.identity.name;
        let spans = pod_trace(record);
        assert_eq!(
            spans,
            pod_trace(record),
            "{name}: the same record, the same trace"
        );
        let [root, children @ ..] = &spans[..] else {
            assert!(record.is_unseen(), "{name} has no trace");
            continue;
        };
        assert!(root.parent.is_none());
        assert!(traces.insert(root.trace), "{name} shares a trace");
        let ids: BTreeSet<SpanId> = spans.iter().map(|span| span.id).collect();
        assert_eq!(ids.len(), spans.len(), "{name}: {spans:#?}");
        for span in children {
            assert_eq!(span.trace, root.trace);
            assert!(ids.contains(&span.parent.unwrap()), "{name}: {span:#?}");
            assert!(root.start <= span.start && span.start <= span.end && span.end <= root.end);
        }
        for span in &spans {
            let keys: BTreeSet<_> = span.attributes.iter().map(|one| &one.key).collect();
            assert_eq!(keys.len(), span.attributes.len(), "{name}: {span:#?}");
            for event in &span.events {
                assert!(
                    root.start <= event.time && event.time <= root.end,
                    "{name}: {event:?}"
                );
            }
        }
        // The path has no gap, and adds up to the whole.
        let path = record.critical_path();
        let on_path: Vec<&Span> = children.iter().take(path.len()).collect();
        let mut end = root.start;
        for span in &on_path {
            assert_eq!(span.start, end, "{name}");
            end = span.end;
        }
        if !path.is_empty() {
            assert_eq!(end, root.end, "{name}");
        }
        assert_eq!(
            root.status == Status::Unset,
            record.is_complete() || name.contains("job"),
            "{name}"
        );
        let mut encoded = Vec::new();
        encode_spans(&mut encoded, &spans);
        assert!(encoded.len() < 32 << 10, "{name}: {} bytes", encoded.len());
    }
    assert!(
        traces.len() > 10,
        "{} of {} starts",
        traces.len(),
        records.len()
    );
}
