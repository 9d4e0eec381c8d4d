//! Missing, empty, large and invalid files, and secrets that must not be printed.

use std::sync::Arc;

use kubevitals_tls::{
    ClientOptions, ClientTls, MAX_PEM_BYTES, PemSource, ReloadingKeyPair, ServerOptions, ServerTls,
    TlsError, TrustRoots,
};

use crate::support::{Files, TestCa, now};

fn load_error(files: &Files) -> String {
    let source = |name| PemSource::File(files.path(name));
    let error = ReloadingKeyPair::load("serving", source("tls.crt"), source("tls.key"), now());
    // Paths of temporary directories differ from run to run.
    error
        .unwrap_err()
        .chain()
        .replace(files.folder().to_str().unwrap(), "")
}

fn bundle_error(files: &Files) -> String {
    let sources = vec![PemSource::File(files.path("ca.crt"))];
    let error = TrustRoots::load("kubelet", sources, now()).unwrap_err();
    error.chain().replace(files.folder().to_str().unwrap(), "")
}

#[test]
fn errors_name_the_file_and_the_problem() {
    let (ca, files) = (TestCa::new("cluster"), Files::new());
    let pair = ca.pair(&["server"]);
    let mut messages = Vec::new();
    messages.push(load_error(&files));
    files.write("tls.crt", "");
    files.write("tls.key", "");
    messages.push(load_error(&files));
    files.write("tls.crt", "garbage");
    messages.push(load_error(&files));
    files.write("tls.crt", &pair.key);
    messages.push(load_error(&files));
    files.write(
        "tls.crt",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    );
    messages.push(load_error(&files));
    files.write("tls.crt", vec![b' '; MAX_PEM_BYTES + 1]);
    messages.push(load_error(&files));
    files.write("tls.crt", &pair.certificate);
    messages.push(load_error(&files));
    files.write("tls.key", &pair.certificate);
    messages.push(load_error(&files));
    files.write(
        "tls.key",
        "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
    );
    messages.push(load_error(&files));
    files.write("tls.key", ca.pair(&["server"]).key);
    messages.push(load_error(&files));
    messages.push(bundle_error(&files));
    std::fs::create_dir(files.path("ca.crt")).unwrap();
    messages.push(bundle_error(&files));
    insta::assert_snapshot!(messages.join("\n"), @"
    cannot read /tls.crt: No such file or directory (os error 2)
    /tls.crt is empty
    /tls.crt contains no PEM certificate
    /tls.crt contains no PEM certificate
    /tls.crt: certificate 1 is not a valid X.509 certificate: invalid peer certificate: BadEncoding
    /tls.crt is larger than 1048576 bytes, too large for certificates or keys
    /tls.key is empty
    /tls.key contains no PEM private key
    /tls.key: the private key cannot be used (RSA, ECDSA and Ed25519 keys can): unexpected error: failed to parse private key as RSA, ECDSA, or EdDSA
    the private key in /tls.key does not belong to the first certificate in /tls.crt
    cannot read /ca.crt: No such file or directory (os error 2)
    /ca.crt is not a regular file
    ");
}

#[test]
fn the_largest_allowed_file_is_read() {
    let (ca, files) = (TestCa::new("cluster"), Files::new());
    let mut text = ca.pem().into_bytes();
    text.resize(MAX_PEM_BYTES, b'\n');
    let sources = vec![files.write("ca.crt", text).into()];
    assert_eq!(
        TrustRoots::load("kubelet", sources, now())
            .unwrap()
            .current()
            .len(),
        1
    );
}

#[test]
fn an_invalid_certificate_beside_valid_ones_is_ignored() {
    let (ca, files) = (TestCa::new("cluster"), Files::new());
    let odd = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let sources = vec![files.write("ca.crt", odd.to_owned() + &ca.pem()).into()];
    assert_eq!(
        TrustRoots::load("kubelet", sources, now())
            .unwrap()
            .current()
            .len(),
        1
    );
    let sources = vec![files.write("ca.crt", odd).into()];
    let error = TrustRoots::load("kubelet", sources, now()).unwrap_err();
    assert!(
        matches!(error, TlsError::Certificate { position: 1, .. }),
        "{error}"
    );
}

#[test]
fn no_bundle_is_an_error() {
    let error = TrustRoots::load("kubelet", Vec::new(), now()).unwrap_err();
    assert!(matches!(error, TlsError::NoTrustSources), "{error}");
}

#[test]
fn windows_line_ends_and_comments_are_accepted() {
    let ca = TestCa::new("cluster");
    let text = format!("# CN=cluster\r\n{}", ca.pem().replace('\n', "\r\n"));
    assert_eq!(
        kubevitals_tls::parse_certificates(text.as_bytes())
            .unwrap()
            .len(),
        1
    );
}

#[test]
fn debug_output_contains_no_key() {
    let ca = TestCa::new("cluster");
    let pair = ca.pair(&["server"]);
    let key = pair.load();
    let server = ServerTls::new(Arc::clone(&key) as _, &ServerOptions::default()).unwrap();
    let options = ClientOptions {
        identity: Some(Arc::clone(&key)),
        ..ClientOptions::default()
    };
    let client = ClientTls::trusting(ca.roots(), &options).unwrap();
    let printed = format!("{key:?} {server:?} {client:?} {options:?}");
    for line in pair.key.lines() {
        assert!(!printed.contains(line), "{line}");
    }
    let der = kubevitals_tls::parse_private_key(pair.key.as_bytes()).unwrap();
    // Bytes are printed as a list of numbers.
    let bytes = der
        .secret_der()
        .windows(4)
        .map(|window| format!("{window:?}"));
    for window in bytes {
        assert!(
            !printed.contains(window.trim_matches(['[', ']'])),
            "{window}"
        );
    }
}
