//! Responses.

use std::error::Error as _;
use std::time::Duration;

use http::header::{ALLOW, CONTENT_TYPE, HeaderValue, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use kubevitals_apiserver::{AccessError, Body};

use crate::error::ProviderError;
use crate::options::InvalidOption;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// A request that is not fulfilled: a status code and a text.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) status: StatusCode,
    pub(crate) message: String,
    retry_after: Option<Duration>,
    allow: Option<&'static str>,
}

impl Failure {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            retry_after: None,
            allow: None,
        }
    }

    pub(crate) fn method_not_allowed(allow: &'static str) -> Self {
        Self {
            allow: Some(allow),
            ..Self::new(StatusCode::METHOD_NOT_ALLOWED, "method not allowed")
        }
    }

    /// The provider does not have the capability.
    pub(crate) fn not_implemented(capability: &str) -> Self {
        let message = format!("the provider does not support {capability}");
        Self::new(StatusCode::NOT_IMPLEMENTED, message)
    }

    pub(crate) fn too_many(what: &str) -> Self {
        Self {
            retry_after: Some(Duration::from_secs(1)),
            ..Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                format!("too many {what}, please try again later"),
            )
        }
    }

    pub(crate) fn into_response(self) -> Response<Body> {
        let mut message = self.message;
        message.push('\n');
        let mut response = text(self.status, message);
        let headers = response.headers_mut();
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        if let Some(allow) = self.allow {
            headers.insert(ALLOW, HeaderValue::from_static(allow));
        }
        if let Some(after) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(whole_seconds(after)));
        }
        response
    }
}

impl From<ProviderError> for Failure {
    fn from(error: ProviderError) -> Self {
        let mut failure = Self::new(error.status(), error.to_string());
        match &error {
            ProviderError::TooManyRequests { retry_after, .. } => {
                failure.retry_after = Some(*retry_after);
            }
            // The cause itself is displayed; its causes are not.
            ProviderError::Other(_) => {
                let mut cause = error.source();
                while let Some(error) = cause {
                    failure.message.push_str(": ");
                    failure.message.push_str(&error.to_string());
                    cause = error.source();
                }
            }
            _ => {}
        }
        failure
    }
}

impl From<AccessError> for Failure {
    fn from(error: AccessError) -> Self {
        let seconds = error.retry_after_seconds.map(u64::from);
        Self {
            retry_after: seconds.map(Duration::from_secs),
            ..Self::new(error.code, error.message)
        }
    }
}

impl From<InvalidOption> for Failure {
    fn from(error: InvalidOption) -> Self {
        Self::new(StatusCode::BAD_REQUEST, error.to_string())
    }
}

pub(crate) fn text(status: StatusCode, body: impl Into<bytes::Bytes>) -> Response<Body> {
    typed(status, TEXT, Body::full(body))
}

pub(crate) fn json(body: Body) -> Response<Body> {
    typed(StatusCode::OK, JSON, body)
}

pub(crate) fn typed(status: StatusCode, content_type: &'static str, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// Rounded up: a client that waits for zero seconds does not wait.
fn whole_seconds(duration: Duration) -> u64 {
    let partial = u64::from(duration.subsec_nanos() > 0);
    duration.as_secs().saturating_add(partial).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot read the log")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn errors_of_providers_have_their_codes() {
        let text = || String::from("why");
        for (error, code) in [
            (ProviderError::NotFound(text()), 404),
            (ProviderError::InvalidInput(text()), 400),
            (ProviderError::Conflict(text()), 409),
            (ProviderError::Unavailable(text()), 503),
            (ProviderError::Timeout(text()), 504),
            (ProviderError::NotImplemented(text()), 501),
            (ProviderError::Internal(text()), 500),
        ] {
            let failure = Failure::from(error);
            assert_eq!((failure.status.as_u16(), &*failure.message), (code, "why"));
        }
        let cause = Outer(std::io::Error::other("disk on fire"));
        let failure = Failure::from(ProviderError::Other(Box::new(cause)));
        assert_eq!(failure.message, "cannot read the log: disk on fire");
        assert_eq!(failure.into_response().status(), 500);
    }

    #[test]
    fn retry_after_is_whole_seconds() {
        for (millis, header) in [(0, "1"), (1, "1"), (1000, "1"), (1001, "2"), (90_000, "90")] {
            let error = ProviderError::TooManyRequests {
                message: String::from("busy"),
                retry_after: Duration::from_millis(millis),
            };
            let response = Failure::from(error).into_response();
            assert_eq!(response.status(), 429);
            assert_eq!(response.headers()[RETRY_AFTER], header);
        }
    }
}
