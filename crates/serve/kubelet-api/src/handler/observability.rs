//! `/healthz`, `/configz` and `/metrics`.

use http::{HeaderMap, Response, StatusCode};
use kubevitals_apiserver::Body;
use kubevitals_http::query::Query;
use kubevitals_telemetry::Probe;

use super::KubeletHandler;
use super::stats::compressed;
use crate::response::{Failure, json, text};

impl KubeletHandler {
    /// Reports all checks, or one. Whoever gets here may see the reasons.
    pub(super) fn healthz(
        &self,
        check: Option<&str>,
        query: Option<&str>,
    ) -> Result<Response<Body>, Failure> {
        if let Some(check) = check {
            let Some(verdict) = self.health.report_one(Probe::Healthz, check) else {
                return Err(Failure::new(
                    StatusCode::NOT_FOUND,
                    "no such check, see /healthz?verbose",
                ));
            };
            return Ok(match verdict.reason() {
                None => text(StatusCode::OK, "ok"),
                Some(reason) => text(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    format!("internal server error: {reason}\n"),
                ),
            });
        }
        let query = Query::new(query);
        let excluded: Vec<String> = query.all("exclude").map(Into::into).collect();
        let report = self.health.report(Probe::Healthz, &excluded);
        let status = if report.passed() {
            StatusCode::OK
        } else {
            StatusCode::INTERNAL_SERVER_ERROR
        };
        Ok(text(status, report.body(query.first("verbose").is_some())))
    }

    pub(super) fn configz(&self) -> Result<Response<Body>, Failure> {
        let config = self.configz.clone();
        let config = config.ok_or_else(|| Failure::not_implemented("configz"))?;
        Ok(json(Body::full(config)))
    }

    pub(super) async fn own_metrics(&self, headers: &HeaderMap) -> Result<Response<Body>, Failure> {
        let format = self.registry.negotiate(headers);
        let registry = self.registry.clone();
        // Families of a whole cluster take longer than other tasks of this thread may wait.
        let encoded = tokio::task::spawn_blocking(move || registry.encode(format)).await;
        let body = match encoded {
            Ok(Ok(body)) => body,
            Ok(Err(error)) => return Err(internal(error.to_string())),
            Err(error) => return Err(internal(error.to_string())),
        };
        compressed(headers, format.content_type(), body).await
    }
}

fn internal(message: String) -> Failure {
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, message)
}
