//! The bucket and its layer, with paused time.

use std::convert::Infallible;
use std::future::Ready;
use std::sync::Mutex;

use http::{Request, Response};
use http_body_util::Empty;
use kube::client::retry::RetryPolicy;
use proptest::prelude::*;
use tower::{Layer, Service, ServiceExt as _};

use super::*;
use crate::{Call, Classifier, Hooks, MetricsLayer};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_burst_is_sent_at_once_and_the_rest_at_the_rate() {
    let limiter = RateLimiter::new(4.0, 3);
    let start = Instant::now();
    let turns: Vec<u128> = (0..6)
        .map(|_| (limiter.reserve(start) - start).as_millis())
        .collect();
    assert_eq!(turns, [0, 0, 0, 250, 500, 750]);
    // The bucket fills again, up to the burst.
    let later = start + 100 * SECOND;
    let turns: Vec<u128> = (0..4)
        .map(|_| (limiter.reserve(later) - later).as_millis())
        .collect();
    assert_eq!(turns, [0, 0, 0, 250]);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_not_used_is_for_the_next() {
    let limiter = RateLimiter::new(1.0, 1);
    let start = Instant::now();
    assert_eq!(limiter.reserve(start), start);
    let turn = limiter.reserve(start);
    assert_eq!(turn, start + SECOND);
    limiter.cancel(turn, start);
    assert_eq!(limiter.reserve(start), start + SECOND);
    // Who waits behind a cancelled request keeps its turn, and the next is behind it.
    let second = limiter.reserve(start);
    let third = limiter.reserve(start);
    limiter.cancel(second, start);
    assert_eq!((second, third), (start + 2 * SECOND, start + 3 * SECOND));
    assert_eq!(limiter.reserve(start), start + 4 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_rate_that_is_not_positive_does_not_limit() {
    for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let limiter = RateLimiter::new(rate, 1);
        let now = Instant::now();
        assert!((0..100).all(|_| limiter.reserve(now) == now));
        limiter.cancel(now + SECOND, now);
    }
}

proptest! {
    /// Never more than the burst and what the time allows, whatever is cancelled.
    #[test]
    fn the_rate_is_never_exceeded(
        rate in 0.1..1_000.0_f64,
        burst in 1..50_u32,
        steps in prop::collection::vec((0..2_000_u64, any::<bool>()), 1..200),
    ) {
        let limiter = RateLimiter::new(rate, burst);
        let start = Instant::now();
        let mut now = start;
        let mut sent = Vec::new();
        for (wait, cancelled) in steps {
            now += Duration::from_millis(wait);
            let turn = limiter.reserve(now);
            prop_assert!(turn >= now);
            if cancelled && turn > now {
                limiter.cancel(turn, now);
            } else {
                sent.push(turn);
            }
        }
        sent.sort_unstable();
        for (earlier, first) in sent.iter().enumerate() {
            for (later, last) in sent.iter().enumerate().skip(earlier) {
                let allowed = f64::from(burst) + (*last - *first).as_secs_f64() * rate;
                let count = f64::from(u32::try_from(later - earlier + 1).unwrap());
                prop_assert!(count <= allowed + 1e-3, "{count} in {:?}", *last - *first);
            }
        }
    }
}

type Waits = Arc<Mutex<Vec<(String, u128)>>>;

fn hooks(waits: &Waits) -> Hooks {
    let waits = Arc::clone(waits);
    Hooks::default().with_rate_limiter_latency(move |call: &Call, waited: Duration| {
        let line = (call.verb.to_string(), waited.as_millis());
        waits.lock().unwrap().push(line);
    })
}

fn respond(
    _: Request<Empty<bytes::Bytes>>,
) -> Ready<Result<Response<Empty<bytes::Bytes>>, Infallible>> {
    std::future::ready(Ok(Response::new(Empty::new())))
}

fn get(uri: &str) -> Request<Empty<bytes::Bytes>> {
    Request::get(uri).body(Empty::new()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_wait_is_reported_and_watches_are_not_limited() {
    let waits = Waits::default();
    let layer = RateLimitLayer::new(
        RateLimiter::new(10.0, 1),
        hooks(&waits),
        Classifier::new("cluster"),
    );
    let service = layer.layer(tower::service_fn(respond));
    for uri in ["/api/v1/pods", "/api/v1/pods?watch=1", "/api/v1/pods"] {
        service.clone().oneshot(get(uri)).await.unwrap();
    }
    // Dropped while it waits: its token is given back.
    let dropped = service.clone().oneshot(get("/api/v1/nodes/one"));
    let dropped = tokio::time::timeout(Duration::from_millis(30), dropped);
    assert!(dropped.await.is_err());
    service.clone().oneshot(get("/api/v1/nodes")).await.unwrap();
    let expected = [("list", 0), ("list", 100), ("get", 30), ("list", 70)];
    let waits = waits.lock().unwrap().clone();
    let waits: Vec<(&str, u128)> = waits
        .iter()
        .map(|(verb, ms)| (verb.as_str(), *ms))
        .collect();
    assert_eq!(waits, expected);
}

#[tokio::test(start_paused = true)]
async fn every_attempt_takes_a_token() {
    let waits = Waits::default();
    let hooks = hooks(&waits);
    let limit = RateLimitLayer::new(
        RateLimiter::new(0.001, 1),
        hooks.clone(),
        Classifier::new("cluster"),
    );
    let policy = RetryPolicy::new(SECOND, SECOND, 1, false).unwrap();
    let measure = MetricsLayer::new(hooks, Classifier::new("cluster")).with_retry(policy);
    let mut service = measure.layer(limit.layer(tower::service_fn(
        async |_: Request<kube::client::Body>| {
            let mut response = Response::new(Empty::<bytes::Bytes>::new());
            *response.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            Ok::<_, tower::BoxError>(response)
        },
    )));
    let request = Request::get("/api/v1/pods").body(kube::client::Body::empty());
    let response = service.call(request.unwrap()).await.unwrap();
    assert_eq!(response.status(), 503);
    let waits = waits.lock().unwrap().clone();
    assert_eq!(waits.len(), 2, "{waits:?}");
    assert!(waits.last().unwrap().1 > 900_000, "{waits:?}");
}
