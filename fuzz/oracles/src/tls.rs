//! Certificates and keys, as files and peers give them.

use kubevitals_tls::{CertificateInfo, CipherSuites, parse_certificates, parse_private_key};

/// What PEM files are made of.
pub(crate) const TOKENS: &[&[u8]] = &[
    b"-----BEGIN CERTIFICATE-----\n",
    b"-----END CERTIFICATE-----\n",
    b"-----BEGIN PRIVATE KEY-----\n",
    b"-----END PRIVATE KEY-----\n",
    b"-----BEGIN EC PRIVATE KEY-----\n",
    b"-----",
    b"\n",
    b"\r\n",
    b"MIIB",
    b"=",
    b"\0",
    b"\x30\x82\x01\x00",
    b"TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    b",",
];

/// Nothing that a file or a peer holds makes reading it panic, and what is read can be looked into.
pub fn tls_pem(data: &[u8]) {
    if let Ok(certificates) = parse_certificates(data) {
        for certificate in &certificates {
            let _ = CertificateInfo::parse(certificate);
        }
    }
    let _ = parse_private_key(data);
    let _ = CertificateInfo::parse(data);
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = text.parse::<CipherSuites>();
    }
}
