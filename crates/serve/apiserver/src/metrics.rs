//! What the server counts. Label values come from closed sets: what is served, and what HTTP and
//! this crate define.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_telemetry::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

/// Kubernetes' own, so that its dashboards fit.
const REQUEST_BUCKETS: [f64; 22] = [
    0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0,
    10.0, 15.0, 20.0, 30.0, 45.0,
];
/// A minute is what a request may take.
const LAST_BUCKET: f64 = 60.0;
const REVIEW_BUCKETS: [f64; 10] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 10.0];

/// The metrics of an API server. Clones share them.
#[derive(Clone, Debug)]
pub struct ApiServerMetrics {
    durations: Family<RequestLabels, Histogram, Buckets>,
    requests: Family<CodeLabels, Counter>,
    in_flight: Family<InFlightLabels, Gauge>,
    dropped: Counter,
    authentications: Family<AuthenticationLabels, Counter>,
    lookups: Family<LookupLabels, Counter>,
    pub(crate) connections: Gauge,
    pub(crate) panics: Counter,
    handshakes: Family<HandshakeLabels, Counter>,
    waiting: Family<WorkLabels, Gauge>,
    waited: Family<WorkLabels, Counter>,
    token_reviews: ReviewMetrics,
    access_reviews: ReviewMetrics,
}

/// What is counted of work that waits for its turn.
#[derive(Clone, Debug)]
pub(crate) struct WaitMetrics {
    pub(crate) waiting: Gauge,
    pub(crate) waited: Counter,
}

/// What is counted of one kind of question.
#[derive(Clone, Debug)]
pub(crate) struct ReviewMetrics {
    kind: &'static str,
    outcomes: Family<CacheLabels, Counter>,
    durations: Family<ReviewLabels, Histogram, Buckets>,
}

/// What a cache of answers said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CacheOutcome {
    Hit,
    Joined,
    Miss,
}

/// What a request was for, in words that Kubernetes uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct RequestKind {
    pub(crate) verb: &'static str,
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) resource: &'static str,
    pub(crate) subresource: &'static str,
    pub(crate) scope: &'static str,
}

/// How somebody was recognised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Method {
    FrontProxy,
    Certificate,
    Token,
    Anonymous,
    Refused,
    Unavailable,
}

