//! Requests, attempts and streams.

use std::sync::Arc;
use std::time::Duration;

use super::family::{Descriptor, Family, Labels};
use super::labels::{ByCode, ByEnd, ByHost, ByOutcome, ByResource, ByStream, Resource};
use super::metric::{Counter, Gauge, Histogram};
use super::{MetricFamily, Registry, buckets};
use crate::hooks::{
    AttemptEnd, AttemptReport, RateLimiterLatency, RequestEnd, RequestLatency, RequestReport,
    RequestResult, RequestRetry, RequestSize, ResponseSize, StreamKind, StreamReport, Streams,
};
use crate::{Call, Code, Endpoint};

type Resources<M> = Family<ByResource<Arc<Endpoint>>, M>;

/// client-go's families, and ours by Kubernetes verb and resource.
#[derive(Debug)]
pub(crate) struct Requests {
    latency: Family<ByHost<Arc<str>>, Histogram>,
    rate_limiter: Family<ByHost<Arc<str>>, Histogram>,
    request_size: Family<ByHost<Arc<str>>, Histogram>,
    response_size: Family<ByHost<Arc<str>>, Histogram>,
    results: Family<ByCode<Arc<str>>, Counter>,
    retries: Family<ByCode<Arc<str>>, Counter>,
    ended: Family<ByOutcome<Arc<Endpoint>>, Counter>,
    durations: Resources<Histogram>,
    streams: Family<ByStream<Arc<Endpoint>>, Counter>,
    streams_open: Family<ByStream<Arc<Endpoint>>, Gauge>,
    stream_events: Family<ByStream<Arc<Endpoint>>, Counter>,
    stream_bytes: Family<ByStream<Arc<Endpoint>>, Counter>,
    stream_durations: Family<ByEnd<Arc<Endpoint>>, Histogram>,
}

const BY_HOST: &[&str] = &["verb", "host"];
const BY_RESOURCE: &[&str] = &["verb", "group", "version", "resource", "subresource"];
const BY_STREAM: &[&str] = &["kind", "group", "version", "resource", "subresource"];

const BY_END: &[&str] = &["kind", "group", "version", "resource", "subresource", "end"];
const BY_OUTCOME: &[&str] = &[
    "verb",
    "group",
    "version",
    "resource",
    "subresource",
    "code",
    "outcome",
];

impl Requests {
    #[rustfmt::skip] // One family per line is easier to read.
    pub(crate) fn new() -> Self {
        Self {
            latency: family("rest_client_request_duration_seconds",
                "Request latency in seconds. Broken down by verb, and host", BY_HOST, buckets::latency),
            rate_limiter: family("rest_client_rate_limiter_duration_seconds",
                "Client side rate limiter latency in seconds. Broken down by verb, and host", BY_HOST, buckets::latency),
            request_size: family("rest_client_request_size_bytes",
                "Request size in bytes. Broken down by verb and host", BY_HOST, buckets::size),
            response_size: family("rest_client_response_size_bytes",
                "Response size in bytes. Broken down by verb and host", BY_HOST, buckets::size),
            results: family("rest_client_requests",
                "Number of HTTP requests, partitioned by status code, method, and host",
                &["code", "method", "host"], Counter::default),
            retries: family("rest_client_request_retries",
                "Number of request retries, partitioned by status code, verb, and host",
                &["code", "verb", "host"], Counter::default),
            ended: family("kube_client_requests",
                "Number of logical requests, partitioned by verb, resource, status code of the last attempt, and outcome", BY_OUTCOME, Counter::default),
            durations: family("kube_client_request_duration_seconds",
                "Duration of logical requests in seconds, from the call to the end of the body with all attempts",
                BY_RESOURCE, buckets::latency),
            streams: family("kube_client_streams",
                "Number of watches, followed logs and upgraded connections opened", BY_STREAM, Counter::default),
            streams_open: family("kube_client_streams_open",
                "Number of open watches and followed logs", BY_STREAM, Gauge::default),
            stream_events: family("kube_client_stream_events",
                "Number of events of watches and lines of followed logs received", BY_STREAM, Counter::default),
            stream_bytes: family("kube_client_stream_received_bytes",
                "Number of decompressed bytes of watches and followed logs received", BY_STREAM, Counter::default),
            stream_durations: family("kube_client_stream_duration_seconds",
                "Duration of watches and followed logs in seconds, by how they ended", BY_END, buckets::stream),
        }
    }

