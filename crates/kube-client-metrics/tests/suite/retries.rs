//! Attempts of requests.

use std::future::{Ready, ready};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Request, Response};
use kube::client::Body;
use kube::client::retry::RetryPolicy;
use kube_client_metrics::{Classifier, MetricsLayer};
use tower::retry::Policy;
use tower::{BoxError, Layer, Service, ServiceExt};

use crate::harness::{Broken, Recorder, Script, exchange, frame, request, respond};

/// A service that responds with these codes in order and then with 200, behind the layer with
/// kube's policy.
fn service(
    calls: &Recorder,
    codes: &'static [u16],
) -> impl Service<
    Request<Body>,
    Response = Response<kube_client_metrics::MeasuredBody<Script>>,
    Error = BoxError,
> {
    let tries = Arc::new(AtomicUsize::new(0));
    let policy = RetryPolicy::new(
        Duration::from_millis(100),
        Duration::from_secs(1),
        codes.len().try_into().unwrap(),
        true,
    );
    MetricsLayer::new(calls.hooks(), Classifier::new("cluster"))
        .with_retry(policy.unwrap())
        .layer(tower::service_fn(move |_: Request<Body>| {
            let turn = tries.fetch_add(1, Ordering::Relaxed);
            async move {
                let code = codes.get(turn).copied().unwrap_or(200);
                let mut response = respond(code, Script::text("body"));
                if code == 429 {
                    let after = response.headers_mut();
                    after.insert("retry-after", "7".parse().unwrap());
                }
                Ok::<_, BoxError>(response)
            }
        }))
}

fn post(body: Body) -> Request<Body> {
    Request::post("/api/v1/namespaces/space/pods")
        .body(body)
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn each_attempt_is_counted_and_the_request_is_timed_once() {
    let calls = Recorder::default();
    let service = service(&calls, &[429, 503]);
    let response = service.oneshot(post(Body::from(vec![0; 5]))).await.unwrap();
    let mut body = response.into_body();
    while frame(&mut body).await.is_some() {}
    let calls = calls.take();
    assert_eq!(
        calls[..9],
        [
            "request_size POST cluster 5",
            "result POST cluster 429",
            "request_size POST cluster 5",
            "result POST cluster 503",
            "retry POST cluster 503",
            "request_size POST cluster 5",
            "result POST cluster 200",
            "retry POST cluster 200",
            "response_size POST cluster 4",
        ]
    );
    assert!(calls[9].starts_with("latency POST cluster 7"), "{calls:?}");
    let end = "end create /api/v1/namespaces/{namespace}/pods 200 completed after 3 and 7";
    assert!(calls[10].starts_with(end), "{calls:?}");
    assert_eq!(calls.len(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_request_dropped_between_attempts_has_the_last_status() {
    let calls = Recorder::default();
    let service = service(&calls, &[429]);
    {
        let future = pin!(service.oneshot(post(Body::empty())));
        let waited = tokio::time::timeout(Duration::from_secs(1), future).await;
        assert!(waited.is_err());
    }
    assert_eq!(
        calls.take(),
        [
            "request_size POST cluster 0",
            "result POST cluster 429",
            "latency POST cluster 1000ms",
            "end create /api/v1/namespaces/{namespace}/pods 429 cancelled after 1 and 1000ms, 0 bytes",
        ]
    );
}

/// Always retries, but cannot clone requests.
#[derive(Clone)]
struct NoSpare;

impl<Q, R, E> Policy<Q, R, E> for NoSpare {
    type Future = Ready<()>;

    fn retry(&mut self, _: &mut Q, _: &mut Result<R, E>) -> Option<Ready<()>> {
        Some(ready(()))
    }

    fn clone_request(&mut self, _: &Q) -> Option<Q> {
        None
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_cloned_is_sent_once() {
    let calls = Recorder::default();
    let service = MetricsLayer::new(calls.hooks(), Classifier::new("cluster"))
        .with_retry(NoSpare)
        .layer(tower::service_fn(async |_| {
            Ok::<_, Broken>(respond(503, Script::empty()))
        }));
    let response = exchange(service, request("GET", "/api/v1/pods")).await;
    assert_eq!(response.unwrap().status(), 503);
    let lines = calls.take();
    assert_eq!(lines[1], "result GET cluster 503");
    assert!(lines[3].contains(" after 1 and "), "{lines:?}");
    assert_eq!(lines.len(), 4);
}
