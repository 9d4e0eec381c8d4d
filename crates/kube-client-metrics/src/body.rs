//! The body of an answer: the request that it belongs to ends when it does.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::recording::{BodyEnd, Recording};

pin_project! {
    /// A body whose end is reported. It changes nothing of what passes.
    #[derive(Debug)]
    pub struct MeasuredBody<B> {
        #[pin]
        inner: B,
        recording: Recording,
    }
}

impl<B: Body> MeasuredBody<B> {
    pub(crate) fn new(inner: B, mut recording: Recording) -> Self {
        // Nobody need ask for a body that is known to be empty.
        if inner.is_end_stream() {
            recording.ended(BodyEnd::Complete);
        }
        Self { inner, recording }
    }
}

impl<B: Body<Data = Bytes>> Body for MeasuredBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let mut this = self.project();
        let frame = ready!(this.inner.as_mut().poll_frame(context));
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    this.recording.received(data);
                }
                // Who knows the length need not ask for the end.
                if this.inner.is_end_stream() {
                    this.recording.ended(BodyEnd::Complete);
                }
            }
            Some(Err(_)) => this.recording.ended(BodyEnd::Broken),
            None => this.recording.ended(BodyEnd::Complete),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
