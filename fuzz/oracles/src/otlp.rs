//! Traces of recorded pods, and the responses of a receiver.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use http::{HeaderMap, HeaderValue, StatusCode};
use kubevitals_otlp::{
    Headers, Resource, Settings, SettingsSource, Signal, encode_spans, grpc_failure,
    parse_retry_after, pod_trace, rejected_by, request,
};
use kubevitals_recording::{RecordedObject, Recording};
use kubevitals_sim::otlp::decode_request;
use kubevitals_sink::ExportError;
use kubevitals_transitions::{Arrival, Existing, Output, PodRecord, Tracker, TrackerConfig};
use kubevitals_watch::{Decoder, EventType};

/// Tokens of responses, headers and settings.
pub(crate) const RESPONSE_TOKENS: &[&[u8]] = &[
    b"\x0a\x0b\x08\x03\x12\x07too old",
    b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"Fri, 31 Dec 9999 23:59:59 GMT",
    b"99999999999999999999",
    b"14",
    b"8",
    b"a=b,",
    b"%20",
    b"%ff",
    b": ",
    b"\n",
    b"http://",
    b"https://[::1]:4318",
    b"@",
    b":0",
];

/// Tokens of recordings, as far as they matter to a trace.
pub(crate) const TRACE_TOKENS: &[&[u8]] = &[
    b"}\n{",
    b"{\"type\":\"ADDED\",\"object\":{\"kind\":\"Pod\",",
    b"{\"type\":\"DELETED\",\"object\":{\"kind\":\"Pod\",",
    b"\"creationTimestamp\":\"2026-11-15T20:12:10Z\"",
    b"\"deletionTimestamp\":\"2026-11-15T20:13:56Z\",\"deletionGracePeriodSeconds\":30",
    b"\"startedAt\":\"2026-11-15T20:12:14Z\"",
    b"\"finishedAt\":\"2026-11-15T20:12:13Z\",\"exitCode\":3",
    b"\"reason\":\"Pulling\"",
    b"\"reason\":\"Unhealthy\",\"message\":\"Readiness probe failed: x\"",
    b"1969-12-31T23:59:59Z",
    b"1970-01-01T00:00:00Z",
    b"9999-12-31T23:59:59Z",
    b"\"name\":\"\"",
    b"\\u0000",
];

/// No response, header or URL makes the client panic, and what it says is bounded.
///
/// # Panics
///
/// If the property is violated.
pub fn otlp_response(bytes: &[u8]) {
    const RECORDS: u64 = 5;
    let text = String::from_utf8_lossy(bytes);
    let mut trailers = HeaderMap::new();
    if let Ok(value) = HeaderValue::from_bytes(bytes) {
        for name in ["grpc-status", "grpc-message", "grpc-status-details-bin"] {
            trailers.insert(name, value.clone());
        }
    }
    let judged = [
        rejected_by(bytes, RECORDS),
        grpc_failure(StatusCode::OK, &trailers, RECORDS),
    ];
    for error in judged.into_iter().flatten() {
        assert!(error.to_string().chars().count() < 400);
        match error {
            ExportError::Retryable { after, .. } => assert!(after <= Some(Duration::from_mins(2))),
            ExportError::Rejected { records, .. } | ExportError::Closed { records, .. } => {
                assert!((1..=RECORDS).contains(&records));
            }
            // OTLP does not say which records failed.
            ExportError::Partial { retry, .. } => assert_eq!(retry, [0_usize; 0]),
        }
    }
    let delay = parse_retry_after(&text, SystemTime::UNIX_EPOCH);
    assert!(delay <= Some(Duration::from_mins(2)));
    let _ = (Headers::parse(&text), Headers::parse_lines(&text));
    for variable in ["ENDPOINT", "TRACES_ENDPOINT"] {
        let variable = format!("OTEL_EXPORTER_OTLP_{variable}");
        let get = |name: &str| (name == variable).then(|| text.to_string());
        let settings = Settings::read(Signal::TRACES, &SettingsSource::default(), get);
        if let Ok(Some(settings)) = settings {
            assert!(!settings.host().is_empty() && settings.port() > 0);
            let scheme = settings.url.scheme_str();
            assert!(matches!(scheme, Some("http" | "https")));
        }
    }
}

/// Every trace is one tree within the time of its root, and a receiver reads what was sent.
///
/// # Panics
///
/// If the property is violated.
pub fn otlp_trace(bytes: &[u8]) {
    let mut tracker = Tracker::new(TrackerConfig {
        linger: None,
        existing: Existing::All,
        ..TrackerConfig::default()
    });
    let mut out = |output: Output| {
        let (Output::Startup(record)
        | Output::Lifecycle(record)
        | Output::Progress(record)
        | Output::ImagePull(record, _)) = output;
        check(&record);
    };
    for item in Recording::new(bytes, Decoder::default(), 1 << 20) {
        match item.object {
            Ok(RecordedObject::Pod(seen)) if seen.event == EventType::Deleted => {
                tracker.deleted(&Arc::new(seen.object), Arrival::Live, None, &mut out);
            }
            Ok(RecordedObject::Pod(seen)) => {
                let pod = Arc::new(seen.object);
                tracker.pod(&pod, Arrival::Live, seen.written, &mut out);
            }
            Ok(RecordedObject::Event(seen)) => tracker.event(&seen.object, &mut out),
            Ok(_) | Err(_) => {}
        }
    }
    tracker.finish(&mut out);
}

fn check(record: &PodRecord) {
    let spans = pod_trace(record);
    assert_eq!(spans, pod_trace(record), "the same record, the same trace");
    let Some(root) = spans.first() else {
        return;
    };
    assert!(root.parent.is_none() && root.start <= root.end);
    let mut known = HashSet::new();
    for span in &spans {
        assert_eq!(span.trace, root.trace);
        assert!(known.insert(span.id), "two spans have one ID");
        // A parent precedes its children.
        assert!(span.parent.is_none_or(|parent| known.contains(&parent)));
        assert!(root.start <= span.start && span.start <= span.end && span.end <= root.end);
        let events = &span.events;
        assert!(
            events
                .iter()
                .all(|event| (root.start..=root.end).contains(&event.time))
        );
    }
    let mut encoded = Vec::new();
    encode_spans(&mut encoded, &spans);
    let resource = Resource::new("fuzz", |_| None);
    let message = request(&resource, std::iter::once(encoded.as_slice()));
    let received = decode_request(&message).expect("a receiver can read it");
    assert_eq!(received.len(), spans.len());
    for (got, sent) in received.iter().zip(&spans) {
        assert_eq!(
            (&*got.name, &got.span_id),
            (sent.name, &sent.id.to_string())
        );
        assert!(got.start_unix_nano > 0 && got.start_unix_nano <= got.end_unix_nano);
        assert_eq!(got.attributes.len(), sent.attributes.len());
        assert_eq!(got.events.len(), sent.events.len());
    }
}
