//! A receiver of OTLP traces and metrics on a real socket, over HTTP and gRPC, that answers as a
//! test tells it.

mod decode;
mod metrics;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use kubevitals_protobuf::{put_int, put_message, put_str};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

pub use self::decode::{ReceivedEvent, ReceivedSpan, decode_request};
pub use self::metrics::{ReceivedExemplar, ReceivedPoint, ReceivedValue, decode_metrics};

/// Maximum size of a request, before and after decompression.
const MAX_REQUEST: usize = 16 << 20;

/// How a request is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Accept,
    /// Accepts all but this number of spans or points, with a message.
    Partial(i64, String),
    /// This status of HTTP with these headers; over gRPC the same, without a status of gRPC.
    Http(u16, Vec<(&'static str, String)>),
    /// This status of gRPC with these further headers.
    Grpc(u32, Vec<(&'static str, String)>),
    /// No answer.
    Hang,
    /// The connection is closed.
    Close,
}

/// A request that was received.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    pub path: String,
    pub headers: HeaderMap,
    /// The number of its spans, whatever became of them.
    pub spans: usize,
    /// The number of its data points, whatever became of them.
    pub points: usize,
}

/// What was received so far.
#[derive(Debug, Clone, Default)]
pub struct Received {
    pub requests: Vec<ReceivedRequest>,
    /// The spans of requests that were accepted.
    pub spans: Vec<ReceivedSpan>,
    /// The data points of requests that were accepted.
    pub points: Vec<ReceivedPoint>,
}

/// A running receiver. It ends when it is dropped.
#[derive(Debug)]
pub struct OtlpReceiver {
    pub address: SocketAddr,
    state: Arc<State>,
    received: watch::Receiver<Received>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct State {
    replies: Mutex<VecDeque<Reply>>,
    /// What is answered once there are no more replies.
    otherwise: Mutex<Reply>,
    received: watch::Sender<Received>,
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

impl OtlpReceiver {
    /// Listens on an address; port 0 takes a free one.
    pub async fn start(address: SocketAddr, tls: Option<TlsAcceptor>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let (sender, received) = watch::channel(Received::default());
        let state = Arc::new(State {
            replies: Mutex::default(),
            otherwise: Mutex::new(Reply::Accept),
            received: sender,
        });
        let task = tokio::spawn(accept(listener, tls, Arc::clone(&state)));
        Ok(Self {
            address,
            state,
            received,
            task,
        })
    }

    /// Answers the next requests like this, and then as before.
    pub fn reply(&self, replies: impl IntoIterator<Item = Reply>) {
        self.state.replies.lock().extend(replies);
    }

    /// Answers all further requests like this.
    pub fn always(&self, reply: Reply) {
        *self.state.otherwise.lock() = reply;
    }

    pub fn received(&self) -> Received {
        self.received.borrow().clone()
    }

    /// Waits until what was received matches.
    pub async fn until(&self, is_wanted: impl Fn(&Received) -> bool) -> Received {
        let mut received = self.received.clone();
        let found = received.wait_for(is_wanted).await;
        found.map(|found| found.clone()).unwrap_or_default()
    }
}

impl Drop for OtlpReceiver {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, state: Arc<State>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let (tls, state) = (tls.clone(), Arc::clone(&state));
        connections.spawn(async move {
            match tls {
                None => serve(stream, state).await,
                Some(tls) => {
                    if let Ok(stream) = tls.accept(stream).await {
                        serve(stream, state).await;
                    }
                }
            }
        });
    }
}

async fn serve(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, state: Arc<State>) {
    let service = service_fn(move |request| {
        let state = Arc::clone(&state);
        async move { state.answer(request).await.ok_or("closed") }
    });
    let builder = auto::Builder::new(TokioExecutor::new());
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    // Clients close connections as they like.
    let _ = connection.await;
}

impl State {
    /// Answers a request; `None` closes the connection.
    async fn answer(&self, request: Request<Incoming>) -> Option<Answer> {
        let (head, body) = request.into_parts();
        let is_grpc =
            head.headers.get("content-type") == Some(&HeaderValue::from_static("application/grpc"));
        #[expect(clippy::disallowed_methods, reason = "the body is limited right here")]
        let body = Limited::new(body, MAX_REQUEST).collect().await.ok()?;
        let path = head.uri.path();
        let is_metrics = path.ends_with("/v1/metrics") || path.contains(".MetricsService/");
        let message = message(&head.headers, is_grpc, &body.to_bytes());
        let decoded = message.as_deref().and_then(|message| {
            Some(if is_metrics {
                (Vec::new(), decode_metrics(message)?)
            } else {
                (decode_request(message)?, Vec::new())
            })
        });
        let Some((spans, points)) = decoded else {
            return Some(failure(
                StatusCode::BAD_REQUEST,
                "not a request of OTLP",
                &[],
            ));
        };
        let reply = self.replies.lock().pop_front();
        let reply = reply.unwrap_or_else(|| self.otherwise.lock().clone());
        self.received.send_modify(|received| {
            received.requests.push(ReceivedRequest {
                path: head.uri.path().to_owned(),
                headers: head.headers,
                spans: spans.len(),
                points: points.len(),
            });
            if matches!(reply, Reply::Accept | Reply::Partial(..)) {
                received.spans.extend(spans);
                received.points.extend(points);
            }
        });
        match reply {
            Reply::Accept => Some(success(is_grpc, &[])),
            Reply::Partial(rejected, message) => {
                let mut out = Vec::new();
                put_message(&mut out, 1, |out| {
                    put_int(out, 1, rejected);
                    put_str(out, 2, &message);
                });
                Some(success(is_grpc, &out))
            }
            Reply::Http(status, headers) => {
                let status = StatusCode::from_u16(status).ok()?;
                Some(failure(status, "as the test says", &headers))
            }
            Reply::Grpc(status, mut headers) => {
                headers.push(("grpc-status", status.to_string()));
                headers.push(("content-type", "application/grpc".to_owned()));
                Some(failure(StatusCode::OK, "", &headers))
            }
            Reply::Hang => std::future::pending().await,
            Reply::Close => None,
        }
    }
}

/// The message of a request, without compression and framing.
fn message(headers: &HeaderMap, is_grpc: bool, body: &[u8]) -> Option<Vec<u8>> {
    let gzip = Some(&HeaderValue::from_static("gzip"));
    let (is_gzip, message) = if is_grpc {
        let (head, rest) = body.split_first_chunk::<5>()?;
        let [flag, length @ ..] = *head;
        let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
        let is_sound = length == rest.len() && (flag == 0 || headers.get("grpc-encoding") == gzip);
        (flag == 1, is_sound.then_some(rest)?)
    } else {
        (headers.get("content-encoding") == gzip, body)
    };
    if !is_gzip {
        return Some(message.to_vec());
    }
    let limit = u64::try_from(MAX_REQUEST).ok()?;
    let mut inflated = Vec::new();
    let mut reader = GzDecoder::new(message).take(limit);
    reader.read_to_end(&mut inflated).ok()?;
    Some(inflated)
}

fn success(is_grpc: bool, message: &[u8]) -> Answer {
    if !is_grpc {
        let mut response = Response::new(Full::new(Bytes::copy_from_slice(message)).boxed());
        let kind = HeaderValue::from_static("application/x-protobuf");
        response.headers_mut().insert("content-type", kind);
        return response;
    }
    let length = u32::try_from(message.len()).unwrap_or_default();
    let mut framed = vec![0];
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from_static("0"));
    let trailers = async move { Some(Ok(trailers)) };
    let body = Full::new(Bytes::from(framed)).with_trailers(trailers);
    let mut response = Response::new(BoxBody::new(body));
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    response
}

fn failure(status: StatusCode, text: &'static str, headers: &[(&'static str, String)]) -> Answer {
    let mut response = Response::new(Full::new(Bytes::from_static(text.as_bytes())).boxed());
    *response.status_mut() = status;
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(value) {
            let name = HeaderName::from_static(name);
            response.headers_mut().insert(name, value);
        }
    }
    response
}
