//! Timeouts of a connection, on an in-memory stream and a paused clock.

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};

use http::{HeaderMap, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::TokioExecutor;
use prometheus_client::metrics::counter::Counter;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::*;
use crate::conn_state::Standing;
use crate::source::Source;

const REQUEST: &[u8] = b"GET /1 HTTP/1.1\r\nHost: x\r\n\r\n";
const LONG: usize = 1 << 20;

/// Responds to `/N` with a body of that many bytes, and to `/watch/N` with a watch that sends that
/// many bytes and then nothing more.
#[derive(Default)]
struct Sizes {
    /// Whether a body of more than a byte, and what is attached to a watch, were dropped.
    body: Arc<AtomicBool>,
    guard: Arc<AtomicBool>,
}

struct Pieces {
    rest: usize,
    is_watch: bool,
    _dropped: SetOnDrop,
}

struct SetOnDrop(Arc<AtomicBool>);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = self.rest.min(63 << 10);
        self.rest -= next;
        match next {
            0 if self.is_watch => Poll::Pending,
            0 => Poll::Ready(None),
            bytes => Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b'x'; bytes]))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.rest == 0 && !self.is_watch
    }

    fn size_hint(&self) -> http_body::SizeHint {
        if self.is_watch {
            return http_body::SizeHint::default();
        }
        http_body::SizeHint::with_exact(u64::try_from(self.rest).unwrap())
    }
}

impl<P: Send + Sync + 'static> Handler<P> for Sizes {
    type Body = Pieces;

    async fn handle(&self, _: &Arc<Connection<P>>, request: Request<Incoming>) -> Response<Pieces> {
        let path = request.uri().path();
        let watch = path.strip_prefix("/watch");
        let size = watch.unwrap_or(path).trim_start_matches('/');
        let rest = size.parse().unwrap();
        let dropped = if rest > 1 {
            Arc::clone(&self.body)
        } else {
            Arc::default()
        };
        let mut response = Response::new(Pieces {
            rest,
            is_watch: watch.is_some(),
            _dropped: SetOnDrop(dropped),
        });
        if watch.is_some() {
            response.extensions_mut().insert(Delivery {
                deadline: None,
                guard: Some(Arc::new(SetOnDrop(Arc::clone(&self.guard)))),
            });
        }
        response
    }
}

struct Harness {
    state: Arc<ConnState>,
    handler: Arc<Sizes>,
    aborted: Counter,
    task: JoinHandle<()>,
}

fn connect(is_http2: bool) -> (DuplexStream, Harness) {
    let (client, io) = tokio::io::duplex(1024);
    let aborted = Counter::default();
    let source = Source::from(IpAddr::from([127, 0, 0, 1]));
    let state = ConnState::new(source, &Limits::default(), aborted.clone());
    state.established(is_http2);
    let (served, handler) = (Arc::clone(&state), Arc::<Sizes>::default());
    let own = Arc::clone(&handler);
    let task = tokio::spawn(async move {
        let accepted = Accepted {
            io,
            peer: (),
            is_http2,
        };
        let (limits, budget) = (Limits::default(), HeadBudget::new(1 << 20));
        serve(accepted, None, own, &limits, &budget, served).await;
    });
    let harness = Harness {
        state,
        handler,
        aborted,
        task,
    };
    (client, harness)
}

/// An HTTP/2 client with this window per stream.
async fn http2_client(window: u32) -> (http2::SendRequest<Empty<Bytes>>, Harness) {
    let (client, harness) = connect(true);
    let (sender, driver) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .handshake(TokioIo::new(client))
        .await
        .unwrap();
    tokio::spawn(driver);
    (sender, harness)
}

async fn get(
    sender: &mut http2::SendRequest<Empty<Bytes>>,
    path: &str,
) -> hyper::Result<Response<Incoming>> {
    let request = Request::get(format!("http://x{path}"));
    within("a response begins", async {
        sender.ready().await?;
        let request = request.body(Empty::new()).unwrap();
        sender.send_request(request).await
    })
    .await
}

/// Waits for what must happen, by the paused clock: once nothing else is due, the limit is reached
/// at once.
async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let limit = Duration::from_hours(1);
    let result = tokio::time::timeout(limit, future).await;
    result.unwrap_or_else(|_| panic!("not within {limit:?}: {what}"))
}

impl Harness {
    /// Waits for the end of the connection.
    async fn end(&mut self) {
        let ended = within("the connection ends", &mut self.task).await;
        ended.unwrap();
    }
}

/// Reads until the server closes the connection.
async fn until_closed(client: &mut DuplexStream) {
    let mut rest = Vec::new();
    let read = within(
        "the server closes the connection",
        client.read_to_end(&mut rest),
    )
    .await;
    read.unwrap();
}

