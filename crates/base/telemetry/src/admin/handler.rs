//! Routes of the admin server.

use std::{borrow::Cow, net::IpAddr, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use kubevitals_http::{
    Connection,
    query::{Query, percent_decode},
};

use super::{
    Admin, Limits, Page, PageRequest, Profiling,
    response::{Response, error, method_not_allowed, text, typed},
};
use crate::{LogFilter, LogHandle, Probe, TelemetryError, metrics::Route};

const READ: &str = "GET, HEAD";
const READ_AND_SET: &str = "GET, HEAD, PUT, POST";

const INDEX: &str = "\
/livez                 whether the process must be restarted
/readyz                whether the process may be sent requests
/healthz               the deprecated form of /livez
                       all three: ?verbose, ?exclude=name, or /name for one check
/metrics               metrics for Prometheus
/debug/log-level       the log filter; PUT sets it (loopback only)
/debug/pprof/profile   a CPU profile, ?seconds=30 (loopback only, if enabled)
/debug/pprof/heap      a profile of the memory in use (loopback only, if enabled)
";

/// Responds to the requests of the admin server.
pub(super) struct AdminHandler {
    admin: Admin,
    limits: Limits,
    pages: Vec<Page>,
    index: String,
}

impl kubevitals_http::Handler<IpAddr> for AdminHandler {
    type Body = Full<Bytes>;

    async fn handle(
        &self,
        connection: &Arc<Connection<IpAddr>>,
        request: Request<Incoming>,
    ) -> Response {
        self.respond(connection.peer, request).await
    }
}

impl AdminHandler {
    pub(super) fn new(admin: Admin, limits: Limits, pages: Vec<Page>) -> Self {
        let lines = pages
            .iter()
            .map(|Page { path, help, .. }| format!("{path:<22} {help}\n"));
        let index = std::iter::once(INDEX.to_owned()).chain(lines).collect();
        Self {
            admin,
            limits,
            pages,
            index,
        }
    }

    /// Responds to one request of `peer` and counts it.
    pub(super) async fn respond<B>(&self, peer: IpAddr, request: Request<B>) -> Response
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let (head, body) = request.into_parts();
        let query = Query::new(head.uri.query());
        let (route, rest) = route_of(head.uri.path());
        let reads = head.method == Method::GET || head.method == Method::HEAD;
        let page = || self.pages.iter().find(|page| page.path == head.uri.path());
        let (route, page) = match (route, page()) {
            (Route::Unknown, Some(page)) => (Route::Page, Some(page)),
            (route, _) => (route, None),
        };
        let response = match route {
            Route::Unknown => error(
                StatusCode::NOT_FOUND,
                format_args!("not found; the routes are:\n\n{}", self.index),
            ),
            Route::LogLevel => self.log_level(peer, &head.method, body).await,
            _ if !reads => method_not_allowed(READ),
            Route::Index => text(StatusCode::OK, self.index.clone()),
            Route::Page => {
                let request = PageRequest {
                    query: head.uri.query().unwrap_or_default().to_owned(),
                    headers: head.headers,
                };
                self.page(page, request).await
            }
            Route::Livez => self.probe(Probe::Livez, rest, query),
            Route::Readyz => self.probe(Probe::Readyz, rest, query),
            Route::Healthz => self.probe(Probe::Healthz, rest, query),
            Route::Metrics => self.metrics(&head.headers).await,
            Route::Pprof => self.pprof(peer, rest, query).await,
        };
        self.admin.metrics.count(route, response.status().as_u16());
        response
    }

    fn probe(&self, probe: Probe, check: &str, query: Query<'_>) -> Response {
        if !check.is_empty() {
            let name = percent_decode(check).unwrap_or(Cow::Borrowed(check));
            return match self.admin.health.report_one(probe, &name) {
                None => error(
                    StatusCode::NOT_FOUND,
                    format_args!("no such check, see /{}?verbose", probe.name()),
                ),
                Some(verdict) => match verdict.reason() {
                    None => text(StatusCode::OK, "ok"),
                    Some(reason) => error(
                        StatusCode::INTERNAL_SERVER_ERROR,
                        format_args!("internal server error: {reason}"),
                    ),
                },
            };
        }
        let excluded: Vec<String> = query.all("exclude").map(Cow::into_owned).collect();
        let verbose = query.first("verbose").is_some();
        let report = self.admin.health.report(probe, &excluded);
        let status = if report.passed() {
            StatusCode::OK
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        text(status, report.body(verbose))
    }

    async fn page(&self, page: Option<&Page>, request: PageRequest) -> Response {
        let Some(page) = page else {
            return error(StatusCode::NOT_FOUND, "not found");
        };
        let response = page.respond(request).await;
        typed(response.status, response.content_type, response.body)
    }

    async fn metrics(&self, headers: &HeaderMap) -> Response {
        let registry = &self.admin.registry;
        let format = registry.negotiate(headers);
        let encoded = if registry.may_be_large() {
            // Hundreds of thousands of series take longer than other tasks of this thread may wait.
            let registry = registry.clone();
            tokio::task::spawn_blocking(move || registry.encode(format))
                .await
                .unwrap_or_else(|_panicked| Err(TelemetryError::Encode(std::fmt::Error)))
        } else {
            registry.encode(format)
        };
        match encoded {
            Ok(body) => typed(StatusCode::OK, format.content_type(), body),
            Err(cause) => {
                tracing::error!(error = %cause, "failed to encode metrics");
                error(StatusCode::INTERNAL_SERVER_ERROR, cause)
            }
        }
    }

    async fn log_level<B>(&self, peer: IpAddr, method: &Method, body: B) -> Response
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        let Some(logs) = &self.admin.logs else {
            return error(
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
                Err(response) => response,
            },
            _ => method_not_allowed(READ_AND_SET),
        }
    }

    /// Reads a small body, or returns the response that rejects it.
    async fn read_body<B>(&self, body: B) -> Result<Bytes, Response>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: std::error::Error + Send + Sync + 'static,
    {
        #[expect(clippy::disallowed_methods, reason = "the body is limited right here")]
        let collected = Limited::new(body, LogFilter::MAX_LENGTH).collect();
        match tokio::time::timeout(self.limits.body_timeout, collected).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(cause)) if cause.is::<LengthLimitError>() => Err(error(
                StatusCode::PAYLOAD_TOO_LARGE,
                format_args!("the body has more than {} bytes", LogFilter::MAX_LENGTH),
            )),
            Ok(Err(cause)) => Err(error(
                StatusCode::BAD_REQUEST,
                format_args!("failed to read the body: {cause}"),
            )),
            Err(_elapsed) => Err(error(
                StatusCode::REQUEST_TIMEOUT,
                "timed out reading the body",
            )),
        }
    }

    async fn pprof(&self, peer: IpAddr, rest: &str, query: Query<'_>) -> Response {
        if !cfg!(feature = "pprof") {
            return error(
                StatusCode::NOT_FOUND,
                "this program was built without the feature `pprof`",
            );
        }
        if self.admin.profiling == Profiling::Off {
            return error(
                StatusCode::NOT_FOUND,
                "profiling is disabled; restart the process with --profiling",
            );
        }
        if !is_loopback(peer) {
            return loopback_only(peer);
        }
        self.profile(rest, query).await
    }

    #[cfg(not(feature = "pprof"))]
    #[expect(clippy::unused_async, reason = "the variant with a profiler awaits")]
    async fn profile(&self, _rest: &str, _query: Query<'_>) -> Response {
        error(StatusCode::NOT_FOUND, "not found")
    }

    #[cfg(feature = "pprof")]
    async fn profile(&self, rest: &str, query: Query<'_>) -> Response {
        use crate::profile::{INDEX, Kind, ProfileError, take};

        if rest.is_empty() {
            return text(StatusCode::OK, INDEX);
        }
        let seconds = query.first("seconds");
        let taken = match Kind::parse(rest, seconds.as_deref()) {
            Ok(kind) => take(kind).await,
            Err(cause) => Err(cause),
        };
        match taken {
            Ok(profile) => typed(StatusCode::OK, "application/octet-stream", profile),
            Err(cause) => {
                let status = match cause {
                    ProfileError::Unknown | ProfileError::NoHeap => StatusCode::NOT_FOUND,
                    ProfileError::BadSeconds => StatusCode::BAD_REQUEST,
                    ProfileError::Busy => StatusCode::TOO_MANY_REQUESTS,
                    _ => StatusCode::INTERNAL_SERVER_ERROR,
                };
                error(status, cause)
            }
        }
    }
}

/// Returns the route of a path, and the rest of the path.
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

fn set_log_level(logs: &LogHandle, body: &[u8]) -> Response {
    let Ok(wanted) = std::str::from_utf8(body) else {
        return error(StatusCode::BAD_REQUEST, "the body is not UTF-8");
    };
    let set = wanted
        .parse::<LogFilter>()
        .and_then(|filter| logs.set(&filter));
    match set {
        Ok(()) => text(StatusCode::OK, format!("{}\n", logs.filter())),
        Err(cause) => {
            let status = match cause {
                TelemetryError::LogsGone(_) => StatusCode::INTERNAL_SERVER_ERROR,
                _ => StatusCode::BAD_REQUEST,
            };
            error(
                status,
                format_args!("{cause}; the filter stays {}", logs.filter()),
            )
        }
    }
}

/// An IPv4 peer of a socket that listens on IPv6 has a mapped address.
fn is_loopback(peer: IpAddr) -> bool {
    peer.to_canonical().is_loopback()
}

fn loopback_only(peer: IpAddr) -> Response {
    error(
        StatusCode::FORBIDDEN,
        format_args!(
            "only loopback peers may do this, and the request came from {}; use `kubectl port-forward`",
            peer.to_canonical()
        ),
    )
}