    pub(crate) fn gather(&self, families: &mut Vec<MetricFamily>) {
        self.latency.gather(families);
        self.rate_limiter.gather(families);
        self.request_size.gather(families);
        self.response_size.gather(families);
        self.results.gather(families);
        self.retries.gather(families);
        self.ended.gather(families);
        self.durations.gather(families);
        self.streams.gather(families);
        self.streams_open.gather(families);
        self.stream_events.gather(families);
        self.stream_bytes.gather(families);
        self.stream_durations.gather(families);
    }
}

impl RequestLatency for Registry {
    fn observe(&self, call: &Call, latency: Duration) {
        self.requests()
            .latency
            .with(&ByHost::of(call), |m| m.observe(latency.as_secs_f64()));
    }
}

impl RateLimiterLatency for Registry {
    fn observe(&self, call: &Call, waited: Duration) {
        self.requests()
            .rate_limiter
            .with(&ByHost::of(call), |m| m.observe(waited.as_secs_f64()));
    }
}

impl RequestSize for Registry {
    fn observe(&self, call: &Call, bytes: u64) {
        self.requests()
            .request_size
            .with(&ByHost::of(call), |m| m.observe(float(bytes)));
    }
}

impl ResponseSize for Registry {
    fn observe(&self, call: &Call, bytes: u64) {
        self.requests()
            .response_size
            .with(&ByHost::of(call), |m| m.observe(float(bytes)));
    }
}

impl RequestResult for Registry {
    fn increment(&self, call: &Call, code: Code) {
        self.requests().results.with(&ByCode::of(call, code), |m| {
            m.inc();
        });
    }
}

impl RequestRetry for Registry {
    fn increment(&self, call: &Call, code: Code) {
        self.requests().retries.with(&ByCode::of(call, code), |m| {
            m.inc();
        });
    }
}

/// All that there is of an attempt is counted by the hooks of client-go.
impl AttemptEnd for Registry {
    fn observe(&self, _: &Call, _: &AttemptReport) {}
}

impl RequestEnd for Registry {
    fn observe(&self, call: &Call, report: &RequestReport) {
        let labels = ByOutcome {
            verb: call.verb,
            resource: Resource::of(call),
            code: report.code,
            outcome: report.outcome,
        };
        self.requests().ended.with(&labels, |m| {
            m.inc();
        });
        let labels = ByResource {
            verb: call.verb,
            resource: Resource::of(call),
        };
        self.requests()
            .durations
            .with(&labels, |m| m.observe(report.duration.as_secs_f64()));
    }
}

impl Streams for Registry {
    fn opened(&self, call: &Call, kind: StreamKind) {
        let resource = Resource::of(call);
        let labels = ByStream { kind, resource };
        self.requests().streams.with(&labels, |m| {
            m.inc();
        });
        if kind != StreamKind::Upgrade {
            self.requests().streams_open.with(&labels, |m| {
                m.inc();
            });
        }
    }

    fn received(&self, call: &Call, kind: StreamKind, events: u64, bytes: u64) {
        let resource = Resource::of(call);
        let labels = ByStream { kind, resource };
        self.requests().stream_events.with(&labels, |m| {
            m.inc_by(events);
        });
        self.requests().stream_bytes.with(&labels, |m| {
            m.inc_by(bytes);
        });
    }

    fn ended(&self, call: &Call, report: &StreamReport) {
        let labels = ByStream {
            kind: report.kind,
            resource: Resource::of(call),
        };
        self.requests().streams_open.with(&labels, |m| {
            m.dec();
        });
        let labels = ByEnd {
            kind: report.kind,
            resource: Resource::of(call),
            end: report.end,
        };
        self.requests()
            .stream_durations
            .with(&labels, |m| m.observe(report.duration.as_secs_f64()));
    }
}

fn family<K: Labels, M>(
    name: &'static str,
    help: &'static str,
    labels: &'static [&'static str],
    make: fn() -> M,
) -> Family<K, M> {
    Family::new(Descriptor { name, help, labels }, make)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "sizes above 2^53 bytes may be rounded"
)]
fn float(bytes: u64) -> f64 {
    bytes as f64
}
