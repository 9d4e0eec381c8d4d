use proptest::prelude::*;

use super::*;
use crate::id::{SpanId, TraceId};

fn at(millis: i64) -> Timestamp {
    Timestamp::from_unix_millis(1_794_773_520_000 + millis)
}

fn span(id: [u8; 8], name: &'static str) -> Span {
    Span {
        trace: TraceId::of(&"b37f14a9-3bf4-458b-8cfd-e3c6a7a61b4a".into()),
        id: SpanId::new(id),
        parent: None,
        name,
        start: at(0),
        end: at(1_000),
        attributes: Vec::new(),
        events: Vec::new(),
        status: Status::Unset,
    }
}

/// The bytes are those that the official Go types write for the same request.
#[test]
fn a_request_is_encoded_as_by_go() {
    let root = Span {
        end: at(9_500),
        attributes: vec![
            Attribute::new("k8s.pod.name", "wéb-0"),
            Attribute::new("kubevitals.reconstructed", true),
            Attribute::new("k8s.container.restart_count", 300),
            Attribute::new("kubevitals.container.exit_code", -1),
            Attribute::new("container.image.tags", Value::Texts(vec!["2".into()])),
        ],
        events: vec![SpanEvent {
            name: "readiness probe failed",
            time: at(1_000),
            attributes: vec![Attribute::new("kubevitals.message", "refused")],
        }],
        status: Status::Error("never seen ready".to_owned()),
        ..span(*b"rootspan", "pod start")
    };
    let child = Span {
        parent: Some(root.id),
        ..span(*b"childone", "scheduling")
    };
    let resource = Resource::new("a-0", |name| {
        (name == "OTEL_RESOURCE_ATTRIBUTES").then(|| "service.version=1.2.3".to_owned())
    });
    // In two parts, as two items of a queue.
    let parts = [&[root][..], &[child]].map(|spans| {
        let mut out = Vec::new();
        encode_spans(&mut out, spans);
        out
    });
    let encoded = request_of_version("1.2.3", &resource, parts.iter().map(Vec::as_slice));
    assert!(
        encoded == include_bytes!("../../tests/vectors/request.pb"),
        "{encoded:?}"
    );
}

#[test]
fn a_time_before_1970_is_not_a_number_far_ahead() {
    assert_eq!(nanoseconds(Timestamp::from_unix_millis(-5)), 0);
    assert_eq!(nanoseconds(Timestamp::from_unix_millis(5)), 5_000_000);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The receiver of the simulated cluster has a decoder of its own.
    #[test]
    fn every_span_can_be_read_back(
        id in any::<[u8; 8]>().prop_filter("not zero", |id| *id != [0; 8]),
        start in 0_i64..1 << 43,
        took in 0_i64..1 << 40,
        text in ".{0,300}",
        number in any::<i64>(),
        flag in any::<bool>(),
        texts in proptest::collection::vec(".{0,20}", 0..4),
        events in proptest::collection::vec(("[ -~]{0,300}", 0_i64..1 << 40), 0..5),
        is_error in any::<bool>(),
    ) {
        let attributes = vec![
            Attribute::new("text", text.as_str()),
            Attribute::new("number", Value::Integer(number)),
            Attribute::new("flag", flag),
            Attribute::new("texts", Value::Texts(texts.iter().map(|text| text.as_str().into()).collect())),
        ];
        let time = Timestamp::from_unix_millis;
        let sent = Span {
            parent: flag.then(|| SpanId::new(*b"rootspan")),
            start: time(start),
            end: time(start + took),
            attributes: attributes.clone(),
            events: events.iter().map(|(message, at)| SpanEvent {
                name: "failed",
                time: time(*at),
                attributes: vec![Attribute::new("message", message.as_str())],
            }).collect(),
            status: if is_error { Status::Error(text.clone()) } else { Status::Unset },
            ..span(id, "container")
        };
        let mut encoded = Vec::new();
        encode_spans(&mut encoded, std::slice::from_ref(&sent));
        let message = request(&Resource::new("i", |_| None), std::iter::once(encoded.as_slice()));
        let read = kubevitals_sim::otlp::decode_request(&message).unwrap();
        prop_assert_eq!(read.len(), 1);
        let read = &read[0];
        prop_assert_eq!(&read.span_id, &sent.id.to_string());
        prop_assert_eq!(&read.trace_id, &sent.trace.to_string());
        prop_assert_eq!(&read.parent_span_id, &sent.parent.map(|id| id.to_string()).unwrap_or_default());
        prop_assert_eq!(read.start_unix_nano, u64::try_from(start).unwrap() * 1_000_000);
        prop_assert_eq!(read.end_unix_nano, u64::try_from(start + took).unwrap() * 1_000_000);
        prop_assert_eq!(&read.attributes["text"], &serde_json::json!(text));
        prop_assert_eq!(&read.attributes["number"], &serde_json::json!(number));
        prop_assert_eq!(&read.attributes["flag"], &serde_json::json!(flag));
        prop_assert_eq!(&read.attributes["texts"], &serde_json::json!(texts));
        prop_assert_eq!(read.events.len(), events.len());
        for (event, (message, at)) in read.events.iter().zip(&events) {
            prop_assert_eq!(&event.attributes["message"], &serde_json::json!(message));
            prop_assert_eq!(event.time_unix_nano, u64::try_from(*at).unwrap() * 1_000_000);
        }
        prop_assert_eq!(read.status_code, if is_error { 2 } else { 0 });
        prop_assert_eq!(&read.status_message, if is_error { &text } else { "" });
        prop_assert_eq!(&read.resource["service.name"], "kubevitals");
    }
}
