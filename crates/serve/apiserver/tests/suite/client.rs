//! A client that shows status codes, headers and bytes.

use std::time::SystemTime;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubevitals_tls::{Alpn, ClientOptions, ClientTls, ReloadingKeyPair, TrustRoots};
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::support::{Credentials, Running, inline, within};

/// The options of a client.
#[derive(Clone)]
pub(crate) struct Client {
    address: String,
    ca: String,
    credentials: Option<Credentials>,
    headers: Vec<(String, String)>,
    alpn: Alpn,
    window: Option<u32>,
}

/// A connection that stays open.
pub(crate) enum Open {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

/// A response that was read completely.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) code: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Client {
    pub(crate) fn of(server: &Running) -> Self {
        Self {
            address: server.address.to_string(),
            ca: server.server_ca.clone(),
            credentials: None,
            headers: Vec::new(),
            alpn: Alpn::H2,
            window: None,
        }
    }

    /// A client that receives only this many bytes of a response over HTTP/2 if it does not read.
    pub(crate) fn window(mut self, bytes: u32) -> Self {
        self.window = Some(bytes);
        self
    }

    /// A client that may read widgets.
    pub(crate) fn reader(server: &Running) -> Self {
        Self::of(server).bearer("token-of-reader")
    }

    pub(crate) fn bearer(self, token: &str) -> Self {
        self.with("authorization", &format!("Bearer {token}"))
    }

    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    pub(crate) fn accept(self, value: &str) -> Self {
        self.with("accept", value)
    }

    pub(crate) fn showing(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    pub(crate) fn http1(mut self) -> Self {
        self.alpn = Alpn::Http11;
        self
    }

    pub(crate) async fn get(&self, path: &str) -> Received {
        self.send(Method::GET, path).await
    }

    pub(crate) async fn send(&self, method: Method, path: &str) -> Received {
        let mut open = self.connect().await;
        Received::read(open.send(self.request(method, path)).await.unwrap()).await
    }

    /// Returns the status code and message of an error.
    pub(crate) async fn error(&self, path: &str) -> (u16, String) {
        let response = self.get(path).await;
        let status = response.json();
        assert_eq!(status["kind"], "Status", "{status}");
        assert_eq!(status["code"], response.code.as_u16());
        (
            response.code.as_u16(),
            status["message"].as_str().unwrap().to_owned(),
        )
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> Request<Full<Bytes>> {
        let uri = match self.alpn {
            Alpn::H2 => format!("https://localhost{path}"),
            Alpn::Http11 => path.to_owned(),
        };
        let mut request = Request::builder().method(method).uri(uri);
        if self.alpn == Alpn::Http11 {
            request = request.header("host", "localhost");
        }
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        request.body(Full::default()).unwrap()
    }

    pub(crate) async fn connect(&self) -> Open {
        within("a connection", self.open()).await
    }

    async fn open(&self) -> Open {
        let io = TokioIo::new(self.tls().await);
        match self.alpn {
            Alpn::H2 => {
                let mut builder = http2::Builder::new(TokioExecutor::new());
                builder.initial_stream_window_size(self.window);
                let (sender, driver) = builder.handshake(io).await.unwrap();
                tokio::spawn(driver);
                Open::Http2(sender)
            }
            Alpn::Http11 => {
                let (sender, driver) = http1::handshake(io).await.unwrap();
                tokio::spawn(driver);
                Open::Http1(sender)
            }
        }
    }

    pub(crate) async fn tls(&self) -> TlsStream<TcpStream> {
        within("a TLS handshake", async {
            let stream = TcpStream::connect(&self.address).await.unwrap();
            let name = ServerName::try_from("localhost").unwrap();
            let connector = TlsConnector::from(self.configuration().config());
            connector.connect(name, stream).await.unwrap()
        })
        .await
    }

    pub(crate) fn configuration(&self) -> ClientTls {
        let now = SystemTime::now();
        let roots = TrustRoots::load("test", vec![inline(&self.ca)], now).unwrap();
        let identity = self.credentials.as_ref().map(|own| {
            ReloadingKeyPair::load("test", inline(&own.certificate), inline(&own.key), now).unwrap()
        });
        let options = ClientOptions {
            identity,
            alpn: vec![self.alpn],
            ..ClientOptions::default()
        };
        ClientTls::trusting(roots, &options).unwrap()
    }
}

impl Open {
    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> hyper::Result<Response<Incoming>> {
        let response = async {
            match self {
                Self::Http1(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
                Self::Http2(sender) => {
                    sender.ready().await?;
                    sender.send_request(request).await
                }
            }
        };
        within("a response begins", response).await
    }
}

impl Received {
    pub(crate) async fn read(response: Response<Incoming>) -> Self {
        let (parts, body) = response.into_parts();
        #[expect(clippy::disallowed_methods, reason = "the body is limited")]
        let collected = Limited::new(body, 100_000_000).collect();
        let body = within("a complete response", collected).await;
        let body = body.unwrap().to_bytes();
        Self {
            code: parts.status,
            headers: parts.headers,
            body,
        }
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub(crate) fn text(&self) -> &str {
        str::from_utf8(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}
