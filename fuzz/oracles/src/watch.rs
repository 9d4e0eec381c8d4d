//! Watch events and lists of the Kubernetes API.

use std::fmt::Debug;

use kubevitals_model::{
    DaemonSet, Deployment, Event, Node, PartialObjectMeta, Pod, PodSummary, ReplicaSet,
};
use kubevitals_watch::{
    Decoder, Kind, WatchEvent, decode_event, decode_page, decode_protobuf_event,
    decode_protobuf_page,
};
use serde_json::Value;

/// Tokens of watch events.
pub(crate) const TOKENS: &[&[u8]] = &[
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\"",
    b"null",
    b"true",
    b"-1",
    b"1e400",
    b"18446744073709551616",
    b"{\"type\":\"ADDED\",\"object\":",
    b"\"type\":\"DELETED\"",
    b"\"type\":\"BOOKMARK\"",
    b"\"type\":\"ERROR\"",
    b"\"object\":{",
    b"\"metadata\":{",
    b"\"name\":\"a\"",
    b"\"uid\":\"b37f14a9-3bf4-458b-8cfd-e3c6a7a61b4a\"",
    b"\"resourceVersion\":\"1\"",
    b"\"labels\":{\"a\":\"b\",\"a\":\"c\"}",
    b"\"annotations\":{\"k8s.io/initial-events-end\":\"true\"}",
    b"\"ownerReferences\":[{\"controller\":true}]",
    b"\"creationTimestamp\":\"2026-11-15T20:12:10Z\"",
    b"\"managedFields\":[{\"fieldsV1\":{\"f:a\":{}}}]",
    b"\"spec\":{\"nodeName\":\"n\"}",
    b"\"status\":{\"phase\":\"Running\"}",
    b"\"items\":[",
    b"\\u0000",
    b"\\ud800",
    b"\x0a\x05ADDED\x12\x20\x0a\x1e",
    b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod\x12",
    b"\x0a\x03\x0a\x01a",
    b"\xff",
    b"\n",
];

/// No bytes make the decoder panic; every event or list that decodes and is valid JSON has the
/// decoded names; and smaller types are exactly parts of the larger.
///
/// # Panics
///
/// If the property is violated.
pub fn watch_line(line: &[u8]) {
    let decoder = Decoder::default();
    let pod = decode::<Pod>(line, &decoder);
    let summary = decode::<PodSummary>(line, &decoder);
    let metadata = decode::<PartialObjectMeta>(line, &decoder);
    if let Some(pod) = pod {
        assert_eq!(
            Some(&pod.summary),
            summary.as_ref(),
            "a valid Pod is a valid PodSummary"
        );
        let metadata = metadata.expect("a valid Pod has metadata");
        assert_eq!(
            (pod.summary.identity, pod.summary.labels, pod.meta),
            (metadata.identity, metadata.labels, metadata.meta)
        );
    }
    decode::<Node>(line, &decoder);
    decode::<Event>(line, &decoder);
    decode::<DaemonSet>(line, &decoder);
    decode::<Deployment>(line, &decoder);
    decode::<ReplicaSet>(line, &decoder);

    // Any bytes may also come as protobuf.
    if let Ok(event) = decode_protobuf_event::<PodSummary>(line, &decoder) {
        let again = decode_protobuf_event(line, &decoder).expect("a valid event decodes again");
        assert_eq!(event, again, "interning changes nothing");
    }
    let _ = decode_protobuf_page::<PodSummary>(line, &decoder);

    let list = serde_json::from_slice::<Value>(line);
    if let (Ok(page), Ok(list)) = (decode_page::<PodSummary>(line, &decoder), list) {
        let items = list
            .get("items")
            .and_then(Value::as_array)
            .map_or(0, Vec::len);
        assert_eq!(
            page.objects.len() + page.unreadable.len(),
            items,
            "each item is decoded or reported as unreadable"
        );
    }
}

/// Decodes the line, checks it against a generic parser, and returns the object if it has one.
fn decode<K: Kind + PartialEq + Debug>(line: &[u8], decoder: &Decoder) -> Option<K> {
    let event = decode_event::<K>(line, decoder).ok()?;
    let again = decode_event::<K>(line, decoder).expect("a valid event decodes again");
    assert_eq!(event, again, "interning changes nothing");
    // Skipped values only need balanced brackets.
    let value: Option<Value> = serde_json::from_slice(line).ok();
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
            let identity = object.identity();
            for (field, decoded) in [
                ("/object/metadata/name", identity.name.to_string()),
                ("/object/metadata/namespace", identity.namespace.to_string()),
                ("/object/metadata/uid", identity.uid.to_string()),
                (
                    "/object/metadata/resourceVersion",
                    identity.resource_version.to_string(),
                ),
            ] {
                let Some(value) = &value else { continue };
                let expected = value.pointer(field).and_then(Value::as_str);
                assert_eq!(decoded, expected.unwrap_or_default(), "{field}");
            }
            Some(object)
        }
        WatchEvent::Bookmark(_) | WatchEvent::Error(_) => None,
    }
}