async fn request(client: &mut DuplexStream) {
    client.write_all(REQUEST).await.unwrap();
    let mut response = Vec::new();
    within("a complete response", async {
        while !response.ends_with(b"\r\n\r\nx") {
            response.push(client.read_u8().await.unwrap());
        }
    })
    .await;
    assert!(response.starts_with(b"HTTP/1.1 200 OK"));
}

fn is_set(flag: &AtomicBool) -> bool {
    flag.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn a_slow_head_ends_the_connection() {
    let (mut client, mut harness) = connect(false);
    let begin = Instant::now();
    // Single bytes do not extend the timeout.
    for byte in *b"GET /" {
        client.write_all(&[byte]).await.unwrap();
        tokio::time::advance(Duration::from_millis(900)).await;
        tokio::task::yield_now().await;
    }
    until_closed(&mut client).await;
    harness.end().await;
    assert_eq!(begin.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_silent_client_is_disconnected() {
    let (mut client, mut harness) = connect(false);
    let begin = Instant::now();
    until_closed(&mut client).await;
    harness.end().await;
    assert_eq!(begin.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_kept_longer_then_ends() {
    let (mut client, mut harness) = connect(false);
    for _ in 0..3 {
        request(&mut client).await;
        tokio::time::advance(Duration::from_secs(80)).await;
    }
    let begin = Instant::now();
    until_closed(&mut client).await;
    harness.end().await;
    assert_eq!(begin.elapsed().as_secs(), 10);
}

#[tokio::test(start_paused = true)]
async fn closing_ends_an_idle_connection_at_once() {
    let (mut client, mut harness) = connect(false);
    request(&mut client).await;
    assert!(harness.state.is_idle());
    let begin = Instant::now();
    harness.state.close();
    until_closed(&mut client).await;
    harness.end().await;
    assert_eq!(begin.elapsed(), Duration::ZERO);
}

/// hyper closes gracefully only if nothing of a request was received.
#[tokio::test(start_paused = true)]
async fn closing_ends_a_connection_with_half_a_head() {
    let (mut client, mut harness) = connect(false);
    client.write_all(b"G").await.unwrap();
    let begin = Instant::now();
    harness.state.close();
    until_closed(&mut client).await;
    harness.end().await;
    assert_eq!(begin.elapsed(), CLOSE_GRACE);
}

/// The body of such a response is not polled, so only a timer can end it.
#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_is_disconnected_at_the_deadline() {
    for path in [LONG.to_string(), 4096.to_string(), format!("watch/{LONG}")] {
        let (mut client, mut harness) = connect(false);
        let begin = Instant::now();
        let head = format!("GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n");
        client.write_all(head.as_bytes()).await.unwrap();
        harness.end().await;
        assert_eq!(begin.elapsed().as_secs(), 60, "{path}");
        assert!(is_set(&harness.handler.body));
        assert_eq!(harness.aborted.get(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_read_byte_by_byte_is_disconnected() {
    let (mut client, harness) = connect(false);
    let head = format!("GET /watch/{LONG} HTTP/1.1\r\nHost: x\r\n\r\n");
    client.write_all(head.as_bytes()).await.unwrap();
    let begin = Instant::now();
    within("the watch is cut", async {
        while client.read_u8().await.is_ok() && !is_set(&harness.handler.guard) {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    })
    .await;
    assert!((60..=61).contains(&begin.elapsed().as_secs()));
    assert!(is_set(&harness.handler.body));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_stays_open() {
    let (mut client, mut harness) = connect(false);
    client
        .write_all(b"GET /watch/10 HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let mut response = vec![0; 1024];
    within("ten bytes of the watch", async {
        while !response.ends_with(b"xxxxxxxxxx\r\n") {
            response.push(client.read_u8().await.unwrap());
        }
    })
    .await;
    tokio::time::sleep(Duration::from_hours(5)).await;
    assert!(!harness.task.is_finished() && !is_set(&harness.handler.body));
    drop(client);
    harness.end().await;
    assert!(is_set(&harness.handler.guard));
}

/// A window of zero used to hold a response for ever, if the client sent other requests meanwhile.
#[tokio::test(start_paused = true)]
async fn a_stream_without_a_window_is_reset_and_its_connection_goes_on() {
    for (window, path) in [
        (0, LONG.to_string()),
        (1, LONG.to_string()),
        (0, format!("watch/{LONG}")),
        (70_000, format!("watch/{LONG}")),
        // The last piece is buffered by the library.
        (20, (20 << 10).to_string()),
    ] {
        let (mut sender, harness) = http2_client(window).await;
        let mut stuck = get(&mut sender, &format!("/{path}")).await.unwrap();
        let begin = Instant::now();
        while harness.aborted.get() == 0 {
            assert!(begin.elapsed().as_secs() <= 60, "{window} {path}");
            assert!(!is_set(&harness.handler.body), "{window} {path}");
            let other = get(&mut sender, "/0").await.unwrap();
            assert_eq!(other.status(), StatusCode::OK);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert!(is_set(&harness.handler.body), "{window} {path}");
        let mut received = 0;
        within("the stream is reset", async {
            while let Some(Ok(frame)) = stuck.body_mut().frame().await {
                received += frame.data_ref().unwrap().len();
            }
        })
        .await;
        assert!(received <= usize::try_from(window).unwrap());
        let other = get(&mut sender, "/0").await.unwrap();
        assert_eq!(other.status(), StatusCode::OK);
        assert!(!harness.task.is_finished());
    }
}

/// A stream that has ended cannot be reset.
#[tokio::test(start_paused = true)]
async fn a_small_response_that_is_never_read_ends_its_connection() {
    let (mut sender, mut harness) = http2_client(1).await;
    let _stuck = get(&mut sender, "/1000").await.unwrap();
    harness.end().await;
    assert!(is_set(&harness.handler.body));
}

/// A stream of which nothing more is read once it is shut.
struct Gate {
    stream: DuplexStream,
    is_shut: Arc<AtomicBool>,
}

impl AsyncRead for Gate {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if is_set(&self.is_shut) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Gate {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A reset cannot be written to a full socket.
#[tokio::test(start_paused = true)]
async fn an_http2_client_that_reads_nothing_at_all_is_disconnected() {
    let (stream, mut harness) = connect(true);
    let is_shut = Arc::<AtomicBool>::default();
    let gate = Gate {
        stream,
        is_shut: Arc::clone(&is_shut),
    };
    let (mut sender, driver) = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(1 << 20)
        .handshake(TokioIo::new(gate))
        .await
        .unwrap();
    tokio::spawn(driver);
    let _stuck = get(&mut sender, &format!("/{LONG}")).await.unwrap();
    is_shut.store(true, Ordering::SeqCst);
    harness.end().await;
    assert!(is_set(&harness.handler.body));
}

/// Upgrades every connection, and echoes.
struct Echo;

impl Handler<()> for Echo {
    type Body = Empty<Bytes>;

    async fn handle(
        &self,
        _: &Arc<Connection<()>>,
        request: Request<Incoming>,
    ) -> Response<Empty<Bytes>> {
        let upgrade = hyper::upgrade::on(request);
        tokio::spawn(async move {
            let stream = TokioIo::new(upgrade.await.unwrap());
            let (mut input, mut output) = tokio::io::split(stream);
            tokio::io::copy(&mut input, &mut output).await.unwrap();
        });
        let response = Response::builder().status(StatusCode::SWITCHING_PROTOCOLS);
        let response = response.header("connection", "upgrade");
        let response = response.header("upgrade", "echo");
        response.body(Empty::new()).unwrap()
    }
}

#[tokio::test(start_paused = true)]
async fn after_an_upgrade_no_timeout_applies() {
    let (mut client, io) = tokio::io::duplex(1024);
    let source = Source::from(IpAddr::from([127, 0, 0, 1]));
    let state = ConnState::new(source, &Limits::default(), Counter::default());
    state.established(false);
    let served = Arc::clone(&state);
    let task = tokio::spawn(async move {
        let accepted = Accepted {
            io,
            peer: (),
            is_http2: false,
        };
        let (limits, budget) = (Limits::default(), HeadBudget::new(1 << 20));
        serve(accepted, None, Arc::new(Echo), &limits, &budget, served).await;
    });
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: echo\r\n\r\n")
        .await
        .unwrap();
    let mut response = Vec::new();
    while !response.ends_with(b"\r\n\r\n") {
        response.push(client.read_u8().await.unwrap());
    }
    for byte in 0..3 {
        tokio::time::sleep(Duration::from_hours(5)).await;
        client.write_all(&[byte]).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), byte);
        assert_eq!(state.standing(), Standing::Busy);
    }
    assert!(!task.is_finished());
    drop(client);
    task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn long_responses_arrive_whole() {
    let (mut sender, _harness) = http2_client(65_535).await;
    for size in [0, 1, 16 << 10, (16 << 10) + 1, LONG] {
        let response = get(&mut sender, &format!("/{size}")).await.unwrap();
        let body = http_body_util::Limited::new(response.into_body(), 2 * LONG);
        #[expect(clippy::disallowed_methods, reason = "the body is limited above")]
        let body = within("a whole body", body.collect()).await.unwrap();
        assert_eq!(body.trailers(), None::<&HeaderMap>);
        assert_eq!(body.to_bytes().len(), size);
    }
}
