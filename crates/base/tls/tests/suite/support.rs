//! Certificates, clocks and connections for the tests.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use kubevitals_tls::{
    ClientOptions, ClientTls, HandshakeFailure, PemSource, ReloadingKeyPair, ServerOptions,
    ServerTls, TrustRoots,
};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};
use rustls::ServerConfig;
use rustls::time_provider::TimeProvider;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

pub(crate) const DAY: Duration = Duration::from_hours(24);

/// The time of the tests.
pub(crate) fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_hours(500_000)
}

/// A clock that moves only when it is set.
#[derive(Debug)]
pub(crate) struct Clock(AtomicU64);

impl Clock {
    pub(crate) fn at(time: SystemTime) -> Arc<Self> {
        let seconds = time.duration_since(UNIX_EPOCH).unwrap().as_secs();
        Arc::new(Self(AtomicU64::new(seconds)))
    }

    pub(crate) fn set(&self, time: SystemTime) {
        let seconds = time.duration_since(UNIX_EPOCH).unwrap().as_secs();
        self.0.store(seconds, Ordering::SeqCst);
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(
            self.0.load(Ordering::SeqCst),
        )))
    }
}

pub(crate) struct TestCa(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, as PEM.
#[derive(Clone)]
pub(crate) struct TestPair {
    pub(crate) certificate: String,
    pub(crate) key: String,
    pub(crate) der: CertificateDer<'static>,
}

impl TestCa {
    pub(crate) fn new(name: &str) -> Self {
        let mut params = params(&[], now() - DAY, now() + 3650 * DAY);
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn pem(&self) -> String {
        self.0.pem()
    }

    pub(crate) fn pair(&self, names: &[&str]) -> TestPair {
        self.issue(&params(names, now() - DAY, now() + 365 * DAY))
    }

    pub(crate) fn issue(&self, params: &CertificateParams) -> TestPair {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        TestPair {
            certificate: certificate.pem(),
            key: key.serialize_pem(),
            der: certificate.der().clone(),
        }
    }

    /// Signs a certificate for a key that the caller keeps.
    pub(crate) fn sign(&self, params: &CertificateParams, key: &KeyPair) -> String {
        params.signed_by(key, &self.0).unwrap().pem()
    }

    pub(crate) fn roots(&self) -> Arc<TrustRoots> {
        roots(&self.pem())
    }
}

impl TestPair {
    pub(crate) fn load(&self) -> Arc<ReloadingKeyPair> {
        let certificate = inline("certificate", &self.certificate);
        ReloadingKeyPair::load("test", certificate, inline("key", &self.key), now()).unwrap()
    }

    pub(crate) fn serve(&self) -> ServerTls {
        ServerTls::new(self.load(), &server_options()).unwrap()
    }
}

pub(crate) fn params(
    names: &[&str],
    not_before: SystemTime,
    not_after: SystemTime,
) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.not_before = not_before.into();
    params.not_after = not_after.into();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ServerAuth,
        ExtendedKeyUsagePurpose::ClientAuth,
    ];
    params
}

pub(crate) fn inline(label: &'static str, pem: &str) -> PemSource {
    PemSource::Inline {
        label,
        pem: Arc::from(pem.as_bytes()),
    }
}

pub(crate) fn roots(pem: &str) -> Arc<TrustRoots> {
    TrustRoots::load("test", vec![inline("bundle", pem)], now()).unwrap()
}

pub(crate) fn client_options() -> ClientOptions {
    ClientOptions {
        clock: Some(Clock::at(now())),
        ..ClientOptions::default()
    }
}

pub(crate) fn server_options() -> ServerOptions {
    ServerOptions {
        clock: Some(Clock::at(now())),
        ..ServerOptions::default()
    }
}

pub(crate) fn trusting(roots: Arc<TrustRoots>) -> ClientTls {
    ClientTls::trusting(roots, &client_options()).unwrap()
}

/// Files of a test, in a temporary directory.
pub(crate) struct Files(TempDir);

impl Files {
    pub(crate) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, contents).unwrap();
        path
    }

    pub(crate) fn write_pair(&self, pair: &TestPair) {
        self.write("tls.crt", &pair.certificate);
        self.write("tls.key", &pair.key);
    }
}

/// Both ends of a connection.
pub(crate) struct Connection {
    pub(crate) client: client::TlsStream<DuplexStream>,
    pub(crate) server: server::TlsStream<DuplexStream>,
}

impl Connection {
    /// Returns the certificate that the server presented.
    pub(crate) fn server_certificate(&self) -> CertificateDer<'static> {
        self.client.get_ref().1.peer_certificates().unwrap()[0].clone()
    }

    /// Returns the certificate that the client presented.
    pub(crate) fn client_certificate(&self) -> Option<CertificateDer<'static>> {
        self.server
            .get_ref()
            .1
            .peer_certificates()
            .map(|chain| chain[0].clone())
    }

    /// Sends data in both directions.
    pub(crate) async fn exchange(&mut self) {
        let mut received = [0; 4];
        self.client.write_all(b"ping").await.unwrap();
        self.client.flush().await.unwrap();
        self.server.read_exact(&mut received).await.unwrap();
        self.server.write_all(b"pong").await.unwrap();
        self.server.flush().await.unwrap();
        self.client.read_exact(&mut received).await.unwrap();
        assert_eq!(&received, b"pong");
    }
}

/// Performs a handshake over an in-memory stream and returns the result of each side.
pub(crate) async fn handshake(
    server: &ServerTls,
    client: &ClientTls,
    dial: &str,
) -> (
    io::Result<client::TlsStream<DuplexStream>>,
    io::Result<server::TlsStream<DuplexStream>>,
) {
    handshake_with(server.config(), client, dial).await
}

/// Performs a handshake with any server configuration.
pub(crate) async fn handshake_with(
    server: Arc<ServerConfig>,
    client: &ClientTls,
    dial: &str,
) -> (
    io::Result<client::TlsStream<DuplexStream>>,
    io::Result<server::TlsStream<DuplexStream>>,
) {
    let (near, far) = tokio::io::duplex(64 * 1024);
    let name = ServerName::try_from(dial.to_owned()).unwrap();
    tokio::join!(
        TlsConnector::from(client.config()).connect(name, near),
        TlsAcceptor::from(server).accept(far),
    )
}

pub(crate) async fn connect(server: &ServerTls, client: &ClientTls, dial: &str) -> Connection {
    let (client, server) = handshake(server, client, dial).await;
    Connection {
        client: client.unwrap(),
        server: server.unwrap(),
    }
}

/// Returns the reason why the client rejects the server.
pub(crate) async fn failure(
    server: &ServerTls,
    client: &ClientTls,
    dial: &str,
) -> HandshakeFailure {
    let (client, _) = handshake(server, client, dial).await;
    HandshakeFailure::from_io(&client.unwrap_err()).unwrap()
}
