//! Response bodies: complete, rendered while they are sent, or fed by a task.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use serde_json::Value;
use tokio::sync::mpsc;

use super::resources::ResourceInfo;
use super::status::ApiError;
use crate::store::{Form, Record};

/// Approximate size of a rendered chunk.
const CHUNK: usize = 64 * 1024;

/// The body of a response.
pub(crate) enum Body {
    Whole(Option<Bytes>),
    Items(Box<Items>),
    /// The events of a watch.
    Stream(mpsc::Receiver<Bytes>),
    /// The body of another server's response.
    Proxied(Incoming),
}

/// A list whose items are rendered one after the other, so that a large one needs little memory.
pub(crate) struct Items {
    head: Option<Vec<u8>>,
    records: std::vec::IntoIter<Arc<Record>>,
    info: &'static ResourceInfo,
    form: Form,
    is_first: bool,
    is_done: bool,
}

/// An error that ends a body early.
pub(crate) type BodyError = Box<dyn std::error::Error + Send + Sync>;

impl Body {
    pub(crate) fn empty() -> Self {
        Self::Whole(None)
    }

    /// A list: `head` is everything up to the bracket that opens the items.
    pub(crate) fn items(
        head: Vec<u8>,
        records: Vec<Arc<Record>>,
        info: &'static ResourceInfo,
        form: Form,
    ) -> Self {
        Self::Items(Box::new(Items {
            head: Some(head),
            records: records.into_iter(),
            info,
            form,
            is_first: true,
            is_done: false,
        }))
    }
}

impl Items {
    fn next_chunk(&mut self) -> Option<Bytes> {
        if self.is_done {
            return None;
        }
        let mut chunk = self.head.take().unwrap_or_default();
        while chunk.len() < CHUNK {
            let Some(record) = self.records.next() else {
                chunk.extend_from_slice(b"]}\n");
                self.is_done = true;
                break;
            };
            if !std::mem::replace(&mut self.is_first, false) {
                chunk.push(b',');
            }
            record.write(&mut chunk, self.info, self.form);
        }
        Some(Bytes::from(chunk))
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Items(items) => {
                Poll::Ready(items.next_chunk().map(|bytes| Ok(Frame::data(bytes))))
            }
            Self::Stream(receiver) => receiver
                .poll_recv(cx)
                .map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes)))),
            Self::Proxied(incoming) => Pin::new(incoming).poll_frame(cx).map_err(BodyError::from),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Items(items) => items.is_done,
            Self::Stream(_) => false,
            Self::Proxied(incoming) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(bytes) => SizeHint::with_exact(
                bytes
                    .as_ref()
                    .map_or(0, |bytes| u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
            ),
            Self::Items(_) | Self::Stream(_) => SizeHint::default(),
            Self::Proxied(incoming) => incoming.size_hint(),
        }
    }
}

pub(crate) type ApiResponse = Response<Body>;

pub(crate) fn response(code: StatusCode, media_type: &'static str, body: Body) -> ApiResponse {
    let mut response = Response::new(body);
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(
        "cache-control",
        HeaderValue::from_static("no-cache, private"),
    );
    response
}

/// A response with a JSON document.
pub(crate) fn json(code: StatusCode, value: &Value) -> ApiResponse {
    let mut text = serde_json::to_vec(value).unwrap_or_default();
    text.push(b'\n');
    raw_json(code, text)
}

/// A response with a JSON document that is already text.
pub(crate) fn raw_json(code: StatusCode, text: Vec<u8>) -> ApiResponse {
    response(
        code,
        "application/json",
        Body::Whole(Some(Bytes::from(text))),
    )
}

/// A response with plain text.
pub(crate) fn text(code: StatusCode, text: impl Into<String>) -> ApiResponse {
    let body = Body::Whole(Some(Bytes::from(text.into())));
    response(code, "text/plain; charset=utf-8", body)
}

/// A response with the `Status` of an error.
pub(crate) fn failure(error: &ApiError) -> ApiResponse {
    let mut response = json(error.code, &error.to_value());
    if let Some(seconds) = error.retry_after {
        response
            .headers_mut()
            .insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}
