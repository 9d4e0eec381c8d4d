//! PEM text from files or from a kubeconfig.

use std::fmt;
use std::fs::{self, File};
use std::io::Read;
use std::path::PathBuf;
use std::sync::Arc;

use rustls_pki_types::pem::{Error as PemError, PemObject};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::{PemProblem, TlsError};

/// Maximum size of a file. A Kubernetes Secret is no larger, and the bundle of public authorities
/// that distributions ship is a quarter of it.
pub const MAX_PEM_BYTES: usize = 1024 * 1024;

/// The source of PEM text.
#[derive(Clone)]
pub enum PemSource {
    /// A file, which may change while the process runs.
    File(PathBuf),
    /// Text from elsewhere, such as `certificate-authority-data` of a kubeconfig.
    Inline {
        /// Its name in messages.
        label: &'static str,
        pem: Arc<[u8]>,
    },
}

impl PemSource {
    /// Returns the name of the source for messages.
    pub fn origin(&self) -> String {
        match self {
            Self::File(path) => path.display().to_string(),
            Self::Inline { label, .. } => (*label).to_owned(),
        }
    }

    /// Reads the whole text, or fails if it is too large.
    pub(crate) fn read(&self) -> Result<Vec<u8>, TlsError> {
        let contents = match self {
            Self::Inline { pem, .. } => pem.to_vec(),
            Self::File(path) => {
                let failed = |source| TlsError::Read {
                    path: path.clone(),
                    source,
                };
                // Opening a pipe would wait for a writer.
                if !fs::metadata(path).map_err(failed)?.is_file() {
                    return Err(TlsError::NotAFile { path: path.clone() });
                }
                let mut contents = Vec::new();
                let limit = u64::try_from(MAX_PEM_BYTES)
                    .unwrap_or(u64::MAX)
                    .saturating_add(1);
                File::open(path)
                    .and_then(|file| file.take(limit).read_to_end(&mut contents))
                    .map_err(failed)?;
                contents
            }
        };
        if contents.len() > MAX_PEM_BYTES {
            return Err(TlsError::TooLarge {
                origin: self.origin(),
                limit: MAX_PEM_BYTES,
            });
        }
        Ok(contents)
    }
}

impl fmt::Debug for PemSource {
    /// Inline text may be a private key: only its size is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => f.debug_tuple("File").field(path).finish(),
            Self::Inline { label, pem } => {
                write!(f, "Inline({label}, {} bytes)", pem.len())
            }
        }
    }
}

impl From<PathBuf> for PemSource {
    fn from(path: PathBuf) -> Self {
        Self::File(path)
    }
}

/// Returns all certificates in a PEM text in order, ignoring other blocks.
///
/// Only the PEM encoding is checked; the certificates themselves may be invalid.
pub fn parse_certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PemProblem> {
    let certificates = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| problem(&error, PemProblem::NoCertificate))?;
    if certificates.is_empty() {
        return Err(if is_blank(pem) {
            PemProblem::Empty
        } else {
            PemProblem::NoCertificate
        });
    }
    Ok(certificates)
}

/// Returns the first private key in a PEM text (PKCS#8, PKCS#1 or SEC1), ignoring other blocks.
pub fn parse_private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, PemProblem> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| {
        match problem(&error, PemProblem::NoPrivateKey) {
            PemProblem::NoPrivateKey if is_blank(pem) => PemProblem::Empty,
            PemProblem::NoPrivateKey | PemProblem::Invalid if is_encrypted(pem) => {
                PemProblem::EncryptedPrivateKey
            }
            other => other,
        }
    })
}

/// Classifies an error of the library. Its own message quotes the text, which may be secret.
fn problem(error: &PemError, missing: PemProblem) -> PemProblem {
    match error {
        PemError::NoItemsFound => missing,
        PemError::MissingSectionEnd { .. } => PemProblem::Truncated,
        _ => PemProblem::Invalid,
    }
}

fn is_blank(text: &[u8]) -> bool {
    text.iter().all(u8::is_ascii_whitespace)
}

/// Both the block label of PKCS#8 and the header of older formats contain this word.
fn is_encrypted(pem: &[u8]) -> bool {
    const MARKER: &[u8] = b"ENCRYPTED";
    pem.windows(MARKER.len()).any(|window| window == MARKER)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::x509::CertificateInfo;

    #[test]
    fn problems_are_classified() {
        assert_eq!(parse_certificates(b" \n"), Err(PemProblem::Empty));
        assert_eq!(parse_certificates(b"hello"), Err(PemProblem::NoCertificate));
        let cut = b"-----BEGIN CERTIFICATE-----\nAAAA\n";
        assert_eq!(parse_certificates(cut), Err(PemProblem::Truncated));
        let bad = b"-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----\n";
        assert_eq!(parse_certificates(bad), Err(PemProblem::Invalid));
        let key = |pem: &[u8]| parse_private_key(pem).map(drop);
        assert_eq!(key(b""), Err(PemProblem::Empty));
        assert_eq!(key(b"hello"), Err(PemProblem::NoPrivateKey));
        let encrypted =
            b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        assert_eq!(key(encrypted), Err(PemProblem::EncryptedPrivateKey));
        let older = b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n\
            -----END RSA PRIVATE KEY-----\n";
        assert_eq!(key(older), Err(PemProblem::EncryptedPrivateKey));
    }

    #[test]
    fn an_inline_key_does_not_show_in_debug_output() {
        let pem: Arc<[u8]> = Arc::from(&b"-----BEGIN PRIVATE KEY-----"[..]);
        let source = PemSource::Inline {
            label: "client-key-data",
            pem,
        };
        assert_eq!(format!("{source:?}"), "Inline(client-key-data, 27 bytes)");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(256) })]

        #[test]
        fn arbitrary_text_never_panics(
            head in proptest::collection::vec(any::<u8>(), 0..64),
            body in "[A-Za-z0-9+/=\n-]{0,128}",
            label in prop::sample::select(vec!["CERTIFICATE", "PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY", "X"]),
        ) {
            let mut text = head;
            text.extend_from_slice(
                format!("\n-----BEGIN {label}-----\n{body}\n-----END {label}-----\n").as_bytes(),
            );
            if let Ok(certificates) = parse_certificates(&text) {
                prop_assert!(!certificates.is_empty());
                for certificate in certificates {
                    let _ = CertificateInfo::parse(&certificate);
                }
            }
            if let Ok(key) = parse_private_key(&text) {
                let _ = rustls::crypto::aws_lc_rs::sign::any_supported_type(&key);
            }
        }
    }
}
