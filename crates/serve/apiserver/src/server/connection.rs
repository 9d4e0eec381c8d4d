//! One connection, from the handshake to its end.
//!
//! hyper has one timer for the head of a request and for the rest between two; the first must be
//! short, since slow heads are an attack, the second long, since the aggregation layer comes back.
//! So a watchdog keeps the time here.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::Sleep;
use tokio_rustls::TlsAcceptor;

use super::activity::{Activity, Overdue};
use super::pace::{AHEAD_BYTES, Pace};
use super::turns::{Rank, Source, Ticket, Turns};
use crate::authn::Peer;
use crate::config::Limits;
use crate::handler::{Connection, Handler};
use crate::metrics::ApiServerMetrics;

/// The least that hyper takes for a head.
const MIN_HEADER_BYTES: u32 = 8 * 1024;
/// Less than this may be a ping.
const MIN_PROGRESS: usize = 1024;
/// How often the other side of a quiet HTTP/2 connection is asked whether it is there, and how long
/// it may think.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// What a connection must keep to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms {
    pub(super) header_bytes: u32,
    pub(super) streams: u32,
    pub(super) handshake_timeout: Duration,
    pub(super) header_timeout: Duration,
    pub(super) idle_timeout: Duration,
    pub(super) request_timeout: Duration,
}

/// What connections are asked to do.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Closing {
    /// How often those that rest were asked to leave.
    room: u64,
    /// Whether all are.
    draining: bool,
}

/// What connections share.
#[derive(Clone)]
pub(super) struct Shared {
    pub(super) acceptor: TlsAcceptor,
    pub(super) handler: Arc<Handler>,
    pub(super) terms: Terms,
    /// Whose handshake is computed next.
    pub(super) handshakes: Arc<Turns>,
    /// Who writes more of a long answer next.
    pub(super) answers: Arc<Turns>,
    pub(super) metrics: ApiServerMetrics,
}

/// A connection that was accepted.
pub(super) struct Accepted {
    pub(super) stream: TcpStream,
    pub(super) source: Source,
    /// Counts up with every connection.
    pub(super) number: u64,
}

/// Work that goes on only when it is its turn. A turn lasts for one poll: nobody has one who waits
/// for the network.
struct InTurn<F> {
    work: F,
    ticket: Ticket,
    number: u64,
    has_begun: bool,
}

/// A stream that tells when bytes have come, and takes turns to write many.
struct NotingStream<S> {
    inner: S,
    connection: Arc<Connection>,
}

/// Tells when something has taken too long.
struct Watchdog {
    connection: Arc<Connection>,
    terms: Terms,
    timer: Pin<Box<Sleep>>,
}

impl Terms {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            header_bytes: limits.header_bytes.max(MIN_HEADER_BYTES),
            streams: limits.streams_per_connection.max(1),
            handshake_timeout: limits.handshake_timeout,
            header_timeout: limits.header_timeout,
            idle_timeout: limits.idle_timeout,
            request_timeout: limits.request_timeout,
        }
    }
}

impl Closing {
    pub(super) fn make_room(&mut self) {
        self.room = self.room.wrapping_add(1);
    }

    pub(super) fn drain(&mut self) {
        self.draining = true;
    }
}

/// Shakes hands and serves.
pub(super) async fn accept(accepted: Accepted, shared: Shared, closing: watch::Receiver<Closing>) {
    let Accepted {
        stream,
        source,
        number,
    } = accepted;
    let handshake = async {
        // Until somebody says something there is nothing to take a turn for.
        stream.readable().await?;
        in_turn(
            &shared.handshakes,
            source,
            number,
            shared.acceptor.accept(stream),
        )
        .await
    };
    // From here on, whoever comes before it: nobody waits for ever.
    let stream = match tokio::time::timeout(shared.terms.handshake_timeout, handshake).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            shared.metrics.handshake_failed("failed");
            tracing::debug!(%error, "a TLS handshake failed");
            return;
        }
        Err(_elapsed) => {
            shared.metrics.handshake_failed("timeout");
            return;
        }
    };
    let (_, session) = stream.get_ref();
    let is_http2 = session.alpn_protocol() == Some(b"h2");
    let chain: Vec<CertificateDer<'static>> = session
        .peer_certificates()
        .map(|chain| chain.iter().map(|der| der.clone().into_owned()).collect())
        .unwrap_or_default();
    let pace = Pace::new(shared.answers.ticket(source), is_http2);
    let (handler, terms) = (shared.handler, shared.terms);
    serve(stream, &chain, is_http2, handler, terms, pace, closing).await;
}

