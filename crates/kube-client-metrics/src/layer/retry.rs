//! Trying again where attempts can be counted.
//!
//! `tower::retry` does the same but tells nobody, and kube puts it so far inside that no layer gets
//! below it. A layer of ours on either side of it would need a note in the request to know a second
//! attempt from a first, which costs an allocation; the loop itself knows.

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

/// Measures requests and tries again. See
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
    /// The answer of a [`MeasuredRetry`] service. To drop it early is to cancel the request.
    pub struct RetryFuture<S, P, B, F, W> {
        // What the next attempt sends; `None` if the request cannot be sent twice.
        spare: Option<Request<B>>,
        service: S,
        policy: P,
        #[pin]
        state: State<F, W>,
        // Taken when the answer goes out.
        recording: Option<Recording>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, W> {
        Called { #[pin] answer: F },
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
        let mut recording = Recording::begin(&self.meter, &request);
        recording.sent(request.body().size_hint().exact());
        let mut policy = self.policy.clone();
        let spare = policy.clone_request(&request);
        RetryFuture {
            spare,
            state: State::Called {
                answer: self.inner.call(request),
            },
            service: self.inner.clone(),
            policy,
            recording: Some(recording),
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
                StateProjection::Called { answer } => {
                    let mut result = ready!(answer.poll(context));
                    if let Some(recording) = this.recording {
                        recording.answered(code_of(&result));
                    }
                    let wait = this
                        .spare
                        .as_mut()
                        .and_then(|request| this.policy.retry(request, &mut result));
                    match wait {
                        Some(wait) => this.state.set(State::Waiting { wait }),
                        None => return Poll::Ready(deliver(result, take(this.recording))),
                    }
                }
                StateProjection::Waiting { wait } => {
                    ready!(wait.poll(context));
                    this.state.set(State::Ready);
                }
                StateProjection::Ready => {
                    if let Err(error) = ready!(this.service.poll_ready(context)) {
                        return Poll::Ready(deliver(Err(error), take(this.recording)));
                    }
                    let request = this
                        .spare
                        .take()
                        .expect("a request is tried again only if there is a spare");
                    *this.spare = this.policy.clone_request(&request);
                    if let Some(recording) = this.recording {
                        recording.sent(request.body().size_hint().exact());
                    }
                    this.state.set(State::Called {
                        answer: this.service.call(request),
                    });
                }
            }
        }
    }
}

fn take(recording: &mut Option<Recording>) -> Recording {
    recording
        .take()
        .expect("a future is not polled after it was ready")
}
