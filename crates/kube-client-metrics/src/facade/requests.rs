//! Requests, attempts and streams.

use std::sync::Arc;
use std::time::Duration;

use metrics::Label;

use super::{Facade, count, float, label, observe};
use crate::hooks::{
    AttemptEnd, AttemptReport, RateLimiterLatency, RequestEnd, RequestLatency, RequestReport,
    RequestResult, RequestRetry, RequestSize, ResponseSize, StreamKind, StreamReport, Streams,
};
use crate::{Call, Code};

fn by_host(call: &Call) -> Vec<Label> {
    vec![
        label("verb", call.method.as_str()),
        label("host", Arc::clone(&call.host)),
    ]
}

fn by_code(call: &Call, code: Code, method: &'static str) -> Vec<Label> {
    vec![
        label("code", code.as_str().to_owned()),
        label(method, call.method.as_str()),
        label("host", Arc::clone(&call.host)),
    ]
}

/// `first` is the verb of a request or the kind of a stream.
fn by_resource(call: &Call, first: Label) -> Vec<Label> {
    let endpoint = &call.endpoint;
    vec![
        first,
        label("group", Arc::clone(&endpoint.group)),
        label("version", Arc::clone(&endpoint.version)),
        label("resource", Arc::clone(&endpoint.resource)),
        label("subresource", Arc::clone(&endpoint.subresource)),
    ]
}

fn by_stream(call: &Call, kind: StreamKind) -> Vec<Label> {
    by_resource(call, label("kind", kind.as_str()))
}

impl RequestLatency for Facade {
    fn observe(&self, call: &Call, latency: Duration) {
        observe(
            "rest_client_request_duration_seconds",
            by_host(call),
            latency,
        );
    }
}

impl RateLimiterLatency for Facade {
    fn observe(&self, call: &Call, waited: Duration) {
        let name = "rest_client_rate_limiter_duration_seconds";
        observe(name, by_host(call), waited);
    }
}

impl RequestSize for Facade {
    fn observe(&self, call: &Call, bytes: u64) {
        metrics::histogram!("rest_client_request_size_bytes", by_host(call)).record(float(bytes));
    }
}

impl ResponseSize for Facade {
    fn observe(&self, call: &Call, bytes: u64) {
        metrics::histogram!("rest_client_response_size_bytes", by_host(call)).record(float(bytes));
    }
}

impl RequestResult for Facade {
    fn increment(&self, call: &Call, code: Code) {
        let labels = by_code(call, code, "method");
        count("rest_client_requests_total", labels, 1);
    }
}

impl RequestRetry for Facade {
    fn increment(&self, call: &Call, code: Code) {
        let labels = by_code(call, code, "verb");
        count("rest_client_request_retries_total", labels, 1);
    }
}

/// All that there is of an attempt is counted by the hooks of client-go.
impl AttemptEnd for Facade {
    fn observe(&self, _: &Call, _: &AttemptReport) {}
}

impl RequestEnd for Facade {
    fn observe(&self, call: &Call, report: &RequestReport) {
        let mut labels = by_resource(call, label("verb", call.verb.as_str()));
        let duration = "kube_client_request_duration_seconds";
        observe(duration, labels.clone(), report.duration);
        labels.push(label("code", report.code.as_str().to_owned()));
        labels.push(label("outcome", report.outcome.as_str()));
        count("kube_client_requests_total", labels, 1);
    }
}

impl Streams for Facade {
    fn opened(&self, call: &Call, kind: StreamKind) {
        let labels = by_stream(call, kind);
        if kind != StreamKind::Upgrade {
            metrics::gauge!("kube_client_streams_open", labels.clone()).increment(1.0);
        }
        count("kube_client_streams_total", labels, 1);
    }

    fn received(&self, call: &Call, kind: StreamKind, events: u64, bytes: u64) {
        let labels = by_stream(call, kind);
        count("kube_client_stream_events_total", labels.clone(), events);
        count("kube_client_stream_received_bytes_total", labels, bytes);
    }

    fn ended(&self, call: &Call, report: &StreamReport) {
        let mut labels = by_stream(call, report.kind);
        metrics::gauge!("kube_client_streams_open", labels.clone()).decrement(1.0);
        labels.push(label("end", report.end.as_str()));
        let name = "kube_client_stream_duration_seconds";
        observe(name, labels, report.duration);
    }
}
