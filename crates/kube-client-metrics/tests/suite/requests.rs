//! One request and its body.

use std::time::Duration;

use http::Response;
use tower::{Service, ServiceExt};

use crate::bed::{Broken, Script, Step, Told, answer, exchange, frame, measured, request};

const POD: &str = "/api/v1/namespaces/space/pods/object";

#[tokio::test(start_paused = true)]
async fn a_request_ends_when_its_body_ends() {
    let told = Told::default();
    let service = measured(&told, async |_| {
        tokio::time::sleep(Duration::from_millis(30)).await;
        let body = [
            Step::Data("{\n"),
            Step::Wait(Duration::from_millis(12)),
            Step::Data("}\n"),
        ];
        Ok(answer(200, Script::new(body)))
    });
    exchange(service, request("GET", POD)).await;
    assert_eq!(
        told.take(),
        [
            "request_size GET cluster:6443 0",
            "result GET cluster:6443 200",
            "response_size GET cluster:6443 4",
            "latency GET cluster:6443 42ms",
            "end get /api/v1/namespaces/{namespace}/pods/{name} 200 completed after 1 and 42ms, 4 bytes",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_refusal_is_a_request_that_was_completed() {
    let told = Told::default();
    let service = measured(&told, async |_| Ok(answer(404, Script::text("no such"))));
    exchange(service, request("GET", POD)).await;
    assert_eq!(
        told.take()[1..],
        [
            "result GET cluster:6443 404",
            "response_size GET cluster:6443 7",
            "latency GET cluster:6443 0ms",
            "end get /api/v1/namespaces/{namespace}/pods/{name} 404 completed after 1 and 0ms, 7 bytes",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_empty_refusal_has_no_size_and_an_empty_success_has() {
    for (status, sizes) in [(500, 0), (204, 1)] {
        let told = Told::default();
        let service = measured(&told, async |_| Ok(answer(status, Script::empty())));
        exchange(service, request("DELETE", POD)).await;
        let told = told.take();
        let counted = told.iter().filter(|line| line.starts_with("response_size"));
        assert_eq!(counted.count(), sizes, "{status}: {told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_answer_is_an_error() {
    let told = Told::default();
    let service = measured(&told, async |_| Err(Broken));
    exchange(
        service,
        request("POST", "/apis/apps/v1/namespaces/space/deployments"),
    )
    .await;
    assert_eq!(
        told.take(),
        [
            "request_size POST cluster:6443 10",
            "result POST cluster:6443 <error>",
            "latency POST cluster:6443 0ms",
            "end create /apis/apps/v1/namespaces/{namespace}/deployments <error> failed after 1 and 0ms, 0 bytes",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_breaks_off_fails_the_request_once() {
    let told = Told::default();
    let service = measured(&told, async |_| {
        Ok(answer(200, Script::new([Step::Data("half"), Step::Break])))
    });
    exchange(service, request("GET", "/api/v1/pods")).await;
    assert_eq!(
        told.take()[1..],
        [
            "result GET cluster:6443 200",
            "latency GET cluster:6443 0ms",
            "end list /api/v1/pods 200 failed after 1 and 0ms, 4 bytes",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_future_is_a_cancelled_request_and_an_attempt_without_an_answer() {
    let told = Told::default();
    let service = measured(&told, async |_| {
        std::future::pending::<Result<Response<Script>, Broken>>().await
    });
    let waited = tokio::time::timeout(
        Duration::from_millis(250),
        service.oneshot(request("GET", POD)),
    );
    assert!(waited.await.is_err());
    assert_eq!(
        told.take(),
        [
            "request_size GET cluster:6443 0",
            "result GET cluster:6443 <error>",
            "latency GET cluster:6443 250ms",
            "end get /api/v1/namespaces/{namespace}/pods/{name} <error> cancelled after 1 and 250ms, 0 bytes",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_body_is_a_cancelled_request() {
    let told = Told::default();
    let mut service = measured(&told, async |_| {
        Ok(answer(200, Script::new([Step::Data("half"), Step::Hang])))
    });
    let response = service.call(request("GET", POD)).await.unwrap();
    let mut body = response.into_body();
    frame(&mut body).await.unwrap().unwrap();
    told.take();
    drop(body);
    assert_eq!(
        told.take(),
        [
            "latency GET cluster:6443 0ms",
            "end get /api/v1/namespaces/{namespace}/pods/{name} 200 cancelled after 1 and 0ms, 4 bytes",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_known_to_be_empty_need_not_be_read() {
    let told = Told::default();
    let layer = kube_client_metrics::MetricsLayer::new(
        told.hooks(),
        kube_client_metrics::Classifier::new("cluster"),
    );
    let service = tower::Layer::layer(
        &layer,
        tower::service_fn(async |_: http::Request<String>| {
            crate::bed::Sure::Ok(Response::new(http_body_util::Empty::<bytes::Bytes>::new()))
        }),
    );
    let response = service.oneshot(request("HEAD", POD)).await.unwrap();
    drop(response);
    let told = told.take();
    assert!(told.last().unwrap().contains(" completed "), "{told:?}");
}
