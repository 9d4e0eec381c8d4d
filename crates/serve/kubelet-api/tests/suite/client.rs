//! A client that shows status codes, headers and bytes.

use std::net::SocketAddr;
use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use kubevitals_tls::{Alpn, ClientOptions, ClientTls, ReloadingKeyPair, TrustRoots};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::support::{Credentials, DEADLINE, Running, inline};

/// The options of a client.
#[derive(Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    /// The authority of the server; without one there is no TLS.
    ca: Option<String>,
    credentials: Option<Credentials>,
    headers: Vec<(String, String)>,
    body: Bytes,
}

/// A response that was read completely.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) code: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Client {
    pub(crate) fn of(server: &Running) -> Self {
        Self {
            address: server.address,
            ca: None,
            credentials: None,
            headers: Vec::new(),
            body: Bytes::new(),
        }
    }

    pub(crate) fn tls(mut self, ca: &str) -> Self {
        self.ca = Some(ca.to_owned());
        self
    }

    pub(crate) fn showing(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    pub(crate) fn token_of(self, name: &str) -> Self {
        self.with("authorization", &format!("Bearer token-of-{name}"))
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn form(mut self, body: &'static str) -> Self {
        self.body = Bytes::from_static(body.as_bytes());
        self.with("content-type", "application/x-www-form-urlencoded")
    }

    pub(crate) async fn get(&self, path: &str) -> Received {
        self.send(Method::GET, path).await
    }

    pub(crate) async fn post(&self, path: &str) -> Received {
        self.send(Method::POST, path).await
    }

    pub(crate) async fn send(&self, method: Method, path: &str) -> Received {
        Received::read(self.open(method, path).await).await.unwrap()
    }

    /// Returns the response before its body is read.
    pub(crate) async fn open(&self, method: Method, path: &str) -> Response<Incoming> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost");
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(self.body.clone())).unwrap();
        let response = async {
            let mut sender = self.connect().await;
            sender.send_request(request).await.unwrap()
        };
        tokio::time::timeout(DEADLINE, response).await.unwrap()
    }

    async fn connect(&self) -> http1::SendRequest<Full<Bytes>> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let Some(ca) = &self.ca else {
            let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.unwrap();
            tokio::spawn(driver);
            return sender;
        };
        let now = SystemTime::now();
        let roots = TrustRoots::load("test", vec![inline(ca)], now).unwrap();
        let identity = self.credentials.as_ref().map(|own| {
            ReloadingKeyPair::load("test", inline(&own.certificate), inline(&own.key), now).unwrap()
        });
        let options = ClientOptions {
            identity,
            alpn: vec![Alpn::Http11],
            ..ClientOptions::default()
        };
        let tls = ClientTls::trusting(roots, &options).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        let stream = TlsConnector::from(tls.config())
            .connect(name, stream)
            .await
            .unwrap();
        let (sender, driver) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(driver);
        sender
    }
}

impl Received {
    pub(crate) async fn read(response: Response<Incoming>) -> Result<Self, hyper::Error> {
        let (parts, body) = response.into_parts();
        #[expect(clippy::disallowed_methods, reason = "the body is limited")]
        let collected = Limited::new(body, 100_000_000).collect();
        let collected = tokio::time::timeout(DEADLINE, collected).await.unwrap();
        let body = match collected {
            Ok(body) => body.to_bytes(),
            Err(error) => return Err(*error.downcast::<hyper::Error>().unwrap()),
        };
        Ok(Self {
            code: parts.status.as_u16(),
            headers: parts.headers,
            body,
        })
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}
