//! A client that sends the requests of the printed `curl` commands.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubevitals_sim::api::IssuedCertificate;
use kubevitals_tls::{Alpn, ClientOptions, ClientTls, PemSource, ReloadingKeyPair, TrustRoots};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::within;

/// Bytes that a server can send to a client that does not read.
const SMALL_WINDOW: u32 = 1_024;

/// A client that reads only the head of a response, until it is dropped.
pub(crate) struct StalledClient {
    pub(crate) head: http::response::Parts,
    _body: hyper::body::Incoming,
    sender: hyper::client::conn::http2::SendRequest<Empty<Bytes>>,
    token: String,
    connection: tokio::task::JoinHandle<Result<(), hyper::Error>>,
}

impl StalledClient {
    /// GETs `url` over HTTP/2, whose windows the client sets. Over HTTP/1.1 the kernel would buffer
    /// megabytes.
    pub(crate) async fn list(url: &str, ca: &Path, token: &str) -> Self {
        let what = format!("the head of the response to GET {url}");
        within(&what, Self::begin_list(url, ca, token)).await
    }

    async fn begin_list(url: &str, ca: &Path, token: &str) -> Self {
        kubevitals_tls::install_crypto_provider();
        let parsed: Uri = url.parse().unwrap();
        let address: SocketAddr = parsed.authority().unwrap().as_str().parse().unwrap();
        let roots = vec![PemSource::File(ca.to_owned())];
        let roots = TrustRoots::load("authority", roots, SystemTime::now()).unwrap();
        let options = ClientOptions {
            alpn: vec![Alpn::H2],
            ..ClientOptions::default()
        };
        let tls = ClientTls::trusting(roots, &options).unwrap();
        let stream = TcpStream::connect(address).await.unwrap();
        let name = ServerName::IpAddress(address.ip().into());
        let connected = TlsConnector::from(tls.config()).connect(name, stream).await;
        let (mut sender, connection) =
            hyper::client::conn::http2::Builder::new(TokioExecutor::new())
                .initial_stream_window_size(SMALL_WINDOW)
                .handshake(TokioIo::new(connected.unwrap()))
                .await
                .unwrap();
        let connection = tokio::spawn(connection);
        let request = Request::get(url)
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .body(Empty::<Bytes>::new())
            .unwrap();
        let response = sender.send_request(request).await.unwrap();
        let (head, body) = response.into_parts();
        Self {
            head,
            _body: body,
            sender,
            token: token.to_owned(),
            connection,
        }
    }

    /// Sends a GET on the same connection, and returns the status of the response.
    pub(crate) async fn get(&mut self, url: &str) -> hyper::Result<StatusCode> {
        let request = Request::get(url)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .body(Empty::<Bytes>::new())
            .unwrap();
        within(&format!("a response to GET {url}"), async {
            self.sender.ready().await?;
            Ok(self.sender.send_request(request).await?.status())
        })
        .await
    }
}

impl Drop for StalledClient {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// The identity of a client.
#[derive(Clone, Copy, Default)]
pub(crate) struct Identity<'a> {
    pub(crate) token: Option<&'a str>,
    pub(crate) certificate: Option<&'a IssuedCertificate>,
    pub(crate) headers: &'a [(&'a str, &'a str)],
}

/// GETs `url`, and trusts only the CA in `ca`.
pub(crate) async fn get(url: &str, ca: &Path, token: Option<&str>) -> (StatusCode, Bytes) {
    let identity = Identity {
        token,
        ..Identity::default()
    };
    get_as(url, ca, identity).await
}

/// GETs `url` with an identity.
pub(crate) async fn get_as(url: &str, ca: &Path, identity: Identity<'_>) -> (StatusCode, Bytes) {
    let what = format!("the response to GET {url}");
    within(&what, receive(url, ca, identity)).await
}

async fn receive(url: &str, ca: &Path, identity: Identity<'_>) -> (StatusCode, Bytes) {
    kubevitals_tls::install_crypto_provider();
    let url: Uri = url.parse().unwrap();
    let address: SocketAddr = url.authority().unwrap().as_str().parse().unwrap();
    let roots = vec![PemSource::File(ca.to_owned())];
    let roots = TrustRoots::load("authority", roots, SystemTime::now()).unwrap();
    let options = ClientOptions {
        identity: identity.certificate.map(key_pair),
        ..ClientOptions::default()
    };
    let tls = ClientTls::trusting(roots, &options).unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::IpAddress(address.ip().into());
    let stream = TlsConnector::from(tls.config())
        .connect(name, stream)
        .await
        .unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .unwrap();
    let connection = tokio::spawn(connection);
    let mut request = Request::get(url.path_and_query().unwrap().as_str())
        .header(header::HOST, address.to_string());
    if let Some(token) = identity.token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    for (name, value) in identity.headers {
        request = request.header(*name, *value);
    }
    let response = sender
        .send_request(request.body(Empty::<Bytes>::new()).unwrap())
        .await
        .unwrap();
    let status = response.status();
    let body = Limited::new(response.into_body(), 16 << 20);
    #[expect(clippy::disallowed_methods, reason = "the body is limited above")]
    let body = body.collect().await.unwrap().to_bytes();
    connection.abort();
    (status, body)
}

fn key_pair(certificate: &IssuedCertificate) -> Arc<ReloadingKeyPair> {
    let inline = |pem: &str| PemSource::Inline {
        label: "client certificate",
        pem: pem.as_bytes().into(),
    };
    let (certificate, key) = (inline(&certificate.certificate), inline(&certificate.key));
    ReloadingKeyPair::load("client", certificate, key, SystemTime::now()).unwrap()
}

/// Parses the arguments of a printed `curl` command: URL, CA, token.
pub(crate) fn parse_curl(line: &str) -> (String, Arc<Path>, String) {
    let words: Vec<&str> = line.split_whitespace().collect();
    let ca = words
        .iter()
        .skip_while(|word| **word != "--cacert")
        .nth(1)
        .unwrap();
    let token = line
        .split_once("$(cat ")
        .unwrap()
        .1
        .split_once(')')
        .unwrap()
        .0;
    let token = std::fs::read_to_string(token).unwrap();
    (
        words.last().unwrap().trim_matches('\'').to_owned(),
        Path::new(ca).into(),
        token,
    )
}
