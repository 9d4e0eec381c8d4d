//! The layers: one that measures, and one that measures and retries.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower::{Layer, Service};

use crate::body::MeasuredBody;
use crate::recording::{Meter, Recording};
use crate::{Classifier, Code, Hooks};

mod retry;

pub use retry::{MeasuredRetry, RetryFuture, RetryMetricsLayer};

/// Measures requests, for stacks that are built by hand.
///
/// It belongs outside kube's `base_uri_layer`, where paths are still those of the API, and outside
/// the decompression. Each request counts as one attempt: retries further inside look like one long
/// attempt. To count attempts, let this layer [retry](Self::with_retry) instead.
///
/// ```
/// # fn example(config: kube::Config) -> Result<(), Box<dyn std::error::Error>> {
/// use kube::client::ClientBuilder;
/// use kube_client_metrics::{Classifier, MetricsLayer, Registry};
///
/// let registry = Registry::new();
/// let layer = MetricsLayer::new(&registry, Classifier::new("cluster.example:6443"));
/// let client = ClientBuilder::try_from(config)?.with_layer(&layer).build();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct MetricsLayer {
    meter: Arc<Meter>,
}

/// The service of a [`MetricsLayer`].
#[derive(Clone, Debug)]
pub struct Measured<S> {
    inner: S,
    meter: Arc<Meter>,
}

pin_project! {
    /// The future of a [`Measured`] service. Dropping it cancels the request.
    #[derive(Debug)]
    pub struct MeasuredFuture<F> {
        #[pin]
        inner: F,
        // Taken when the response is returned; `None` too if nobody listens.
        recording: Option<Recording>,
    }
}

impl MetricsLayer {
    /// Creates a layer that reports to these hooks.
    pub fn new(hooks: impl Into<Hooks>, classifier: Classifier) -> Self {
        Self {
            meter: Arc::new(Meter {
                hooks: hooks.into(),
                classifier,
            }),
        }
    }

    /// Returns a layer that also retries by this policy, so that attempts are counted.
    ///
    /// The inner service should not retry itself; for kube's own stack that is
    /// `config.default_retry = false`.
    pub fn with_retry<P>(self, policy: P) -> RetryMetricsLayer<P> {
        RetryMetricsLayer::new(self.meter, policy)
    }
}

impl<S> Layer<S> for MetricsLayer {
    type Service = Measured<S>;

    fn layer(&self, inner: S) -> Self::Service {
        Measured {
            inner,
            meter: Arc::clone(&self.meter),
        }
    }
}

impl<S, B, R> Service<Request<B>> for Measured<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    B: Body,
    R: Body<Data = Bytes>,
{
    type Response = Response<MeasuredBody<R>>;
    type Error = S::Error;
    type Future = MeasuredFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        MeasuredFuture {
            recording: Recording::begin(&self.meter, &request),
            inner: self.inner.call(request),
        }
    }
}

impl<F, R, E> Future for MeasuredFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body<Data = Bytes>,
{
    type Output = Result<Response<MeasuredBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let result = ready!(this.inner.poll(context));
        let mut recording = this.recording.take();
        if let Some(recording) = &mut recording {
            recording.attempt_ended(code_of(&result));
        }
        Poll::Ready(deliver(result, recording))
    }
}

fn code_of<R, E>(result: &Result<Response<R>, E>) -> Code {
    result
        .as_ref()
        .map_or(Code::Error, |response| Code::Status(response.status()))
}

/// Moves the recording into the response body. Everything else is unchanged, in particular the
/// extensions, which hold an upgraded connection.
fn deliver<R: Body, E>(
    result: Result<Response<R>, E>,
    mut recording: Option<Recording>,
) -> Result<Response<MeasuredBody<R>>, E> {
    match result {
        Ok(response) => {
            if let Some(recording) = &mut recording {
                recording.head(response.status());
            }
            Ok(response.map(|body| MeasuredBody::new(body, recording)))
        }
        Err(error) => {
            if let Some(recording) = &mut recording {
                recording.failed();
            }
            Err(error)
        }
    }
}
