//! Encryption, headers and proxies.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use kubevitals_otlp::{ClientError, OtlpClient, SettingsSource};
use kubevitals_sim::otlp::OtlpReceiver;
use kubevitals_sink::ExportError;
use kubevitals_tls::{Alpn, SelfSigned, SelfSignedOptions, ServerOptions, ServerTls};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::support::{receiver, settings, settings_from};

/// A receiver with a certificate for the loopback, and the file of its authority.
async fn encrypted(folder: &Path) -> OtlpReceiver {
    kubevitals_tls::install_crypto_provider();
    let names = vec!["127.0.0.1".to_owned()];
    let options = SelfSignedOptions::new("receiver", names);
    let certificate = SelfSigned::start(options, SystemTime::now()).unwrap();
    std::fs::write(
        folder.join("ca.crt"),
        certificate.ca_bundle_pem().as_bytes(),
    )
    .unwrap();
    let options = ServerOptions {
        alpn: vec![Alpn::H2, Alpn::Http11],
        ..ServerOptions::default()
    };
    let tls = ServerTls::new(certificate, &options).unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let acceptor = TlsAcceptor::from(tls.config());
    OtlpReceiver::start(address, Some(acceptor)).await.unwrap()
}

fn source(address: SocketAddr, authority: &Path) -> SettingsSource {
    SettingsSource {
        endpoint: Some(format!("https://{address}")),
        certificate: Some(authority.to_owned()),
        ..SettingsSource::default()
    }
}

#[tokio::test]
async fn a_receiver_is_verified() {
    let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let receiver = encrypted(folder.path()).await;
    let _stranger = encrypted(other.path()).await;
    for protocol in ["http/protobuf", "grpc"] {
        let variables = [("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)];
        let settings = |folder: &Path| {
            let source = source(receiver.address, &folder.join("ca.crt"));
            settings_from(&source, &variables)
        };
        let client = OtlpClient::new(settings(folder.path()), None).unwrap();
        assert_eq!(client.send(Vec::new(), 1).await, Ok(()), "{protocol}");
        let client = OtlpClient::new(settings(other.path()), None).unwrap();
        let error = client.send(Vec::new(), 1).await.unwrap_err();
        assert!(matches!(error, ExportError::Retryable { .. }), "{error}");
        assert!(error.to_string().contains("ertificate"), "{error}");
    }
}

/// A receiver whose authority is replaced is trusted again without a restart.
#[tokio::test]
async fn a_new_authority_is_read_after_a_failure() {
    let (old, new) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let _before = encrypted(old.path()).await;
    let receiver = encrypted(new.path()).await;
    let trusted = old.path().join("ca.crt");
    let settings = settings_from(&source(receiver.address, &trusted), &[]);
    let client = OtlpClient::new(settings, None).unwrap();
    client.send(Vec::new(), 1).await.unwrap_err();
    std::fs::copy(new.path().join("ca.crt"), &trusted).unwrap();
    client.send(Vec::new(), 1).await.unwrap_err();
    assert_eq!(client.send(Vec::new(), 1).await, Ok(()));
}

#[tokio::test]
async fn headers_are_sent_and_a_file_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("headers");
    std::fs::write(&file, "Authorization: Bearer one\n").unwrap();
    let receiver = receiver().await;
    let source = SettingsSource {
        headers_file: Some(file.clone()),
        ..SettingsSource::default()
    };
    let endpoint = format!("http://{}", receiver.address);
    let variables = [
        ("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint.as_str()),
        (
            "OTEL_EXPORTER_OTLP_HEADERS",
            "x-team=pods%2Cnodes,authorization=none",
        ),
    ];
    kubevitals_tls::install_crypto_provider();
    let client = OtlpClient::new(settings_from(&source, &variables), None).unwrap();
    assert!(!format!("{client:?}").contains("pods,nodes"), "{client:?}");
    assert_eq!(client.send(Vec::new(), 1).await, Ok(()));
    std::fs::write(&file, "Authorization: Bearer two\n").unwrap();
    assert_eq!(client.send(Vec::new(), 1).await, Ok(()));
    let requests = receiver.received().requests;
    let of = |at: usize, name: &str| requests[at].headers[name].to_str().unwrap().to_owned();
    assert_eq!(of(0, "authorization"), "Bearer one");
    assert_eq!(of(1, "authorization"), "Bearer two");
    assert_eq!(of(0, "x-team"), "pods,nodes");
    assert!(of(0, "user-agent").starts_with("kubevitals/"));

    std::fs::write(&file, "Bearer s3cret").unwrap();
    let error = client.send(Vec::new(), 1).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ExportError::Retryable { .. }), "{text}");
    assert!(
        text.contains("has no colon") && !text.contains("s3cret"),
        "{text}"
    );
}

#[test]
fn missing_files_and_odd_proxies_are_errors_at_the_start() {
    kubevitals_tls::install_crypto_provider();
    let address = SocketAddr::from(([127, 0, 0, 1], 9));
    let missing = SettingsSource {
        headers_file: Some("/does/not/exist".into()),
        endpoint: Some(format!("http://{address}")),
        ..SettingsSource::default()
    };
    let error = OtlpClient::new(settings_from(&missing, &[]), None).unwrap_err();
    assert!(matches!(error, ClientError::HeaderFile { .. }), "{error}");
    let source = source(address, Path::new("/does/not/exist"));
    let error = OtlpClient::new(settings_from(&source, &[]), None).unwrap_err();
    assert!(matches!(error, ClientError::Tls(_)), "{error}");
    for proxy in ["socks5://proxy.test:1080", "https://proxy.test", "a b"] {
        let error = OtlpClient::new(settings(address, &[]), Some(proxy)).unwrap_err();
        assert!(matches!(error, ClientError::Proxy), "{error}");
    }
}

/// A proxy that opens tunnels; returns its address and the requests that it saw.
async fn proxy() -> (SocketAddr, Arc<parking_lot::Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let seen = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let requests = Arc::clone(&seen);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(client.read_u8().await.unwrap());
            }
            let head = String::from_utf8(head).unwrap();
            let target = head.split(' ').nth(1).unwrap().to_owned();
            requests.lock().push(head);
            tokio::spawn(async move {
                let mut server = TcpStream::connect(target).await.unwrap();
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
                let _ = copy_bidirectional(&mut client, &mut server).await;
            });
        }
    });
    (address, seen)
}

#[tokio::test]
async fn a_proxy_is_a_tunnel_with_its_password() {
    let folder = tempfile::tempdir().unwrap();
    let receiver = encrypted(folder.path()).await;
    let (address, seen) = proxy().await;
    for protocol in ["http/protobuf", "grpc"] {
        let source = source(receiver.address, &folder.path().join("ca.crt"));
        let settings = settings_from(&source, &[("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)]);
        let url = format!("http://user:p%40ss@{address}");
        let client = OtlpClient::new(settings, Some(&url)).unwrap();
        assert_eq!(client.send(Vec::new(), 1).await, Ok(()), "{protocol}");
    }
    let seen = seen.lock();
    assert_eq!(seen.len(), 2);
    let line = format!("CONNECT {} HTTP/1.1\r\n", receiver.address);
    for head in seen.iter() {
        assert!(head.starts_with(&line), "{head}");
        assert!(
            head.to_lowercase().contains("proxy-authorization: basic "),
            "{head}"
        );
        assert!(head.contains("dXNlcjpwQHNz"), "{head}");
    }
}
