//! Streams of a connection, as readers and writers.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use crate::connection::Shared;
use crate::frame::{self, reset};
use crate::header::Headers;

/// Maximum payload of one `DATA` frame: streams take turns.
const MAX_PAYLOAD: usize = 32 << 10;

/// A stream that the peer has opened. Dropped, it is refused.
#[derive(Debug)]
pub struct PendingStream(Option<Stream>);

/// A stream in both directions.
#[derive(Debug)]
pub struct Stream {
    pub reader: StreamReader,
    pub writer: StreamWriter,
    headers: Headers,
}

/// What the peer sends. A reset, and the loss of the connection, are errors; end of file is the
/// peer's half-close. Dropped, the rest is discarded.
#[derive(Debug)]
pub struct StreamReader {
    /// The bounded buffer. Nothing is written into this end of it.
    pipe: DuplexStream,
    state: Arc<StreamState>,
    shared: Arc<Shared>,
}

/// What is sent to the peer. `shutdown`, and dropping it, half-close the stream.
#[derive(Debug)]
pub struct StreamWriter {
    state: Arc<StreamState>,
    shared: Arc<Shared>,
}

/// The state of a stream, which the driver of the connection shares.
#[derive(Debug)]
pub(crate) struct StreamState {
    pub(crate) id: u32,
    /// How the direction from the peer ended.
    end: AtomicU8,
    /// Nothing more is sent.
    pub(crate) is_finished: AtomicBool,
    /// The reader is dropped.
    pub(crate) is_unread: AtomicBool,
}

const OPEN: u8 = 0;
const FIN: u8 = 1;
const RESET: u8 = 2;

impl StreamState {
    pub(crate) fn new(id: u32) -> Arc<Self> {
        Arc::new(Self {
            id,
            end: AtomicU8::new(OPEN),
            is_finished: AtomicBool::new(false),
            is_unread: AtomicBool::new(false),
        })
    }

    /// Records the half-close of the peer.
    pub(crate) fn remote_finished(&self) {
        let _ended = self
            .end
            .compare_exchange(OPEN, FIN, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Records a reset by either side, or the loss of the connection.
    pub(crate) fn reset(&self) {
        // All that the peer has to say was said before.
        let _ended = self
            .end
            .compare_exchange(OPEN, RESET, Ordering::AcqRel, Ordering::Relaxed);
        self.is_finished.store(true, Ordering::Release);
    }

    /// Whether neither side sends any more, or nobody is interested.
    pub(crate) fn is_over(&self) -> bool {
        self.is_finished.load(Ordering::Acquire)
            && (self.end.load(Ordering::Acquire) != OPEN || self.is_unread.load(Ordering::Acquire))
    }
}

impl PendingStream {
    pub(crate) const fn new(stream: Stream) -> Self {
        Self(Some(stream))
    }

    /// Returns the headers of the stream.
    pub fn headers(&self) -> &Headers {
        const NONE: &Headers = &Headers::EMPTY;
        self.0.as_ref().map_or(NONE, |stream| &stream.headers)
    }

    /// Returns the number of the stream.
    pub fn id(&self) -> u32 {
        self.0.as_ref().map_or(0, Stream::id)
    }

    /// Replies to the peer, which sends nothing before; `None` if the connection has ended.
    pub fn accept(mut self) -> Option<Stream> {
        let stream = self.0.take()?;
        let shared = &stream.writer.shared;
        shared.reply(stream.id()).then_some(stream)
    }
}

impl Drop for PendingStream {
    fn drop(&mut self) {
        if let Some(stream) = self.0.take() {
            stream.writer.reset(reset::REFUSED);
        }
    }
}

impl Stream {
    pub(crate) fn new(
        state: &Arc<StreamState>,
        headers: Headers,
        pipe: DuplexStream,
        shared: &Arc<Shared>,
    ) -> Self {
        Self {
            reader: StreamReader {
                pipe,
                state: Arc::clone(state),
                shared: Arc::clone(shared),
            },
            writer: StreamWriter {
                state: Arc::clone(state),
                shared: Arc::clone(shared),
            },
            headers,
        }
    }

    /// Returns the number of the stream.
    pub fn id(&self) -> u32 {
        self.writer.state.id
    }

    /// Returns the headers of the stream.
    pub const fn headers(&self) -> &Headers {
        &self.headers
    }
}

impl StreamWriter {
    /// Resets the stream in both directions. A read that waits meanwhile is not woken.
    pub fn reset(&self, status: u32) {
        if self.state.is_finished.swap(true, Ordering::AcqRel) {
            return;
        }
        self.state.reset();
        let id = self.state.id;
        self.shared
            .outbox
            .push(|out| frame::put_rst_stream(out, id, status));
        self.shared.forget(id);
    }

    fn finish(&self) {
        if self.state.is_finished.swap(true, Ordering::AcqRel) {
            return;
        }
        let id = self.state.id;
        self.shared
            .outbox
            .push(|out| frame::put_data_header(out, id, true, 0));
        self.shared.forget_if_over(&self.state);
    }
}

impl Drop for StreamWriter {
    fn drop(&mut self) {
        self.finish();
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        self.state.is_unread.store(true, Ordering::Release);
        self.shared.forget_if_over(&self.state);
    }
}

impl AsyncRead for StreamReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.pipe).poll_read(context, buffer);
        // This side may have reset the stream; the driver then still has the pipe.
        if polled.is_pending() && self.state.end.load(Ordering::Acquire) == RESET {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        ready!(polled)?;
        let is_end = buffer.filled().len() == before && buffer.remaining() > 0;
        if is_end && self.state.end.load(Ordering::Acquire) != FIN {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for StreamWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.state.is_finished.load(Ordering::Acquire) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let piece = bytes.get(..MAX_PAYLOAD).unwrap_or(bytes);
        ready!(self.shared.outbox.poll_push(context, |out| {
            frame::put_data_header(out, self.state.id, false, piece.len());
            out.extend_from_slice(piece);
        }))?;
        Poll::Ready(Ok(piece.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.finish();
        Poll::Ready(Ok(()))
    }
}
