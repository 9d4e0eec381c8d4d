//! One request and its response: what is produced, what is written, and by when.
//!
//! hyper polls a body only while it can send more of it. A client that stops reading is thus never
//! noticed by the body: over HTTP/2 it sets a window of zero, over HTTP/1 it leaves the socket
//! full. So the watchdog of the connection checks every exchange by the clock, and aborts the
//! stream of one that takes too long: its body is dropped, with everything that it holds.

use std::any::Any;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use http_body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::conn_state::ConnState;
use crate::limits::Limits;

/// Maximum number of bytes that are produced and not yet written, for each response. hyper would
/// let a megabyte be produced: of two hundred lists requested at once, all of that before the first
/// of them writes a byte.
pub(crate) const MAX_PENDING_BYTES: usize = 64 << 10;

/// Maximum size of a response in one piece that ends its stream at once over HTTP/2. A larger one
/// ends after its last byte is written: a stream that has ended can no longer be reset.
const MAX_SMALL_BYTES: usize = 16 << 10;

/// Time from the reset of a stream to the end of its connection, if the reset cannot be written.
const ABORT_GRACE: Duration = Duration::from_secs(5);

tokio::task_local! {
    /// Aborts the task of an HTTP/2 stream.
    static STREAM_ABORT: Arc<Notify>;
}

/// How long a response may take, and what it holds until it is written. A handler adds it to the
/// extensions of its response; otherwise [`Limits::response_timeout`] applies.
#[derive(Clone)]
pub struct Delivery {
    /// When the last byte must be written; `None` for a watch, which may last for any time as long
    /// as its client reads what is sent.
    pub deadline: Option<Instant>,
    /// Dropped when the last byte is written, or the response is aborted.
    pub guard: Option<Arc<dyn Any + Send + Sync>>,
}

/// A request and its response, until the last byte is written or dropped.
pub(crate) struct Exchange {
    connection: Arc<ConnState>,
    progress: Mutex<Progress>,
}

struct Progress {
    deadline: Option<Instant>,
    guard: Option<Arc<dyn Any + Send + Sync>>,
    /// Aborts the stream; `None` over HTTP/1, where the connection is closed.
    stream: Option<Arc<Notify>>,
    aborted_at: Option<Instant>,
    has_responded: bool,
    produced: u64,
    written: u64,
    /// The number of bytes that must be written within the stall timeout, and since when.
    mark: Option<(u64, Instant)>,
    /// Waits for bytes to be written.
    producer: Option<Waker>,
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Check again at this time.
    Ok(Instant),
    /// The response took too long, and its stream was aborted.
    Aborted(Instant),
    /// The response took too long, and the connection must be closed.
    Close { was_aborted: bool },
}

/// A body that records what is produced.
pub(crate) struct TrackedBody<B> {
    body: B,
    exchange: Arc<Exchange>,
    is_http2: bool,
    step: Step,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    First,
    Next,
    /// All is produced, and the stream ends when it is written.
    Flush,
    Ended,
}

/// Bytes that record that they are written.
pub(crate) struct TrackedBytes {
    bytes: Bytes,
    exchange: Arc<Exchange>,
}

/// Runs HTTP/2 streams as tasks that can be aborted. An aborted one is dropped, which resets the
/// stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamExecutor;

impl<F> hyper::rt::Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let abort = Arc::new(Notify::new());
        let aborted = Arc::clone(&abort);
        tokio::spawn(STREAM_ABORT.scope(abort, async move {
            let mut stream = pin!(stream);
            tokio::select! {
                biased;
                () = aborted.notified() => {}
                () = stream.as_mut() => return,
            }
            // A body that is polled fails, and the stream is reset as incomplete. Dropping it
            // resets the stream as cancelled, which some clients take for its end.
            let _ended = poll_fn(|context| Poll::Ready(stream.as_mut().poll(context))).await;
        }));
    }
}

impl Exchange {
    /// Begins with the head of a request.
    pub(crate) fn begin(connection: &Arc<ConnState>, limits: &Limits) -> Arc<Self> {
        let deadline = Instant::now() + limits.response_timeout;
        let exchange = Arc::new(Self {
            connection: Arc::clone(connection),
            progress: Mutex::new(Progress {
                deadline: Some(deadline),
                guard: None,
                stream: None,
                aborted_at: None,
                has_responded: false,
                produced: 0,
                written: 0,
                mark: None,
                producer: None,
            }),
        });
        connection.exchange_began(&exchange);
        connection.check_at(deadline);
        exchange
    }

    /// Remembers the stream that the current task runs, if it runs one.
    pub(crate) fn entered_stream(&self) {
        self.progress.lock().stream = STREAM_ABORT.try_with(Arc::clone).ok();
    }

    /// Records that the handler has responded.
    pub(crate) fn responded(&self, delivery: Option<Delivery>) {
        let mut progress = self.progress.lock();
        progress.has_responded = true;
        if let Some(delivery) = delivery {
            progress.deadline = delivery.deadline;
            if progress.aborted_at.is_none() {
                progress.guard = delivery.guard;
            }
        }
        let deadline = progress.deadline;
        drop(progress);
        if let Some(deadline) = deadline {
            self.connection.check_at(deadline);
        }
    }

