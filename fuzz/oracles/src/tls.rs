//! Certificates and keys, from files and peers.

use kubevitals_tls::{CertificateInfo, CipherSuites, parse_certificates, parse_private_key};

/// Tokens of PEM files.
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

/// Parses any certificate, key and cipher suites; it never panics.
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
