//! Flags of the HTTPS server.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use http::StatusCode;
use kubevitals_tls::{PemSource, TrustRoots};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::rustls::{
    CipherSuite, ClientConfig, NamedGroup, RootCertStore, SupportedProtocolVersion,
};

use super::Files;
use crate::client::get;
use crate::server::{Running, cluster};

#[tokio::test]
async fn the_certificate_of_the_flags_is_served() {
    let cluster = cluster(1).await;
    let files = Files::new();
    let names = ["127.0.0.1".to_owned()];
    let issued = cluster.api().issue_server_certificate("server", &names);
    let issued = issued.unwrap();
    let certificate = files.flag("tls-cert-file", &issued.certificate);
    let key = files.flag("tls-private-key-file", &issued.key);
    let server = Running::start(&cluster, &[&certificate, &key]).await;
    files.flag("ca", cluster.api().kube_ca_pem());
    let url = format!("https://{}/livez", server.address);
    let (status, _) = get(&url, &files.path("ca"), None).await;
    assert_eq!(status, StatusCode::OK);
    server.stop().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn suites_groups_and_protocols_are_those_of_the_flags() {
    let cluster = cluster(1).await;
    let server = Running::start(&cluster, &[]).await;
    let stream = handshake(&server, &TLS12).await.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    server.stop().await;

    let flags = [
        "--tls-cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,TLS_RSA_WITH_RC4_128_SHA",
        "--tls-curve-preferences=24,25",
        "--disable-http2-serving",
    ];
    let server = Running::start(&cluster, &flags).await;
    let stream = handshake(&server, &TLS12).await.unwrap();
    let tls = stream.get_ref().1;
    assert_eq!(tls.alpn_protocol(), Some(&b"http/1.1"[..]));
    let suite = tls.negotiated_cipher_suite().unwrap().suite();
    assert_eq!(suite, CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384);
    let group = tls.negotiated_key_exchange_group().unwrap().name();
    assert_eq!(group, NamedGroup::secp384r1);
    server.stop().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn clients_below_the_minimum_version_are_rejected() {
    let cluster = cluster(1).await;
    let server = Running::start(&cluster, &["--tls-min-version=VersionTLS13"]).await;
    handshake(&server, &TLS13).await.unwrap();
    let error = handshake(&server, &TLS12).await.unwrap_err();
    assert!(error.to_string().contains("rotocol"), "{error}");
    server.stop().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn the_limit_of_streams_is_announced_to_clients() {
    let cluster = cluster(1).await;
    let flags = ["--http2-max-streams-per-connection=7"];
    let server = Running::start(&cluster, &flags).await;
    let mut stream = handshake(&server, &TLS13).await.unwrap();
    // The preface of a client, and its empty SETTINGS.
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(preface).await.unwrap();
    let mut head = [0; 9];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(head[3], 4, "the first frame of a server is SETTINGS");
    let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
    let mut settings = vec![0; usize::try_from(length).unwrap()];
    stream.read_exact(&mut settings).await.unwrap();
    let max_streams = settings.chunks_exact(6).find_map(|setting| {
        let id = u16::from_be_bytes([setting[0], setting[1]]);
        let value = [setting[2], setting[3], setting[4], setting[5]];
        (id == 3).then(|| u32::from_be_bytes(value))
    });
    assert_eq!(max_streams, Some(7));
    drop(stream);
    server.stop().await;
    cluster.shutdown().await;
}

/// Connects with one version of TLS, and offers both versions of HTTP.
async fn handshake(
    server: &Running,
    version: &'static SupportedProtocolVersion,
) -> io::Result<TlsStream<TcpStream>> {
    let connector = connector(trust(&server.authority()), version);
    let stream = TcpStream::connect(server.address).await?;
    let name = ServerName::IpAddress(server.address.ip().into());
    connector.connect(name, stream).await
}

fn trust(ca: &Path) -> Arc<RootCertStore> {
    let sources = vec![PemSource::File(ca.to_owned())];
    let roots = TrustRoots::load("authority", sources, SystemTime::now());
    roots.unwrap().current()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the server must reject clients that the crate does not make"
)]
fn connector(
    roots: Arc<RootCertStore>,
    version: &'static SupportedProtocolVersion,
) -> TlsConnector {
    let mut config = ClientConfig::builder_with_protocol_versions(&[version])
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsConnector::from(Arc::new(config))
}
