//! Authentication and authorization.

pub(crate) mod authority;
pub(crate) mod authorize;
pub(crate) mod tokens;

use std::collections::BTreeMap;

use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

pub use authority::IssuedCertificate;
pub use authorize::Rule;

/// Name of unauthenticated users.
pub(crate) const ANONYMOUS: &str = "system:anonymous";
/// Group of all authenticated users.
pub(crate) const AUTHENTICATED: &str = "system:authenticated";
/// Group of all unauthenticated users.
pub(crate) const UNAUTHENTICATED: &str = "system:unauthenticated";
/// Group of users with all permissions.
pub(crate) const MASTERS: &str = "system:masters";

/// A user of the API.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    /// For example `system:serviceaccount:kube-system:metrics-server`.
    pub name: String,
    /// Empty unless the user is a `ServiceAccount`.
    pub uid: String,
    /// Without `system:authenticated` and `system:unauthenticated`.
    pub groups: Vec<String>,
    /// Further attributes of the authenticator.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    pub fn new<'a>(name: impl Into<String>, groups: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            name: name.into(),
            groups: groups.into_iter().map(str::to_owned).collect(),
            ..Self::default()
        }
    }

    /// The user of a `ServiceAccount`.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        let all = "system:serviceaccounts".to_owned();
        Self {
            name: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![all.clone(), format!("{all}:{namespace}")],
            ..Self::default()
        }
    }

    pub(crate) fn anonymous() -> Self {
        Self::new(ANONYMOUS, [UNAUTHENTICATED])
    }

    /// Adds the group of authenticated users.
    pub(crate) fn authenticated(mut self) -> Self {
        if self.name != ANONYMOUS && !self.groups.iter().any(|group| group == AUTHENTICATED) {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }

    /// The user of a client certificate: the common name, with organizations as groups.
    pub(crate) fn of_certificate(der: &CertificateDer<'_>) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let text = |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| {
            attribute.as_str().ok().map(str::to_owned)
        };
        let name = subject
            .iter_common_name()
            .find_map(text)
            .filter(|name| !name.is_empty())?;
        Some(Self {
            name,
            groups: subject.iter_organization().filter_map(text).collect(),
            ..Self::default()
        })
    }
}
