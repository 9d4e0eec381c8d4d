//! Judging a server's certificate: by the name dialled, by a set of names, or not at all.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::pin::{Judgement, Pinning};
use crate::x509::{CertificateFacts, listing};
use crate::{HandshakeFailure, PinnedKey, TlsError, TrustRoots};

/// The most names that a set keeps; a Node object has about five.
pub const MAX_PEER_NAMES: usize = 64;

/// The DNS names and addresses by which a peer may identify itself.
///
/// For a kubelet these are the node's name and all addresses in its status. The peer is accepted if
/// its certificate is for *any* of them, whichever address was dialled. A node writes its own
/// status, so the set says who the node claims to be; that it is a node at all is for the CA bundle
/// to decide, which should therefore be the cluster's own and not the public authorities.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerNames(Arc<[ServerName<'static>]>);

/// Verifies against the current roots, and then the names.
#[derive(Debug)]
pub(crate) struct PeerVerifier {
    roots: Arc<TrustRoots>,
    algorithms: WebPkiSupportedAlgorithms,
    /// `None`: the name that was dialled.
    names: Option<PeerNames>,
    /// What is asked where no authority vouches for the peer.
    pinning: Option<Pinning>,
}

/// Accepts any certificate, but still makes the peer prove that it holds the key.
#[derive(Debug)]
pub(crate) struct AcceptAnyone {
    algorithms: WebPkiSupportedAlgorithms,
}

impl PeerNames {
    /// A set from names and textual addresses, such as those of a Node object.
    ///
    /// Doubles, entries that are neither a DNS name nor an address, and whatever exceeds
    /// [`MAX_PEER_NAMES`] are left out: one bad address must not cost a node its metrics. It is an
    /// error if nothing is left.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, TlsError> {
        let mut set: Vec<ServerName<'static>> = Vec::new();
        let mut given = 0_usize;
        for name in names {
            given = given.saturating_add(1);
            // A fully qualified name may end in a dot; certificates leave it out.
            let name = name.strip_suffix('.').unwrap_or(name);
            let Ok(name) = ServerName::try_from(name) else {
                continue;
            };
            if set.len() < MAX_PEER_NAMES && !set.contains(&name) {
                set.push(name.to_owned());
            }
        }
        if set.is_empty() {
            return Err(TlsError::NoPeerNames { given });
        }
        Ok(Self(set.into()))
    }

    /// The names, in the order given.
    pub fn iter(&self) -> impl Iterator<Item = &ServerName<'static>> {
        self.0.iter()
    }
}

impl fmt::Display for PeerNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.0.iter().map(ServerName::to_str).collect();
        f.write_str(&listing(names.iter().map(AsRef::as_ref), 0))
    }
}

impl fmt::Debug for PeerNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerNames({self})")
    }
}

impl PeerVerifier {
    pub(crate) fn new(
        roots: Arc<TrustRoots>,
        algorithms: WebPkiSupportedAlgorithms,
        names: Option<PeerNames>,
        pin: Option<PinnedKey>,
    ) -> Self {
        Self {
            roots,
            algorithms,
            names,
            pinning: pin.map(Pinning::new),
        }
    }

    /// Judges a certificate that no authority vouches for, by the key that the peer had before.
    fn judge_by_pin(&self, end_entity: &CertificateDer<'_>, error: Error) -> Result<(), Error> {
        let Some(pinning) = &self.pinning else {
            return Err(error);
        };
        match pinning.judge(end_entity) {
            Judgement::Known | Judgement::First => Ok(()),
            Judgement::Changed => Err(HandshakeFailure::KeyChanged.into_rustls()),
            Judgement::Unreadable => Err(error),
        }
    }

    fn proven(&self, certificate: &CertificateDer<'_>) {
        if let Some(pinning) = &self.pinning {
            pinning.proven(certificate);
        }
    }

