//! How requests reach a server.
//!
//! The engine needs little: a GET, its status and headers, and the body as it comes. Behind this
//! trait it runs over a [`kube::Client`], or in tests over streams in memory.

use std::error::Error;
use std::fmt;
use std::pin::Pin;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING};
use http::{HeaderValue, Request, Response};
use http_body::{Body, Frame};
use kube_client_metrics::Hooks;

use crate::error::{TransportError, WatchError};

/// A future that a [`Transport`] answers with.
pub type Answer<'t> =
    Pin<Box<dyn Future<Output = Result<Response<BoxBody>, TransportError>> + Send + 't>>;

/// A body of any kind.
pub type BoxBody = Pin<Box<dyn Body<Data = Bytes, Error = Box<dyn Error + Send + Sync>> + Send>>;

/// Sends requests to one server.
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Sends a GET; the URI is a path and a query.
    fn get(&self, request: Request<()>) -> Answer<'_>;
}

/// Sends requests with a [`kube::Client`].
#[derive(Clone)]
pub struct KubeTransport {
    client: kube::Client,
}

/// The body of kube's answers with the errors of this crate.
struct KubeBody(kube::client::Body);

impl KubeTransport {
    /// A client for this configuration, without what would get in the way of a watch: kube's own
    /// retries, which wait for minutes where the engine wants to know, and its read timeout, which
    /// ends watches that have nothing to say. Must be called on a runtime.
    pub fn new(config: kube::Config) -> Result<Self, WatchError> {
        Self::measured(config, &Hooks::default())
    }

    /// The same, with its requests told to `hooks`.
    pub fn measured(mut config: kube::Config, hooks: &Hooks) -> Result<Self, WatchError> {
        config.default_retry = false;
        config.read_timeout = None;
        let client = kube_client_metrics::client(config, hooks.clone())
            .map_err(|error| WatchError::Client(error.into()))?;
        Ok(Self { client })
    }

    /// Uses a client as it is. One that retries hides from the stream's state that the server is
    /// throttling, and its waits add to those of the stream.
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
    fn get(&self, request: Request<()>) -> Answer<'_> {
        Box::pin(async move {
            let request = request.map(|()| kube::client::Body::empty());
            let answer = self.client.send(request).await;
            let answer = answer.map_err(|error| TransportError::Request(error.into()))?;
            Ok(answer.map(|body| Box::pin(KubeBody(body)) as BoxBody))
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

/// A GET of a path and query, with what must never be forgotten.
pub(crate) fn request(target: &str, accept: &'static str) -> Result<Request<()>, http::Error> {
    Request::get(target)
        .header(ACCEPT, HeaderValue::from_static(accept))
        // Servers since 1.37 compress a watch event by event, which no decoder on the way undoes.
        .header(ACCEPT_ENCODING, HeaderValue::from_static("identity"))
        .body(())
}

/// The next data of a body; `None` at its end. Trailers mean nothing here.
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
