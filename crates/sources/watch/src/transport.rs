//! The transport of requests.
//!
//! The engine needs little: a GET, its status and headers, and the body as it arrives. The trait is
//! implemented over a [`kube::Client`], and in tests over channels in memory.

use std::error::Error;
use std::fmt;
use std::pin::Pin;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING};
use http::{HeaderValue, Request, Response};
use http_body::{Body, Frame};
use kube_client_metrics::Hooks;

use crate::api_client::api_client;
use crate::error::{TransportError, WatchError};

/// The future of a [`Transport`] response.
pub type ResponseFuture<'t> =
    Pin<Box<dyn Future<Output = Result<Response<BoxBody>, TransportError>> + Send + 't>>;

pub type BoxBody = Pin<Box<dyn Body<Data = Bytes, Error = Box<dyn Error + Send + Sync>> + Send>>;

/// Sends requests to one server.
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Sends a GET; the URI is a path and a query.
    fn get(&self, request: Request<()>) -> ResponseFuture<'_>;
}

/// Sends requests with a [`kube::Client`].
#[derive(Clone)]
pub struct KubeTransport {
    client: kube::Client,
}

/// The body of a kube response with the errors of this crate.
struct KubeBody(kube::client::Body);

impl KubeTransport {
    /// Builds a client without kube's own retries, which wait for minutes and hide failures from
    /// the engine, and without its read timeout, which ends quiet watches. Must be called on a
    /// runtime.
    pub fn new(config: kube::Config) -> Result<Self, WatchError> {
        Self::measured(config, &Hooks::default())
    }

    /// Builds a client that reports its requests to `hooks`.
    pub fn measured(mut config: kube::Config, hooks: &Hooks) -> Result<Self, WatchError> {
        config.default_retry = false;
        config.read_timeout = None;
        let client = api_client(config, hooks)?;
        Ok(Self { client })
    }

    /// Uses an existing client. If it retries, throttling does not show in the state of the watch,
    /// and its waits add to those of the engine.
    pub fn from_client(client: kube::Client) -> Self {
        Self { client }
    }
}

impl fmt::Debug for KubeTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KubeTransport").finish_non_exhaustive()
    }
}

impl Transport for KubeTransport {
    fn get(&self, request: Request<()>) -> ResponseFuture<'_> {
        Box::pin(async move {
            let request = request.map(|()| kube::client::Body::empty());
            let response = self.client.send(request).await;
            let response = response.map_err(|error| TransportError::Request(error.into()))?;
            Ok(response.map(|body| Box::pin(KubeBody(body)) as BoxBody))
        })
    }
}

impl Body for KubeBody {
    type Data = Bytes;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.0)
            .poll_frame(context)
            .map_err(Into::into)
    }
}

/// Builds a GET request with the headers that every watch needs.
pub(crate) fn request(target: &str, accept: &'static str) -> Result<Request<()>, http::Error> {
    Request::get(target)
        .header(ACCEPT, HeaderValue::from_static(accept))
        // Servers since 1.37 compress each watch event by itself, which no HTTP client decodes.
        .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
        .body(())
}

/// Returns the next data of a body; `None` at its end. Trailers are ignored.
pub(crate) async fn next_data(body: &mut BoxBody) -> Option<Result<Bytes, TransportError>> {
    loop {
        let frame = std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await?;
        match frame.map(Frame::into_data) {
            Ok(Ok(data)) => return Some(Ok(data)),
            Ok(Err(_trailers)) => {}
            Err(error) => return Some(Err(TransportError::Body(error))),
        }
    }
}
