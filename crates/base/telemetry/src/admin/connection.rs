//! One connection and its timeouts.
//!
//! hyper has one timer that runs both while a request's head arrives and while a kept-alive
//! connection rests. The first must be short, because slow heads are an attack, and the second
//! long, because Prometheus comes back every minute. So a watchdog keeps the time here, by the
//! phase that the connection is in.

use std::{
    convert::Infallible,
    future::{Future, poll_fn},
    io,
    net::IpAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
    time::{Instant, Sleep, sleep},
};

use super::{Limits, handler::Handler};

/// The most of a request's head that is held, and of an answer before it is flushed.
const BUFFER: usize = 16 * 1024;

/// The phase of a connection. The upper bits count the changes, so that a request served between
/// two looks is not taken for no request.
struct Phases(AtomicU64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The head of a request arrives.
    Head,
    /// The handler works; it bounds its own time.
    Busy,
    /// The answer is being taken, or has been and the next request may come.
    Idle,
}

/// Tells when a phase has taken too long.
struct Watchdog {
    phases: Arc<Phases>,
    limits: Limits,
    /// The change of phase that `deadline` was set for.
    timed: u64,
    deadline: Pin<Box<Sleep>>,
}

/// A stream that tells when the first bytes of a request have come.
struct NotingStream<S> {
    inner: S,
    phases: Arc<Phases>,
}

/// Serves one connection until it ends by itself, by a timeout, or idle after `closing` changed.
pub(super) async fn serve<S>(
    stream: S,
    peer: IpAddr,
    handler: Arc<Handler>,
    limits: Limits,
    mut closing: watch::Receiver<()>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let phases = Arc::new(Phases(AtomicU64::new(Phase::Head as u64)));
    let mut watchdog = Watchdog {
        phases: Arc::clone(&phases),
        limits,
        timed: phases.read(),
        deadline: Box::pin(sleep(limits.header_timeout)),
    };
    let stream = NotingStream {
        inner: stream,
        phases: Arc::clone(&phases),
    };
    let service = service_fn(move |request| {
        let (handler, phases) = (Arc::clone(&handler), Arc::clone(&phases));
        phases.enter(Phase::Busy);
        async move {
            let response = handler.handle(peer, request).await;
            phases.enter(Phase::Idle);
            Ok::<_, Infallible>(response)
        }
    });
    let connection = http1::Builder::new()
        .max_buf_size(BUFFER)
        .header_read_timeout(None)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let mut asked_to_close = false;
    loop {
        tokio::select! {
            // The connection goes first: the watchdog then sees the phase that it has reached.
            biased;
            ended = &mut connection => {
                if let Err(error) = ended {
                    tracing::debug!(%peer, %error, "admin connection ended early");
                }
                return;
            }
            phase = poll_fn(|context| watchdog.poll_expired(context)) => {
                tracing::debug!(%peer, ?phase, "admin connection took too long");
                return;
            }
            _ = closing.changed(), if !asked_to_close => {
                asked_to_close = true;
                connection.as_mut().graceful_shutdown();
            }
        }
    }
}

impl Phases {
    // Relaxed is enough: one task drives the stream, the service and the watchdog.
    fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn enter(&self, phase: Phase) {
        let changes = self.read() >> 2;
        self.0
            .store((changes + 1) << 2 | phase as u64, Ordering::Relaxed);
    }

    fn current(&self) -> Phase {
        match self.read() & 3 {
            0 => Phase::Head,
            1 => Phase::Busy,
            _ => Phase::Idle,
        }
    }
}

impl Phase {
    const fn limit(self, limits: &Limits) -> Option<Duration> {
        match self {
            Self::Head => Some(limits.header_timeout),
            Self::Busy => None,
            Self::Idle => Some(limits.idle_timeout),
        }
    }
}

impl Watchdog {
    fn poll_expired(&mut self, context: &mut Context<'_>) -> Poll<Phase> {
        let phase = self.phases.current();
        let Some(limit) = phase.limit(&self.limits) else {
            return Poll::Pending;
        };
        let change = self.phases.read();
        if change != self.timed {
            self.timed = change;
            self.deadline.as_mut().reset(Instant::now() + limit);
        }
        self.deadline.as_mut().poll(context).map(|()| phase)
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
        if buffer.filled().len() > before && self.phases.current() == Phase::Idle {
            self.phases.enter(Phase::Head);
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
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
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
