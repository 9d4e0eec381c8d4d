//! Requests, attempts and streams.

use std::sync::Arc;
use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Histogram, Meter, UpDownCounter};

use super::{OpenTelemetry, counter, level, seconds, sizes};
use crate::hooks::{
    AttemptEnd, AttemptReport, RateLimiterLatency, RequestEnd, RequestLatency, RequestReport,
    RequestResult, RequestRetry, RequestSize, ResponseSize, StreamKind, StreamReport, Streams,
};
use crate::{Call, Code, bounds};

#[derive(Debug)]
pub(super) struct Requests {
    latency: Histogram<f64>,
    rate_limiter: Histogram<f64>,
    request_size: Histogram<u64>,
    response_size: Histogram<u64>,
    results: Counter<u64>,
    retries: Counter<u64>,
    ended: Counter<u64>,
    durations: Histogram<f64>,
    streams: Counter<u64>,
    streams_open: UpDownCounter<i64>,
    stream_events: Counter<u64>,
    stream_bytes: Counter<u64>,
    stream_durations: Histogram<f64>,
}

impl Requests {
    pub(super) fn new(meter: &Meter) -> Self {
        let by_latency = |name| seconds(meter, name, &bounds::LATENCY);
        let by_size = |name| sizes(meter, name, "By", &bounds::SIZE);
        let bytes = meter.u64_counter("kube_client_stream_received");
        Self {
            latency: by_latency("rest_client_request_duration"),
            rate_limiter: by_latency("rest_client_rate_limiter_duration"),
            request_size: by_size("rest_client_request_size"),
            response_size: by_size("rest_client_response_size"),
            results: counter(meter, "rest_client_requests"),
            retries: counter(meter, "rest_client_request_retries"),
            ended: counter(meter, "kube_client_requests"),
            durations: by_latency("kube_client_request_duration"),
            streams: counter(meter, "kube_client_streams"),
            streams_open: level(meter, "kube_client_streams_open"),
            stream_events: counter(meter, "kube_client_stream_events"),
            stream_bytes: bytes.with_unit("By").build(),
            stream_durations: seconds(meter, "kube_client_stream_duration", &bounds::STREAM),
        }
    }
}

impl OpenTelemetry {
    fn requests(&self) -> &Requests {
        &self.instruments.requests
    }
}

impl RequestLatency for OpenTelemetry {
    fn observe(&self, call: &Call, latency: Duration) {
        let instrument = &self.requests().latency;
        instrument.record(latency.as_secs_f64(), &by_host(call));
    }
}

impl RateLimiterLatency for OpenTelemetry {
    fn observe(&self, call: &Call, waited: Duration) {
        let instrument = &self.requests().rate_limiter;
        instrument.record(waited.as_secs_f64(), &by_host(call));
    }
}

impl RequestSize for OpenTelemetry {
    fn observe(&self, call: &Call, bytes: u64) {
        self.requests().request_size.record(bytes, &by_host(call));
    }
}

impl ResponseSize for OpenTelemetry {
    fn observe(&self, call: &Call, bytes: u64) {
        self.requests().response_size.record(bytes, &by_host(call));
    }
}

impl RequestResult for OpenTelemetry {
    fn increment(&self, call: &Call, code: Code) {
        let [_, host] = by_host(call);
        let method = KeyValue::new("method", call.method.as_str());
        self.requests()
            .results
            .add(1, &[of_code(code), method, host]);
    }
}

impl RequestRetry for OpenTelemetry {
    fn increment(&self, call: &Call, code: Code) {
        let [verb, host] = by_host(call);
        self.requests().retries.add(1, &[of_code(code), verb, host]);
    }
}

/// All that there is of an attempt is counted by the hooks of client-go.
impl AttemptEnd for OpenTelemetry {
    fn observe(&self, _: &Call, _: &AttemptReport) {}
}

impl RequestEnd for OpenTelemetry {
    fn observe(&self, call: &Call, report: &RequestReport) {
        let [group, version, resource, subresource] = by_resource(call);
        let verb = KeyValue::new("verb", call.verb.as_str());
        let outcome = KeyValue::new("outcome", report.outcome.as_str());
        let code = of_code(report.code);
        let all = [verb, group, version, resource, subresource, code, outcome];
        self.requests().ended.add(1, &all);
        let [timed @ .., _, _] = &all;
        let instrument = &self.requests().durations;
        instrument.record(report.duration.as_secs_f64(), timed);
    }
}

impl Streams for OpenTelemetry {
    fn opened(&self, call: &Call, kind: StreamKind) {
        let attributes = by_stream(call, kind);
        self.requests().streams.add(1, &attributes);
        if kind != StreamKind::Upgrade {
            self.requests().streams_open.add(1, &attributes);
        }
    }

    fn received(&self, call: &Call, kind: StreamKind, events: u64, bytes: u64) {
        let attributes = by_stream(call, kind);
        self.requests().stream_events.add(events, &attributes);
        self.requests().stream_bytes.add(bytes, &attributes);
    }

    fn ended(&self, call: &Call, report: &StreamReport) {
        let attributes = by_stream(call, report.kind);
        self.requests().streams_open.add(-1, &attributes);
        let [kind, group, version, resource, subresource] = attributes;
        let end = KeyValue::new("end", report.end.as_str());
        let attributes = [kind, group, version, resource, subresource, end];
        let instrument = &self.requests().stream_durations;
        instrument.record(report.duration.as_secs_f64(), &attributes);
    }
}

fn by_host(call: &Call) -> [KeyValue; 2] {
    [
        KeyValue::new("verb", call.method.as_str()),
        KeyValue::new("host", Arc::clone(&call.host)),
    ]
}

fn of_code(code: Code) -> KeyValue {
    KeyValue::new("code", code.as_str().to_owned())
}

fn by_resource(call: &Call) -> [KeyValue; 4] {
    let endpoint = &call.endpoint;
    [
        KeyValue::new("group", Arc::clone(&endpoint.group)),
        KeyValue::new("version", Arc::clone(&endpoint.version)),
        KeyValue::new("resource", Arc::clone(&endpoint.resource)),
        KeyValue::new("subresource", Arc::clone(&endpoint.subresource)),
    ]
}

fn by_stream(call: &Call, kind: StreamKind) -> [KeyValue; 5] {
    let [group, version, resource, subresource] = by_resource(call);
    let kind = KeyValue::new("kind", kind.as_str());
    [kind, group, version, resource, subresource]
}
