//! One connection, from the handshake to its end.

use std::future::{Future, poll_fn};
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use crate::conn_state::{CLOSE_GRACE, ConnState, Expired};
use crate::exchange::{Delivery, Exchange, MAX_PENDING_BYTES, StreamExecutor, TrackedBody};
use crate::fair_queue::{FairQueue, Permit, Priority};
use crate::head_budget::{Exhausted, HeadBudget, HeadMeter};
use crate::limits::{Limits, ServerMetrics};
use crate::upgrade::Direction;
use crate::write_budget::WriteBudget;

/// Interval of pings on a quiet HTTP/2 connection, and the timeout of their acknowledgement.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// Establishes a connection on an accepted socket.
pub trait Transport: Send + Sync + 'static {
    /// The stream that HTTP is spoken on.
    type Io: AsyncRead + AsyncWrite + Unpin + Send + 'static;
    /// Information about the client, for handlers.
    type Peer: Send + Sync + 'static;

    /// Performs the handshake, if there is one. [`Limits::handshake_timeout`] applies.
    fn handshake(
        &self,
        stream: TcpStream,
        address: IpAddr,
    ) -> impl Future<Output = io::Result<Accepted<Self::Io, Self::Peer>>> + Send;
}

/// An established connection.
#[derive(Debug)]
pub struct Accepted<I, P> {
    /// The stream that HTTP is spoken on.
    pub io: I,
    /// Information about the client.
    pub peer: P,
    /// Whether the client speaks HTTP/2.
    pub is_http2: bool,
}

