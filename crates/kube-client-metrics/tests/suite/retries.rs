//! Attempts and requests, told apart.

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

use crate::bed::{Broken, Script, Told, answer, exchange, frame, request};

/// A service that answers with these codes in turn and then with 200, behind the layer with kube's
/// policy.
fn service(
    told: &Told,
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
    MetricsLayer::new(told.hooks(), Classifier::new("cluster"))
        .with_retry(policy.unwrap())
        .layer(tower::service_fn(move |_: Request<Body>| {
            let turn = tries.fetch_add(1, Ordering::Relaxed);
            async move {
                let code = codes.get(turn).copied().unwrap_or(200);
                let mut response = answer(code, Script::text("body"));
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
async fn attempts_are_counted_each_and_the_request_is_timed_once() {
    let told = Told::default();
    let service = service(&told, &[429, 503]);
    let response = service.oneshot(post(Body::from(vec![0; 5]))).await.unwrap();
    let mut body = response.into_body();
    while frame(&mut body).await.is_some() {}
    let told = told.take();
    assert_eq!(
        told[..9],
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
    assert!(told[9].starts_with("latency POST cluster 7"), "{told:?}");
    let end = "end create /api/v1/namespaces/{namespace}/pods 200 completed after 3 and 7";
    assert!(told[10].starts_with(end), "{told:?}");
    assert_eq!(told.len(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_it_waits_to_be_sent_again_has_the_last_answer() {
    let told = Told::default();
    let service = service(&told, &[429]);
    {
        let future = pin!(service.oneshot(post(Body::empty())));
        let waited = tokio::time::timeout(Duration::from_secs(1), future).await;
        assert!(waited.is_err());
    }
    assert_eq!(
        told.take(),
        [
            "request_size POST cluster 0",
            "result POST cluster 429",
            "latency POST cluster 1000ms",
            "end create /api/v1/namespaces/{namespace}/pods 429 cancelled after 1 and 1000ms, 0 bytes",
        ]
    );
}

/// Would always try again, but can send nothing twice.
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
async fn a_request_that_cannot_be_sent_twice_is_sent_once() {
    let told = Told::default();
    let service = MetricsLayer::new(told.hooks(), Classifier::new("cluster"))
        .with_retry(NoSpare)
        .layer(tower::service_fn(async |_| {
            Ok::<_, Broken>(answer(503, Script::empty()))
        }));
    let response = exchange(service, request("GET", "/api/v1/pods")).await;
    assert_eq!(response.unwrap().status(), 503);
    let lines = told.take();
    assert_eq!(lines[1], "result GET cluster 503");
    assert!(lines[3].contains(" after 1 and "), "{lines:?}");
    assert_eq!(lines.len(), 4);
}
