//! What a peer presents in a handshake, whether it is accepted or not.
//!
//! A probe reports when a certificate expires, above all if it already has.

use std::sync::{Arc, OnceLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::{DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// What a peer presented in one handshake. Clones are the same observation.
#[derive(Debug, Clone, Default)]
pub struct ObservedPeer(Arc<OnceLock<Observation>>);

#[derive(Debug)]
struct Observation {
    chain: Vec<CertificateDer<'static>>,
    is_accepted: bool,
}

/// Records the chain, and leaves the verdict to another verifier.
#[derive(Debug)]
struct ObservingVerifier {
    inner: Arc<dyn ServerCertVerifier>,
    peer: ObservedPeer,
}

impl ObservedPeer {
    /// Returns a verifier for one handshake, and what it will observe.
    pub(crate) fn observing(
        inner: Arc<dyn ServerCertVerifier>,
    ) -> (Arc<dyn ServerCertVerifier>, Self) {
        let peer = Self::default();
        let verifier = ObservingVerifier {
            inner,
            peer: peer.clone(),
        };
        (Arc::new(verifier), peer)
    }

    /// Returns the chain as it was presented, the peer's own certificate first; empty if the
    /// handshake did not get that far. rustls limits it to 64 KiB.
    pub fn chain(&self) -> &[CertificateDer<'static>] {
        self.0.get().map_or(&[], |seen| &seen.chain)
    }

    /// Returns whether the chain and the name were accepted. Without verification all are.
    pub fn is_accepted(&self) -> bool {
        self.0.get().is_some_and(|seen| seen.is_accepted)
    }
}

impl ServerCertVerifier for ObservingVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let verdict = self.inner.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        let presented = std::iter::once(end_entity).chain(intermediates);
        let _one_handshake_has_one_chain = self.peer.0.set(Observation {
            chain: presented.map(|der| der.clone().into_owned()).collect(),
            is_accepted: verdict.is_ok(),
        });
        verdict
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.inner
            .verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}
