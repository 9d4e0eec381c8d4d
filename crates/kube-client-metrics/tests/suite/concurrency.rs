//! Concurrent requests, dropped at every stage: each is counted exactly once.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use http::{Request, Response};
use kube_client_metrics::{Classifier, MetricsLayer, Registry};
use tower::{Layer, Service};

use crate::families::sum;
use crate::harness::{Broken, Script, Step, frame, request, respond};

const TASKS: usize = 32;
const ROUNDS: usize = 100;

/// The number of scenarios of [`run_scenario`].
const SCENARIOS: usize = 6;

async fn serve(request: Request<String>) -> Result<Response<Script>, Broken> {
    for _ in 0..request.uri().path().len() % 3 {
        tokio::task::yield_now().await;
    }
    match request.uri().query() {
        Some("fail") => Err(Broken),
        Some("never") => std::future::pending().await,
        _ => Ok(respond(
            200,
            Script::new([Step::Data("{}\n"), Step::Data("{}\n")]),
        )),
    }
}

async fn run_scenario<S, B>(service: &mut S, scenario: usize, number: usize)
where
    S: Service<Request<String>, Response = Response<B>>,
    B: http_body::Body + Unpin,
{
    let path = format!("/api/v1/namespaces/space-{number}/pods");
    let uri = match scenario {
        0 => format!("{path}?fail"),
        1 => format!("{path}?never"),
        2 | 3 => format!("{path}?watch=1"),
        _ => path,
    };
    let future = service.call(request("GET", &uri));
    if scenario == 1 {
        // Polled once and dropped.
        let mut context = Context::from_waker(Waker::noop());
        assert!(pin!(future).poll(&mut context).is_pending());
        return;
    }
    let Ok(response) = future.await else { return };
    let mut body = response.into_body();
    let frames = if scenario.is_multiple_of(2) { 1 } else { 5 };
    for _ in 0..frames {
        if frame(&mut body).await.is_none() {
            break;
        }
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_request_is_counted_once_wherever_it_is_dropped() {
    let registry = Registry::new();
    let layer = MetricsLayer::new(&registry, Classifier::new("cluster"));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let mut service = layer.layer(tower::service_fn(serve));
            tokio::spawn(async move {
                for round in 0..ROUNDS {
                    let number = task * ROUNDS + round;
                    run_scenario(&mut service, number % SCENARIOS, number).await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let text = registry.encode();
    let mut of = [0; SCENARIOS];
    for number in 0..TASKS * ROUNDS {
        of[number % SCENARIOS] += 1;
    }
    let all = TASKS * ROUNDS;
    let ended = |outcome: &str| sum(&text, "kube_client_requests_total", &[("outcome", outcome)]);
    assert_eq!(sum(&text, "rest_client_requests_total", &[]), all);
    assert_eq!(
        sum(&text, "rest_client_requests_total", &[("code", "<error>")]),
        of[0] + of[1]
    );
    assert_eq!(ended("failed"), of[0]);
    assert_eq!(ended("cancelled"), of[1] + of[4]);
    assert_eq!(ended("completed"), of[5]);
    let requests = of[0] + of[1] + of[4] + of[5];
    assert_eq!(
        sum(&text, "rest_client_request_duration_seconds_count", &[]),
        requests
    );
    assert_eq!(sum(&text, "rest_client_request_size_bytes_count", &[]), all);
    let streams = |end: &str| {
        sum(
            &text,
            "kube_client_stream_duration_seconds_count",
            &[("end", end)],
        )
    };
    assert_eq!((streams("client"), streams("server")), (of[2], of[3]));
    assert_eq!(sum(&text, "kube_client_streams_total", &[]), of[2] + of[3]);
    assert_eq!(sum(&text, "kube_client_streams_open", &[]), 0);
    assert_eq!(
        sum(&text, "kube_client_stream_events_total", &[]),
        of[2] + 2 * of[3]
    );
    assert!(!text.contains("space-"), "a namespace became a label");
}
