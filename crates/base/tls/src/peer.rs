//! Verification of server certificates: by the dialled name, by a set of names, or not at all.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use crate::pin::{PinCheck, Pinning};
use crate::x509::{CertificateInfo, listing};
use crate::{HandshakeFailure, PinnedKey, TlsError, TrustRoots};

/// Maximum number of names in a set. A Node object has about five.
pub const MAX_PEER_NAMES: usize = 64;

/// The DNS names and addresses by which a peer may identify itself.
///
/// For a kubelet these are the node's name and all addresses in its status. The peer is accepted if
/// its certificate is for *any* of them, whichever address was dialled. A node writes its own
/// status, so the set holds the names that the node claims; that it is a node at all is decided by
/// the CA bundle, which should therefore be the cluster's own and not the public authorities.
#[derive(Clone, PartialEq, Eq)]
pub struct PeerNames(Arc<[ServerName<'static>]>);

/// Verifies the chain against the current roots, and then the names.
#[derive(Debug)]
pub(crate) struct PeerVerifier {
    roots: Arc<TrustRoots>,
    algorithms: WebPkiSupportedAlgorithms,
    /// `None` for the dialled name.
    names: Option<PeerNames>,
    /// For certificates of unknown authorities.
    pinning: Option<Pinning>,
}

/// Accepts any certificate, but requires the peer to prove that it holds the key.
#[derive(Debug)]
pub(crate) struct NoVerification {
    algorithms: WebPkiSupportedAlgorithms,
}

impl PeerNames {
    /// Creates a set from names and textual addresses, such as those of a Node object.
    ///
    /// Duplicates, entries that are neither a DNS name nor an address, and those beyond
    /// [`MAX_PEER_NAMES`] are ignored: one invalid address must not cost a node its metrics. It is
    /// an error if none is left.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, TlsError> {
        let mut set: Vec<ServerName<'static>> = Vec::new();
        let mut given = 0_usize;
        for name in names {
            given = given.saturating_add(1);
            // A fully qualified name may end in a dot; certificates omit it.
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

    /// Returns the names in the given order.
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

    /// Verifies a certificate of an unknown authority by the pinned key.
    fn verify_pin(&self, end_entity: &CertificateDer<'_>, error: Error) -> Result<(), Error> {
        let Some(pinning) = &self.pinning else {
            return Err(error);
        };
        match pinning.check(end_entity) {
            PinCheck::Match | PinCheck::First => Ok(()),
            PinCheck::Mismatch => Err(HandshakeFailure::KeyChanged.into_rustls()),
            PinCheck::Unreadable => Err(error),
        }
    }

    fn confirm_pin(&self, certificate: &CertificateDer<'_>) {
        if let Some(pinning) = &self.pinning {
            pinning.confirm(certificate);
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
            Ok(()) => {
                self.verify_names(&certificate, server_name, end_entity)?;
                if let Some(pinning) = &self.pinning {
                    pinning.verified(end_entity);
                }
            }
            // A certificate of a trusted authority that is expired or for another peer is not
            // pinned.
            Err(error) => {
                let is_unknown = is_unknown_issuer(&error, end_entity);
                let error = explain(error, end_entity);
                if !is_unknown {
                    return Err(error);
                }
                self.verify_pin(end_entity, error)?;
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
        self.confirm_pin(certificate);
        Ok(valid)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let valid = verify_tls13_signature(message, certificate, signature, &self.algorithms)?;
        self.confirm_pin(certificate);
        Ok(valid)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl NoVerification {
    pub(crate) fn new(algorithms: WebPkiSupportedAlgorithms) -> Self {
        Self { algorithms }
    }
}

impl ServerCertVerifier for NoVerification {
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

/// Returns whether no authority in the bundle signed the certificate. A CA certificate counts too,
/// since it is self-signed.
fn is_unknown_issuer(error: &Error, der: &CertificateDer<'_>) -> bool {
    match error {
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => true,
        Error::InvalidCertificate(CertificateError::Other(_)) => {
            CertificateInfo::parse(der).is_some_and(|info| info.is_authority)
        }
        _ => false,
    }
}

/// Adds details for operators to errors of webpki.
fn explain(error: Error, der: &CertificateDer<'_>) -> Error {
    let Error::InvalidCertificate(verdict) = &error else {
        return error;
    };
    let Some(info) = CertificateInfo::parse(der) else {
        return error;
    };
    match verdict {
        CertificateError::UnknownIssuer => {
            let issuer = info.issuer;
            HandshakeFailure::UntrustedIssuer { issuer }.into_rustls()
        }
        // Kubernetes distributions give the CA of every cluster the same name, so that the issuer
        // of a certificate of a former cluster seems to be in the bundle.
        CertificateError::BadSignature => {
            let issuer = format!(
                "{} (the bundle has one of that name, with another key)",
                info.issuer
            );
            HandshakeFailure::UntrustedIssuer { issuer }.into_rustls()
        }
        CertificateError::Other(_) if info.is_authority => {
            let subject = info.subject;
            HandshakeFailure::AuthorityAsServer { subject }.into_rustls()
        }
        _ => error,
    }
}

fn presented_names(der: &CertificateDer<'_>) -> String {
    match CertificateInfo::parse(der) {
        Some(info) if info.names.is_empty() => format!(
            "no name (it has no subject alternative names, only the subject {})",
            info.subject
        ),
        Some(info) => listing(info.names.iter().map(String::as_str), info.more_names),
        None => "unreadable names".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_names_are_kept_once() {
        let names = PeerNames::new(["worker-1", "10.0.0.7", "not a name", "worker-1.", "fd00::7"]);
        assert_eq!(names.unwrap().to_string(), "worker-1, 10.0.0.7, fd00::7");
    }

    #[test]
    fn a_set_without_a_valid_name_is_rejected() {
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
