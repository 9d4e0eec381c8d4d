//! The hooks of the process. No other test registers any, and there is one test: it starts before
//! the registration.

use std::convert::Infallible;
use std::time::Duration;

use http::{Method, Request, Response};
use http_body_util::Full;
use kube_client_metrics::hooks::{InformerId, ReconcileResult};
use kube_client_metrics::reflector::Reflector;
use kube_client_metrics::{
    Classifier, Error, Hooks, LeaderStatus, MetricsLayer, Registry, global, register,
};
use tower::{Layer, Service, ServiceExt};

use crate::families::sum;
use crate::harness::{Broken, Script, Step, exchange, frame, request, respond};

fn stack(
    hooks: Hooks,
) -> impl Service<
    Request<String>,
    Response = Response<impl http_body::Body<Data = bytes::Bytes>>,
    Error = Broken,
> + Clone {
    let layer = MetricsLayer::new(hooks, Classifier::new("cluster"));
    layer.layer(tower::service_fn(async |request: Request<String>| {
        let body = match request.uri().query() {
            Some(_) => Script::new([Step::Data("{}\n"), Step::Hang]),
            None => Script::text("{}"),
        };
        Ok(respond(200, body))
    }))
}

#[tokio::test(start_paused = true)]
async fn registered_hooks_are_called_by_what_was_made_before_and_after() {
    let list = || request("GET", "/api/v1/pods");
    let watch = || request("GET", "/api/v1/pods?watch=1");
    let own = Registry::new();
    let (before, combined) = (stack(global()), stack(own.hooks().and(global())));
    exchange(before.clone(), list()).await;
    let mut unseen = Box::pin(before.clone().oneshot(watch()).await.unwrap().into_body());
    let mut seen = Box::pin(combined.clone().oneshot(watch()).await.unwrap().into_body());
    let hooks = global();
    hooks
        .resolver_latency
        .observe("nobody listens", Duration::ZERO);
    let queue = hooks.workqueues.queue("early");
    (0..3).for_each(|_| queue.added());
    queue.taken(Duration::ZERO);
    let controller = hooks.controllers.controller("early");
    controller.max_concurrent(7);
    controller.started();
    let informer = hooks
        .informers
        .informer(&InformerId::new("early", "", "v1", "pods"));
    informer.processed(Duration::ZERO);
    let reflector = Reflector::new("early", &hooks);
    drop(reflector.list());
    let leader = LeaderStatus::new("held", &hooks);
    leader.acquired();
    let _standby = LeaderStatus::new("not-held", &hooks);
    tokio::time::advance(Duration::from_secs(1)).await;

    let circular = register(own.hooks().and(global())).unwrap_err();
    assert!(matches!(circular, Error::RegistersItself));
    let registry = Registry::new();
    register(&registry).unwrap();
    let refused = register(Hooks::default()).unwrap_err();
    assert!(matches!(refused, Error::AlreadyRegistered));

    let of = |name: &str, labels: &[(&str, &str)]| sum(&registry.encode(), name, labels);
    // What leads is told at once.
    assert_eq!(of("leader_election_master_status", &[("name", "held")]), 1);
    assert_eq!(
        of("leader_election_master_status", &[("name", "not-held")]),
        0
    );
    leader.lost();
    assert_eq!(of("leader_election_master_status", &[]), 0);

    exchange(before, list()).await;
    exchange(combined.clone(), list()).await;
    exchange(stack(global()), list()).await;
    assert_eq!(
        of("rest_client_requests_total", &[]),
        3,
        "the request before is not counted"
    );
    assert_eq!(sum(&own.encode(), "rest_client_requests_total", &[]), 2);

    // Streams from before never make the number of open ones negative.
    assert!(frame(&mut unseen).await.is_some() && frame(&mut seen).await.is_some());
    tokio::time::advance(Duration::from_secs(1)).await;
    drop((unseen, seen));
    assert_eq!(of("kube_client_streams_open", &[]), 0);
    assert_eq!(of("kube_client_streams_total", &[]), 1);
    assert_eq!(sum(&own.encode(), "kube_client_streams_open", &[]), 0);

    // Neither do the items of a queue and the workers of a controller.
    queue.done(Duration::ZERO);
    assert_eq!(of("workqueue_depth", &[("name", "early")]), 2);
    queue.taken(Duration::ZERO);
    queue.abandoned(1);
    assert_eq!(of("workqueue_depth", &[("name", "early")]), 0);
    controller.finished(ReconcileResult::Success, Duration::ZERO);
    let early = [("controller", "early")];
    assert_eq!(of("controller_runtime_active_workers", &early), 0);
    assert_eq!(
        of("controller_runtime_max_concurrent_reconciles", &early),
        7
    );
    assert_eq!(of("controller_runtime_reconcile_total", &early), 1);
    informer.processed(Duration::ZERO);
    assert_eq!(of("informer_processing_latency_seconds_count", &[]), 1);
    reflector.list().complete(3);
    assert_eq!(of("kube_client_reflector_lists_total", &[]), 1);
    hooks.resolver_latency.observe("host", Duration::ZERO);
    assert_eq!(
        of("rest_client_dns_resolution_duration_seconds_count", &[]),
        1
    );
    let call = Classifier::new("cluster").call(&Method::GET, &"/version".parse().unwrap());
    hooks.rate_limiter_latency.observe(&call, Duration::ZERO);
    assert_eq!(
        of("rest_client_rate_limiter_duration_seconds_count", &[]),
        1
    );
}

/// The layer of hooks that nobody has registered, and of none, passes everything unchanged.
#[tokio::test]
async fn a_request_that_nobody_measures_passes_unchanged() {
    let layer = MetricsLayer::new(Hooks::default(), Classifier::new("cluster"));
    let service = layer.layer(tower::service_fn(async |_: Request<String>| {
        Ok::<_, Infallible>(Response::new(Full::new(bytes::Bytes::from_static(b"body"))))
    }));
    let response = service
        .oneshot(request("GET", "/api/v1/pods"))
        .await
        .unwrap();
    let mut body = response.into_body();
    let data = frame(&mut body).await.unwrap().unwrap().into_data();
    assert_eq!(data.unwrap(), "body");
    assert!(frame(&mut body).await.is_none());
}
