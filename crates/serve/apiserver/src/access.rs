//! Authentication and authorization for servers that serve no API, by the same rules and caches as
//! the API server's.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use kubevitals_telemetry::OutageLog;
use kubevitals_tls::Refresh;

use crate::authn::{Authenticator, Identity, Peer, TrustStatus, lookup_loop};
use crate::authz::Authorizer;
use crate::config::{AuthenticationConfig, AuthorizationConfig};
use crate::error::ApiServerError;
use crate::metrics::AccessMetrics;
use crate::reviewer::{Attributes, UserInfo};
use crate::status::ApiStatus;
use crate::transport::{BackgroundTask, refresh_task};

/// Authenticates and authorizes requests: client certificates, token reviews and access reviews,
/// which are cached, coalesced and limited.
pub struct Access {
    authenticator: Authenticator,
    authorizer: Authorizer,
    trust: TrustStatus,
}

/// Why a request is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AccessError {
    /// 401, 403, 429 or 503; 400 for malformed headers of a front proxy.
    pub code: StatusCode,
    /// The reason, for the client.
    pub message: String,
    /// The value of `Retry-After`.
    pub retry_after_seconds: Option<u32>,
}

/// The authorities of an authentication configuration, and what keeps them fresh.
pub(crate) struct Trusted {
    pub(crate) status: TrustStatus,
    pub(crate) lookup: BackgroundTask,
    pub(crate) refreshed: Vec<Arc<dyn Refresh>>,
}

impl Access {
    /// Loads the authorities. Returns also the tasks that refresh them and look up what is not
    /// configured, which the caller runs as long as the server.
    pub fn new(
        mut authentication: AuthenticationConfig,
        authorization: &AuthorizationConfig,
        metrics: &AccessMetrics,
        outage: &OutageLog,
    ) -> Result<(Self, Vec<BackgroundTask>), ApiServerError> {
        let trusted = Trusted::new(&mut authentication, metrics, outage)?;
        let trust = trusted.status;
        let access = Self {
            authenticator: Authenticator::new(&authentication, trust.clone(), metrics, outage)?,
            authorizer: Authorizer::new(authorization, metrics, outage)?,
            trust,
        };
        let refresh = refresh_task("refresh-authorities", trusted.refreshed);
        Ok((access, vec![trusted.lookup, refresh]))
    }

    /// Whether the authentication configuration is loaded.
    pub fn trust_status(&self) -> TrustStatus {
        self.trust.clone()
    }

    /// Authenticates a request, and removes all headers that identify a user.
    pub async fn authenticate(
        &self,
        peer: &Peer,
        headers: &mut HeaderMap,
    ) -> Result<Identity, AccessError> {
        let identity = self.authenticator.authenticate(peer, headers).await;
        match identity {
            Ok(identity) if !identity.is_anonymous => Ok(identity),
            // The certificate of the client may be good, once its authority is known.
            Ok(identity) => match self.authenticator.not_loaded() {
                Some(status) => Err(status.into()),
                None => Ok(identity),
            },
            Err(status) if status.code == StatusCode::UNAUTHORIZED => {
                Err(self.authenticator.not_loaded().unwrap_or(status).into())
            }
            Err(status) => Err(status.into()),
        }
    }

    /// Authorizes a request that needs one of several permissions, which are reviewed in this
    /// order. A failed review denies it.
    pub async fn authorize_any(
        &self,
        user: &UserInfo,
        alternatives: impl IntoIterator<Item = Attributes> + Send,
    ) -> Result<(), AccessError> {
        let mut denied = ApiStatus::new(StatusCode::FORBIDDEN, "Forbidden", "Forbidden");
        // Collected, because an iterator held over an await would have to be `Send`.
        let alternatives: Vec<Attributes> = alternatives.into_iter().collect();
        for attributes in alternatives {
            match self.authorizer.authorize(user, attributes).await {
                Ok(()) => return Ok(()),
                Err(status) if status.code == StatusCode::FORBIDDEN => denied = status,
                Err(status) => return Err(status.into()),
            }
        }
        Err(denied.into())
    }
}

impl Trusted {
    pub(crate) fn new(
        config: &mut AuthenticationConfig,
        metrics: &AccessMetrics,
        outage: &OutageLog,
    ) -> Result<Self, ApiServerError> {
        let status = TrustStatus::new(config)?;
        let client = config.client_ca.iter();
        let proxy = config.front_proxy.iter().map(|proxy| &proxy.ca);
        let refreshed = client
            .chain(proxy)
            .map(|roots| -> Arc<dyn Refresh> { Arc::clone(roots) as Arc<dyn Refresh> })
            .collect();
        let lookup = lookup_loop(
            status.clone(),
            config.lookup.take(),
            metrics.clone(),
            outage.clone(),
        );
        Ok(Self {
            status,
            lookup: ("look-up-authentication", Box::pin(lookup)),
            refreshed,
        })
    }
}

impl From<ApiStatus> for AccessError {
    fn from(status: ApiStatus) -> Self {
        Self {
            code: status.code,
            retry_after_seconds: status.retry_after_seconds(),
            message: status.into_message(),
        }
    }
}
