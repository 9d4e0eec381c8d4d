//! Response bodies. A large one is produced in pieces as the socket accepts them.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};

/// A response body.
#[derive(Debug)]
pub struct Body(UnsyncBoxBody<Bytes, BodyError>);

/// An incomplete body; the connection is closed, so that no client takes it for a complete one.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    #[error("incomplete response: {0}")]
    Broken(String),
}

impl Body {
    /// A body in one piece.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        let never = |error: Infallible| match error {};
        Self(Full::new(bytes.into()).map_err(never).boxed_unsync())
    }

    /// Pieces that are produced one by one, when the socket has accepted the previous one.
    pub fn pieces(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Self {
        Self::stream(stream::iter(pieces))
    }

    /// A stream of pieces, for watches.
    pub fn stream(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::fallible(pieces.map(Ok))
    }

    /// A stream whose pieces may fail; the connection is closed then.
    pub fn fallible(pieces: impl Stream<Item = Result<Bytes, BodyError>> + Send + 'static) -> Self {
        let frames = pieces.map(|piece| piece.map(Frame::data));
        Self(StreamBody::new(frames).boxed_unsync())
    }

    /// Any other body.
    pub fn wrap<B>(body: B) -> Self
    where
        B: http_body::Body<Data = Bytes, Error = BodyError> + Send + 'static,
    {
        Self(body.boxed_unsync())
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        Pin::new(&mut self.0).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.0.size_hint()
    }
}
