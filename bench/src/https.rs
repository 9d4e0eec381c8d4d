//! A small HTTPS client for loopback: HTTP/1.1 with keep-alive, a bounded number of connections,
//! and latencies as a user sees them.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HOST};
use http::{Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use kubevitals_tls::ClientTls;
use parking_lot::Mutex;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use crate::BenchError;

/// Maximum size of a response.
const MAX_BYTES: u64 = 1 << 30;

/// Timeout of one exchange.
const TIMEOUT: Duration = Duration::from_mins(1);

/// A GET request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetRequest {
    /// Path and query.
    pub path: String,
    /// Media types to accept.
    pub accept: &'static str,
    /// Whether the response may be compressed, as Go's clients allow.
    pub gzip: bool,
}

/// Status, size and latencies of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseStats {
    pub status: StatusCode,
    /// From the request to the response head.
    pub head: Duration,
    /// From the request to the first byte of the body: a server may send its head long before it
    /// has data.
    pub first_byte: Duration,
    /// From the request to the last byte.
    pub total: Duration,
    /// Bytes of the body on the wire.
    pub bytes: u64,
}

/// A server, and the connections to it.
#[derive(Debug)]
pub struct Client {
    address: SocketAddr,
    tls: ClientTls,
    permits: Semaphore,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
}

impl Client {
    /// A client with at most this many connections at a time.
    pub fn new(address: SocketAddr, tls: ClientTls, connections: usize) -> Self {
        Self {
            address,
            tls,
            permits: Semaphore::new(connections),
            idle: Mutex::new(Vec::new()),
        }
    }

    /// Sends a request and discards the response body.
    pub async fn get(&self, request: &GetRequest) -> Result<ResponseStats, BenchError> {
        let build = || {
            let builder = Request::get(&request.path).header(ACCEPT, request.accept);
            let builder = if request.gzip {
                builder.header(ACCEPT_ENCODING, "gzip")
            } else {
                builder
            };
            builder.body(Full::default())
        };
        self.exchange(&request.path, build, |_| {}).await
    }

    /// Requests JSON and counts the occurrences of `needle` without buffering it: lists can be very
    /// long.
    pub async fn count(
        &self,
        path: &str,
        needle: &[u8],
    ) -> Result<(StatusCode, usize), BenchError> {
        let request = || {
            Request::get(path)
                .header(ACCEPT, "application/json")
                .body(Full::default())
        };
        let mut counter = Occurrences::of(needle);
        let answered = self
            .exchange(path, request, |data| counter.add(data))
            .await?;
        Ok((answered.status, counter.found))
    }

    /// Requests a text.
    pub async fn text(&self, path: &str) -> Result<(StatusCode, String), BenchError> {
        let mut kept = Vec::new();
        let request = || Request::get(path).body(Full::default());
        let answered = self
            .exchange(path, request, |data| kept.extend_from_slice(data))
            .await?;
        let text = String::from_utf8_lossy(&kept).into_owned();
        Ok((answered.status, text))
    }

    /// Requests JSON.
    pub async fn json(&self, path: &str) -> Result<(StatusCode, serde_json::Value), BenchError> {
        self.send(Method::GET, path, None).await
    }

