//! Routes of the admin server.

use std::net::IpAddr;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Body;

use super::{
    Admin, Limits, Profiling, query,
    response::{Answer, method_not_allowed, refusal, text, typed},
};
use crate::{LogFilter, LogHandle, Probe, TelemetryError, metrics::Route};

const READ: &str = "GET, HEAD";
const READ_AND_SET: &str = "GET, HEAD, PUT, POST";

const INDEX: &str = "\
/livez                 whether the process must be restarted
/readyz                whether the process may be sent requests
/healthz               the older form of /livez
                       all three: ?verbose, ?exclude=name, or /name for one check
/metrics               metrics for Prometheus
/debug/log-level       the log filter; PUT sets it (loopback only)
/debug/pprof/profile   a CPU profile, ?seconds=30 (loopback only, if switched on)
";

/// Answers requests, wherever they come from.
pub(super) struct Handler {
    admin: Admin,
    limits: Limits,
    #[cfg(feature = "pprof")]
    profiler: crate::profile::Profiler,
}

impl Handler {
    pub(super) fn new(admin: Admin, limits: Limits) -> Self {
        Self {
            admin,
            limits,
            #[cfg(feature = "pprof")]
            profiler: crate::profile::Profiler::new(),
        }
    }

    /// Answers one request of `peer` and counts it.
    pub(super) async fn handle<B>(&self, peer: IpAddr, request: Request<B>) -> Answer
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let (head, body) = request.into_parts();
        let query = head.uri.query();
        let (route, rest) = route_of(head.uri.path());
        let reads = head.method == Method::GET || head.method == Method::HEAD;
        let answer = match route {
            Route::Unknown => refusal(
                StatusCode::NOT_FOUND,
                format_args!("not found; the routes are:\n\n{INDEX}"),
            ),
            Route::LogLevel => self.log_level(peer, &head.method, body).await,
            _ if !reads => method_not_allowed(READ),
            Route::Index => text(StatusCode::OK, INDEX),
            Route::Livez => self.probe(Probe::Livez, rest, query),
            Route::Readyz => self.probe(Probe::Readyz, rest, query),
            Route::Healthz => self.probe(Probe::Healthz, rest, query),
            Route::Metrics => self.metrics(&head.headers).await,
            Route::Pprof => self.pprof(peer, rest, query).await,
        };
        self.admin.metrics.count(route, answer.status().as_u16());
        answer
    }

    fn probe(&self, probe: Probe, check: &str, query: Option<&str>) -> Answer {
        if !check.is_empty() {
            let name = query::decode(check);
            return match self.admin.health.report_one(probe, &name) {
                None => refusal(
                    StatusCode::NOT_FOUND,
                    format_args!("no such check, see /{}?verbose", probe.name()),
                ),
                Some(verdict) => match verdict.reason() {
                    None => text(StatusCode::OK, "ok"),
                    Some(reason) => refusal(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        format_args!("internal server error: {reason}"),
                    ),
                },
            };
        }
        let excluded: Vec<String> = query::values(query, "exclude")
            .map(std::borrow::Cow::into_owned)
            .collect();
        let verbose = query::values(query, "verbose").next().is_some();
        let report = self.admin.health.report(probe, &excluded);
        let status = if report.passed() {
            StatusCode::OK
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        text(status, report.body(verbose))
    }

    async fn metrics(&self, headers: &HeaderMap) -> Answer {
        let registry = &self.admin.registry;
        let format = registry.negotiate(headers);
        let encoded = if registry.may_be_large() {
            // Hundreds of thousands of series take longer than anything else on this thread may
            // wait.
            let registry = registry.clone();
            tokio::task::spawn_blocking(move || registry.encode(format))
                .await
                .unwrap_or_else(|_panicked| Err(TelemetryError::Encode(std::fmt::Error)))
        } else {
            registry.encode(format)
        };
        match encoded {
            Ok(body) => typed(StatusCode::OK, format.content_type(), body),
            Err(error) => {
                tracing::error!(%error, "metrics could not be encoded");
                refusal(StatusCode::INTERNAL_SERVER_ERROR, error)
            }
        }
    }

    async fn log_level<B>(&self, peer: IpAddr, method: &Method, body: B) -> Answer
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let Some(logs) = &self.admin.logs else {
            return refusal(
                StatusCode::NOT_FOUND,
                "the log filter of this process cannot be changed",
            );
        };
        if !is_loopback(peer) {
            return loopback_only(peer);
        }
        match *method {
            Method::GET | Method::HEAD => text(StatusCode::OK, format!("{}\n", logs.filter())),
            Method::PUT | Method::POST => match self.read_body(body).await {
                Ok(body) => set_log_level(logs, &body),
                Err(refusal) => refusal,
            },
            _ => method_not_allowed(READ_AND_SET),
        }
    }

    /// Reads a small body, or says why not.
    async fn read_body<B>(&self, body: B) -> Result<Bytes, Answer>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        #[expect(clippy::disallowed_methods, reason = "the body is limited right here")]
        let collected = Limited::new(body, LogFilter::MAX_LENGTH).collect();
        match tokio::time::timeout(self.limits.body_timeout, collected).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(refusal(
                StatusCode::PAYLOAD_TOO_LARGE,
                format_args!("the body has more than {} bytes", LogFilter::MAX_LENGTH),
            )),
            Ok(Err(error)) => Err(refusal(
                StatusCode::BAD_REQUEST,
                format_args!("the body could not be read: {error}"),
            )),
            Err(_elapsed) => Err(refusal(
                StatusCode::REQUEST_TIMEOUT,
                "the body took too long to arrive",
            )),
        }
    }

    async fn pprof(&self, peer: IpAddr, rest: &str, query: Option<&str>) -> Answer {
        if !cfg!(feature = "pprof") {
            return refusal(
                StatusCode::NOT_FOUND,
                "this program was built without the feature `pprof`; take one that was built with it",
            );
        }
        if self.admin.profiling == Profiling::Off {
            return refusal(
                StatusCode::NOT_FOUND,
                "profiles are switched off; restart the process with --profiling",
            );
        }
        if !is_loopback(peer) {
            return loopback_only(peer);
        }
        self.profile(rest, query).await
    }

    #[cfg(not(feature = "pprof"))]
    #[expect(clippy::unused_async, reason = "the form with a profiler waits")]
    async fn profile(&self, _rest: &str, _query: Option<&str>) -> Answer {
        refusal(StatusCode::NOT_FOUND, "not found")
    }

    #[cfg(feature = "pprof")]
    async fn profile(&self, rest: &str, query: Option<&str>) -> Answer {
        use crate::profile::{ProfileError, parse_seconds};

        match rest {
            "" => return text(StatusCode::OK, "profile   a CPU profile, ?seconds=30\n"),
            "profile" => {}
            _ => {
                return refusal(
                    StatusCode::NOT_FOUND,
                    "no such profile; there is `profile` only",
                );
            }
        }
        let seconds = query::values(query, "seconds").next();
        let taken = match parse_seconds(seconds.as_deref()) {
            Ok(duration) => self.profiler.cpu(duration).await,
            Err(error) => Err(error),
        };
        match taken {
            Ok(profile) => typed(StatusCode::OK, "application/octet-stream", profile),
            Err(error) => {
                let status = match error {
                    ProfileError::BadSeconds => StatusCode::BAD_REQUEST,
                    ProfileError::Busy => StatusCode::TOO_MANY_REQUESTS,
                    ProfileError::Sampler(_) | ProfileError::Encoder(_) => {
                        StatusCode::INTERNAL_SERVER_ERROR
                    }
                };
                refusal(status, error)
            }
        }
    }
}