/// Does the work of the `number`th connection in turns.
fn in_turn<F: Future + Unpin>(
    turns: &Arc<Turns>,
    source: Source,
    number: u64,
    work: F,
) -> InTurn<F> {
    InTurn {
        work,
        ticket: turns.ticket(source),
        number,
        has_begun: false,
    }
}

impl<F: Future + Unpin> Future for InTurn<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let rank = Rank::Connection {
            number: this.number,
            has_begun: this.has_begun,
        };
        if this.ticket.poll_turn(Some(rank), context).is_pending() {
            return Poll::Pending;
        }
        this.has_begun = true;
        let polled = Pin::new(&mut this.work).poll(context);
        this.ticket.end();
        polled
    }
}

/// Serves one connection until it ends by itself, by a timeout, or because it is asked to.
pub(super) async fn serve<S>(
    stream: S,
    chain: &[CertificateDer<'_>],
    is_http2: bool,
    handler: Arc<Handler>,
    terms: Terms,
    pace: Pace,
    mut closing: watch::Receiver<Closing>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let connection = Arc::new(Connection {
        peer: Peer::new(chain),
        activity: Activity::new(is_http2),
        pace,
    });
    let mut watchdog = Watchdog {
        connection: Arc::clone(&connection),
        terms,
        timer: Box::pin(tokio::time::sleep(terms.header_timeout)),
    };
    let stream = NotingStream {
        inner: stream,
        connection: Arc::clone(&connection),
    };
    let noted = Arc::clone(&connection);
    let service = service_fn(move |request| {
        let (handler, connection) = (Arc::clone(&handler), Arc::clone(&connection));
        connection.activity.head_read();
        connection.pace.request();
        // While it is worked on there is no body yet that could be counted.
        let working = Working::new(&connection);
        async move {
            let response = handler.handle(connection, request).await;
            drop(working);
            Ok::<_, Infallible>(response)
        }
    });
    let builder = builder(is_http2, &terms);
    let served = builder.serve_connection(TokioIo::new(stream), service);
    tokio::pin!(served);
    let mut is_closing = closing.borrow_and_update().draining;
    if is_closing {
        served.as_mut().graceful_shutdown();
    }
    loop {
        tokio::select! {
            // The connection goes first: the watchdog then sees what it has reached.
            biased;
            ended = poll_fn(|context| {
                let polled = served.as_mut().poll(context);
                noted.pace.end_turn();
                polled
            }) => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection ended early");
                }
                return;
            }
            overdue = poll_fn(|context| watchdog.poll_overdue(context)) => {
                tracing::debug!(?overdue, "a connection took too long");
                return;
            }
            () = noted.activity.closed(), if !is_closing => {
                is_closing = true;
                served.as_mut().graceful_shutdown();
            }
            changed = closing.changed(), if !is_closing => {
                let draining = changed.is_err() || closing.borrow_and_update().draining;
                if draining || noted.activity.is_idle() {
                    is_closing = true;
                    served.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

fn builder(is_http2: bool, terms: &Terms) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .max_buf_size(usize::try_from(terms.header_bytes).unwrap_or(usize::MAX))
        .header_read_timeout(None);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(terms.streams)
        .max_header_list_size(terms.header_bytes)
        // Of each answer, as in HTTP/1: windows are up to megabytes wide.
        .max_send_buf_size(AHEAD_BYTES)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    if is_http2 {
        builder.http2_only()
    } else {
        builder.http1_only()
    }
}

/// Counts a request until its answer has a body that counts itself.
struct Working(Arc<Connection>);

impl Working {
    fn new(connection: &Arc<Connection>) -> Self {
        connection.activity.begin(false);
        Self(Arc::clone(connection))
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.activity.end(false);
    }
}

impl Watchdog {
    fn poll_overdue(&mut self, context: &mut Context<'_>) -> Poll<Overdue> {
        loop {
            match self.connection.activity.check(&self.terms) {
                Err(overdue) => return Poll::Ready(overdue),
                Ok(next) => {
                    if self.timer.deadline() != next {
                        self.timer.as_mut().reset(next);
                    }
                }
            }
            if self.timer.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl<S> NotingStream<S> {
    fn note(&self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(bytes)) = written {
            self.connection.pace.written(*bytes);
        }
        if let Poll::Ready(Ok(MIN_PROGRESS..)) = written {
            self.connection.activity.progress();
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for NotingStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.inner).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.connection.activity.received();
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for NotingStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let pace = &self.connection.pace;
        if pace.poll_turn(bytes.len(), context).is_pending() {
            return Poll::Pending;
        }
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.note(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        if self.connection.pace.poll_turn(bytes, context).is_pending() {
            return Poll::Pending;
        }
        let polled = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.note(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
