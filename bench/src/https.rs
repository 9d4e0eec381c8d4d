//! A small HTTPS client for loopback: HTTP/1.1 with keep-alive, a bounded set of connections, and
//! the times that a user would feel.

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
const MAX_BYTES: u64 = 1 << 30;

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
    pub head: Duration,
    /// From the request to the first byte of the body: a server may send its head long before it
    /// has anything to say.
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
        self.exchange(&ask.path, request, |_| {}).await
    }

    /// Asks for JSON and counts how often some bytes occur in it, without keeping it: lists can be
    /// very long.
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

    /// Asks for something and keeps it as text.
    pub async fn text(&self, path: &str) -> Result<(StatusCode, String), BenchError> {
        let mut kept = Vec::new();
        let request = || Request::get(path).body(Full::default());
        let answered = self
            .exchange(path, request, |data| kept.extend_from_slice(data))
            .await?;
        let text = String::from_utf8_lossy(&kept).into_owned();
        Ok((answered.status, text))
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
    ) -> Result<Answered, BenchError> {
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
            let head = asked.elapsed();
            let mut first_byte = None;
            let status = response.status();
            let mut body = response.into_body();
            let mut bytes = 0_u64;
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| error.to_string())?;
                let Some(data) = frame.data_ref() else {
                    continue;
                };
                first_byte.get_or_insert_with(|| asked.elapsed());
                bytes = bytes.saturating_add(u64::try_from(data.len()).unwrap_or(u64::MAX));
                if bytes > MAX_BYTES {
                    return Err(format!("the answer is longer than {MAX_BYTES} bytes"));
                }
                look(data);
            }
            let total = asked.elapsed();
            self.idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(connection);
            Ok(Answered {
                status,
                head,
                first_byte: first_byte.unwrap_or(total),
                total,
                bytes,
            })
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
        let stream = TcpStream::connect(self.address).await;
        let stream = stream.map_err(|error| error.to_string())?;
        speak(stream, self.address, &self.tls).await
    }
}

/// Speaks TLS and then HTTP/1.1 over a stream to a server.
pub async fn speak(
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
    // It ends with its sender, or with the server; who waits for an answer is told.
    tokio::spawn(connection);
    Ok(sender)
}

/// Counts some bytes in a body that comes in pieces, also where they lie across two of them.
struct Occurrences<'a> {
    needle: &'a [u8],
    /// The last bytes of earlier pieces, fewer than the needle has.
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
        let most = self.needle.len().saturating_sub(1);
        // Only what begins in the earlier pieces and ends in this one; it cannot be counted twice.
        self.rest.extend(data.iter().take(most));
        self.found += self.finder().find_iter(&self.rest).count();
        self.found += self.finder().find_iter(data).count();
        let kept = self.rest.len().saturating_sub(data.len().min(most));
        self.rest.truncate(kept);
        self.rest
            .extend(data.iter().skip(data.len().saturating_sub(most)));
        let surplus = self.rest.len().saturating_sub(most);
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
        fn pieces_are_counted_as_the_whole(text in "[ab]{0,40}", cuts in prop::collection::vec(0..40_usize, 0..6)) {
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
