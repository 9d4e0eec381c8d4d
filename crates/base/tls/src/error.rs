//! Errors before a handshake: files, certificates, keys, settings.
//!
//! Errors *in* a handshake are [`HandshakeFailure`](crate::HandshakeFailure).

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// A certificate, key, bundle or setting that cannot be used.
///
/// `origin` is a file path or the label of an inline source. Messages never contain file contents:
/// the wrong file may hold a secret.
#[derive(Debug, Error)]
pub enum TlsError {
    /// A file could not be opened or read.
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// A path names a directory, pipe or device.
    #[error("{} is not a regular file", path.display())]
    NotAFile { path: PathBuf },
    /// Contents exceed [`MAX_PEM_BYTES`](crate::MAX_PEM_BYTES).
    #[error("{origin} is larger than {limit} bytes, too large for certificates or keys")]
    TooLarge { origin: String, limit: usize },
    /// A file changed each time it was read.
    #[error("{origin} keeps changing while it is read")]
    Unstable { origin: String },
    /// Contents are not the PEM that was expected.
    #[error("{origin} {problem}")]
    Pem { origin: String, problem: PemProblem },
    /// A PEM block labelled as a certificate holds none.
    #[error("{origin}: certificate {position} is not a valid X.509 certificate")]
    Certificate {
        origin: String,
        /// Its position in the file, from 1.
        position: usize,
        #[source]
        source: rustls::Error,
    },
    /// A private key has a form or kind that cannot be used.
    #[error("{origin}: the private key cannot be used (RSA, ECDSA and Ed25519 keys can)")]
    PrivateKey {
        origin: String,
        #[source]
        source: rustls::Error,
    },
    /// Certificate and private key do not belong together.
    #[error("the private key in {key} does not belong to the first certificate in {certificate}{}",
        key_hint(*belongs_to))]
    KeyMismatch {
        certificate: String,
        key: String,
        /// The position, from 1, of the certificate in the file that the key belongs to.
        belongs_to: Option<usize>,
    },
    #[error("no CA bundle was given, so no peer could be verified")]
    NoTrustSources,
    /// None of the names given for a peer is a DNS name or an address.
    #[error("none of the {given} names given for the peer is a valid DNS name or IP address")]
    NoPeerNames { given: usize },
    /// An unknown or unsupported minimum TLS version.
    #[error("unsupported minimum TLS version {value:?}: use VersionTLS12 or VersionTLS13")]
    MinVersion { value: String },
    /// A cipher suite that does not exist.
    #[error("unknown cipher suite {name:?}: use names such as {example}")]
    UnknownCipherSuite { name: String, example: &'static str },
    /// No suite of the list is supported.
    #[error("no usable cipher suite is left of {given:?}: add one of {usable}")]
    NoCipherSuite { given: String, usable: String },
    /// A key exchange group that does not exist.
    #[error("unknown key exchange group {item:?}: use numbers of {usable}")]
    UnknownKeyExchange { item: String, usable: String },
    /// No group of the list is supported.
    #[error("no usable key exchange group is left of {given:?}: add one of {usable}")]
    NoKeyExchange { given: String, usable: String },
    /// rustls rejected the combination of settings.
    #[error("the TLS configuration is not consistent")]
    Configuration(#[source] rustls::Error),
    /// A name for a self-signed certificate is neither a DNS name nor an address.
    #[error("{name:?} is not a valid DNS name or IP address for a certificate")]
    SubjectName { name: String },
    /// No name was given for a self-signed certificate.
    #[error("a self-signed certificate needs at least one DNS name or IP address")]
    NoSubjectNames,
    /// Validity periods that could not be renewed without a gap.
    #[error("validity periods do not fit together: {reason}")]
    Validity { reason: &'static str },
    #[error("cannot generate a key or certificate")]
    Generate(#[source] rcgen::Error),
    #[error("the random number generator of the system failed")]
    Random,
    /// The self-signed certificate authority could not be stored.
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The file of the self-signed certificate authority was not written by this program.
    #[error("{} does not hold a certificate authority of this program ({reason}); \
             remove it to generate a new one", path.display())]
    StoredAuthority { path: PathBuf, reason: &'static str },
}

/// A problem with PEM text, worded to follow the name of its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PemProblem {
    #[error("is empty")]
    Empty,
    #[error("contains no PEM certificate")]
    NoCertificate,
    #[error("contains no PEM private key")]
    NoPrivateKey,
    #[error("contains an encrypted private key: store it without a passphrase")]
    EncryptedPrivateKey,
    /// A block without an end, as in a file that is still being written.
    #[error("contains a truncated PEM block")]
    Truncated,
    /// Invalid markers or base64 text.
    #[error("contains invalid PEM text")]
    Invalid,
}

impl TlsError {
    /// Returns the message with those of all sources, for logs and status pages.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}

fn key_hint(belongs_to: Option<usize>) -> String {
    match belongs_to {
        Some(position) => {
            format!(" but to certificate {position} there: put the server's own certificate first")
        }
        None => String::new(),
    }
}