    fn verify_names(
        &self,
        certificate: &ParsedCertificate<'_>,
        dialled: &ServerName<'_>,
        der: &CertificateDer<'_>,
    ) -> Result<(), Error> {
        let verify = |name: &ServerName<'_>| match verify_server_name(certificate, name) {
            Err(error) if !is_name_mismatch(&error) => Err(error),
            verdict => Ok(verdict.is_ok()),
        };
        let wanted = match &self.names {
            None => {
                if verify(dialled)? {
                    return Ok(());
                }
                dialled.to_str().into_owned()
            }
            Some(names) => {
                for name in names.iter() {
                    if verify(name)? {
                        return Ok(());
                    }
                }
                format!("any of {names}")
            }
        };
        let presented = presented_names(der);
        Err(HandshakeFailure::NameMismatch { wanted, presented }.into_rustls())
    }
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificate = ParsedCertificate::try_from(end_entity)?;
        let verdict = verify_server_cert_signed_by_trust_anchor(
            &certificate,
            &self.roots.current(),
            intermediates,
            now,
            self.algorithms.all,
        );
        match verdict {
            Ok(()) => self.verify_names(&certificate, server_name, end_entity)?,
            // A certificate of our own authorities that is out of date or for another peer stays
            // refused.
            Err(error) => {
                let is_nobodys = is_unknown_issuer(&error, end_entity);
                let error = explain(error, end_entity);
                if !is_nobodys {
                    return Err(error);
                }
                self.judge_by_pin(end_entity, error)?;
            }
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let valid = verify_tls12_signature(message, certificate, signature, &self.algorithms)?;
        self.proven(certificate);
        Ok(valid)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let valid = verify_tls13_signature(message, certificate, signature, &self.algorithms)?;
        self.proven(certificate);
        Ok(valid)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl AcceptAnyone {
    pub(crate) fn new(algorithms: WebPkiSupportedAlgorithms) -> Self {
        Self { algorithms }
    }
}

impl ServerCertVerifier for AcceptAnyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
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

fn is_name_mismatch(error: &Error) -> bool {
    matches!(
        error,
        Error::InvalidCertificate(
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. }
        )
    )
}

/// Whether no authority in the bundle signed it. An authority's own certificate counts too: it
/// vouches for itself.
fn is_unknown_issuer(error: &Error, der: &CertificateDer<'_>) -> bool {
    match error {
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => true,
        Error::InvalidCertificate(CertificateError::Other(_)) => {
            CertificateFacts::read(der).is_some_and(|facts| facts.is_authority)
        }
        _ => false,
    }
}

/// Adds what an operator needs to know where webpki says too little.
fn explain(error: Error, der: &CertificateDer<'_>) -> Error {
    let Error::InvalidCertificate(verdict) = &error else {
        return error;
    };
    let Some(facts) = CertificateFacts::read(der) else {
        return error;
    };
    match verdict {
        CertificateError::UnknownIssuer => {
            let issuer = facts.issuer;
            HandshakeFailure::UntrustedIssuer { issuer }.into_rustls()
        }
        // Kubernetes distributions call every cluster's authority by the same name, so that a
        // certificate of a former cluster meets a namesake in the bundle.
        CertificateError::BadSignature => {
            let issuer = format!("{} (one of that name is, with another key)", facts.issuer);
            HandshakeFailure::UntrustedIssuer { issuer }.into_rustls()
        }
        CertificateError::Other(_) if facts.is_authority => {
            let subject = facts.subject;
            HandshakeFailure::AuthorityAsServer { subject }.into_rustls()
        }
        _ => error,
    }
}

fn presented_names(der: &CertificateDer<'_>) -> String {
    match CertificateFacts::read(der) {
        Some(facts) if facts.names.is_empty() => format!(
            "no name at all (it has no subject alternative names, only the subject {})",
            facts.subject
        ),
        Some(facts) => listing(facts.names.iter().map(String::as_str), facts.more_names),
        None => "names that cannot be read".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_keep_what_is_valid_once() {
        let names = PeerNames::new(["worker-1", "10.0.0.7", "not a name", "worker-1.", "fd00::7"]);
        assert_eq!(names.unwrap().to_string(), "worker-1, 10.0.0.7, fd00::7");
    }

    #[test]
    fn a_set_without_a_valid_name_is_refused() {
        let error = PeerNames::new(["", "a b"]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "none of the 2 names given for the peer is a valid DNS name or IP address"
        );
    }

    #[test]
    fn sets_are_bounded() {
        let many: Vec<String> = (0..1000).map(|n| format!("n{n}")).collect();
        let names = PeerNames::new(many.iter().map(String::as_str)).unwrap();
        assert_eq!(names.iter().count(), MAX_PEER_NAMES);
        assert!(names.to_string().len() < 100, "{names}");
    }
}
