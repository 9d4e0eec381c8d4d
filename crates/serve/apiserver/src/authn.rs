//! Authentication. The order is that of Kubernetes: headers of the front proxy, a client
//! certificate, a bearer token, and else anonymous.
//!
//! Identity headers count only from a connection whose certificate the front proxy's authority
//! signed, and are removed from every request before anything else reads them.

mod config_map;
mod front_proxy;
mod peer;
mod tokens;
mod trust;

use http::HeaderMap;
use kubevitals_telemetry::OutageLog;

pub(crate) use self::front_proxy::unescaped;
pub use self::peer::Peer;
pub use self::trust::TrustStatus;
pub(crate) use self::trust::lookup_loop;
use crate::config::AuthenticationConfig;
use crate::error::ApiServerError;
use crate::metrics::{AccessMetrics, Method};
use crate::review_cache::ReviewFailure;
use crate::reviewer::{BearerToken, UserInfo};
use crate::status::ApiStatus;

pub(crate) const ANONYMOUS: &str = "system:anonymous";
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Authenticates requests.
pub(crate) struct Authenticator {
    trust: TrustStatus,
    tokens: Option<tokens::Tokens>,
    anonymous: bool,
    metrics: AccessMetrics,
}

/// The credentials of a request, as far as they can be judged without a review.
struct Credentials {
    /// The user that the front proxy or a client certificate identifies.
    user: Option<(UserInfo, Method)>,
    token: Option<Result<BearerToken, tokens::InvalidToken>>,
    /// Whether there is a certificate that an authority rejects.
    was_rejected: bool,
}

/// An authenticated user.
#[derive(Debug, Clone)]
pub struct Identity {
    pub user: UserInfo,
    /// Whether the client itself is not authenticated. A front proxy that forwards a request of
    /// `system:anonymous` is authenticated itself, and its connection serves other users too.
    pub is_anonymous: bool,
}

impl Authenticator {
    pub(crate) fn new(
        config: &AuthenticationConfig,
        trust: TrustStatus,
        metrics: &AccessMetrics,
        outage: &OutageLog,
    ) -> Result<Self, ApiServerError> {
        let tokens = config
            .tokens
            .as_ref()
            .map(|reviewer| tokens::Tokens::new(reviewer, config.token_ttl, metrics, outage));
        Ok(Self {
            trust,
            tokens: tokens.transpose()?,
            anonymous: config.anonymous,
            metrics: metrics.clone(),
        })
    }

    /// Authenticates a request, and removes all headers that identify a user.
    pub(crate) async fn authenticate(
        &self,
        peer: &Peer,
        headers: &mut HeaderMap,
    ) -> Result<Identity, ApiStatus> {
        let outcome = self.identify(peer, headers).await;
        let (outcome, method) = match outcome {
            Ok((identity, method)) => (Ok(identity), method),
            Err(status) => {
                let method = match status.code {
                    http::StatusCode::UNAUTHORIZED | http::StatusCode::BAD_REQUEST => {
                        Method::Rejected
                    }
                    _ => Method::Unavailable,
                };
                (Err(status), method)
            }
        };
        self.metrics.authenticated(method);
        outcome
    }

    /// Whether requests without credentials are accepted. If not, no path is open to all.
    pub(crate) const fn accepts_anonymous(&self) -> bool {
        self.anonymous
    }

    /// Returns the user of a request for a path that is open to all, if the user is known without a
    /// review. It never waits, so that probes get a response while the cluster's API server gives
    /// none.
    pub(crate) fn identify_now(&self, peer: &Peer, headers: &mut HeaderMap) -> Option<UserInfo> {
        let known = match self.credentials(peer, headers) {
            Ok(Credentials {
                user: Some(known), ..
            }) => Some(known),
            Ok(Credentials {
                token: Some(Ok(token)),
                ..
            }) => {
                let tokens = self.tokens.as_ref();
                let user = tokens.and_then(|tokens| tokens.cached_user(&token));
                user.map(|user| (user, Method::Token))
            }
            _ => None,
        };
        let method = known
            .as_ref()
            .map_or(Method::Skipped, |(_, method)| *method);
        self.metrics.authenticated(method);
        known.map(|(user, _)| Identity::authenticated(user).user)
    }

    /// Reads the credentials of a request, and removes all headers that identify a user.
    fn credentials(&self, peer: &Peer, headers: &mut HeaderMap) -> Result<Credentials, ApiStatus> {
        let trust = self.trust.current();
        let verified = peer.verify(&trust);
        let claimed = trust.front_proxy().map(|proxy| proxy.claim(headers));
        let token = tokens::bearer(headers);
        front_proxy::strip(headers, trust.front_proxy());
        headers.remove(http::header::AUTHORIZATION);

        let mut user = verified.user.map(|user| (user, Method::Certificate));
        if verified.is_front_proxy
            && let Some(claimed) = claimed.transpose()?.flatten()
        {
            user = Some((claimed, Method::FrontProxy));
        }
        Ok(Credentials {
            user,
            token,
            was_rejected: verified.was_rejected,
        })
    }

    async fn identify(
        &self,
        peer: &Peer,
        headers: &mut HeaderMap,
    ) -> Result<(Identity, Method), ApiStatus> {
        let credentials = self.credentials(peer, headers)?;
        if let Some((user, method)) = credentials.user {
            return Ok((Identity::authenticated(user), method));
        }
        if let Some(token) = credentials.token {
            let (Some(tokens), Ok(token)) = (&self.tokens, token) else {
                return Err(ApiStatus::unauthorized());
            };
            return match tokens.user(token).await {
                Ok(Some(user)) => Ok((Identity::authenticated(user), Method::Token)),
                Ok(None) => Err(ApiStatus::unauthorized()),
                Err(ReviewFailure::Failed(error)) => Err(ApiStatus::unavailable(format!(
                    "failed to review the bearer token: {}; try again later",
                    error.operation
                ))),
                Err(ReviewFailure::Limited) => Err(ApiStatus::too_many(
                    "too many token reviews, please try again later",
                    1,
                )),
            };
        }
        if credentials.was_rejected {
            // An unverified certificate is not the same as none.
            return Err(ApiStatus::unauthorized());
        }
        if !self.anonymous {
            return Err(ApiStatus::unauthorized());
        }
        Ok((Identity::anonymous(), Method::Anonymous))
    }

    /// Returns the error for anonymous requests while the configuration is not loaded: the request
    /// may be the front proxy's, which cannot be authenticated yet.
    pub(crate) fn not_loaded(&self) -> Option<ApiStatus> {
        // The reason may name addresses: that is for the log and for readiness.
        self.trust.is_loading().then(|| {
            ApiStatus::unavailable(
                "the authentication configuration is not loaded yet; see /readyz and the log of the server",
            )
        })
    }
}

impl Identity {
    fn authenticated(mut user: UserInfo) -> Self {
        let has_group = |name: &str| user.groups.iter().any(|group| group == name);
        if user.name != ANONYMOUS && !has_group(AUTHENTICATED) && !has_group(UNAUTHENTICATED) {
            user.groups.push(AUTHENTICATED.to_owned());
        }
        Self {
            user,
            is_anonymous: false,
        }
    }

    fn anonymous() -> Self {
        Self {
            user: UserInfo {
                name: ANONYMOUS.to_owned(),
                groups: vec![UNAUTHENTICATED.to_owned()],
                ..UserInfo::default()
            },
            is_anonymous: true,
        }
    }
}
