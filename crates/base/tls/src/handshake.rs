//! The reasons of failed handshakes.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::{AlertDescription, CertificateError, Error, OtherError};
use thiserror::Error as ThisError;

use crate::x509::{bounded, rfc3339};

/// The reason of a failed TLS handshake.
///
/// The set is closed, so that callers can count failures by [`reason`](Self::reason). All text is
/// bounded, whatever the peer sent.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum HandshakeFailure {
    /// The chain is trusted, but the certificate is for other names.
    #[error("the certificate is valid for {presented}, not for {wanted}")]
    NameMismatch {
        /// The names and addresses that would have been accepted.
        wanted: String,
        /// The names and addresses in the certificate.
        presented: String,
    },
    /// No authority in the current CA bundle signed the certificate.
    #[error("the certificate is signed by an authority that is not in the CA bundle: {issuer}")]
    UntrustedIssuer {
        /// The issuer that the certificate names.
        issuer: String,
    },
    /// A certificate of the chain is no longer valid.
    #[error("the certificate expired{}", at(" at ", *not_after))]
    Expired { not_after: Option<SystemTime> },
    /// A certificate of the chain is not valid yet.
    #[error("the certificate is not valid yet{}; is a clock wrong?", at(" but only from ", *not_before))]
    NotYetValid { not_before: Option<SystemTime> },
    /// A CA certificate was presented as a server certificate.
    #[error(
        "the server presents a CA certificate ({subject}) as its own; \
             it needs one that is not marked as CA"
    )]
    AuthorityAsServer { subject: String },
    /// The certificate is damaged, revoked, badly signed or meant for another purpose.
    #[error("invalid certificate: {detail}")]
    BadCertificate { detail: String },
    /// The peer has another key than the pinned one.
    #[error(
        "the key of the certificate differs from the pinned one, and no trusted authority signed it; \
             if the key was renewed on purpose, restart to trust it"
    )]
    KeyChanged,
    /// The peer ended the handshake, possibly because it rejected the client certificate.
    #[error("the peer rejected the handshake with the alert {alert}")]
    RefusedByPeer { alert: String },
    /// No common version or suite, an invalid signature, or no TLS at all.
    #[error("protocol error: {detail}")]
    Protocol { detail: String },
}

impl HandshakeFailure {
    /// Returns a short name for metric labels.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NameMismatch { .. } => "tls-san",
            Self::UntrustedIssuer { .. } => "tls-ca",
            Self::Expired { .. } => "tls-expired",
            Self::NotYetValid { .. } => "tls-not-yet-valid",
            Self::AuthorityAsServer { .. } | Self::BadCertificate { .. } => "tls-certificate",
            Self::KeyChanged => "tls-pin",
            Self::RefusedByPeer { .. } => "tls-refused",
            Self::Protocol { .. } => "tls-protocol",
        }
    }

    /// Returns the reason of an I/O error of a TLS stream, or `None` if it is not of TLS: a reset
    /// or a connection that was closed early.
    pub fn from_io(error: &io::Error) -> Option<Self> {
        error
            .get_ref()?
            .downcast_ref::<Error>()
            .map(Self::from_rustls)
    }

    /// Classifies an error of rustls.
    pub fn from_rustls(error: &Error) -> Self {
        match error {
            Error::InvalidCertificate(error) => Self::from_certificate(error),
            Error::NoCertificatesPresented => Self::BadCertificate {
                detail: "the peer presented none".to_owned(),
            },
            Error::AlertReceived(alert) => Self::RefusedByPeer {
                alert: alert_name(*alert),
            },
            other => Self::Protocol {
                detail: bounded(&other.to_string()),
            },
        }
    }

    /// Wraps the failure for a verifier; `from_rustls` unwraps it.
    ///
    /// The peer receives the alert `certificate_unknown`, which is less specific than `unknown_ca`,
    /// but the errors of rustls for the specific alerts cannot carry our text.
    pub(crate) fn into_rustls(self) -> Error {
        CertificateError::Other(OtherError(std::sync::Arc::new(self))).into()
    }

    fn from_certificate(error: &CertificateError) -> Self {
        match error {
            CertificateError::Other(OtherError(inner)) => match inner.downcast_ref::<Self>() {
                Some(failure) => failure.clone(),
                None => Self::BadCertificate {
                    detail: bounded(&inner.to_string()),
                },
            },
            CertificateError::Expired => Self::Expired { not_after: None },
            CertificateError::ExpiredContext { not_after, .. } => Self::Expired {
                not_after: system_time(not_after.as_secs()),
            },
            CertificateError::NotValidYet => Self::NotYetValid { not_before: None },
            CertificateError::NotValidYetContext { not_before, .. } => Self::NotYetValid {
                not_before: system_time(not_before.as_secs()),
            },
            CertificateError::UnknownIssuer => Self::UntrustedIssuer {
                issuer: "unnamed issuer".to_owned(),
            },
            CertificateError::NotValidForName => Self::NameMismatch {
                wanted: "the name that was dialled".to_owned(),
                presented: "other names".to_owned(),
            },
            CertificateError::NotValidForNameContext {
                expected,
                presented,
            } => Self::NameMismatch {
                wanted: bounded(&expected.to_str()),
                presented: bounded(&presented.join(", ")),
            },
            other => Self::BadCertificate {
                detail: bounded(&other.to_string()),
            },
        }
    }
}

/// Converts the name of an alert from camel case to the spelling of RFC 8446.
fn alert_name(alert: AlertDescription) -> String {
    let mut name = String::new();
    let mut in_word = false;
    for c in bounded(&format!("{alert:?}")).chars() {
        if c.is_ascii_uppercase() && in_word {
            name.push('_');
        }
        in_word = c.is_ascii_lowercase();
        name.push(c.to_ascii_lowercase());
    }
    name
}

fn at(preposition: &str, time: Option<SystemTime>) -> String {
    time.map(|time| format!("{preposition}{}", rfc3339(time)))
        .unwrap_or_default()
}

fn system_time(seconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use rustls::InvalidMessage;

    use super::*;

    #[test]
    fn a_reset_is_no_tls_failure() {
        assert_eq!(
            HandshakeFailure::from_io(&io::ErrorKind::ConnectionReset.into()),
            None
        );
        let eof = io::Error::new(io::ErrorKind::UnexpectedEof, "tls handshake eof");
        assert_eq!(HandshakeFailure::from_io(&eof), None);
    }

    #[test]
    fn alerts_are_spelled_as_in_rfc_8446() {
        let error = Error::AlertReceived(AlertDescription::UnknownCA);
        let failure = HandshakeFailure::from_rustls(&error);
        assert_eq!(
            failure.to_string(),
            "the peer rejected the handshake with the alert unknown_ca"
        );
        assert_eq!(failure.reason(), "tls-refused");
    }

    #[test]
    fn a_plain_text_peer_is_a_protocol_error() {
        let error = Error::InvalidMessage(InvalidMessage::InvalidContentType);
        let failure = HandshakeFailure::from_rustls(&error);
        assert_eq!(failure.reason(), "tls-protocol");
    }

    #[test]
    fn a_failure_passes_through_rustls_unchanged() {
        let failure = HandshakeFailure::UntrustedIssuer {
            issuer: "CN=somebody".to_owned(),
        };
        let io = io::Error::new(io::ErrorKind::InvalidData, failure.clone().into_rustls());
        assert_eq!(HandshakeFailure::from_io(&io), Some(failure));
    }
}
