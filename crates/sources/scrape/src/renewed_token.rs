//! A bearer token that the API server issues for kubelets, renewed long before it expires.
//!
//! The token of this process may do more than read metrics, and every node sees what it is sent. So
//! scraping can use the token of another `ServiceAccount`, which the API server issues by request.
//!
//! A failed renewal leaves the last token in use until it expires. Lifetimes are measured by the
//! monotonic clock from the moment of the request, so that neither a wrong clock here nor a step of
//! it matters.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use kubevitals_model::{Backoff, BackoffPolicy, Jitter, Rng};
use kubevitals_telemetry::{OutageLog, OutagePart, RequestFailure, Status};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::credentials::Bearer;
use crate::metrics::TokenMetrics;

/// Timeout of one request. An API server that accepts and never answers costs one attempt.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Minimum time between the requests of two tokens. A node that rejects every token, or an API
/// server that issues tokens for seconds, causes no more.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_mins(1);

/// Waits after failed requests.
const BACKOFF: BackoffPolicy = BackoffPolicy {
    first: Duration::from_secs(1),
    second: Duration::from_secs(2),
    max: Duration::from_secs(30),
    jitter: Jitter::Added(0.5),
};

/// The future of a [`TokenIssuer`].
pub type IssueFuture<'a> =
    Pin<Box<dyn Future<Output = Result<IssuedToken, IssueError>> + Send + 'a>>;

/// Requests tokens.
pub trait TokenIssuer: Send + Sync + 'static {
    fn issue(&self) -> IssueFuture<'_>;
}

/// A new token.
#[derive(Debug, Clone)]
pub struct IssuedToken {
    pub token: Bearer,
    /// The validity from the moment of the request.
    pub lifetime: Duration,
}

/// The reason why no token was issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssueError {
    pub failure: IssueFailure,
    pub message: String,
}

/// A class of [`IssueError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IssueFailure {
    /// 401 or 403.
    Forbidden,
    /// 404: there is no such `ServiceAccount`.
    NotFound,
    /// 429.
    Throttled,
    /// 5xx.
    ServerError,
    /// Any other status, or a response without a token.
    Rejected,
    Unreachable,
    Timeout,
}

/// The current token. A task renews it, scrapes read it.
pub struct RenewedToken {
    state: watch::Sender<State>,
    /// A kubelet rejected the current token.
    rejected: Notify,
}

#[derive(Default)]
struct State {
    current: Option<Current>,
    /// The error of the last request, if it failed.
    error: Option<IssueError>,
}

#[derive(Clone)]
struct Current {
    token: Bearer,
    expires: Instant,
}

impl RenewedToken {
    /// A token that is yet to be requested by [`RenewedToken::renew`].
    #[expect(clippy::new_without_default, reason = "a handle is no value")]
    pub fn new() -> Self {
        Self {
            state: watch::Sender::new(State::default()),
            rejected: Notify::new(),
        }
    }

    /// Requests tokens forever: at about half the lifetime of each, or earlier if kubelets reject
    /// it.
    pub async fn renew(
        &self,
        issuer: &dyn TokenIssuer,
        metrics: &TokenMetrics,
        outage: &OutageLog,
        rng: Rng,
    ) -> Infallible {
        let mut outage = outage.periodic("renew-kubelet-token");
        let mut backoff = Backoff::new(BACKOFF, rng);
        loop {
            let requested = Instant::now();
            let outcome = timeout(REQUEST_TIMEOUT, issuer.issue()).await;
            match outcome.unwrap_or_else(|_| Err(IssueError::timeout())) {
                Ok(issued) => {
                    backoff.reset();
                    metrics.issued(issued.lifetime);
                    let wait = renewal_wait(issued.lifetime, backoff.rng());
                    self.set(issued, requested, outage.succeeded());
                    let rejected = async {
                        self.rejected.notified().await;
                        sleep_until(requested + MIN_RENEWAL_INTERVAL).await;
                    };
                    tokio::select! {
                        () = sleep_until(requested + wait) => {}
                        () = rejected => tracing::info!("kubelets reject their token, requesting another"),
                    }
                }
                Err(error) => {
                    metrics.failed(error.failure);
                    self.fail(error, &mut outage);
                    sleep(backoff.next_wait()).await;
                }
            }
        }
    }

    /// Waits for the first token.
    pub async fn issued(&self) {
        let mut state = self.state.subscribe();
        // The sender is ours, so it is not closed.
        let _ = state.wait_for(|state| state.current.is_some()).await;
    }

