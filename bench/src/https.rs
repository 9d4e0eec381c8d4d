//! A small HTTPS client for loopback: HTTP/1.1 with keep-alive, a bounded set of connections, and the times that a user
//! would feel.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use kubevitals_tls::ClientTls;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use crate::BenchError;

/// The most that is read of one answer, and kept of it where it is kept.
const MOST_BYTES: u64 = 1 << 30;

/// Nobody waits longer for one answer.
const PATIENCE: Duration = Duration::from_mins(1);

/// What to ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ask {
    /// Path and query.
    pub path: String,
    /// Media types to accept.
    pub accept: &'static str,
    /// Whether the answer may be compressed, as Go's clients let it be.
    pub gzip: bool,
}

/// What an answer was like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answered {
    /// Its status.
    pub status: StatusCode,
    /// From the request to the head of the answer.
    pub first_byte: Duration,
    /// From the request to the last byte.
    pub total: Duration,
    /// Bytes of the body on the wire.
    pub bytes: u64,
}

/// One server, and the connections to it.
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    tls: ClientTls,
    permits: Semaphore,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Client {
    /// At most this many connections at a time.
    pub fn new(address: SocketAddr, tls: ClientTls, connections: usize) -> Self {
        Self {
            address,
            tls,
            permits: Semaphore::new(connections),
            idle: Mutex::new(Vec::new()),
        }
    }

    /// Asks and reads the answer to its end without keeping it.
    pub async fn get(&self, ask: &Ask) -> Result<Answered, BenchError> {
        let request = || {
            let builder = Request::get(&ask.path).header(ACCEPT, ask.accept);
            let builder = if ask.gzip {
                builder.header(ACCEPT_ENCODING, "gzip")
            } else {
                builder
            };
            builder.body(Full::default())
        };
        let (answered, _) = self.exchange(&ask.path, request, false).await?;
        Ok(answered)
    }

    /// Asks for JSON and keeps it.
    pub async fn json(&self, path: &str) -> Result<(StatusCode, serde_json::Value), BenchError> {
        self.send(Method::GET, path, None).await
    }

    /// Sends JSON, or nothing, and keeps the JSON of the answer.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&serde_json::Value>,
    ) -> Result<(StatusCode, serde_json::Value), BenchError> {
        let body = body
            .map(|value| Bytes::from(value.to_string()))
            .unwrap_or_default();
        let request = || {
            Request::builder()
                .method(method.clone())
                .uri(path)
                .header(ACCEPT, "application/json")
                .header(CONTENT_TYPE, "application/json")
                .body(Full::new(body.clone()))
        };
        let (answered, body) = self.exchange(path, request, true).await?;
        let value = serde_json::from_slice(&body).unwrap_or(serde_json::Value::Null);
        Ok((answered.status, value))
    }

    async fn exchange(
        &self,
        path: &str,
        request: impl Fn() -> http::Result<Request<Full<Bytes>>>,
        keep: bool,
    ) -> Result<(Answered, Vec<u8>), BenchError> {
        let failed = |problem: String| BenchError::Request {
            path: path.to_owned(),
            problem,
        };
        let _permit = self
            .permits
            .acquire()
            .await
            .map_err(|error| failed(error.to_string()))?;
        let exchange = async {
            let mut connection = self.connection().await?;
            let mut request = request().map_err(|error| error.to_string())?;
            let host = self.address.to_string().parse();
            request
                .headers_mut()
                .insert(HOST, host.map_err(|_| "no header value".to_owned())?);
            let asked = Instant::now();
            let sent = connection.send_request(request).await;
            let response = sent.map_err(|error| error.to_string())?;
            let first_byte = asked.elapsed();
            let status = response.status();
            let mut body = response.into_body();
            let (mut bytes, mut kept) = (0_u64, Vec::new());
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| error.to_string())?;
                let Some(data) = frame.data_ref() else {
                    continue;
                };
                bytes = bytes.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
                if bytes > MOST_BYTES {
                    return Err(format!("the answer is longer than {MOST_BYTES} bytes"));
                }
                if keep {
                    kept.extend_from_slice(data);
                }
            }
            let total = asked.elapsed();
            self.idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(connection);
            Ok((
                Answered {
                    status,
                    first_byte,
                    total,
                    bytes,
                },
                kept,
            ))
        };
        let answered = timeout(PATIENCE, exchange).await;
        answered
            .map_err(|_| failed(format!("no answer within {PATIENCE:?}")))?
            .map_err(failed)
    }

    /// One that is open and idle, or a new one.
    async fn connection(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        loop {
            let idle = self
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .pop();
            let Some(mut connection) = idle else { break };
            // A server may have closed it meanwhile.
            if !connection.is_closed() && connection.ready().await.is_ok() {
                return Ok(connection);
            }
        }
        let stream = TcpStream::connect(self.address)
            .await
            .map_err(|error| error.to_string())?;
        stream
            .set_nodelay(true)
            .map_err(|error| error.to_string())?;
        let name = ServerName::IpAddress(self.address.ip().into());
        let tls = TlsConnector::from(self.tls.config())
            .connect(name, stream)
            .await;
        let tls = tls.map_err(|error| error.to_string())?;
        let (sender, connection) = handshake(TokioIo::new(tls))
            .await
            .map_err(|e| e.to_string())?;
        // It ends with its sender, or with the server; who waits for an answer is told.
        tokio::spawn(connection);
        Ok(sender)
    }
}
