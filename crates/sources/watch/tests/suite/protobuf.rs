//! Reflectors that read protobuf, from a server that writes it.

use kubevitals_model::PodSummary;
use kubevitals_protobuf::{put_bytes, put_entry, put_message, put_str, put_uint};
use kubevitals_watch::{
    DecodeError, Decoder, RestartReason, WatchEvent, decode_event, decode_page,
    decode_protobuf_event, decode_protobuf_page,
};
use serde_json::Value;

use crate::fake::{Fake, Fault, Streaming, event, pass, view, within};

pub(crate) const CONTENT_TYPE: &str = "application/vnd.kubernetes.protobuf";

/// Encodes a watch event that is given as JSON, with its length before it.
pub(crate) fn frame(line: &str) -> Vec<u8> {
    let event: Value = serde_json::from_str(line).unwrap();
    let mut message = Vec::new();
    put_str(&mut message, 1, event["type"].as_str().unwrap());
    let object = object(&event["object"]);
    put_message(&mut message, 2, |out| put_bytes(out, 1, &object));
    let mut frame = u32::try_from(message.len()).unwrap().to_be_bytes().to_vec();
    frame.extend(message);
    frame
}

/// Encodes a list that is given as JSON.
pub(crate) fn list(body: &str) -> Vec<u8> {
    let list: Value = serde_json::from_str(body).unwrap();
    let mut message = Vec::new();
    put_message(&mut message, 1, |out| {
        put_str(out, 2, text(&list["metadata"], "resourceVersion"));
        put_str(out, 3, text(&list["metadata"], "continue"));
    });
    for item in list["items"].as_array().unwrap() {
        put_bytes(&mut message, 2, &pod(item));
    }
    envelope("PodList", &message)
}

/// Encodes a Status that is given as JSON.
pub(crate) fn status(body: &str) -> Vec<u8> {
    object(&serde_json::from_str(body).unwrap())
}

/// Encodes a pod or a Status in its envelope.
fn object(object: &Value) -> Vec<u8> {
    if text(object, "kind") != "Status" {
        return envelope("Pod", &pod(object));
    }
    let mut status = Vec::new();
    put_str(&mut status, 3, text(object, "message"));
    put_uint(&mut status, 6, object["code"].as_u64().unwrap());
    envelope("Status", &status)
}

/// Encodes a pod, with fields that readers must skip.
fn pod(pod: &Value) -> Vec<u8> {
    let mut out = Vec::new();
    put_message(&mut out, 1, |out| {
        let meta = &pod["metadata"];
        for (number, name) in [
            (1, "name"),
            (3, "namespace"),
            (5, "uid"),
            (6, "resourceVersion"),
        ] {
            put_str(out, number, text(meta, name));
        }
        put_uint(out, 7, 1);
        for (number, name) in [(11, "labels"), (12, "annotations")] {
            for (key, value) in meta[name].as_object().into_iter().flatten() {
                put_entry(out, number, key, value.as_str().unwrap());
            }
        }
        put_message(out, 17, |out| put_str(out, 1, "kubelet"));
    });
    put_message(&mut out, 2, |out| {
        put_str(out, 3, "Always");
        put_str(out, 10, text(&pod["spec"], "nodeName"));
    });
    put_message(&mut out, 3, |out| {
        put_str(out, 1, text(&pod["status"], "phase"));
    });
    out
}