    /// The status for a readiness check: fails while there is no valid token.
    pub fn status(&self) -> Status {
        match self.unavailable() {
            None => Status::Ok,
            Some(reason) if self.state.borrow().error.is_none() => Status::warming_up(reason),
            Some(reason) => Status::failing(reason),
        }
    }

    /// Returns the token, or the reason why there is none that is valid.
    pub(crate) fn current(&self) -> Result<Bearer, String> {
        let state = self.state.borrow();
        match &state.current {
            Some(current) if Instant::now() < current.expires => Ok(current.token.clone()),
            _ => Err(state.reason()),
        }
    }

    /// Returns a newer token than one that a kubelet rejected, if there is any. If not, one is
    /// requested.
    pub(crate) fn replacement(&self, rejected: &Bearer) -> Option<Bearer> {
        let current = self.current().ok()?;
        if current == *rejected {
            self.rejected.notify_one();
            return None;
        }
        Some(current)
    }

    fn unavailable(&self) -> Option<String> {
        self.current().err()
    }

    fn set(&self, issued: IssuedToken, requested: Instant, has_recovered: bool) {
        let expires = requested + issued.lifetime;
        let mut is_first = false;
        self.state.send_modify(|state| {
            is_first = state.current.is_none();
            state.error = None;
            let token = issued.token;
            state.current = Some(Current { token, expires });
        });
        let lifetime_seconds = issued.lifetime.as_secs();
        if is_first || has_recovered {
            tracing::info!(lifetime_seconds, "token for kubelets issued");
        } else {
            tracing::debug!(lifetime_seconds, "token for kubelets renewed");
        }
    }

    /// Keeps the error, and logs it unless the last one was the same.
    fn fail(&self, error: IssueError, outage: &mut OutagePart) {
        let failure = error.failure.class();
        let mut is_new = outage.failed(failure, &error.message);
        let mut valid_seconds = 0;
        self.state.send_modify(|state| {
            let known = state.error.as_ref().map(|known| known.failure);
            is_new |= failure == RequestFailure::Other
                && known.is_some_and(|known| known != error.failure);
            let left = state.current.as_ref();
            let left = left.map(|current| current.expires.duration_since(Instant::now()));
            valid_seconds = left.unwrap_or_default().as_secs();
            state.error = Some(error.clone());
        });
        let IssueError { failure, message } = error;
        let (reason, error) = (failure.as_str(), message);
        if is_new {
            tracing::warn!(
                reason,
                error,
                valid_seconds,
                "failed to request a token for kubelets"
            );
        } else {
            tracing::debug!(
                reason,
                error,
                valid_seconds,
                "failed to request a token for kubelets"
            );
        }
    }
}

impl State {
    /// Why there is no valid token.
    fn reason(&self) -> String {
        let error = match &self.error {
            Some(error) => error.message.as_str(),
            None => "waiting for the API server",
        };
        match &self.current {
            None => format!("no token for kubelets was issued: {error}"),
            Some(current) => {
                let age = current.expires.elapsed().as_secs();
                format!("the token for kubelets expired {age} s ago: {error}")
            }
        }
    }
}

impl IssueError {
    fn timeout() -> Self {
        Self {
            failure: IssueFailure::Timeout,
            message: format!("no response within {} s", REQUEST_TIMEOUT.as_secs()),
        }
    }
}

impl IssueFailure {
    /// All classes, for metrics that must exist before anything happened.
    pub const ALL: [Self; 7] = [
        Self::Forbidden,
        Self::NotFound,
        Self::Throttled,
        Self::ServerError,
        Self::Rejected,
        Self::Unreachable,
        Self::Timeout,
    ];

    /// The label value in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Throttled => "throttled",
            Self::ServerError => "server_error",
            Self::Rejected => "rejected",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
        }
    }

    const fn class(self) -> RequestFailure {
        match self {
            Self::Unreachable | Self::Timeout => RequestFailure::Unavailable,
            _ => RequestFailure::Other,
        }
    }

    /// The class of a status code.
    pub const fn of_status(code: u16) -> Self {
        match code {
            401 | 403 => Self::Forbidden,
            404 => Self::NotFound,
            429 => Self::Throttled,
            500.. => Self::ServerError,
            _ => Self::Rejected,
        }
    }
}

impl fmt::Debug for RenewedToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RenewedToken").finish_non_exhaustive()
    }
}

/// Half the lifetime and a random part of a tenth, so that replicas that started together do not
/// renew together. The other half bridges an outage of the API server.
fn renewal_wait(lifetime: Duration, rng: &mut Rng) -> Duration {
    let wait = lifetime / 2 + rng.duration_up_to(lifetime / 10);
    wait.max(MIN_RENEWAL_INTERVAL)
}

#[cfg(test)]
mod tests;
