//! Response bodies, valid and faulty. None is held in memory beyond one chunk.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::resource_metrics;

const CHUNK_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(crate) enum Payload {
    /// A complete body.
    Whole(Option<Bytes>),
    /// A partial body, after which the connection breaks.
    Broken {
        start: Option<Bytes>,
        /// Whether the server had a chance to send the partial body.
        is_sent: bool,
    },
    /// A body, followed by as many bytes of further series.
    Huge {
        start: Option<Bytes>,
        remaining: u64,
        count: u64,
    },
}

impl Body for Payload {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let next = match &mut *self {
            Self::Whole(bytes) => bytes.take().map(Ok),
            Self::Broken { start, is_sent } => match start.take() {
                Some(bytes) => Some(Ok(bytes)),
                // hyper drops unsent data when a body fails.
                None if !*is_sent => {
                    *is_sent = true;
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                None => Some(Err(io::Error::new(
                    io::ErrorKind::ConnectionAborted,
                    "injected fault: truncated body",
                ))),
            },
            Self::Huge {
                start,
                remaining,
                count,
            } => match start.take() {
                Some(bytes) => Some(Ok(bytes)),
                None if *remaining == 0 => None,
                None => {
                    let (chunk, next) = resource_metrics::further_series(*count, CHUNK_BYTES);
                    *count = next;
                    *remaining = remaining.saturating_sub(chunk.len() as u64);
                    Some(Ok(chunk.into()))
                }
            },
        };
        Poll::Ready(next.map(|result| result.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Self::Broken { .. } | Self::Huge { .. } => SizeHint::new(),
        }
    }
}

impl Payload {
    pub(crate) fn whole(bytes: impl Into<Bytes>) -> Self {
        Self::Whole(Some(bytes.into()))
    }

    /// A partial body, if there is any, after which the connection breaks.
    pub(crate) fn broken(start: Option<Bytes>) -> Self {
        Self::Broken {
            is_sent: start.is_none(),
            start,
        }
    }
}
