//! Metrics of the server. Requests have the names, labels and buckets of the kubelet's own. Label
//! values come from closed sets.

use kubevitals_apiserver::AccessMetrics;
use kubevitals_http::{QueueMetrics, ServerMetrics};
use kubevitals_telemetry::registry::Buckets;
use kubevitals_telemetry::{Metrics, RegistryExt as _};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use tokio::time::Instant;

use crate::streaming::StreamingMetrics;

/// The default buckets of Prometheus, which the kubelet uses.
const BUCKETS: [f64; 11] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The metrics of a kubelet server. Clones share them.
#[derive(Clone, Debug)]
pub struct KubeletMetrics {
    requests: Family<RequestLabels, Counter>,
    durations: Family<RequestLabels, Histogram, Buckets>,
    in_flight: Family<RequestLabels, Gauge>,
    responses: Family<ResponseLabels, Counter>,
    invalid_samples: Counter,
    pub(crate) panics: Counter,
    access: AccessMetrics,
    server: ServerMetrics,
    streaming: StreamingMetrics,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    method: &'static str,
    path: &'static str,
    server_type: &'static str,
    long_running: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ResponseLabels {
    path: &'static str,
    /// Bounded by the handler, which responds with a dozen codes.
    code: u16,
}

/// A request, from its head to the last byte of its response.
pub(crate) struct Recorder {
    metrics: KubeletMetrics,
    labels: RequestLabels,
    started: Instant,
}

impl KubeletMetrics {
    /// Registers `kubelet_http_*`, named as in the kubelet, and `kubevitals_kubelet_*`.
    pub fn register(metrics: &mut Metrics) -> Self {
        let streaming = StreamingMetrics::register(metrics);
        let kubelet = metrics.sub("kubelet");
        let requests = kubelet.family(
            "http_requests",
            "Number of the http requests received since the server started",
        );
        let durations = kubelet.histogram_family(
            "http_requests_duration_seconds",
            "Duration in seconds to serve http requests",
            &BUCKETS,
        );
        let in_flight = kubelet.family(
            "http_inflight_requests",
            "Number of the inflight http requests",
        );
        let own = metrics.sub("kubevitals_kubelet");
        let handshakes: Family<[(&str, &str); 1], Counter> = own.family(
            "tls_handshake_failures",
            "Total number of failed TLS handshakes by reason",
        );
        let depths: Family<[(&str, &str); 1], Gauge> = own.family(
            "queue_depth",
            "Number of connections that wait in a fair queue",
        );
        let queued: Family<[(&str, &str); 1], Counter> = own.family(
            "queued",
            "Total number of times that a connection waited in a fair queue",
        );
        // Closures, because a series is locked until the end of its statement.
        let handshakes = |reason| handshakes.get_or_create(&[("reason", reason)]).clone();
        let queue = |name| QueueMetrics {
            depth: depths.get_or_create(&[("queue", name)]).clone(),
            queued: queued.get_or_create(&[("queue", name)]).clone(),
        };
        Self {
            requests,
            durations,
            in_flight,
            responses: own.family(
                "http_responses",
                "Total number of responses by path and status code",
            ),
            invalid_samples: own.counter(
                "invalid_samples",
                "Total number of metric families and samples of the provider that were left out because of their names",
            ),
            panics: own.counter("panics", "Total number of requests that panicked"),
            access: AccessMetrics::register(own),
            streaming,
            server: ServerMetrics {
                connections: own.gauge("connections", "Number of open connections"),
                evictions: own.counter(
                    "evicted_connections",
                    "Total number of connections without a request in flight, or without a completed one, that were closed to admit others",
                ),
                aborted_responses: own.counter(
                    "aborted_responses",
                    "Total number of responses aborted because their client did not read them in time",
                ),
                handshake_errors: handshakes("failed"),
                handshake_timeouts: handshakes("timeout"),
                handshake_queue: queue("handshake"),
                response_queue: queue("response"),
            },
        }
    }

    pub(crate) const fn access(&self) -> &AccessMetrics {
        &self.access
    }

    pub(crate) fn streaming(&self) -> StreamingMetrics {
        self.streaming.clone()
    }

    pub(crate) fn server(&self) -> ServerMetrics {
        self.server.clone()
    }

    /// Counts a request that begins. Sessions are long running; the kubelet's own label misses
    /// `portForward` because of its capital letter.
    pub(crate) fn begin(&self, method: &'static str, path: &'static str) -> Recorder {
        let is_session = matches!(path, "exec" | "attach" | "portForward");
        let labels = RequestLabels {
            method,
            path,
            server_type: "readwrite",
            long_running: if is_session { "true" } else { "false" },
        };
        self.requests.get_or_create(&labels).inc();
        self.in_flight.get_or_create(&labels).inc();
        Recorder {
            metrics: self.clone(),
            labels,
            started: Instant::now(),
        }
    }

    pub(crate) fn responded(&self, path: &'static str, code: u16) {
        self.responses
            .get_or_create(&ResponseLabels { path, code })
            .inc();
    }

    pub(crate) fn invalid_samples(&self, count: usize) {
        self.invalid_samples
            .inc_by(u64::try_from(count).unwrap_or(u64::MAX));
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        let metrics = &self.metrics;
        metrics.in_flight.get_or_create(&self.labels).dec();
        metrics
            .durations
            .get_or_create(&self.labels)
            .observe(self.started.elapsed().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_agreed() {
        let mut registry = Metrics::new();
        let metrics = KubeletMetrics::register(&mut registry);
        metrics.responded("pods", 200);
        drop(metrics.begin("GET", "pods"));
        let names = registry.freeze().families().unwrap();
        let own: Vec<String> = names
            .into_iter()
            .filter(|name| !name.contains("_streaming_"))
            .collect();
        insta::assert_snapshot!(own.join("\n"), @r"
        gauge kubelet_http_inflight_requests
        histogram kubelet_http_requests_duration_seconds
        counter kubelet_http_requests_total
        counter kubevitals_kubelet_aborted_responses_total
        gauge kubevitals_kubelet_connections
        counter kubevitals_kubelet_evicted_connections_total
        counter kubevitals_kubelet_http_responses_total
        counter kubevitals_kubelet_invalid_samples_total
        counter kubevitals_kubelet_panics_total
        gauge kubevitals_kubelet_queue_depth
        counter kubevitals_kubelet_queued_total
        counter kubevitals_kubelet_tls_handshake_failures_total
        ");
    }
}