fn envelope(kind: &str, message: &[u8]) -> Vec<u8> {
    let mut out = b"k8s\0".to_vec();
    put_message(&mut out, 1, |out| {
        put_str(out, 1, "v1");
        put_str(out, 2, kind);
    });
    put_bytes(&mut out, 2, message);
    out
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

fn fake() -> Fake {
    let fake = Fake::new();
    fake.lock().protobuf = true;
    fake
}

#[tokio::test(start_paused = true)]
async fn a_protobuf_watch_is_followed_however_it_is_cut() {
    for chunk in [0, 1, 7] {
        let fake = fake();
        fake.lock().chunk = chunk;
        for name in ["a", "b", "c"] {
            fake.put(name);
        }
        let pods = fake.pods();
        assert!(within("a first list", pods.synced()).await);
        fake.put("d");
        fake.put("b");
        fake.delete("a");
        pass(1).await;
        assert_eq!(view(&pods.objects()), fake.objects());
        let state = pods.state();
        assert_eq!(state.resource_version.unwrap().to_string(), "6");
        assert!(state.restarts.is_empty(), "{:?}", state.restarts);
        assert_eq!(fake.requests().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn protobuf_pages_are_listed() {
    let fake = fake();
    fake.lock().streaming = Streaming::Refused(400);
    for number in 0..1_201 {
        fake.put(&format!("pod-{number}"));
    }
    let pods = fake.pods();
    assert!(within("a first list", pods.synced()).await);
    assert_eq!(view(&pods.objects()), fake.objects());
    let pod = pods.objects().swap_remove(0);
    assert_eq!(pod.node.as_deref(), Some("n"));
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_in_protobuf_leads_to_a_relist() {
    for expires_by_event in [false, true] {
        let fake = fake();
        fake.lock().expires_by_event = expires_by_event;
        fake.put("a");
        let pods = fake.pods();
        assert!(within("a first list", pods.synced()).await);
        fake.break_watches();
        fake.delete("a");
        fake.compact();
        pass(10).await;
        assert_eq!(view(&pods.objects()), fake.objects());
        let restarts = pods.state().restarts;
        assert_eq!(restarts.get(&RestartReason::Expired), Some(&1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_may_change_from_protobuf_to_json() {
    let fake = fake();
    fake.put("a");
    let pods = fake.pods();
    assert!(within("a first list", pods.synced()).await);
    fake.lock().protobuf = false;
    fake.break_watches();
    pass(10).await;
    fake.put("b");
    pass(1).await;
    assert_eq!(view(&pods.objects()), fake.objects());
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_no_protobuf_cost_a_reconnect() {
    let fake = fake();
    fake.put("a");
    let garbage = [0, 0, 0, 2, 0x0a, 0xff].repeat(16);
    fake.lock().faults.push_back(Fault::Chunks(vec![garbage]));
    let pods = fake.pods();
    assert!(within("a first list", pods.synced()).await);
    assert_eq!(view(&pods.objects()), fake.objects());
    let restarts = pods.state().restarts;
    assert_eq!(restarts.get(&RestartReason::InvalidResponse), Some(&1));
}

#[test]
fn a_pod_is_the_same_in_both_encodings() {
    let line = r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","namespace":"b","uid":"c",
        "resourceVersion":"4","labels":{"x":"1","y":""}},"spec":{"nodeName":"n"},"status":{"phase":"Pending"}}}"#;
    let decoder = Decoder::default();
    let json: WatchEvent<PodSummary> = decode_event(line.as_bytes(), &decoder).unwrap();
    let protobuf = decode_protobuf_event(&frame(line)[4..], &decoder).unwrap();
    assert_eq!(json, protobuf);
}

/// One pod as kube-apiserver 1.37 wrote it in both encodings: as a streaming list and as a list.
#[test]
fn a_pod_of_a_real_server_is_the_same_in_both_encodings() {
    let decoder = Decoder::default();
    let mut stream: &[u8] = include_bytes!("../fixtures/real-pod.watch.pb");
    let lines = include_str!("../fixtures/real-pod.watch.jsonl").lines();
    let mut events = 0;
    for line in lines {
        let (length, rest) = stream.split_first_chunk().unwrap();
        let length = usize::try_from(u32::from_be_bytes(*length)).unwrap();
        let (frame, rest) = rest.split_at(length);
        stream = rest;
        let json: WatchEvent<PodSummary> = decode_event(line.as_bytes(), &decoder).unwrap();
        assert_eq!(json, decode_protobuf_event(frame, &decoder).unwrap());
        events += 1;
    }
    assert_eq!((events, stream.len()), (2, 0));

    let list = include_bytes!("../fixtures/real-pod.list.pb");
    let protobuf = decode_protobuf_page::<PodSummary>(list, &decoder).unwrap();
    let list = include_bytes!("../fixtures/real-pod.list.json");
    let json = decode_page::<PodSummary>(list, &decoder).unwrap();
    assert_eq!(json.objects, protobuf.objects);
    assert!(json.objects[0].node.is_some() && !json.objects[0].labels.is_empty());
}

#[test]
fn a_pod_without_a_name_costs_only_itself() {
    let page = list(
        r#"{"metadata":{"resourceVersion":"7"},"items":[{"metadata":{}},{"metadata":{"name":"a"}}]}"#,
    );
    let page = decode_protobuf_page::<PodSummary>(&page, &Decoder::default()).unwrap();
    assert_eq!((page.objects.len(), page.unreadable.len()), (1, 1));
    assert!(matches!(page.unreadable[0], DecodeError::Incomplete(_)));
    assert_eq!(page.resource_version.to_string(), "7");
}

#[test]
fn truncated_events_are_errors() {
    let whole = frame(&event("ADDED", "a", 1, 1));
    for length in 4..whole.len() {
        let decoded = decode_protobuf_event::<PodSummary>(&whole[4..length], &Decoder::default());
        assert!(decoded.is_err(), "{length}");
    }
}
