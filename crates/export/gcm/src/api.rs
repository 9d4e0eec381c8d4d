//! Calls of the REST interface.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::Full;
use kubevitals_http_client::{AGENT, HttpClient, Options, Trust, Version, parse_retry_after};
use kubevitals_model::Clock;
use tokio::time::timeout;

use crate::credentials::{Credentials, TokenError, TokenSource};
use crate::metadata::MetadataServer;
use crate::settings::{GcmError, GcmSettings, is_secure};

/// Maximum size of an answer: an error may name each of 200 series.
const MAX_ANSWER: usize = 1 << 20;

/// The interface for one project.
pub(crate) struct Api {
    http: Arc<HttpClient>,
    tokens: TokenSource,
    /// The URL up to the name of a collection.
    base: String,
    quota_project: Option<HeaderValue>,
    timeout: Duration,
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
    /// The delay that the backend asks for.
    pub(crate) after: Option<Duration>,
}

/// A call without an answer.
pub(crate) enum CallError {
    /// There will be no token until a person does something.
    Denied(String),
    /// The call may have been handled.
    Unavailable(String),
}

impl Api {
    pub(crate) fn new(
        settings: &GcmSettings,
        credentials: Credentials,
        metadata: MetadataServer,
        proxy: Option<&str>,
        clock: Clock,
    ) -> Result<Self, GcmError> {
        let endpoint = settings.endpoint.to_string();
        let invalid = || GcmError::Endpoint(endpoint.clone());
        let is_anonymous = matches!(credentials, Credentials::Anonymous);
        let is_tls = settings.endpoint.scheme_str() == Some("https");
        // Without a token there is nothing to steal.
        let is_plain = is_anonymous && settings.endpoint.host().is_some();
        if !is_plain && !is_secure(&settings.endpoint) {
            return Err(invalid());
        }
        let project = &settings.place.project;
        let base = format!("{}/v3/projects/{project}/", endpoint.trim_end_matches('/'));
        base.parse::<Uri>().map_err(|_| invalid())?;
        let trust = (is_tls || credentials.needs_tls()).then(|| Trust {
            name: "cloud-monitoring",
            authorities: settings.certificate.clone(),
            identity: None,
            // Tokens are also asked for on this machine.
            allows_plain: true,
        });
        let options = Options {
            version: Version::Http1,
            trust,
            proxy,
        };
        let http = Arc::new(HttpClient::new(&options)?);
        let quota_project = credentials.quota_project();
        let quota_project = quota_project.and_then(|project| HeaderValue::from_str(project).ok());
        Ok(Self {
            tokens: TokenSource::new(credentials, Arc::clone(&http), metadata, clock),
            http,
            base,
            quota_project,
            timeout: settings.timeout,
        })
    }

    /// Posts JSON to a collection of the project. A token that is not accepted is replaced once.
    pub(crate) async fn post(
        &mut self,
        collection: &str,
        body: &Bytes,
    ) -> Result<Answer, CallError> {
        let limit = self.timeout;
        let exchange = async {
            let answer = self.attempt(collection, body).await?;
            if answer.status != StatusCode::UNAUTHORIZED.as_u16() {
                return Ok(answer);
            }
            self.tokens.forget();
            self.attempt(collection, body).await
        };
        let result = timeout(limit, exchange).await.unwrap_or_else(|_| {
            let message = format!("Cloud Monitoring did not answer within {limit:?}");
            Err(CallError::Unavailable(message))
        });
        if matches!(result, Err(CallError::Unavailable(_))) {
            self.http.reload_certificates().await;
        }
        result
    }

    async fn attempt(&mut self, collection: &str, body: &Bytes) -> Result<Answer, CallError> {
        let token = self.tokens.header().await.map_err(|error| match error {
            TokenError::Denied(message) => CallError::Denied(message),
            TokenError::Unavailable(message) => CallError::Unavailable(message),
        })?;
        let mut request = Request::post(format!("{}{collection}", self.base))
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, AGENT);
        if let Some(project) = &self.quota_project {
            request = request.header("x-goog-user-project", project);
        }
        if let Some(token) = token {
            request = request.header(AUTHORIZATION, token);
        }
        let request = request
            .body(Full::new(body.clone()))
            .map_err(|error| CallError::Unavailable(error.to_string()))?;
        let answer = self.http.send(request, MAX_ANSWER).await;
        let (answer, _) = answer.map_err(|error| CallError::Unavailable(error.to_string()))?;
        let after = answer.headers().get(RETRY_AFTER);
        let after =
            after.and_then(|value| parse_retry_after(value.to_str().ok()?, SystemTime::now()));
        Ok(Answer {
            status: answer.status().as_u16(),
            after,
            body: answer.into_body(),
        })
    }
}
