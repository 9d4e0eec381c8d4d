//! Errors of servers and of providers, and the responses that the latter become.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http::StatusCode;
use kubevitals_apiserver::ApiServerError;
use kubevitals_tls::TlsError;

/// An error of [`KubeletServer::bind`](crate::KubeletServer::bind).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KubeletError {
    #[error("cannot listen on {address}")]
    Bind {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    /// The certificate or the key cannot be used.
    #[error("invalid TLS configuration")]
    Tls(#[from] TlsError),
    /// The configuration of authentication or authorization cannot be used.
    #[error("invalid access configuration")]
    Access(#[from] ApiServerError),
}

/// Why a provider did not do what a request asks for.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProviderError {
    /// 404: there is no such pod or container.
    #[error("{0}")]
    NotFound(String),
    /// 400: the request is invalid, or the container has nothing to show yet.
    #[error("{0}")]
    InvalidInput(String),
    /// 409: the state of the pod does not allow it.
    #[error("{0}")]
    Conflict(String),
    /// 429: too much is in progress.
    #[error("{message}")]
    TooManyRequests {
        /// The reason.
        message: String,
        /// The value of `Retry-After`.
        retry_after: Duration,
    },
    /// 503: the provider cannot serve now.
    #[error("{0}")]
    Unavailable(String),
    /// 504: what the provider asked did not respond in time.
    #[error("{0}")]
    Timeout(String),
    /// 501: the provider does not have this capability for this pod.
    #[error("{0}")]
    NotImplemented(String),
    /// 500: anything else.
    #[error("{0}")]
    Internal(String),
    /// 500: anything else, with its cause.
    #[error(transparent)]
    Other(#[from] Box<dyn std::error::Error + Send + Sync>),
}

impl ProviderError {
    /// The status code of the response.
    pub const fn status(&self) -> StatusCode {
        match self {
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::InvalidInput(_) => StatusCode::BAD_REQUEST,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::TooManyRequests { .. } => StatusCode::TOO_MANY_REQUESTS,
            Self::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Timeout(_) => StatusCode::GATEWAY_TIMEOUT,
            Self::NotImplemented(_) => StatusCode::NOT_IMPLEMENTED,
            Self::Internal(_) | Self::Other(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}
