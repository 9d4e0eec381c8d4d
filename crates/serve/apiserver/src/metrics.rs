//! Metrics of the API server. Label values come from closed sets: the resources that are served,
//! and constants of HTTP and of this crate.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use kubevitals_http::{QueueMetrics, ServerMetrics};
use kubevitals_telemetry::registry::{Buckets, Registry};
use kubevitals_telemetry::{Metrics, RegistryExt as _};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// The buckets of Kubernetes, so that its dashboards fit, up to the timeout of a request.
const REQUEST_BUCKETS: [f64; 23] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0, 60.0,
];
const REVIEW_BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 10.0];

/// A family with a single label.
type Labeled<M> = Family<[(&'static str, &'static str); 1], M>;

/// The metrics of an API server. Clones share them.
#[derive(Clone, Debug)]
pub struct ApiServerMetrics {
    durations: Family<RequestLabels, Histogram, Buckets>,
    requests: Family<CodeLabels, Counter>,
    in_flight: Labeled<Gauge>,
    pub(crate) dropped: Counter,
    access: AccessMetrics,
    connections: Gauge,
    evictions: Counter,
    aborted_responses: Counter,
    pub(crate) panics: Counter,
    handshake_failures: Labeled<Counter>,
    queue_depth: Labeled<Gauge>,
    queued: Labeled<Counter>,
    /// By APIService; their names are part of the configuration.
    ca_bundles: Family<[(&'static str, String); 1], Gauge>,
}

/// The metrics of authentication and authorization. Clones share them.
#[derive(Clone, Debug)]
pub struct AccessMetrics {
    authentications: Labeled<Counter>,
    lookups: Labeled<Counter>,
    /// A family, so that there is no value before the first success.
    last_lookup: Family<[(&'static str, &'static str); 0], Gauge<f64, AtomicU64>>,
    token_reviews: ReviewMetrics,
    access_reviews: ReviewMetrics,
}

/// Metrics of one kind of review.
#[derive(Clone, Debug)]
pub(crate) struct ReviewMetrics {
    kind: &'static str,
    outcomes: Family<ReviewLabels, Counter>,
    durations: Family<ReviewLabels, Histogram, Buckets>,
}

/// The outcome of a lookup in a cache of reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CacheOutcome {
    Hit,
    Joined,
    Miss,
    /// Not sent, because of the limits.
    Limited,
}

/// The labels of a request, as in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RequestKind {
    pub(crate) verb: &'static str,
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) subresource: &'static str,
    pub(crate) scope: &'static str,
}

