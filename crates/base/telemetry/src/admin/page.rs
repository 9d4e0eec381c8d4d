//! Pages that roles add to the admin server.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// A page at a path of its own. It is read with `GET` and `HEAD`.
#[derive(Clone)]
pub struct Page {
    /// The whole path, such as `/mesh`.
    pub path: &'static str,
    /// A line of the index.
    pub help: &'static str,
    respond: Arc<Respond>,
}

/// The request of a page.
#[derive(Debug, Clone)]
pub struct PageRequest {
    /// The query, without the question mark.
    pub query: String,
    pub headers: HeaderMap,
}

/// The response of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageResponse {
    pub status: StatusCode,
    pub content_type: &'static str,
    pub body: Bytes,
}

type Respond = dyn Fn(PageRequest) -> Responding + Send + Sync;

type Responding = Pin<Box<dyn Future<Output = PageResponse> + Send>>;

impl Page {
    /// A page that `respond` renders for each request. It takes part in the response timeout of the
    /// server.
    pub fn new<F: Future<Output = PageResponse> + Send + 'static>(
        path: &'static str,
        help: &'static str,
        respond: impl Fn(PageRequest) -> F + Send + Sync + 'static,
    ) -> Self {
        Self {
            path,
            help,
            respond: Arc::new(move |request| Box::pin(respond(request))),
        }
    }

    pub(super) async fn respond(&self, request: PageRequest) -> PageResponse {
        (self.respond)(request).await
    }
}

impl PageResponse {
    /// A response in JSON.
    pub fn json(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            content_type: "application/json",
            body: body.into(),
        }
    }

    /// A response in plain text.
    pub fn text(status: StatusCode, body: impl Into<Bytes>) -> Self {
        Self {
            status,
            content_type: "text/plain; charset=utf-8",
            body: body.into(),
        }
    }
}

impl fmt::Debug for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Page").field(&self.path).finish()
    }
}
