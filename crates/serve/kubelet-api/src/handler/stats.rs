//! `/stats/summary`, `/metrics/resource`, `/metrics/cadvisor` and `/metrics/probes`.

use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderValue, VARY};
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use kubevitals_apiserver::Body;
use kubevitals_http::query::Query;

use super::KubeletHandler;
use crate::cadvisor;
use crate::compress::Coding;
use crate::error::ProviderError;
use crate::provider::{ResourceMetrics, Stats};
use crate::resource_metrics::{self, encode_error, encode_families, encode_stats};
use crate::response::{Failure, json, typed};
use crate::summary::{self, SummaryOptions};

/// Maximum size of a form.
const MAX_FORM_BYTES: usize = 4096;
const FORM: &[u8] = b"application/x-www-form-urlencoded";
/// What fails in the log if `/metrics/resource` has no statistics and responds with 200.
const STATISTICS: &str = "metrics/resource, statistics";
const ONLY_CPU_AND_MEMORY: &str = "only_cpu_and_memory";

impl KubeletHandler {
    pub(super) async fn stats_summary(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Failure> {
        let stats = self.stats("stats")?;
        let only_cpu_and_memory = only_cpu_and_memory(request).await?;
        let stats = stats.stats(only_cpu_and_memory).await?;
        let options = SummaryOptions {
            only_cpu_and_memory,
            pressure_in_micros: self.pressure_in_micros,
        };
        Ok(json(Body::full(summary::encode(&stats, options))))
    }

    /// Statistics that cannot be read are no error of the request: the kubelet says so in the
    /// metrics. Errors of families are responses, as in Virtual Kubelet.
    pub(super) async fn resource_metrics(
        &self,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Failure> {
        if let Some(families) = self.provider.resource_metrics.as_deref() {
            return self.families(families, headers).await;
        }
        let stats = self.stats("resource metrics")?;
        let body = match stats.stats(true).await {
            Ok(stats) => {
                self.succeeded(STATISTICS);
                encode_stats(&stats, self.hidden_metrics)
            }
            Err(error @ ProviderError::NotImplemented(_)) => return Err(error.into()),
            Err(error) => {
                self.failed(STATISTICS, &error.into());
                encode_error(self.hidden_metrics)
            }
        };
        compressed(headers, resource_metrics::CONTENT_TYPE, body).await
    }

    pub(super) async fn cadvisor_metrics(
        &self,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Failure> {
        let stats = self.stats("cAdvisor metrics")?.stats(false).await?;
        compressed(
            headers,
            resource_metrics::CONTENT_TYPE,
            cadvisor::encode(&stats),
        )
        .await
    }

    pub(super) async fn probe_metrics(
        &self,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Failure> {
        let probes = self.provider.probe_metrics.as_deref();
        let probes = probes.ok_or_else(|| Failure::not_implemented("probe metrics"))?;
        self.families(probes, headers).await
    }

    fn stats(&self, what: &str) -> Result<&dyn Stats, Failure> {
        let stats = self.provider.stats.as_deref();
        stats.ok_or_else(|| Failure::not_implemented(what))
    }

    async fn families(
        &self,
        source: &dyn ResourceMetrics,
        headers: &HeaderMap,
    ) -> Result<Response<Body>, Failure> {
        let families = source.families().await?;
        let (body, invalid) = encode_families(&families);
        if invalid > 0 {
            self.metrics.invalid_samples(invalid);
        }
        compressed(headers, resource_metrics::CONTENT_TYPE, body).await
    }
}

/// Responds in the coding that the client accepts.
pub(super) async fn compressed(
    headers: &HeaderMap,
    content_type: &'static str,
    body: Vec<u8>,
) -> Result<Response<Body>, Failure> {
    let coding = Coding::negotiate(headers);
    let body = coding.compress(body).await.ok_or_else(|| {
        Failure::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "failed to compress the metrics",
        )
    })?;
    let mut response = typed(StatusCode::OK, content_type, Body::full(body));
    let headers = response.headers_mut();
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if coding != Coding::Identity {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.name()));
    }
    Ok(response)
}

/// Reads the option from the query, or from the form of a `POST`, as Go does.
async fn only_cpu_and_memory(request: Request<Incoming>) -> Result<bool, Failure> {
    let (head, body) = request.into_parts();
    let query = Query::new(head.uri.query());
    let mut values: Vec<String> = query.all(ONLY_CPU_AND_MEMORY).map(Into::into).collect();
    let is_form = |value: &HeaderValue| value.as_bytes().starts_with(FORM);
    if head.method == Method::POST && head.headers.get(CONTENT_TYPE).is_some_and(is_form) {
        #[expect(clippy::disallowed_methods, reason = "the body is limited right here")]
        let collected = Limited::new(body, MAX_FORM_BYTES).collect().await;
        let form = collected.map_err(|error| {
            let message = format!("failed to read the form: {error}");
            Failure::new(StatusCode::BAD_REQUEST, message)
        })?;
        let form = form.to_bytes();
        let form = Query::new(std::str::from_utf8(&form).ok());
        values.extend(form.all(ONLY_CPU_AND_MEMORY).map(String::from));
    }
    Ok(matches!(values.as_slice(), [one] if one == "true"))
}
