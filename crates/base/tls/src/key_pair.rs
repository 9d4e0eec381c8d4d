//! A certificate with its private key, read from files and reloaded, for servers and clients.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::client::ResolvesClientCert;
use rustls::server::{ClientHello, ParsedCertificate, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys, SignatureScheme};
use rustls_pki_types::CertificateDer;

use crate::TlsError;
use crate::pem::{PemSource, parse_certificates, parse_private_key};
use crate::provider::shared_provider;
use crate::refresh::{Refresh, RefreshStatus, Refreshed};
use crate::reload::{Contents, Parsed, Reloadable};
use crate::x509::CertificateInfo;

/// A certificate chain and its private key, reloaded when their sources change.
///
/// It serves both sides of a connection. Each new handshake uses the current certificate; existing
/// connections are not affected.
///
/// An expired certificate is accepted, since the operator configured it;
/// [`RefreshStatus::not_after`] shows it.
pub struct ReloadingKeyPair {
    inner: Reloadable<CertifiedKey>,
}

impl ReloadingKeyPair {
    /// Reads a chain (the own certificate first) and the key that belongs to it.
    pub fn load(
        name: &'static str,
        certificate: PemSource,
        key: PemSource,
        now: SystemTime,
    ) -> Result<Arc<Self>, TlsError> {
        let inner = Reloadable::load(name, vec![certificate, key], parse, now)?;
        Ok(Arc::new(Self { inner }))
    }

    /// Returns the chain that the next handshake presents, the own certificate first.
    pub fn chain(&self) -> Vec<CertificateDer<'static>> {
        self.inner.current().cert.clone()
    }
}

impl Refresh for ReloadingKeyPair {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn refresh(&self, now: SystemTime) -> Result<Refreshed, TlsError> {
        self.inner.refresh(now)
    }

    fn status(&self) -> Arc<RefreshStatus> {
        self.inner.status()
    }
}

impl ResolvesServerCert for ReloadingKeyPair {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.inner.current())
    }
}

impl ResolvesClientCert for ReloadingKeyPair {
    /// Returns the certificate whatever authorities the server hints at: the hints of Kubernetes
    /// servers are incomplete, and a server that rejects it sends an alert.
    fn resolve(
        &self,
        _root_hint_subjects: &[&[u8]],
        _schemes: &[SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        Some(self.inner.current())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl fmt::Debug for ReloadingKeyPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReloadingKeyPair")
            .field("name", &self.inner.name())
            .field("sources", &self.inner.sources())
            .finish_non_exhaustive()
    }
}

fn parse(contents: &[Contents]) -> Result<Parsed<CertifiedKey>, TlsError> {
    let [certificate, key]: &[Contents; 2] = contents
        .try_into()
        .expect("`load` passes a certificate and a key");
    let pem = |contents: &Contents, problem| TlsError::Pem {
        origin: contents.origin.clone(),
        problem,
    };
    let chain =
        parse_certificates(&certificate.pem).map_err(|problem| pem(certificate, problem))?;
    for (index, der) in chain.iter().enumerate() {
        ParsedCertificate::try_from(der).map_err(|source| TlsError::Certificate {
            origin: certificate.origin.clone(),
            position: index + 1,
            source,
        })?;
    }
    let not_after = chain
        .first()
        .and_then(|leaf| CertificateInfo::parse(leaf))
        .map(|info| info.not_after);
    let private_key = parse_private_key(&key.pem).map_err(|problem| pem(key, problem))?;
    let signing_key = shared_provider()
        .key_provider
        .load_private_key(private_key)
        .map_err(|source| TlsError::PrivateKey {
            origin: key.origin.clone(),
            source,
        })?;
    let certified = CertifiedKey::new(chain, signing_key);
    match certified.keys_match() {
        Ok(()) | Err(Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(Parsed {
            value: certified,
            not_after,
        }),
        Err(_) => Err(TlsError::KeyMismatch {
            certificate: certificate.origin.clone(),
            key: key.origin.clone(),
            belongs_to: owner(&certified),
        }),
    }
}

/// Returns the position in the chain of the certificate that the key belongs to. A frequent mistake
/// is to put the CA first.
fn owner(certified: &CertifiedKey) -> Option<usize> {
    let public_key = certified.key.public_key()?;
    let owner = certified.cert.iter().position(|der| {
        ParsedCertificate::try_from(der)
            .is_ok_and(|certificate| certificate.subject_public_key_info() == public_key)
    })?;
    Some(owner + 1)
}
