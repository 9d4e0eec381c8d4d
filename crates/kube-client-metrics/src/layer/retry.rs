//! Retries with counted attempts.
//!
//! `tower::retry` reports nothing, and kube places it so deep in the stack that no layer gets below
//! it. Layers on both sides of it would have to mark the request to recognize a second attempt,
//! which costs an allocation; the retry loop itself needs none.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower::retry::Policy;
use tower::{Layer, Service};

use super::{code_of, deliver};
use crate::body::MeasuredBody;
use crate::recording::{Meter, Recording};

/// Measures and retries requests. See
/// [`MetricsLayer::with_retry`](super::MetricsLayer::with_retry).
#[derive(Clone, Debug)]
pub struct RetryMetricsLayer<P> {
    meter: Arc<Meter>,
    policy: P,
}

/// The service of a [`RetryMetricsLayer`].
#[derive(Clone, Debug)]
pub struct MeasuredRetry<S, P> {
    inner: S,
    meter: Arc<Meter>,
    policy: P,
}

pin_project! {
    /// The future of a [`MeasuredRetry`] service. Dropping it cancels the request.
    pub struct RetryFuture<S, P, B, F, W> {
        // The request of the next attempt; `None` if it cannot be cloned.
        spare: Option<Request<B>>,
        service: S,
        policy: P,
        #[pin]
        state: State<F, W>,
        // Taken when the response is returned; `None` too if nobody listens.
        recording: Option<Recording>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, W> {
        Called { #[pin] response: F },
        Waiting { #[pin] wait: W },
        Ready,
    }
}

impl<P> RetryMetricsLayer<P> {
    pub(super) fn new(meter: Arc<Meter>, policy: P) -> Self {
        Self { meter, policy }
    }
}

impl<S, P: Clone> Layer<S> for RetryMetricsLayer<P> {
    type Service = MeasuredRetry<S, P>;

    fn layer(&self, inner: S) -> Self::Service {
        MeasuredRetry {
            inner,
            meter: Arc::clone(&self.meter),
            policy: self.policy.clone(),
        }
    }
}

impl<S, P, B, R> Service<Request<B>> for MeasuredRetry<S, P>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    P: Policy<Request<B>, Response<R>, S::Error> + Clone,
    B: Body,
    R: Body<Data = Bytes>,
{
    type Response = Response<MeasuredBody<R>>;
    type Error = S::Error;
    type Future = RetryFuture<S, P, B, S::Future, P::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let recording = Recording::begin(&self.meter, &request);
        let mut policy = self.policy.clone();
        let spare = policy.clone_request(&request);
        RetryFuture {
            spare,
            state: State::Called {
                response: self.inner.call(request),
            },
            service: self.inner.clone(),
            policy,
            recording,
        }
    }
}

impl<S, P, B, R> Future for RetryFuture<S, P, B, S::Future, P::Future>
where
    S: Service<Request<B>, Response = Response<R>>,
    P: Policy<Request<B>, Response<R>, S::Error>,
    B: Body,
    R: Body<Data = Bytes>,
{
    type Output = Result<Response<MeasuredBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            match this.state.as_mut().project() {
                StateProjection::Called { response } => {
                    let mut result = ready!(response.poll(context));
                    if let Some(recording) = this.recording {
                        recording.attempt_ended(code_of(&result));
                    }
                    let wait = this
                        .spare
                        .as_mut()
                        .and_then(|request| this.policy.retry(request, &mut result));
                    match wait {
                        Some(wait) => this.state.set(State::Waiting { wait }),
                        None => return Poll::Ready(deliver(result, this.recording.take())),
                    }
                }
                StateProjection::Waiting { wait } => {
                    ready!(wait.poll(context));
                    this.state.set(State::Ready);
                }
                StateProjection::Ready => {
                    if let Err(error) = ready!(this.service.poll_ready(context)) {
                        return Poll::Ready(deliver(Err(error), this.recording.take()));
                    }
                    let request = this
                        .spare
                        .take()
                        .expect("a request is tried again only if there is a spare");
                    *this.spare = this.policy.clone_request(&request);
                    if let Some(recording) = this.recording {
                        recording.sent_again(&request);
                    }
                    this.state.set(State::Called {
                        response: this.service.call(request),
                    });
                }
            }
        }
    }
}