/// Responds to requests.
pub trait Handler<P>: Send + Sync + 'static {
    /// The body of responses.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static;

    /// Responds to one request. An error is a response too. The extensions of a response may have a
    /// [`Delivery`].
    fn handle(
        &self,
        connection: &Arc<Connection<P>>,
        request: Request<Incoming>,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// HTTP/1.1 without TLS; the peer is its address.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

/// The connection that a request arrived on.
#[derive(Debug)]
pub struct Connection<P> {
    /// Information about the client.
    pub peer: P,
    /// Requests in flight and timeouts.
    pub state: Arc<ConnState>,
    write_budget: Option<WriteBudget>,
    head_meter: Mutex<HeadMeter>,
}

/// The queues of a server, if it has any.
#[derive(Clone)]
pub(crate) struct Queues {
    pub(crate) handshakes: Arc<FairQueue>,
    pub(crate) responses: Arc<FairQueue>,
}

/// Everything that the connections of a server have in common.
pub(crate) struct ServerContext<T, H> {
    pub(crate) transport: T,
    pub(crate) handler: Arc<H>,
    pub(crate) limits: Limits,
    pub(crate) queues: Option<Queues>,
    pub(crate) head_budget: HeadBudget,
    pub(crate) metrics: ServerMetrics,
}

/// A future that is polled only with a permit, and holds it for one poll: no connection holds a
/// permit while it waits for the network.
struct Queued<F> {
    future: F,
    permit: Permit,
    number: u64,
    has_begun: bool,
}

/// A stream that records received and written bytes in its connection. After an upgrade it only
/// fails once it is cut.
struct TrackedStream<S, P> {
    inner: S,
    connection: Arc<Connection<P>>,
}

/// Fires once the connection exceeds a timeout.
struct Watchdog {
    state: Arc<ConnState>,
    limits: Limits,
    timer: Pin<Box<Sleep>>,
}

impl Transport for Plain {
    type Io = TcpStream;
    type Peer = IpAddr;

    async fn handshake(
        &self,
        stream: TcpStream,
        address: IpAddr,
    ) -> io::Result<Accepted<TcpStream, IpAddr>> {
        Ok(Accepted {
            io: stream,
            peer: address,
            is_http2: false,
        })
    }
}

/// Performs the handshake and serves the `number`th connection.
pub(crate) async fn accept<T, H>(
    context: Arc<ServerContext<T, H>>,
    stream: TcpStream,
    address: IpAddr,
    number: u64,
    state: Arc<ConnState>,
) where
    T: Transport,
    H: Handler<T::Peer>,
{
    let ServerContext {
        transport,
        handler,
        limits,
        queues,
        head_budget,
        metrics,
    } = &*context;
    let source = state.source();
    let handshake = async {
        let Some(queues) = queues else {
            return transport.handshake(stream, address).await;
        };
        // Until the client sends something there is nothing to compute.
        stream.readable().await?;
        Queued {
            future: pin!(transport.handshake(stream, address)),
            permit: queues.handshakes.permit(source),
            number,
            has_begun: false,
        }
        .await
    };
    let closed = async {
        state.closed().await;
        tokio::time::sleep(CLOSE_GRACE).await;
    };
    // Time in the queue counts, so that no connection waits indefinitely.
    let timeout = tokio::time::timeout(limits.handshake_timeout, handshake);
    let accepted = tokio::select! {
        accepted = timeout => accepted,
        () = closed => return,
    };
    let accepted = match accepted {
        Ok(Ok(accepted)) => accepted,
        Ok(Err(error)) => {
            metrics.handshake_errors.inc();
            tracing::debug!(%error, "handshake failed");
            return;
        }
        Err(_elapsed) => {
            metrics.handshake_timeouts.inc();
            return;
        }
    };
    let permit = queues
        .as_ref()
        .map(|queues| queues.responses.permit(source));
    state.established(accepted.is_http2);
    let handler = Arc::clone(handler);
    serve(accepted, permit, handler, limits, head_budget, state).await;
}

/// Serves one connection until it ends by itself, exceeds a timeout, or is closed.
pub(crate) async fn serve<I, P, H>(
    accepted: Accepted<I, P>,
    permit: Option<Permit>,
    handler: Arc<H>,
    limits: &Limits,
    head_budget: &HeadBudget,
    state: Arc<ConnState>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    P: Send + Sync + 'static,
    H: Handler<P>,
{
    let is_http2 = accepted.is_http2;
    let connection = Arc::new(Connection {
        peer: accepted.peer,
        state: Arc::clone(&state),
        write_budget: permit.map(WriteBudget::new),
        head_meter: Mutex::new(HeadMeter::new(head_budget, is_http2)),
    });
    let mut watchdog = Watchdog {
        state: Arc::clone(&state),
        limits: *limits,
        timer: Box::pin(tokio::time::sleep(limits.header_timeout)),
    };
    let stream = TrackedStream {
        inner: accepted.io,
        connection: Arc::clone(&connection),
    };
    let tracked = Arc::clone(&connection);
    let (own_limits, budget) = (*limits, head_budget.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let (handler, connection) = (Arc::clone(&handler), Arc::clone(&connection));
        let exchange = connection.begin_exchange(&own_limits);
        let charge = budget.charge(request.headers());
        async move {
            exchange.entered_stream();
            let _charge = charge?;
            let mut response = handler.handle(&connection, request).await;
            if !is_http2 && response.status() == StatusCode::SWITCHING_PROTOCOLS {
                connection.state.upgrade().begin();
            }
            exchange.responded(response.extensions_mut().remove::<Delivery>());
            Ok::<_, Exhausted>(response.map(|body| TrackedBody::new(body, exchange, is_http2)))
        }
    });
    let builder = builder(is_http2, limits);
    {
        let served = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        tokio::pin!(served);
        let mut is_closing = false;
        loop {
            tokio::select! {
                // The connection goes first: the watchdog then checks the state that it has
                // reached.
                biased;
                ended = poll_fn(|context| {
                    let polled = served.as_mut().poll(context);
                    if let Some(budget) = &tracked.write_budget {
                        budget.end_poll();
                    }
                    polled
                }) => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "connection ended early");
                    }
                    break;
                }
                timeout = poll_fn(|context| watchdog.poll_expired(context)) => {
                    tracing::debug!(?timeout, "connection timed out");
                    return;
                }
                () = state.closed(), if !is_closing => {
                    is_closing = true;
                    served.as_mut().graceful_shutdown();
                }
            }
        }
    }
    // The stream belongs to the handler now, and the connection lasts as long as it.
    if state.upgrade().has_begun() {
        let _cut = state.upgrade().cut_on_drop();
        state.upgrade().dropped().await;
    }
}

