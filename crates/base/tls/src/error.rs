//! What can go wrong before a handshake: files, certificates, keys, settings.
//!
//! What goes wrong *in* a handshake is [`HandshakeFailure`](crate::HandshakeFailure).

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
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// A path names a directory, pipe or device.
    #[error("{} is not a regular file", path.display())]
    NotAFile {
        /// The path.
        path: PathBuf,
    },
    /// Contents exceed [`MAX_PEM_BYTES`](crate::MAX_PEM_BYTES).
    #[error("{origin} is larger than {limit} bytes, too large for certificates or keys")]
    TooLarge {
        /// Where the contents come from.
        origin: String,
        /// The most that is read.
        limit: usize,
    },
    /// A file changed each time it was read.
    #[error("{origin} keeps changing while it is read")]
    Unstable {
        /// Where the contents come from.
        origin: String,
    },
    /// Contents are not the PEM that was expected.
    #[error("{origin} {problem}")]
    Pem {
        /// Where the contents come from.
        origin: String,
        /// What is wrong with them.
        problem: PemProblem,
    },
    /// A PEM block labelled as a certificate holds none.
    #[error("{origin}: certificate {position} is not a valid X.509 certificate")]
    Certificate {
        /// Where the certificate comes from.
        origin: String,
        /// Its place in the file, from 1.
        position: usize,
        /// What the parser said.
        #[source]
        source: rustls::Error,
    },
    /// A private key has a form or kind that cannot be used.
    #[error("{origin}: the private key cannot be used (RSA, ECDSA and Ed25519 keys can)")]
    PrivateKey {
        /// Where the key comes from.
        origin: String,
        /// What the crypto library said.
        #[source]
        source: rustls::Error,
    },
    /// Certificate and private key do not belong together.
    #[error("the private key in {key} does not belong to the first certificate in {certificate}{}",
        key_hint(*belongs_to))]
    KeyMismatch {
        /// Where the certificate comes from.
        certificate: String,
        /// Where the key comes from.
        key: String,
        /// The place, from 1, of the certificate in the file that the key does belong to.
        belongs_to: Option<usize>,
    },
    /// No CA bundle was named at all.
    #[error("no CA bundle was given, so no peer could be verified")]
    NoTrustSources,
    /// None of the names given for a peer is a DNS name or an address.
    #[error("none of the {given} names given for the peer is a valid DNS name or IP address")]
    NoPeerNames {
        /// How many were given.
        given: usize,
    },
    /// An unknown or unsupported minimum TLS version.
    #[error("unsupported minimum TLS version {value:?}: use VersionTLS12 or VersionTLS13")]
    MinVersion {
        /// What was given.
        value: String,
    },
    /// A cipher suite name that nobody defines.
    #[error("unknown cipher suite {name:?}: use names such as {example}")]
    UnknownCipherSuite {
        /// What was given.
        name: String,
        /// A name that works.
        example: &'static str,
    },
    /// All suites named are ones that are not offered, or do not fit the minimum version.
    #[error("no usable cipher suite is left of {given:?}: add one of {usable}")]
    NoCipherSuite {
        /// What was given.
        given: String,
        /// The names that work.
        usable: String,
    },
    /// rustls refused the combination of settings.
    #[error("the TLS configuration is not consistent")]
    Configuration(#[source] rustls::Error),
    /// A name for a self-signed certificate is neither a DNS name nor an address.
    #[error("{name:?} is not a valid DNS name or IP address for a certificate")]
    SubjectName {
        /// What was given.
        name: String,
    },
    /// No name was given for a self-signed certificate.
    #[error("a self-signed certificate needs at least one DNS name or IP address")]
    NoSubjectNames,
    /// Validity periods that could not be renewed without a gap.
    #[error("validity periods do not fit together: {reason}")]
    Validity {
        /// Which rule is broken.
        reason: &'static str,
    },
    /// A key or certificate could not be made.
    #[error("cannot make a certificate")]
    Generate(#[source] rcgen::Error),
    /// The system's random source failed.
    #[error("the system gives no random numbers")]
    Random,
    /// A self-made certificate authority could not be kept.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        #[source]
        source: io::Error,
    },
    /// The file of a self-made certificate authority is not what this program writes.
    #[error("{} does not hold a certificate authority of this program ({reason}); \
             remove it to have a new one made", path.display())]
    StoredAuthority {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: &'static str,
    },
}

/// What is wrong with PEM text, worded to follow its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PemProblem {
    /// There is nothing at all.
    #[error("is empty")]
    Empty,
    /// There is no block of the wanted kind.
    #[error("contains no PEM certificate")]
    NoCertificate,
    /// There is no block of the wanted kind.
    #[error("contains no PEM private key")]
    NoPrivateKey,
    /// The key needs a pass phrase, which nothing could ask for.
    #[error("holds an encrypted private key: store it without a pass phrase")]
    EncryptedPrivateKey,
    /// A block has no end, as in a file that is still being written.
    #[error("holds a PEM block that is cut short")]
    Truncated,
    /// Markers or base64 text are damaged.
    #[error("holds damaged PEM text")]
    Damaged,
}

impl TlsError {
    /// The message with those of all its causes, for logs and status pages.
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
