//! Who may do what: the API kit's authentication and authorization, with the attributes of a node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, StatusCode};
use kubevitals_apiserver::{
    Access, ApiServerError, Attributes, AuthenticationConfig, AuthenticationSource,
    AuthorizationConfig, BackgroundTask, Lookup, Peer, ReviewFuture, Reviewer, TrustStatus,
};
use kubevitals_telemetry::OutageLog;
use kubevitals_tls::TrustRoots;

use crate::metrics::KubeletMetrics;
use crate::response::Failure;
use crate::route::Permission;

/// The key of the authority of client certificates in the ConfigMap
/// `kube-system/extension-apiserver-authentication`.
const CLIENT_CA: &str = "client-ca-file";

/// Who may send requests.
pub enum AccessControl {
    /// Users are authenticated by client certificate or bearer token, and need permissions on the
    /// Node. Whoever is not allowed is denied.
    Delegated {
        authentication: Box<AuthenticationConfig>,
        authorization: Box<AuthorizationConfig>,
    },
    /// Everybody may do everything, commands in containers included: for tests on loopback.
    AlwaysAllow,
}

/// Admits requests.
pub(crate) enum Gate {
    Checked(Box<Access>),
    Open,
}

/// Reads the authority of client certificates alone: a kubelet accepts no front proxy.
struct ClientCaOnly<R>(Arc<R>);

impl AccessControl {
    /// The kubelet's defaults: tokens are cached for two minutes, permissions for five, denials for
    /// thirty seconds, and anonymous requests are rejected.
    ///
    /// Without `client_ca` the authority is read from the ConfigMap
    /// `kube-system/extension-apiserver-authentication`: the API server's own requests, such as
    /// those of `kubectl logs`, come with a client certificate.
    pub fn delegated<R: Reviewer + AuthenticationSource>(
        reviewer: &Arc<R>,
        client_ca: Option<Arc<TrustRoots>>,
    ) -> Self {
        let tokens: Arc<dyn Reviewer> = Arc::<R>::clone(reviewer);
        let lookup = client_ca
            .is_none()
            .then(|| Lookup::new(Arc::new(ClientCaOnly(Arc::clone(reviewer)))));
        Self::Delegated {
            authentication: Box::new(AuthenticationConfig {
                tokens: Some(Arc::clone(&tokens)),
                token_ttl: Duration::from_mins(2),
                client_ca,
                front_proxy: None,
                lookup,
                anonymous: false,
            }),
            authorization: Box::new(AuthorizationConfig {
                access: tokens,
                allowed_ttl: Duration::from_mins(5),
                denied_ttl: Duration::from_secs(30),
                always_allow_paths: Vec::new(),
                always_allow_groups: Vec::new(),
            }),
        }
    }
}

impl<R: AuthenticationSource> AuthenticationSource for ClientCaOnly<R> {
    fn authentication(&self) -> ReviewFuture<'_, Option<BTreeMap<String, String>>> {
        Box::pin(async {
            let mut data = self.0.authentication().await?;
            if let Some(data) = &mut data {
                data.retain(|key, _| key == CLIENT_CA);
            }
            Ok(data)
        })
    }
}

impl Gate {
    /// Returns also the tasks that refresh authorities.
    pub(crate) fn new(
        control: AccessControl,
        metrics: &KubeletMetrics,
        outage: &OutageLog,
    ) -> Result<(Self, Vec<BackgroundTask>), ApiServerError> {
        let AccessControl::Delegated {
            authentication,
            authorization,
        } = control
        else {
            return Ok((Self::Open, Vec::new()));
        };
        let (access, tasks) =
            Access::new(*authentication, &authorization, metrics.access(), outage)?;
        Ok((Self::Checked(Box::new(access)), tasks))
    }

    pub(crate) fn trust_status(&self) -> Option<TrustStatus> {
        match self {
            Self::Checked(access) => Some(access.trust_status()),
            Self::Open => None,
        }
    }

    /// Authenticates a request. Returns whether its user is known, rather than anonymous. The
    /// headers that identify the user are removed.
    pub(crate) async fn admit(
        &self,
        peer: &Peer,
        headers: &mut HeaderMap,
        node_name: &str,
        permissions: Vec<Permission>,
    ) -> Result<bool, Failure> {
        let Self::Checked(access) = self else {
            return Ok(false);
        };
        let identity = access.authenticate(peer, headers).await?;
        let first = permissions.first().copied();
        let attributes = permissions
            .into_iter()
            .map(|permission| attributes(node_name, permission));
        match access.authorize_any(&identity.user, attributes).await {
            Ok(()) => Ok(!identity.is_anonymous),
            Err(error) if error.code == StatusCode::FORBIDDEN => {
                let (verb, subresource) =
                    first.map_or(("", ""), |first| (first.verb, first.subresource));
                let user = &identity.user.name;
                let message = format!(
                    "Forbidden (user={user}, verb={verb}, resource=nodes, subresource={subresource})"
                );
                Err(Failure::new(StatusCode::FORBIDDEN, message))
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// The attributes of a request to a kubelet.
fn attributes(node_name: &str, permission: Permission) -> Attributes {
    Attributes::Resource {
        verb: permission.verb.to_owned(),
        group: String::new(),
        version: String::from("v1"),
        resource: String::from("nodes"),
        subresource: permission.subresource.to_owned(),
        namespace: String::new(),
        name: node_name.to_owned(),
        field_selector: Vec::new(),
        label_selector: Vec::new(),
    }
}
