//! Client certificates that are requested but never required, and verified after the handshake.
//!
//! Kubernetes servers do the same: a client with an unknown certificate is connected, and receives
//! 401 by HTTP. It also lets one server distinguish authorities, such as those of users and of
//! front proxies.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, UnixTime};

use crate::provider::shared_provider;
use crate::{TlsError, TrustRoots};

/// Requests a client certificate and accepts any, or none. The client must prove to hold its key.
/// Verify the chain afterwards with a [`ClientAuthority`].
#[derive(Debug)]
pub struct RequestClientCertificate {
    algorithms: WebPkiSupportedAlgorithms,
}

/// Verifies client certificates against a set of authorities.
#[derive(Debug, Clone)]
pub struct ClientAuthority {
    verifier: Arc<dyn ClientCertVerifier>,
}

impl RequestClientCertificate {
    /// Returns a verifier for
    /// [`ServerOptions::client_verifier`](crate::ServerOptions::client_verifier).
    pub fn verifier() -> Arc<dyn ClientCertVerifier> {
        Arc::new(Self {
            algorithms: shared_provider().signature_verification_algorithms,
        })
    }
}

impl ClientAuthority {
    /// Uses the authorities that `roots` hold now; later reloads need a new one.
    pub fn new(roots: &TrustRoots) -> Result<Self, TlsError> {
        let provider = Arc::clone(shared_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.current(), provider)
            .build()
            .map_err(|source| TlsError::Configuration(Error::General(source.to_string())))?;
        Ok(Self { verifier })
    }

    /// Verifies that the chain (the client's own certificate first) leads to an authority, is meant
    /// for clients and is valid at `now`.
    pub fn verify(&self, chain: &[CertificateDer<'_>], now: UnixTime) -> Result<(), Error> {
        let Some((own, intermediates)) = chain.split_first() else {
            return Err(Error::NoCertificatesPresented);
        };
        self.verifier
            .verify_client_cert(own, intermediates, now)
            .map(drop)
    }
}

impl ClientCertVerifier for RequestClientCertificate {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    /// Sends no hints: a client that has a certificate sends it.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _own: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
