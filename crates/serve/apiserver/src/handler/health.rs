//! Health, metrics, the log level and profiles.

use bytes::Bytes;
use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use kubevitals_http::query::Query;
use kubevitals_telemetry::exposition::Format;
use kubevitals_telemetry::{LogFilter, Probe};

use super::ApiHandler;
use crate::body::Body;
use crate::status::ApiStatus;

const TEXT: &str = "text/plain; charset=utf-8";

impl ApiHandler {
    /// `rest` is empty, or `/` and the name of a check; `None` if there is no such check.
    ///
    /// The response to `/readyz` is public, and reasons name nodes and addresses. They are for
    /// clients who may see everything, and at the path of a check, which has to be authorized.
    pub(super) fn probe(
        &self,
        probe: Probe,
        rest: &str,
        query: Option<&str>,
        with_reasons: bool,
    ) -> Option<Response<Body>> {
        if !rest.is_empty() {
            let verdict = self.health.report_one(probe, rest.strip_prefix('/')?)?;
            return Some(match verdict.reason() {
                None => plain(StatusCode::OK, "ok"),
                Some(reason) => plain(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    format!("internal server error: {reason}\n"),
                ),
            });
        }
        let query = Query::new(query);
        let excluded: Vec<String> = query
            .all("exclude")
            .map(std::borrow::Cow::into_owned)
            .collect();
        let report = self.health.report(probe, &excluded);
        let status = if report.passed() {
            StatusCode::OK
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        let verbose = query.first("verbose").is_some();
        let body = if with_reasons {
            report.body(verbose)
        } else {
            report.public_body(verbose)
        };
        Some(plain(status, body))
    }

    pub(super) fn metrics_text(&self, headers: &HeaderMap) -> Result<Response<Body>, ApiStatus> {
        let format = Format::negotiate(headers);
        let text = self.registry.encode(format).map_err(|error| {
            tracing::error!(%error, "failed to encode metrics");
            ApiStatus::internal("failed to encode metrics")
        })?;
        let mut response = Response::new(Body::full(text));
        response.headers_mut().insert(
            CONTENT_TYPE,
            HeaderValue::from_static(format.content_type()),
        );
        Ok(response)
    }

    /// Sets the verbosity as in Kubernetes, by `PUT` of a number. A whole filter is accepted too.
    pub(super) async fn log_level(
        &self,
        method: &Method,
        body: Incoming,
    ) -> Result<Response<Body>, ApiStatus> {
        let Some(logs) = &self.logs else {
            return Err(ApiStatus::no_such_path());
        };
        if *method == Method::GET {
            return Ok(plain(StatusCode::OK, format!("{}\n", logs.filter())));
        }
        if *method != Method::PUT {
            let mut response = plain(StatusCode::METHOD_NOT_ALLOWED, "unsupported http method\n");
            response
                .headers_mut()
                .insert(ALLOW, HeaderValue::from_static("GET, PUT"));
            return Ok(response);
        }
        #[expect(clippy::disallowed_methods, reason = "the body is limited right here")]
        let body = Limited::new(body, LogFilter::MAX_LENGTH)
            .collect()
            .await
            .map_err(|error| ApiStatus::bad_request(format!("failed to read the body: {error}")))?
            .to_bytes();
        let wanted = str::from_utf8(&body)
            .map_err(|_| ApiStatus::bad_request("the body is not UTF-8"))?
            .trim();
        let filter = match wanted.parse::<u8>() {
            Ok(0..=3) => "info",
            Ok(4..=5) => "debug",
            Ok(_) => "trace",
            Err(_) => wanted,
        };
        filter
            .parse::<LogFilter>()
            .and_then(|filter| logs.set(&filter))
            .map_err(|error| {
                ApiStatus::bad_request(format!("{error}; the filter stays {}", logs.filter()))
            })?;
        Ok(plain(
            StatusCode::OK,
            format!("successfully set klog.logging.verbosity to {wanted}"),
        ))
    }

    #[cfg(not(feature = "pprof"))]
    #[expect(clippy::unused_async, reason = "the variant with a profiler awaits")]
    pub(super) async fn profile(
        &self,
        _rest: &str,
        _query: Option<&str>,
    ) -> Result<Response<Body>, ApiStatus> {
        Ok(plain(
            StatusCode::NOT_FOUND,
            "this program was built without the feature `pprof`\n",
        ))
    }

    #[cfg(feature = "pprof")]
    pub(super) async fn profile(
        &self,
        rest: &str,
        query: Option<&str>,
    ) -> Result<Response<Body>, ApiStatus> {
        use kubevitals_telemetry::profile::{INDEX, Kind, ProfileError, take};

        if !self.profiling {
            return Ok(plain(StatusCode::NOT_FOUND, "profiling is disabled\n"));
        }
        let name = rest.strip_prefix('/').unwrap_or(rest);
        if name.is_empty() {
            return Ok(plain(StatusCode::OK, INDEX));
        }
        let seconds = Query::new(query).first("seconds");
        let taken = match Kind::parse(name, seconds.as_deref()) {
            // A profile must end before the request times out.
            Ok(Kind::Cpu(duration)) if duration >= self.limits.request_timeout => {
                Err(ProfileError::BadSeconds)
            }
            Ok(kind) => take(kind).await,
            Err(error) => Err(error),
        };
        match taken {
            Ok(profile) => {
                let mut response = Response::new(Body::full(profile));
                let kind = HeaderValue::from_static("application/octet-stream");
                response.headers_mut().insert(CONTENT_TYPE, kind);
                Ok(response)
            }
            Err(error @ ProfileError::BadSeconds) => Err(ApiStatus::bad_request(error.to_string())),
            Err(error @ (ProfileError::Unknown | ProfileError::NoHeap)) => {
                Ok(plain(StatusCode::NOT_FOUND, format!("{error}\n")))
            }
            Err(error @ ProfileError::Busy) => Err(ApiStatus::too_many(error.to_string(), 10)),
            Err(error) => Err(ApiStatus::internal(error.to_string())),
        }
    }
}

fn plain(status: StatusCode, text: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::full(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(TEXT));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}
