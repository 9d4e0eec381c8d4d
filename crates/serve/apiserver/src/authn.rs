//! Who asks. The order is Kubernetes': what the front proxy says, a client certificate, a bearer
//! token, and else nobody.
//!
//! What a client merely claims is never believed: identity headers count only from a connection
//! whose certificate the front proxy's authority signed, and are removed from every request before
//! anything else reads them.

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
use crate::review::UserInfo;
use crate::status::Failure;

pub(crate) const ANONYMOUS: &str = "system:anonymous";
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";

/// Finds out who asks.
pub(crate) struct Authenticator {
    trust: TrustStatus,
    tokens: Option<tokens::Tokens>,
    anonymous: bool,
    metrics: ApiServerMetrics,
}

/// Somebody.
#[derive(Debug, Clone)]
pub(crate) struct Identity {
    pub(crate) user: UserInfo,
    /// Whether nobody vouches for the sender. A front proxy that speaks for `system:anonymous` is
    /// known itself, and its connection serves others too.
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

    /// Recognises the sender, and takes away all headers that name one.
    pub(crate) async fn authenticate(
        &self,
        peer: &Peer,
        headers: &mut HeaderMap,
    ) -> Result<Identity, Failure> {
        let outcome = self.recognise(peer, headers).await;
        let (outcome, method) = match outcome {
            Ok((identity, method)) => (Ok(identity), method),
            Err(failure) => {
                let method = if failure.code == http::StatusCode::UNAUTHORIZED {
                    Method::Rejected
                } else {
                    Method::Unavailable
                };
                (Err(failure), method)
            }
        };
        self.metrics.authenticated(method);
        outcome
    }

    async fn recognise(
        &self,
        peer: &Peer,
        headers: &mut HeaderMap,
    ) -> Result<(Identity, Method), Failure> {
        let trust = self.trust.current();
        let judged = peer.judge(&trust);
        let claimed = trust.front_proxy().map(|proxy| proxy.claim(headers));
        let token = tokens::bearer(headers);
        front_proxy::strip(headers, trust.front_proxy());
        headers.remove(http::header::AUTHORIZATION);

        if judged.is_front_proxy
            && let Some(Some(user)) = claimed
        {
            return Ok((Identity::known(user), Method::FrontProxy));
        }
        if let Some(user) = judged.user {
            return Ok((Identity::known(user), Method::Certificate));
        }
        if let Some(token) = token {
            let Some(tokens) = &self.tokens else {
                return Err(Failure::unauthorized());
            };
            return match tokens.user(token).await {
                Ok(Some(user)) => Ok((Identity::known(user), Method::Token)),
                Ok(None) => Err(Failure::unauthorized()),
                Err(error) => Err(Failure::unavailable(format!(
                    "the bearer token could not be reviewed: {}; try again later",
                    error.what
                ))),
            };
        }
        if judged.was_refused {
            // A certificate that nobody vouches for is not the same as none.
            return Err(Failure::unauthorized());
        }
        if !self.anonymous {
            return Err(Failure::unauthorized());
        }
        Ok((Identity::anonymous(), Method::Anonymous))
    }

    /// Why an anonymous request must wait: it may be the front proxy's, which cannot be recognised
    /// yet.
    pub(crate) fn not_yet(&self) -> Option<Failure> {
        // The reason may name addresses: that is for the log and for readiness.
        self.trust.waits().then(|| {
            Failure::unavailable(
                "the server could not find out yet whom to trust; /readyz and its log say why",
            )
        })
    }
}

impl Identity {
    fn known(mut user: UserInfo) -> Self {
        let told = |name: &str| user.groups.iter().any(|group| group == name);
        if user.name != ANONYMOUS && !told(AUTHENTICATED) && !told(UNAUTHENTICATED) {
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
