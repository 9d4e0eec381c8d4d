//! The body of a response: its request ends when the body ends.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use crate::recording::{BodyEnd, Recording};

pin_project! {
    /// A response body that reports its end and passes all frames unchanged.
    #[derive(Debug)]
    pub struct MeasuredBody<B> {
        #[pin]
        inner: B,
        recording: Option<Recording>,
    }
}

impl<B: Body> MeasuredBody<B> {
    /// Without a recording it only passes frames.
    pub(crate) fn new(inner: B, mut recording: Option<Recording>) -> Self {
        // An empty body may never be polled.
        if let Some(recording) = &mut recording
            && inner.is_end_stream()
        {
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
        let Some(recording) = this.recording else {
            return Poll::Ready(frame);
        };
        match &frame {
            Some(Ok(frame)) => {
                if let Some(data) = frame.data_ref() {
                    recording.received(data);
                }
                // A reader that knows the length may not poll for the end.
                if this.inner.is_end_stream() {
                    recording.ended(BodyEnd::Complete);
                }
            }
            Some(Err(_)) => recording.ended(BodyEnd::Broken),
            None => recording.ended(BodyEnd::Complete),
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
