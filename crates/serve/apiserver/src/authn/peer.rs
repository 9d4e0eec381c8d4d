//! The certificate of a connection. It is judged against what is trusted now, since that changes
//! while connections last.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls_pki_types::{CertificateDer, UnixTime};
use tokio::time::Instant;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use super::trust::Trust;
use crate::review::UserInfo;

/// How long a judgement holds: a certificate that expires is noticed by then.
const HOLDS: Duration = Duration::from_secs(10);

/// What one connection showed.
#[derive(Default)]
pub(crate) struct Peer {
    chain: Vec<CertificateDer<'static>>,
    /// By common name and organisations.
    subject: Option<UserInfo>,
    judged: Mutex<Option<(Arc<Trust>, Instant, Judgement)>>,
}

/// What the certificate is worth.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Judgement {
    /// It may speak for others.
    pub(super) is_front_proxy: bool,
    /// It is this user's.
    pub(super) user: Option<UserInfo>,
    /// There is one, and an authority that was asked does not know it.
    pub(super) was_refused: bool,
}

impl Peer {
    pub(crate) fn new(chain: &[CertificateDer<'_>]) -> Self {
        let chain: Vec<CertificateDer<'static>> =
            chain.iter().map(|der| der.clone().into_owned()).collect();
        Self {
            subject: chain.first().and_then(|der| subject(der)),
            chain,
            judged: Mutex::new(None),
        }
    }

    pub(super) fn judge(&self, trust: &Arc<Trust>) -> Judgement {
        if self.chain.is_empty() {
            return Judgement::default();
        }
        let now = Instant::now();
        let mut judged = self.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((by, until, judgement)) = &*judged
            && Arc::ptr_eq(by, trust)
            && *until > now
        {
            return judgement.clone();
        }
        let judgement = self.judge_now(trust);
        *judged = Some((Arc::clone(trust), now + HOLDS, judgement.clone()));
        judgement
    }

    fn judge_now(&self, trust: &Trust) -> Judgement {
        let now = UnixTime::now();
        let mut judgement = Judgement::default();
        let name = self.subject.as_ref().map_or("", |user| user.name.as_str());
        if let Some(proxy) = trust.front_proxy() {
            let signed = proxy.authority.judge(&self.chain, now);
            let allowed =
                proxy.allowed_names.is_empty() || proxy.allowed_names.iter().any(|one| one == name);
            judgement.is_front_proxy = signed.is_ok() && allowed;
            judgement.was_refused |= !judgement.is_front_proxy;
        }
        if let Some(authority) = trust.client_authority() {
            match authority.judge(&self.chain, now) {
                Ok(()) => {
                    judgement.user = self.subject.clone().filter(|user| !user.name.is_empty());
                }
                Err(error) => {
                    tracing::debug!(%error, "a client certificate was not accepted");
                    judgement.was_refused = true;
                }
            }
        }
        judgement
    }
}

/// The last common name and all organisations: read from the encoding, not from its text, which a
/// name can forge.
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