fn builder(is_http2: bool, limits: &Limits) -> auto::Builder<StreamExecutor> {
    let header_bytes = limits.header_bytes.max(Limits::MIN_HEADER_BYTES);
    let mut builder = auto::Builder::new(StreamExecutor);
    builder
        .http1()
        .max_buf_size(usize::try_from(header_bytes).unwrap_or(usize::MAX))
        .max_headers(limits.headers)
        .header_read_timeout(None);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.streams_per_connection.max(1))
        .max_header_list_size(header_bytes)
        // Per stream: the windows of clients can be megabytes.
        .max_send_buf_size(MAX_PENDING_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT);
    if is_http2 {
        builder.http2_only()
    } else {
        builder.http1_only()
    }
}

impl<F: Future + Unpin> Future for Queued<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let priority = Priority::Connection {
            number: this.number,
            has_begun: this.has_begun,
        };
        if this
            .permit
            .poll_acquire(Some(priority), context)
            .is_pending()
        {
            return Poll::Pending;
        }
        this.has_begun = true;
        let polled = Pin::new(&mut this.future).poll(context);
        this.permit.release();
        polled
    }
}

impl Watchdog {
    fn poll_expired(&mut self, context: &mut Context<'_>) -> Poll<Expired> {
        self.state.set_watchdog(context.waker());
        loop {
            match self.state.check(&self.limits) {
                Err(expired) => return Poll::Ready(expired),
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

impl<P> Connection<P> {
    fn begin_exchange(&self, limits: &Limits) -> Arc<Exchange> {
        if let Some(budget) = &self.write_budget {
            budget.reset();
        }
        self.head_meter.lock().head_received();
        Exchange::begin(&self.state, limits)
    }

    /// Ready if this many bytes may be written.
    fn poll_write_budget(&self, bytes: usize, context: &mut Context<'_>) -> Poll<()> {
        self.write_budget
            .as_ref()
            .map_or(Poll::Ready(()), |budget| {
                budget.poll_acquire(bytes, context)
            })
    }

    /// Ready if this many bytes may be written; after an upgrade, unless the stream is cut.
    fn poll_may_write(&self, bytes: usize, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.state.upgrade().has_begun() {
            return Poll::Ready(self.check_upgraded_write(context));
        }
        self.poll_write_budget(bytes, context).map(Ok)
    }

    fn check_upgraded_write(&self, context: &Context<'_>) -> io::Result<()> {
        let upgrade = self.state.upgrade();
        if upgrade.has_begun() {
            upgrade.check(Direction::Write, context)?;
        }
        Ok(())
    }

    fn written(&self, polled: &Poll<io::Result<usize>>) {
        let Poll::Ready(Ok(bytes)) = polled else {
            return;
        };
        if let Some(budget) = &self.write_budget {
            budget.written(*bytes);
        }
    }
}

impl<S: AsyncRead + Unpin, P> AsyncRead for TrackedStream<S, P> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let this = &mut *self;
        let upgrade = this.connection.state.upgrade();
        if upgrade.has_begun() {
            upgrade.check(Direction::Read, context)?;
            return Pin::new(&mut this.inner).poll_read(context, buffer);
        }
        let polled = Pin::new(&mut this.inner).poll_read(context, buffer);
        let received = buffer.filled().get(before..).unwrap_or_default();
        if !received.is_empty() {
            let state = &this.connection.state;
            state.received();
            let mut meter = this.connection.head_meter.lock();
            meter
                .received(received, state.current_head())
                .map_err(io::Error::other)?;
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin, P> AsyncWrite for TrackedStream<S, P> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let connection = &self.connection;
        if connection
            .poll_may_write(bytes.len(), context)?
            .is_pending()
        {
            return Poll::Pending;
        }
        let polled = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.connection.written(&polled);
        polled
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let bytes = slices.iter().map(|slice| slice.len()).sum();
        if self.connection.poll_may_write(bytes, context)?.is_pending() {
            return Poll::Pending;
        }
        let polled = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.connection.written(&polled);
        polled
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.check_upgraded_write(context)?;
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.connection.check_upgraded_write(context)?;
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}

impl<S, P> Drop for TrackedStream<S, P> {
    fn drop(&mut self) {
        self.connection.state.upgrade().stream_dropped();
    }
}

#[cfg(test)]
mod tests;