    /// Sends JSON or an empty body, and returns the JSON of the response.
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
        let mut kept = Vec::new();
        let answered = self
            .exchange(path, request, |data| kept.extend_from_slice(data))
            .await?;
        let value = serde_json::from_slice(&kept).unwrap_or(serde_json::Value::Null);
        Ok((answered.status, value))
    }

    async fn exchange(
        &self,
        path: &str,
        request: impl Fn() -> http::Result<Request<Full<Bytes>>>,
        mut look: impl FnMut(&[u8]),
    ) -> Result<ResponseStats, BenchError> {
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
            let requested_at = Instant::now();
            let sent = connection.send_request(request).await;
            let response = sent.map_err(|error| error.to_string())?;
            let head = requested_at.elapsed();
            let mut first_byte = None;
            let status = response.status();
            let mut body = response.into_body();
            let mut bytes = 0_u64;
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| error.to_string())?;
                let Some(data) = frame.data_ref() else {
                    continue;
                };
                first_byte.get_or_insert_with(|| requested_at.elapsed());
                bytes = bytes.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
                if bytes > MAX_BYTES {
                    return Err(format!("the response is longer than {MAX_BYTES} bytes"));
                }
                look(data);
            }
            let total = requested_at.elapsed();
            self.idle.lock().push(connection);
            Ok(ResponseStats {
                status,
                head,
                first_byte: first_byte.unwrap_or(total),
                total,
                bytes,
            })
        };
        let answered = timeout(TIMEOUT, exchange).await;
        answered
            .map_err(|_| failed(format!("no response within {TIMEOUT:?}")))?
            .map_err(failed)
    }

    /// Returns an idle connection, or opens one.
    async fn connection(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        loop {
            let idle = self.idle.lock().pop();
            let Some(mut connection) = idle else { break };
            // The server may have closed it meanwhile.
            if !connection.is_closed() && connection.ready().await.is_ok() {
                return Ok(connection);
            }
        }
        let stream = TcpStream::connect(self.address).await;
        let stream = stream.map_err(|error| error.to_string())?;
        connect_http(stream, self.address, &self.tls).await
    }
}

/// Sets up TLS and HTTP/1.1 over a stream to a server.
pub async fn connect_http(
    stream: TcpStream,
    address: SocketAddr,
    tls: &ClientTls,
) -> Result<SendRequest<Full<Bytes>>, String> {
    stream
        .set_nodelay(true)
        .map_err(|error| error.to_string())?;
    let name = ServerName::IpAddress(address.ip().into());
    let tls = TlsConnector::from(tls.config()).connect(name, stream).await;
    let tls = tls.map_err(|error| error.to_string())?;
    let (sender, connection) = handshake(TokioIo::new(tls))
        .await
        .map_err(|e| e.to_string())?;
    // It ends with its sender, or with the server; pending requests then fail.
    tokio::spawn(connection);
    Ok(sender)
}

/// Counts occurrences of some bytes in a body that arrives in chunks, across chunks too.
struct Occurrences<'a> {
    needle: &'a [u8],
    /// The last bytes of earlier chunks, fewer than the needle has.
    rest: Vec<u8>,
    found: usize,
}

impl<'a> Occurrences<'a> {
    fn of(needle: &'a [u8]) -> Self {
        Self {
            needle,
            rest: Vec::new(),
            found: 0,
        }
    }

    fn add(&mut self, data: &[u8]) {
        let overlap = self.needle.len().saturating_sub(1);
        // Only occurrences that begin in earlier chunks and end in this one, none counted twice.
        self.rest.extend(data.iter().take(overlap));
        self.found += self.finder().find_iter(&self.rest).count();
        self.found += self.finder().find_iter(data).count();
        let kept = self.rest.len().saturating_sub(data.len().min(overlap));
        self.rest.truncate(kept);
        self.rest
            .extend(data.iter().skip(data.len().saturating_sub(overlap)));
        let surplus = self.rest.len().saturating_sub(overlap);
        self.rest.drain(..surplus);
    }

    fn finder(&self) -> memchr::memmem::Finder<'a> {
        memchr::memmem::Finder::new(self.needle)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn occurrences_across_chunks_are_counted_once(text in "[ab]{0,40}", cuts in prop::collection::vec(0..40_usize, 0..6)) {
            // A needle that does not overlap itself, as the keys of JSON do not.
            let needle = b"aab";
            let whole = text.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(whole.len())).collect();
            cuts.extend([0, whole.len()]);
            cuts.sort_unstable();
            let mut counter = Occurrences::of(needle);
            for pair in cuts.windows(2) {
                counter.add(&whole[pair[0]..pair[1]]);
            }
            prop_assert_eq!(counter.found, memchr::memmem::find_iter(whole, needle).count());
        }
    }
}