    /// Aborts the response if it takes too long.
    pub(crate) fn check(&self, now: Instant, limits: &Limits) -> Verdict {
        let mut progress = self.progress.lock();
        if let Some(aborted_at) = progress.aborted_at {
            let end = aborted_at + ABORT_GRACE;
            return if end <= now {
                Verdict::Close { was_aborted: true }
            } else {
                Verdict::Ok(end)
            };
        }
        let stalled = progress.mark.map(|(_, since)| since + limits.stall_timeout);
        let end = match (progress.deadline, stalled) {
            (Some(deadline), Some(stalled)) => deadline.min(stalled),
            (Some(end), None) | (None, Some(end)) => end,
            // Bytes that are produced later request their own check.
            (None, None) => return Verdict::Ok(now + limits.stall_timeout),
        };
        if end > now {
            return Verdict::Ok(end);
        }
        let Some(stream) = &progress.stream else {
            return Verdict::Close { was_aborted: false };
        };
        stream.notify_one();
        progress.aborted_at = Some(now);
        let guard = progress.guard.take();
        drop(progress);
        drop(guard);
        Verdict::Aborted(now + ABORT_GRACE)
    }

    fn is_aborted(&self) -> bool {
        self.progress.lock().aborted_at.is_some()
    }

    /// Ready if more of the response may be produced.
    fn poll_window(&self, context: &mut Context<'_>) -> Poll<()> {
        self.poll_pending_below(MAX_PENDING_BYTES, context)
    }

    /// Ready if all that was produced is written.
    fn poll_written(&self, context: &mut Context<'_>) -> Poll<()> {
        self.poll_pending_below(1, context)
    }

    fn poll_pending_below(&self, bytes: usize, context: &mut Context<'_>) -> Poll<()> {
        let mut progress = self.progress.lock();
        if progress.pending() < u64::try_from(bytes).unwrap_or(u64::MAX) {
            return Poll::Ready(());
        }
        progress.producer = Some(context.waker().clone());
        Poll::Pending
    }

    fn produced(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        let now = Instant::now();
        let mut progress = self.progress.lock();
        progress.produced += u64::try_from(bytes).unwrap_or(u64::MAX);
        if progress.mark.is_none() {
            progress.mark = Some((progress.produced, now));
            drop(progress);
            self.connection.stall_check_at(now);
        }
    }

    fn written(&self, bytes: usize) {
        let mut progress = self.progress.lock();
        progress.written += u64::try_from(bytes).unwrap_or(u64::MAX);
        let pending = progress.pending();
        if progress
            .mark
            .is_some_and(|(until, _)| progress.written >= until)
        {
            progress.mark = (pending > 0).then(|| (progress.produced, Instant::now()));
        }
        let has_room = pending < u64::try_from(MAX_PENDING_BYTES).unwrap_or(u64::MAX);
        let producer = progress.producer.take_if(|_| has_room);
        drop(progress);
        if let Some(producer) = producer {
            producer.wake();
        }
    }
}

impl Progress {
    const fn pending(&self) -> u64 {
        self.produced.saturating_sub(self.written)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let has_responded = self.progress.get_mut().has_responded;
        self.connection.exchange_ended(has_responded);
    }
}

impl<B> TrackedBody<B> {
    pub(crate) const fn new(body: B, exchange: Arc<Exchange>, is_http2: bool) -> Self {
        Self {
            body,
            exchange,
            is_http2,
            step: Step::First,
        }
    }
}

impl<B: Body<Data = Bytes> + Unpin> TrackedBody<B> {
    /// Records a piece of the response, and how its stream ends if it is the last.
    fn produced(&mut self, bytes: Bytes) -> TrackedBytes {
        self.exchange.produced(bytes.len());
        if self.is_http2 && self.body.is_end_stream() {
            let is_small = self.step == Step::First && bytes.len() <= MAX_SMALL_BYTES;
            self.step = if is_small { Step::Ended } else { Step::Flush };
        } else {
            self.step = Step::Next;
        }
        TrackedBytes {
            bytes,
            exchange: Arc::clone(&self.exchange),
        }
    }
}

impl<B> Body for TrackedBody<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    type Data = TrackedBytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<TrackedBytes>, Self::Error>>> {
        let this = &mut *self;
        if this.step != Step::Ended && this.exchange.is_aborted() {
            this.step = Step::Ended;
            return Poll::Ready(Some(Err("the response was not read in time".into())));
        }
        loop {
            match this.step {
                Step::Ended => return Poll::Ready(None),
                Step::Flush => {
                    ready!(this.exchange.poll_written(context));
                    this.step = Step::Ended;
                }
                Step::First | Step::Next => {
                    ready!(this.exchange.poll_window(context));
                    let Some(frame) = ready!(Pin::new(&mut this.body).poll_frame(context)) else {
                        this.step = if this.is_http2 {
                            Step::Flush
                        } else {
                            Step::Ended
                        };
                        continue;
                    };
                    let frame = frame
                        .map_err(Into::into)
                        .map(|frame| match frame.into_data() {
                            Ok(bytes) => Frame::data(this.produced(bytes)),
                            Err(other) => {
                                Frame::trailers(other.into_trailers().unwrap_or_default())
                            }
                        });
                    return Poll::Ready(Some(frame));
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self.step {
            Step::Ended => true,
            Step::Flush => false,
            Step::First => self.body.is_end_stream(),
            Step::Next => !self.is_http2 && self.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Buf for TrackedBytes {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.exchange.written(count);
    }
}

impl Drop for TrackedBytes {
    fn drop(&mut self) {
        let rest = self.bytes.len();
        if rest > 0 {
            self.exchange.written(rest);
        }
    }
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivery")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