/// The outcome of an authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Method {
    FrontProxy,
    Certificate,
    Token,
    Anonymous,
    /// The path is open to all, and the user is not known without a review.
    Skipped,
    Rejected,
    Unavailable,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RequestLabels {
    verb: &'static str,
    dry_run: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: &'static str,
    scope: &'static str,
    component: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CodeLabels {
    #[prometheus(flatten)]
    request: RequestLabels,
    /// Bounded by the handler, which responds with a dozen codes.
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReviewLabels {
    review: &'static str,
    result: &'static str,
}

impl ApiServerMetrics {
    /// Registers `apiserver_*`, named as in Kubernetes, and `kubevitals_apiserver_*`.
    pub fn register(metrics: &mut Metrics) -> Self {
        let root = metrics.sub("apiserver");
        let durations = root.histogram_family(
            "request_duration_seconds",
            "Response latency distribution in seconds for each verb, group, version, resource, subresource and scope",
            &REQUEST_BUCKETS,
        );
        let requests = root.family(
            "request",
            "Total number of requests by verb, group, version, resource, scope and HTTP code",
        );
        let in_flight = root.family(
            "current_inflight_requests",
            "Number of requests in flight by kind",
        );
        let own = metrics.sub("kubevitals_apiserver");
        Self {
            access: AccessMetrics::register(own),
            durations,
            requests,
            in_flight,
            dropped: own.counter(
                "dropped_requests",
                "Total number of requests rejected because of too many requests in flight",
            ),
            connections: own.gauge("connections", "Number of open connections"),
            evictions: own.counter(
                "evicted_connections",
                "Total number of connections without a request in flight, or without a completed one, that were closed to admit others",
            ),
            aborted_responses: own.counter(
                "aborted_responses",
                "Total number of responses aborted because their client did not read them in time",
            ),
            panics: own.counter("panics", "Total number of requests that panicked"),
            handshake_failures: own.family(
                "tls_handshake_failures",
                "Total number of failed TLS handshakes by reason",
            ),
            queue_depth: own.family(
                "queue_depth",
                "Number of connections that wait in a fair queue",
            ),
            queued: own.family(
                "queued",
                "Total number of times that a connection waited in a fair queue",
            ),
            ca_bundles: own.family(
                "ca_bundle_in_sync",
                "Whether the caBundle of an APIService has the authority of this server",
            ),
        }
    }

    /// The metrics of authentication and authorization.
    pub(crate) const fn access(&self) -> &AccessMetrics {
        &self.access
    }

    /// Counts a request by its response code. Watches have no meaningful duration.
    pub(crate) fn request(&self, kind: &RequestKind, code: u16, duration: Duration) {
        let request = RequestLabels {
            verb: kind.verb,
            dry_run: "",
            group: kind.group,
            version: kind.version,
            resource: kind.resource,
            subresource: kind.subresource,
            scope: kind.scope,
            component: "apiserver",
        };
        if kind.verb != "WATCH" {
            self.durations
                .get_or_create(&request)
                .observe(duration.as_secs_f64());
        }
        self.requests
            .get_or_create(&CodeLabels { request, code })
            .inc();
    }

    pub(crate) fn in_flight(&self, watch: bool) -> Gauge {
        let kind = if watch { "watch" } else { "readOnly" };
        self.in_flight
            .get_or_create(&[("request_kind", kind)])
            .clone()
    }

    /// Sets whether a bundle has our authority; `None` removes it.
    pub(crate) fn ca_bundle(&self, api_service: &str, in_sync: Option<bool>) {
        let labels = [("api_service", api_service.to_owned())];
        match in_sync {
            Some(in_sync) => {
                self.ca_bundles
                    .get_or_create(&labels)
                    .set(i64::from(in_sync));
            }
            None => {
                self.ca_bundles.remove(&labels);
            }
        }
    }

    /// The metrics of the server below the handler.
    pub(crate) fn server(&self) -> ServerMetrics {
        let handshakes = |reason| {
            let labels = [("reason", reason)];
            self.handshake_failures.get_or_create(&labels).clone()
        };
        ServerMetrics {
            connections: self.connections.clone(),
            evictions: self.evictions.clone(),
            aborted_responses: self.aborted_responses.clone(),
            handshake_errors: handshakes("failed"),
            handshake_timeouts: handshakes("timeout"),
            handshake_queue: self.queue("handshake"),
            response_queue: self.queue("response"),
        }
    }

    fn queue(&self, queue: &'static str) -> QueueMetrics {
        let labels = [("queue", queue)];
        QueueMetrics {
            depth: self.queue_depth.get_or_create(&labels).clone(),
            queued: self.queued.get_or_create(&labels).clone(),
        }
    }
}

impl AccessMetrics {
    /// Registers the metrics; `registry` has the prefix of the server.
    pub fn register(registry: &mut Registry) -> Self {
        let token_reviews = ReviewMetrics {
            kind: "token",
            outcomes: registry.family(
                "reviews",
                "Total number of token and access reviews by cache result",
            ),
            durations: registry.histogram_family(
                "review_duration_seconds",
                "Duration of reviews by the cluster's API server in seconds",
                &REVIEW_BUCKETS,
            ),
        };
        Self {
            authentications: registry.family(
                "authentications",
                "Total number of requests by authentication method",
            ),
            lookups: registry.family(
                "authentication_lookups",
                "Total number of reads of the ConfigMap extension-apiserver-authentication by result",
            ),
            last_lookup: registry.family(
                "authentication_lookup_last_success_timestamp_seconds",
                "Time of the last successful read of the ConfigMap extension-apiserver-authentication, in Unix seconds",
            ),
            access_reviews: ReviewMetrics {
                kind: "access",
                ..token_reviews.clone()
            },
            token_reviews,
        }
    }

    #[cfg(test)]
    pub(crate) fn unregistered() -> Self {
        Self::register(Metrics::new().root())
    }

    pub(crate) fn token_reviews(&self) -> ReviewMetrics {
        self.token_reviews.clone()
    }

    pub(crate) fn access_reviews(&self) -> ReviewMetrics {
        self.access_reviews.clone()
    }

    pub(crate) fn authenticated(&self, method: Method) {
        self.authentications
            .get_or_create(&[("method", method.name())])
            .inc();
    }

    /// Counts a lookup of the authentication configuration; with the time if it succeeded.
    pub(crate) fn looked_up(&self, succeeded: Option<Duration>) {
        self.lookups
            .get_or_create(&[("result", result(succeeded.is_some()))])
            .inc();
        if let Some(now) = succeeded {
            self.last_lookup.get_or_create(&[]).set(now.as_secs_f64());
        }
    }
}

impl ReviewMetrics {
    pub(crate) const fn kind(&self) -> &'static str {
        self.kind
    }

    pub(crate) fn count(&self, outcome: CacheOutcome) {
        let labels = ReviewLabels {
            review: self.kind,
            result: match outcome {
                CacheOutcome::Hit => "hit",
                CacheOutcome::Joined => "joined",
                CacheOutcome::Miss => "miss",
                CacheOutcome::Limited => "limited",
            },
        };
        self.outcomes.get_or_create(&labels).inc();
    }

    pub(crate) fn observe(&self, duration: Duration, ok: bool) {
        let labels = ReviewLabels {
            review: self.kind,
            result: result(ok),
        };
        self.durations
            .get_or_create(&labels)
            .observe(duration.as_secs_f64());
    }
}

impl Method {
    const fn name(self) -> &'static str {
        match self {
            Self::FrontProxy => "front_proxy",
            Self::Certificate => "certificate",
            Self::Token => "token",
            Self::Anonymous => "anonymous",
            Self::Skipped => "skipped",
            Self::Rejected => "rejected",
            Self::Unavailable => "unavailable",
        }
    }
}

