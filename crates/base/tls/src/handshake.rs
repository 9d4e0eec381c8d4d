//! Why a handshake failed, in words that tell an operator what to do.

use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustls::{AlertDescription, CertificateError, Error, OtherError};
use thiserror::Error as ThisError;

use crate::x509::{bounded, rfc3339};

/// Why a TLS handshake failed.
///
/// The set is closed, so that callers can count failures by [`reason`](Self::reason) and never miss
/// one. All text in it is bounded, whatever the peer sent.
#[derive(Debug, Clone, PartialEq, Eq, ThisError)]
pub enum HandshakeFailure {
    /// The chain is trusted, but the certificate is for others.
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
        /// Who signed it, by its own account.
        issuer: String,
    },
    /// A certificate of the chain is no longer valid.
    #[error("the certificate expired{}", at(" at ", *not_after))]
    Expired {
        /// The last moment at which it was valid.
        not_after: Option<SystemTime>,
    },
    /// A certificate of the chain is not valid yet.
    #[error("the certificate is not valid yet{}; is a clock wrong?", at(" but from ", *not_before))]
    NotYetValid {
        /// When it becomes valid.
        not_before: Option<SystemTime>,
    },
    /// An authority's certificate was presented as that of a server.
    #[error(
        "the server presents the certificate of an authority ({subject}) as its own; \
             it needs one that is not marked as CA"
    )]
    AuthorityAsServer {
        /// Whose certificate it is.
        subject: String,
    },
    /// The certificate is damaged, revoked, badly signed or meant for another purpose.
    #[error("the certificate cannot be accepted: {detail}")]
    BadCertificate {
        /// What is wrong.
        detail: String,
    },
    /// The peer has another key than the one that was pinned at first sight.
    #[error(
        "the certificate is for another key than the one seen first, and no authority vouches for it; \
             if the key was renewed on purpose, restart to trust it"
    )]
    KeyChanged,
    /// The peer ended the handshake, perhaps because it did not like our certificate.
    #[error("the peer refused the connection with the TLS alert {alert}")]
    RefusedByPeer {
        /// The alert's name.
        alert: String,
    },
    /// No common ground: other versions or suites, a bad signature, or no TLS at all.
    #[error("the TLS handshake failed: {detail}")]
    Protocol {
        /// What is wrong.
        detail: String,
    },
}

impl HandshakeFailure {
    /// A short name that is safe as a metric label.
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

    /// The failure behind an I/O error of a TLS stream, or `None` if TLS is not what failed: a
    /// reset or a connection that was closed early.
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

    /// The form in which a verifier reports the failure, to be found again by `from_rustls`.
    ///
    /// The peer sees the alert `certificate_unknown`: less exact than `unknown_ca`, but rustls
    /// leaves no room for our own text in the errors that map to the exact ones.
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

/// The alert as RFC 8446 spells it, from the library's camel case.
fn alert_name(alert: AlertDescription) -> String {
    let mut name = String::new();
    let mut word_goes_on = false;
    for c in bounded(&format!("{alert:?}")).chars() {
        if c.is_ascii_uppercase() && word_goes_on {
            name.push('_');
        }
        word_goes_on = c.is_ascii_lowercase();
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
    fn alerts_are_named_as_in_the_standard() {
        let error = Error::AlertReceived(AlertDescription::UnknownCA);
        let failure = HandshakeFailure::from_rustls(&error);
        assert_eq!(
            failure.to_string(),
            "the peer refused the connection with the TLS alert unknown_ca"
        );
        assert_eq!(failure.reason(), "tls-refused");
    }

    #[test]
    fn plain_text_peers_are_a_protocol_failure() {
        let error = Error::InvalidMessage(InvalidMessage::InvalidContentType);
        let failure = HandshakeFailure::from_rustls(&error);
        assert_eq!(failure.reason(), "tls-protocol");
    }

    #[test]
    fn a_failure_survives_its_way_through_rustls() {
        let failure = HandshakeFailure::UntrustedIssuer {
            issuer: "CN=somebody".to_owned(),
        };
        let io = io::Error::new(io::ErrorKind::InvalidData, failure.clone().into_rustls());
        assert_eq!(HandshakeFailure::from_io(&io), Some(failure));
    }
}
