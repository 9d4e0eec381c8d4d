//! Access tokens: fetched, kept, and renewed before they expire.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Request, StatusCode, Uri};
use http_body_util::Full;
use kubevitals_http_client::{AGENT, HttpClient, blocking};
use kubevitals_model::{Clock, Timestamp};
use serde::Deserialize;
use serde_json::json;
use thiserror::Error;

use super::file::{ExternalAccount, LIFETIME, SCOPE, SubjectSource};
use super::{Credentials, FileKind, read_limited};
use crate::metadata::{MetadataError, MetadataServer};

/// Maximum size of an answer.
const MAX_ANSWER: usize = 64 << 10;

/// A token is renewed this long before it expires, or after three quarters of its life. The
/// metadata server has a new one five minutes before.
const RENEW_BEFORE: Duration = Duration::from_secs(225);

/// Returns access tokens.
pub(crate) struct TokenSource {
    credentials: Credentials,
    http: Arc<HttpClient>,
    metadata: MetadataServer,
    clock: Clock,
    kept: Option<Token>,
}

struct Token {
    header: HeaderValue,
    /// By the monotonic clock.
    renew_at: Duration,
}

/// A token that is not there. Secrets are not repeated.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum TokenError {
    /// The same request fails again, until a person changes something.
    #[error("{0}")]
    Denied(String),
    #[error("{0}")]
    Unavailable(String),
}

#[derive(Deserialize)]
struct Granted {
    access_token: String,
    #[serde(default = "default_lifetime")]
    expires_in: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Impersonated {
    access_token: String,
    #[serde(default)]
    expire_time: String,
}

fn default_lifetime() -> i64 {
    LIFETIME
}

impl TokenSource {
    pub(crate) fn new(
        credentials: Credentials,
        http: Arc<HttpClient>,
        metadata: MetadataServer,
        clock: Clock,
    ) -> Self {
        Self {
            credentials,
            http,
            metadata,
            clock,
            kept: None,
        }
    }

    /// The value of `Authorization`; `None` without credentials.
    pub(crate) async fn header(&mut self) -> Result<Option<HeaderValue>, TokenError> {
        if matches!(self.credentials, Credentials::Anonymous) {
            return Ok(None);
        }
        let now = self.clock.moment().monotonic;
        if let Some(token) = self.kept.as_ref().filter(|token| now < token.renew_at) {
            return Ok(Some(token.header.clone()));
        }
        let granted = self.fetch().await?;
        let lifetime = u64::try_from(granted.expires_in).unwrap_or_default();
        let lifetime = Duration::from_secs(lifetime);
        let header = HeaderValue::try_from(format!("Bearer {}", granted.access_token));
        let mut header = header.map_err(|_| unavailable("the token is not valid in a header"))?;
        header.set_sensitive(true);
        self.kept = Some(Token {
            header: header.clone(),
            renew_at: now + lifetime.saturating_sub(RENEW_BEFORE.min(lifetime / 4)),
        });
        Ok(Some(header))
    }

    /// The backend does not accept the token any more.
    pub(crate) fn forget(&mut self) {
        self.kept = None;
    }

    async fn fetch(&self) -> Result<Granted, TokenError> {
        let Credentials::File(file) = &self.credentials else {
            let token = self.metadata.token().await.map_err(|error| match error {
                MetadataError::Status { status, .. } if status.is_client_error() => {
                    TokenError::Denied(error.to_string())
                }
                error => TokenError::Unavailable(error.to_string()),
            })?;
            return granted(&token);
        };
        match &file.kind {
            FileKind::ServiceAccount(account) => {
                let form = account.form(self.clock.now()).map_err(TokenError::Denied)?;
                granted(&self.post_form(&account.token_url, form).await?)
            }
            FileKind::AuthorizedUser(user) => {
                granted(&self.post_form(&user.token_url, user.form()).await?)
            }
            FileKind::ExternalAccount(account) => self.exchange(account).await,
        }
    }

    async fn exchange(&self, account: &ExternalAccount) -> Result<Granted, TokenError> {
        let subject = match &account.source {
            SubjectSource::File(path) => {
                let (path, name) = (path.clone(), path.display().to_string());
                let read = blocking(move || read_limited(&path)).await;
                let read = read.map_err(|error| unavailable(&error.to_string()))?;
                read.map_err(|error| unavailable(&format!("failed to read {name}: {error}")))?
            }
            SubjectSource::Url(url, headers) => {
                let mut request = Request::get(url.clone());
                for (name, value) in headers {
                    request = request.header(name, value);
                }
                self.send(request, Bytes::new()).await?.to_vec()
            }
        };
        let subject = account
            .subject_token(&subject)
            .ok_or_else(|| unavailable("the source of the subject token has no token"))?;
        let exchanged = self
            .post_form(&account.token_url, account.form(&subject))
            .await?;
        let exchanged = granted(&exchanged)?;
        let Some(url) = &account.impersonation_url else {
            return Ok(exchanged);
        };
        let bearer = HeaderValue::try_from(format!("Bearer {}", exchanged.access_token));
        let mut bearer = bearer.map_err(|_| unavailable("the token is not valid in a header"))?;
        bearer.set_sensitive(true);
        let request = Request::post(url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header(AUTHORIZATION, bearer);
        let body = json!({"scope": [SCOPE], "lifetime": format!("{LIFETIME}s")});
        let answer = self.send(request, Bytes::from(body.to_string())).await?;
        let token: Impersonated = serde_json::from_slice(&answer).map_err(|_| no_token())?;
        let expires: Option<Timestamp> = token.expire_time.parse().ok();
        let lifetime = expires.and_then(|expires| expires.since(self.clock.now()));
        let lifetime = lifetime.and_then(|lifetime| i64::try_from(lifetime.as_secs()).ok());
        Ok(Granted {
            access_token: token.access_token,
            expires_in: lifetime.unwrap_or(LIFETIME),
        })
    }

    async fn post_form(&self, url: &Uri, form: String) -> Result<Bytes, TokenError> {
        let request =
            Request::post(url.clone()).header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        self.send(request, Bytes::from(form)).await
    }

    async fn send(
        &self,
        request: http::request::Builder,
        body: Bytes,
    ) -> Result<Bytes, TokenError> {
        let request = request
            .header(USER_AGENT, AGENT)
            .body(Full::new(body))
            .map_err(|error| TokenError::Denied(error.to_string()))?;
        let host = request.uri().host().unwrap_or_default().to_owned();
        let answer = self.http.send(request, MAX_ANSWER).await;
        let (answer, _) = answer.map_err(|error| unavailable(&format!("{host}: {error}")))?;
        let status = answer.status();
        if status == StatusCode::OK {
            return Ok(answer.into_body());
        }
        // The text of the answer may repeat what was sent.
        let reason: Option<serde_json::Value> = serde_json::from_slice(answer.body()).ok();
        let reason = reason.as_ref().and_then(|body| body.get("error")?.as_str());
        let reason = crate::response::cut(reason.unwrap_or_default());
        let message = format!("{host} gave no token: {status} {reason}");
        let is_final = status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS;
        Err(if is_final {
            TokenError::Denied(message)
        } else {
            TokenError::Unavailable(message)
        })
    }
}

fn granted(answer: &[u8]) -> Result<Granted, TokenError> {
    serde_json::from_slice(answer).map_err(|_| no_token())
}

fn no_token() -> TokenError {
    unavailable("the answer has no token")
}

fn unavailable(message: &str) -> TokenError {
    TokenError::Unavailable(message.to_owned())
}