#[derive(Clone, Copy, Debug)]
struct Buckets(&'static [f64], Option<f64>);

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
    verb: &'static str,
    dry_run: &'static str,
    group: &'static str,
    version: &'static str,
    resource: &'static str,
    subresource: &'static str,
    scope: &'static str,
    component: &'static str,
    /// Bounded by the handler, which answers with a dozen codes.
    code: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InFlightLabels {
    request_kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AuthenticationLabels {
    method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LookupLabels {
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct HandshakeLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkLabels {
    work: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CacheLabels {
    review: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReviewLabels {
    review: &'static str,
    result: &'static str,
}

impl ApiServerMetrics {
    /// Registers `apiserver_*`, named as in Kubernetes, and `kubevitals_apiserver_*`.
    pub fn register(metrics: &mut Metrics) -> Self {
        let own = Self::unregistered();
        let root = metrics.sub("apiserver");
        root.register(
            "request_duration_seconds",
            "Response latency distribution in seconds for each verb, group, version, resource, subresource and scope",
            own.durations.clone(),
        );
        root.register(
            "request",
            "Requests by verb, group, version, resource, scope and HTTP code",
            own.requests.clone(),
        );
        root.register(
            "current_inflight_requests",
            "Requests that are being served, by kind",
            own.in_flight.clone(),
        );
        let sub = metrics.sub("kubevitals_apiserver");
        sub.register(
            "dropped_requests",
            "Requests refused because too many were being served",
            own.dropped.clone(),
        );
        sub.register(
            "authentications",
            "Requests by how their sender was recognised",
            own.authentications.clone(),
        );
        sub.register(
            "authentication_lookups",
            "Reads of the ConfigMap that says whom to trust, by result",
            own.lookups.clone(),
        );
        sub.register("connections", "Open connections", own.connections.clone());
        sub.register("panics", "Requests ended by a bug", own.panics.clone());
        sub.register(
            "tls_handshake_failures",
            "TLS handshakes that failed, by reason",
            own.handshakes.clone(),
        );
        sub.register(
            "turns_waiting",
            "Work of connections that waits for its turn, by what it is",
            own.waiting.clone(),
        );
        sub.register(
            "turns_waited",
            "How often work of connections had to wait for its turn, by what it is",
            own.waited.clone(),
        );
        sub.register(
            "reviews",
            "Questions for tokens and access, by where the answer came from",
            own.token_reviews.outcomes.clone(),
        );
        sub.register(
            "review_duration_seconds",
            "How long the cluster's API server took to answer a review",
            own.token_reviews.durations.clone(),
        );
        own
    }

    pub(crate) fn unregistered() -> Self {
        let token_reviews = ReviewMetrics::unregistered();
        let access_reviews = ReviewMetrics {
            kind: "access",
            ..token_reviews.clone()
        };
        Self {
            durations: Family::new_with_constructor(Buckets(&REQUEST_BUCKETS, Some(LAST_BUCKET))),
            requests: Family::default(),
            in_flight: Family::default(),
            dropped: Counter::default(),
            authentications: Family::default(),
            lookups: Family::default(),
            connections: Gauge::default(),
            panics: Counter::default(),
            handshakes: Family::default(),
            waiting: Family::default(),
            waited: Family::default(),
            token_reviews,
            access_reviews,
        }
    }

    pub(crate) fn token_reviews(&self) -> ReviewMetrics {
        self.token_reviews.clone()
    }

    pub(crate) fn access_reviews(&self) -> ReviewMetrics {
        self.access_reviews.clone()
    }

    /// Counts a request that was answered with `code`; watches have no duration worth a bucket.
    pub(crate) fn request(&self, kind: &RequestKind, code: u16, took: Duration) {
        let labels = CodeLabels {
            verb: kind.verb,
            dry_run: "",
            group: kind.group,
            version: kind.version,
            resource: kind.resource,
            subresource: kind.subresource,
            scope: kind.scope,
            component: "apiserver",
            code,
        };
        self.requests.get_or_create(&labels).inc();
        if kind.verb != "WATCH" {
            let labels = RequestLabels {
                verb: kind.verb,
                dry_run: "",
                group: kind.group,
                version: kind.version,
                resource: kind.resource,
                subresource: kind.subresource,
                scope: kind.scope,
                component: "apiserver",
            };
            self.durations
                .get_or_create(&labels)
                .observe(took.as_secs_f64());
        }
    }

    pub(crate) fn in_flight(&self, watch: bool) -> Gauge {
        let request_kind = if watch { "watch" } else { "readOnly" };
        self.in_flight
            .get_or_create(&InFlightLabels { request_kind })
            .clone()
    }

    pub(crate) fn dropped(&self) {
        self.dropped.inc();
    }

    pub(crate) fn authenticated(&self, method: Method) {
        let method = method.name();
        self.authentications
            .get_or_create(&AuthenticationLabels { method })
            .inc();
    }

    pub(crate) fn looked_up(&self, ok: bool) {
        let result = if ok { "success" } else { "failure" };
        self.lookups.get_or_create(&LookupLabels { result }).inc();
    }

    /// Of `handshake` or `answer`.
    pub(crate) fn turns(&self, work: &'static str) -> WaitMetrics {
        let labels = WorkLabels { work };
        WaitMetrics {
            waiting: self.waiting.get_or_create(&labels).clone(),
            waited: self.waited.get_or_create(&labels).clone(),
        }
    }

    pub(crate) fn handshake_failed(&self, reason: &'static str) {
        self.handshakes
            .get_or_create(&HandshakeLabels { reason })
            .inc();
    }
}

impl WaitMetrics {
    #[cfg(test)]
    pub(crate) fn unregistered(work: &'static str) -> Self {
        ApiServerMetrics::unregistered().turns(work)
    }

    /// Somebody must wait.
    pub(crate) fn joined(&self) {
        self.waiting.inc();
        self.waited.inc();
    }
}

impl ReviewMetrics {
    pub(crate) fn unregistered() -> Self {
        Self {
            kind: "token",
            outcomes: Family::default(),
            durations: Family::new_with_constructor(Buckets(&REVIEW_BUCKETS, None)),
        }
    }

    pub(crate) const fn kind(&self) -> &'static str {
        self.kind
    }

    pub(crate) fn count(&self, outcome: CacheOutcome) {
        let labels = CacheLabels {
            review: self.kind,
            result: match outcome {
                CacheOutcome::Hit => "hit",
                CacheOutcome::Joined => "joined",
                CacheOutcome::Miss => "miss",
            },
        };
        self.outcomes.get_or_create(&labels).inc();
    }

    pub(crate) fn observe(&self, took: Duration, ok: bool) {
        let labels = ReviewLabels {
            review: self.kind,
            result: if ok { "success" } else { "failure" },
        };
        self.durations
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }
}

impl Method {
    const fn name(self) -> &'static str {
        match self {
            Self::FrontProxy => "front_proxy",
            Self::Certificate => "certificate",
            Self::Token => "token",
            Self::Anonymous => "anonymous",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
        }
    }
}

impl MetricConstructor<Histogram> for Buckets {
    fn new_metric(&self) -> Histogram {
        Histogram::new(self.0.iter().copied().chain(self.1))
    }
}

/// Recorded once, when a request is over: with its answer, or without.
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
            // What is never answered was left by the client.
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
        metrics.dropped();
        metrics.authenticated(Method::Token);
        metrics.looked_up(true);
        metrics.handshake_failed("timeout");
        metrics.turns("handshake").joined();
        metrics.access_reviews().count(CacheOutcome::Hit);
        metrics
            .token_reviews()
            .observe(Duration::from_millis(1), true);
        insta::assert_snapshot!(registry.freeze().families().unwrap().join("\n"), @r"
        gauge apiserver_current_inflight_requests
        histogram apiserver_request_duration_seconds
        counter apiserver_request_total
        counter kubevitals_apiserver_authentication_lookups_total
        counter kubevitals_apiserver_authentications_total
        gauge kubevitals_apiserver_connections
        counter kubevitals_apiserver_dropped_requests_total
        counter kubevitals_apiserver_panics_total
        histogram kubevitals_apiserver_review_duration_seconds
        counter kubevitals_apiserver_reviews_total
        counter kubevitals_apiserver_tls_handshake_failures_total
        counter kubevitals_apiserver_turns_waited_total
        gauge kubevitals_apiserver_turns_waiting
        ");
    }
}