const fn result(ok: bool) -> &'static str {
    if ok { "success" } else { "failure" }
}

/// Records a request when it is dropped, at the end of its response.
pub(crate) struct Recorder {
    metrics: Arc<ApiServerMetrics>,
    pub(crate) kind: RequestKind,
    pub(crate) code: u16,
    started: tokio::time::Instant,
}

impl Recorder {
    pub(crate) fn new(metrics: Arc<ApiServerMetrics>, kind: RequestKind) -> Self {
        Self {
            metrics,
            kind,
            // A request without a response was canceled by its client.
            code: 499,
            started: tokio::time::Instant::now(),
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.metrics
            .request(&self.kind, self.code, self.started.elapsed());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_agreed() {
        let mut registry = Metrics::new();
        let metrics = ApiServerMetrics::register(&mut registry);
        let kind = RequestKind {
            verb: "LIST",
            group: "g",
            version: "v1",
            resource: "pods",
            subresource: "",
            scope: "cluster",
        };
        metrics.request(&kind, 200, Duration::from_millis(3));
        metrics.in_flight(false).inc();
        metrics.dropped.inc();
        let access = metrics.access();
        access.authenticated(Method::Token);
        access.looked_up(Some(Duration::from_secs(1)));
        metrics.server();
        metrics.ca_bundle("v1.example.dev", Some(true));
        access.access_reviews().count(CacheOutcome::Hit);
        access
            .token_reviews()
            .observe(Duration::from_millis(1), true);
        insta::assert_snapshot!(registry.freeze().families().unwrap().join("\n"), @r"
        gauge apiserver_current_inflight_requests
        histogram apiserver_request_duration_seconds
        counter apiserver_request_total
        counter kubevitals_apiserver_aborted_responses_total
        gauge kubevitals_apiserver_authentication_lookup_last_success_timestamp_seconds
        counter kubevitals_apiserver_authentication_lookups_total
        counter kubevitals_apiserver_authentications_total
        gauge kubevitals_apiserver_ca_bundle_in_sync
        gauge kubevitals_apiserver_connections
        counter kubevitals_apiserver_dropped_requests_total
        counter kubevitals_apiserver_evicted_connections_total
        counter kubevitals_apiserver_panics_total
        gauge kubevitals_apiserver_queue_depth
        counter kubevitals_apiserver_queued_total
        histogram kubevitals_apiserver_review_duration_seconds
        counter kubevitals_apiserver_reviews_total
        counter kubevitals_apiserver_tls_handshake_failures_total
        ");
    }
}