/// Finds the route of a path, and what follows its name.
fn route_of(path: &str) -> (Route, &str) {
    match path {
        "/" => return (Route::Index, ""),
        "/metrics" => return (Route::Metrics, ""),
        "/debug/log-level" => return (Route::LogLevel, ""),
        _ => {}
    }
    for (name, route) in [
        ("/livez", Route::Livez),
        ("/readyz", Route::Readyz),
        ("/healthz", Route::Healthz),
        ("/debug/pprof", Route::Pprof),
    ] {
        match path.strip_prefix(name) {
            Some("") => return (route, ""),
            Some(rest) => {
                if let Some(rest) = rest.strip_prefix('/') {
                    return (route, rest);
                }
            }
            None => {}
        }
    }
    (Route::Unknown, "")
}

fn set_log_level(logs: &LogHandle, body: &[u8]) -> Answer {
    let Ok(wanted) = std::str::from_utf8(body) else {
        return refusal(StatusCode::BAD_REQUEST, "the body is not UTF-8");
    };
    let set = wanted
        .parse::<LogFilter>()
        .and_then(|filter| logs.set(&filter));
    match set {
        Ok(()) => text(StatusCode::OK, format!("{}\n", logs.filter())),
        Err(error) => {
            let status = match error {
                TelemetryError::LogsGone(_) => StatusCode::INTERNAL_SERVER_ERROR,
                _ => StatusCode::BAD_REQUEST,
            };
            refusal(
                status,
                format_args!("{error}; the filter stays {}", logs.filter()),
            )
        }
    }
}

/// An IPv4 peer of a socket that listens on IPv6 has a mapped address.
fn is_loopback(peer: IpAddr) -> bool {
    peer.to_canonical().is_loopback()
}

fn loopback_only(peer: IpAddr) -> Answer {
    refusal(
        StatusCode::FORBIDDEN,
        format_args!(
            "only loopback peers may do this, and you are {}; go through `kubectl port-forward`",
            peer.to_canonical()
        ),
    )
}
