//! A request of an existing series does not allocate.
//!
//! The allocator counts all threads, and other tests run at the same time. Their allocations can
//! only increase a count, so one round without any proves that ours do not allocate.

use std::alloc::System;
use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::Body;
use http_body_util::Full;
use kube_client_metrics::{Classifier, MetricsLayer, RateLimitLayer, RateLimiter, Registry};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};
use tower::retry::Policy;
use tower::{Layer, Service};

use crate::families::sum;

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PATHS: [&str; 4] = [
    "/api/v1/namespaces/space/pods/object",
    "/apis/apps/v1/deployments?limit=500",
    "/api/v1/pods?watch=true",
    "/healthz",
];

/// Never retries and never clones the request.
#[derive(Clone)]
struct Never;

impl<Q, R, E> Policy<Q, R, E> for Never {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut Q, _: &mut Result<R, E>) -> Option<Ready<()>> {
        None
    }

    fn clone_request(&mut self, _: &Q) -> Option<Q> {
        None
    }
}

fn ask<S, B>(service: &mut S, uri: &Uri)
where
    S: Service<Request<Full<Bytes>>, Response = Response<B>>,
    S::Error: std::fmt::Debug,
    B: Body,
{
    let mut context = Context::from_waker(Waker::noop());
    let mut request = Request::new(Full::new(Bytes::from_static(b"body")));
    request.uri_mut().clone_from(uri);
    let Poll::Ready(Ok(response)) = pin!(service.call(request)).poll(&mut context) else {
        return;
    };
    let mut body = pin!(response.into_body());
    while let Poll::Ready(Some(_)) = body.as_mut().poll_frame(&mut context) {}
}

fn respond(_: Request<Full<Bytes>>) -> Ready<Result<Response<Full<Bytes>>, Infallible>> {
    ready(Ok(Response::new(Full::new(Bytes::from_static(b"{}\n")))))
}

#[test]
fn a_request_of_an_existing_series_does_not_allocate() {
    let registry = Registry::new();
    let layer = MetricsLayer::new(&registry, Classifier::new("cluster.example:6443"));
    let mut once = layer.layer(tower::service_fn(respond));
    // With three adapters, and behind a rate limiter without waits.
    let three = registry.hooks().and(&Registry::new()).and(&Registry::new());
    let limiter = RateLimiter::new(1e9, u32::MAX);
    let classifier = Classifier::new("cluster.example:6443");
    let limit = RateLimitLayer::new(limiter, three.clone(), classifier.clone());
    let mut again = MetricsLayer::new(three, classifier)
        .with_retry(Never)
        .layer(limit.layer(tower::service_fn(respond)));
    let uris: Vec<Uri> = PATHS.iter().map(|path| Uri::from_static(path)).collect();
    let mut all = || {
        for uri in &uris {
            ask(&mut once, uri);
            ask(&mut again, uri);
        }
    };
    let mut rounds = 0;
    let mut allocations = || {
        let region = Region::new(COUNTING);
        all();
        let change = region.change();
        rounds += 1;
        change.allocations + change.reallocations
    };
    assert_ne!(allocations(), 0, "the first round makes the series");
    assert!((0..50_000).any(|_| allocations() == 0));
    let text = registry.encode();
    assert_eq!(
        sum(&text, "kube_client_streams_total", &[("kind", "watch")]),
        2 * rounds
    );
}
