//! A client that does what the printed `curl` lines do.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubevitals_tls::{Alpn, ClientOptions, ClientTls, PemSource, TrustRoots};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// What a server can send to a reader that does not read.
const SMALL_WINDOW: u32 = 1_024;

/// A reader that asks for `url` and reads no more than the head of the answer, until it is dropped.
pub(crate) struct Stalled {
    pub(crate) head: http::response::Parts,
    _body: hyper::body::Incoming,
    _sender: hyper::client::conn::http2::SendRequest<Empty<Bytes>>,
    connection: tokio::task::JoinHandle<Result<(), hyper::Error>>,
}

impl Stalled {
    /// Speaks HTTP/2, whose windows are the reader's own: kernels keep megabytes for one that
    /// speaks HTTP/1.1.
    pub(crate) async fn begin(url: &str, ca: &Path, token: &str) -> Self {
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
        let answer = sender.send_request(request).await.unwrap();
        let (head, body) = answer.into_parts();
        Self {
            head,
            _body: body,
            _sender: sender,
            connection,
        }
    }
}

impl Drop for Stalled {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

/// GETs `url`, trusting the authority in `ca` alone.
pub(crate) async fn get(url: &str, ca: &Path, token: Option<&str>) -> (StatusCode, Bytes) {
    kubevitals_tls::install_crypto_provider();
    let url: Uri = url.parse().unwrap();
    let address: SocketAddr = url.authority().unwrap().as_str().parse().unwrap();
    let roots = vec![PemSource::File(ca.to_owned())];
    let roots = TrustRoots::load("authority", roots, SystemTime::now()).unwrap();
    let tls = ClientTls::trusting(roots, &ClientOptions::default()).unwrap();
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
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let answer = sender
        .send_request(request.body(Empty::<Bytes>::new()).unwrap())
        .await
        .unwrap();
    let status = answer.status();
    let body = Limited::new(answer.into_body(), 16 << 20);
    #[expect(clippy::disallowed_methods, reason = "the body is limited above")]
    let body = body.collect().await.unwrap().to_bytes();
    connection.abort();
    (status, body)
}

/// The arguments of a printed `curl` line: URL, authority, token.
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
