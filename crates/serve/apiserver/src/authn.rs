//! Authentication. The order is that of Kubernetes: headers of the front proxy, a client
//! certificate, a bearer token, and else anonymous.
//!
//! Identity headers count only from a connection whose certificate the front proxy's authority
//! signed, and are removed from every request before anything else reads them.

mod front_proxy;
mod peer;
mod tokens;
mod trust;

use http::HeaderMap;

pub(crate) use self::peer::Peer;
pub use self::trust::TrustStatus;
pub(crate) use self::trust::lookup_loop;
use crate::config::AuthenticationConfig;
use crate::error::ApiServerError;
use crate::metrics::{ApiServerMetrics, Method};
use crate::reviewer::UserInfo;
use crate::status::ApiStatus;

pub(crate) const ANONYMOUS: &str = "system:anonymous";
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Authenticates requests.
pub(crate) struct Authenticator {
    trust: TrustStatus,
    tokens: Option<tokens::Tokens>,
    anonymous: bool,
    metrics: ApiServerMetrics,
}

/// An authenticated user.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) user: UserInfo,
    /// Whether the client itself is not authenticated. A front proxy that forwards a request of
    /// `system:anonymous` is authenticated itself, and its connection serves other users too.
    pub(crate) is_anonymous: bool,
}

impl Authenticator {
    pub(crate) fn new(
        config: &AuthenticationConfig,
        trust: TrustStatus,
        metrics: &ApiServerMetrics,
    ) -> Result<Self, ApiServerError> {
        let tokens = config.tokens.as_ref().map(|reviewer| {
            tokens::Tokens::new(reviewer, config.token_ttl, metrics.token_reviews())
        });
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
                let method = if status.code == http::StatusCode::UNAUTHORIZED {
                    Method::Rejected
                } else {
                    Method::Unavailable
                };
                (Err(status), method)
            }
        };
        self.metrics.authenticated(method);
        outcome
    }

    async fn identify(
        &self,
        peer: &Peer,
        headers: &mut HeaderMap,
    ) -> Result<(Identity, Method), ApiStatus> {
        let trust = self.trust.current();
        let verified = peer.verify(&trust);
        let claimed = trust.front_proxy().map(|proxy| proxy.claim(headers));
        let token = tokens::bearer(headers);
        front_proxy::strip(headers, trust.front_proxy());
        headers.remove(http::header::AUTHORIZATION);

        if verified.is_front_proxy
            && let Some(Some(user)) = claimed
        {
            return Ok((Identity::authenticated(user), Method::FrontProxy));
        }
        if let Some(user) = verified.user {
            return Ok((Identity::authenticated(user), Method::Certificate));
        }
        if let Some(token) = token {
            let Some(tokens) = &self.tokens else {
                return Err(ApiStatus::unauthorized());
            };
            return match tokens.user(token).await {
                Ok(Some(user)) => Ok((Identity::authenticated(user), Method::Token)),
                Ok(None) => Err(ApiStatus::unauthorized()),
                Err(error) => Err(ApiStatus::unavailable(format!(
                    "failed to review the bearer token: {}; try again later",
                    error.operation
                ))),
            };
        }
        if verified.was_rejected {
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
