//! The layer of a rate limiter.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use http::Request;
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};
use tower::{Layer, Service};

use super::RateLimiter;
use crate::hooks::Hooks;
use crate::recording::call_of;
use crate::{Call, Classifier, Verb};

/// Delays requests by a [`RateLimiter`], and reports how long each waited.
///
/// It belongs inside the retries, so that each attempt takes a token, and outside kube's
/// `base_uri_layer`. As in client-go, watches are not limited.
#[derive(Clone, Debug)]
pub struct RateLimitLayer {
    limits: Option<Arc<Limits>>,
}

#[derive(Debug)]
struct Limits {
    limiter: RateLimiter,
    hooks: Hooks,
    classifier: Classifier,
}

/// The service of a [`RateLimitLayer`].
#[derive(Clone, Debug)]
pub struct RateLimited<S> {
    inner: S,
    limits: Option<Arc<Limits>>,
}

pin_project! {
    /// The future of a [`RateLimited`] service.
    pub struct RateLimitedFuture<S, B, F> {
        #[pin]
        state: State<S, B, F>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, B, F> {
        Waiting {
            #[pin]
            turn: Sleep,
            ticket: Option<Ticket>,
            // Taken when it is sent.
            request: Option<(S, Request<B>)>,
        },
        Sent { #[pin] response: F },
    }
}

/// A reserved token. It is given back if it is dropped before its turn.
struct Ticket {
    limits: Arc<Limits>,
    call: Call,
    taken_at: Instant,
    turn: Instant,
}

impl RateLimitLayer {
    /// Limits requests and reports to these hooks, see
    /// [`RateLimiterLatency`](crate::hooks::RateLimiterLatency).
    pub fn new(limiter: RateLimiter, hooks: impl Into<Hooks>, classifier: Classifier) -> Self {
        Self {
            limits: Some(Arc::new(Limits {
                limiter,
                hooks: hooks.into(),
                classifier,
            })),
        }
    }

    /// Limits nothing.
    pub(crate) fn unlimited() -> Self {
        Self { limits: None }
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimited<S>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimited {
            inner,
            limits: self.limits.clone(),
        }
    }
}

impl<S, B> Service<Request<B>> for RateLimited<S>
where
    S: Service<Request<B>> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = RateLimitedFuture<S, B, S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let ticket = self
            .limits
            .as_ref()
            .and_then(|limits| Ticket::take(limits, &request));
        let state = match ticket {
            Some(ticket) if ticket.turn > ticket.taken_at => {
                // The clone is not ready; this one is.
                let clone = self.inner.clone();
                let ready = std::mem::replace(&mut self.inner, clone);
                State::Waiting {
                    turn: sleep_until(ticket.turn),
                    ticket: Some(ticket),
                    request: Some((ready, request)),
                }
            }
            // The wait of none is reported when the ticket is dropped.
            _ => State::Sent {
                response: self.inner.call(request),
            },
        };
        RateLimitedFuture { state }
    }
}

impl<S, B> Future for RateLimitedFuture<S, B, S::Future>
where
    S: Service<Request<B>>,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            match state.as_mut().project() {
                StateProjection::Waiting {
                    turn,
                    ticket,
                    request,
                } => {
                    ready!(turn.poll(context));
                    drop(ticket.take());
                    let (mut service, request) =
                        request.take().expect("a request is sent only once");
                    let response = service.call(request);
                    state.set(State::Sent { response });
                }
                StateProjection::Sent { response } => return response.poll(context),
            }
        }
    }
}

impl Ticket {
    /// Returns `None` for a request that is not limited.
    fn take<B>(limits: &Arc<Limits>, request: &Request<B>) -> Option<Self> {
        let call = call_of(&limits.classifier, &limits.hooks, request);
        if call.verb == Verb::Watch {
            return None;
        }
        let taken_at = Instant::now();
        Some(Self {
            turn: limits.limiter.reserve(taken_at),
            limits: Arc::clone(limits),
            call,
            taken_at,
        })
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Limits { limiter, hooks, .. } = &*self.limits;
        let now = Instant::now();
        limiter.cancel(self.turn, now);
        let waited = now.saturating_duration_since(self.taken_at);
        hooks.rate_limiter_latency.observe(&self.call, waited);
    }
}

impl<S, B, F> fmt::Debug for RateLimitedFuture<S, B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitedFuture").finish_non_exhaustive()
    }
}
