//! The client certificate of a connection. It is verified against the current authorities, which
//! change while connections last.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::time::Instant;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::trust::Trust;
use crate::reviewer::UserInfo;

/// Lifetime of a verification: an expired certificate is detected by then.
const VERIFICATION_TTL: Duration = Duration::from_secs(10);

/// The client certificate of one connection, if it has one.
#[derive(Default)]
pub struct Peer {
    chain: Vec<CertificateDer<'static>>,
    /// The common name and the organizations.
    subject: Option<UserInfo>,
    verified: Mutex<Option<(Arc<Trust>, Instant, PeerIdentity)>>,
}

/// The result of verifying a client certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct PeerIdentity {
    pub(super) is_front_proxy: bool,
    /// The user that the certificate authenticates.
    pub(super) user: Option<UserInfo>,
    /// Whether there is a certificate that an authority rejects.
    pub(super) was_rejected: bool,
}

impl Peer {
    /// Reads the certificates that a client sent, its own first.
    pub fn new(chain: &[CertificateDer<'_>]) -> Self {
        let chain: Vec<CertificateDer<'static>> =
            chain.iter().map(|der| der.clone().into_owned()).collect();
        Self {
            subject: chain.first().and_then(|der| subject(der)),
            chain,
            verified: Mutex::new(None),
        }
    }

    pub(super) fn verify(&self, trust: &Arc<Trust>) -> PeerIdentity {
        if self.chain.is_empty() {
            return PeerIdentity::default();
        }
        let now = Instant::now();
        let mut verified = self.verified.lock();
        if let Some((by, until, identity)) = &*verified
            && Arc::ptr_eq(by, trust)
            && *until > now
        {
            return identity.clone();
        }
        let identity = self.verify_now(trust);
        *verified = Some((Arc::clone(trust), now + VERIFICATION_TTL, identity.clone()));
        identity
    }

    fn verify_now(&self, trust: &Trust) -> PeerIdentity {
        let now = UnixTime::now();
        let mut identity = PeerIdentity::default();
        let name = self.subject.as_ref().map_or("", |user| user.name.as_str());
        if let Some(proxy) = trust.front_proxy() {
            let signed = proxy.authority.verify(&self.chain, now);
            let allowed =
                proxy.allowed_names.is_empty() || proxy.allowed_names.iter().any(|one| one == name);
            identity.is_front_proxy = signed.is_ok() && allowed;
            identity.was_rejected |= !identity.is_front_proxy;
        }
        if let Some(authority) = trust.client_authority() {
            match authority.verify(&self.chain, now) {
                Ok(()) => {
                    identity.user = self.subject.clone().filter(|user| !user.name.is_empty());
                }
                Err(error) => {
                    tracing::debug!(%error, "client certificate rejected");
                    identity.was_rejected = true;
                }
            }
        }
        identity
    }
}

/// Returns the last common name and all organizations, read from the encoding: a name can forge the
/// text form.
fn subject(der: &[u8]) -> Option<UserInfo> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let subject = certificate.subject();
    let name = subject
        .iter_common_name()
        .filter_map(|attribute| attribute.as_str().ok())
        .last()
        .unwrap_or_default();
    let groups = subject
        .iter_organization()
        .filter_map(|attribute| attribute.as_str().ok())
        .map(str::to_owned)
        .collect();
    Some(UserInfo {
        name: name.to_owned(),
        groups,
        ..UserInfo::default()
    })
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn names_are_read_from_the_encoding() {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "ada, O=system:masters");
        params
            .distinguished_name
            .push(DnType::OrganizationName, "readers");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let user = subject(certificate.der()).unwrap();
        assert_eq!(user.name, "ada, O=system:masters");
        assert_eq!(user.groups, ["readers"]);
        assert_eq!(subject(b"rubbish"), None);
    }
}
