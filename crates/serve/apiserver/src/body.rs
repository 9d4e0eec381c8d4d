//! Bodies of answers. A large one is made piece by piece as the socket takes it.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};

/// The body of an answer.
#[derive(Debug)]
pub struct Body(UnsyncBoxBody<Bytes, BodyError>);

/// Why a body ended before its end; the connection is then cut, so that nobody takes half an answer
/// for a whole one.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The answer could not be completed.
    #[error("the answer could not be completed: {0}")]
    Broken(String),
}

impl Body {
    /// All of it at once.
    pub fn full(bytes: impl Into<Bytes>) -> Self {
        let never = |error: Infallible| match error {};
        Self(Full::new(bytes.into()).map_err(never).boxed_unsync())
    }

    /// Pieces that are asked for one by one, whenever the socket has taken the last: what is not
    /// asked for is not made.
    pub fn pieces(pieces: impl Iterator<Item = Bytes> + Send + 'static) -> Self {
        Self::stream(stream::iter(pieces))
    }

    /// Pieces as they come about, for watches.
    pub fn stream(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Self {
        Self::fallible(pieces.map(Ok))
    }

    /// Pieces of which one may fail: the connection is cut then.
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
