//! One request and its body.

use std::time::Duration;

use http::Response;
use kube_client_metrics::hooks::{AttemptReport, Context, RequestHead};
use kube_client_metrics::{Call, Classifier, Code, Hooks, MetricsLayer, Registry};
use tower::{Service, ServiceExt};

use crate::families::sum;
use crate::harness::{Broken, Recorder, Script, Step, exchange, frame, measured, request, respond};

const POD: &str = "/api/v1/namespaces/space/pods/object";

#[tokio::test(start_paused = true)]
async fn a_request_ends_when_its_body_ends() {
    let calls = Recorder::default();
    let service = measured(&calls, async |_| {
        tokio::time::sleep(Duration::from_millis(30)).await;
        let body = [
            Step::Data("{\n"),
            Step::Wait(Duration::from_millis(12)),
            Step::Data("}\n"),
        ];
        Ok(respond(200, Script::new(body)))
    });
    exchange(service, request("GET", POD)).await;
    assert_eq!(
        calls.take(),
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
async fn an_error_response_completes_the_request() {
    let calls = Recorder::default();
    let service = measured(&calls, async |_| Ok(respond(404, Script::text("no such"))));
    exchange(service, request("GET", POD)).await;
    assert_eq!(
        calls.take()[1..],
        [
            "result GET cluster:6443 404",
            "response_size GET cluster:6443 7",
            "latency GET cluster:6443 0ms",
            "end get /api/v1/namespaces/{namespace}/pods/{name} 404 completed after 1 and 0ms, 7 bytes",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_empty_error_has_no_size_and_an_empty_success_has() {
    for (status, sizes) in [(500, 0), (204, 1)] {
        let calls = Recorder::default();
        let service = measured(&calls, async |_| Ok(respond(status, Script::empty())));
        exchange(service, request("DELETE", POD)).await;
        let calls = calls.take();
        let counted = calls
            .iter()
            .filter(|line| line.starts_with("response_size"));
        assert_eq!(counted.count(), sizes, "{status}: {calls:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn no_response_is_an_error() {
    let calls = Recorder::default();
    let service = measured(&calls, async |_| Err(Broken));
    exchange(
        service,
        request("POST", "/apis/apps/v1/namespaces/space/deployments"),
    )
    .await;
    assert_eq!(
        calls.take(),
        [
            "request_size POST cluster:6443 10",
            "result POST cluster:6443 <error>",
            "latency POST cluster:6443 0ms",
            "end create /apis/apps/v1/namespaces/{namespace}/deployments <error> failed after 1 and 0ms, 0 bytes",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_body_fails_the_request_once() {
    let calls = Recorder::default();
    let service = measured(&calls, async |_| {
        Ok(respond(200, Script::new([Step::Data("half"), Step::Break])))
    });
    exchange(service, request("GET", "/api/v1/pods")).await;
    assert_eq!(
        calls.take()[1..],
        [
            "result GET cluster:6443 200",
            "latency GET cluster:6443 0ms",
            "end list /api/v1/pods 200 failed after 1 and 0ms, 4 bytes",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_future_is_a_cancelled_request_and_a_failed_attempt() {
    let calls = Recorder::default();
    let service = measured(&calls, async |_| {
        std::future::pending::<Result<Response<Script>, Broken>>().await
    });
    let waited = tokio::time::timeout(
        Duration::from_millis(250),
        service.oneshot(request("GET", POD)),
    );
    assert!(waited.await.is_err());
    assert_eq!(
        calls.take(),
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
    let calls = Recorder::default();
    let mut service = measured(&calls, async |_| {
        Ok(respond(200, Script::new([Step::Data("half"), Step::Hang])))
    });
    let response = service.call(request("GET", POD)).await.unwrap();
    let mut body = response.into_body();
    frame(&mut body).await.unwrap().unwrap();
    calls.take();
    drop(body);
    assert_eq!(
        calls.take(),
        [
            "latency GET cluster:6443 0ms",
            "end get /api/v1/namespaces/{namespace}/pods/{name} 200 cancelled after 1 and 0ms, 4 bytes",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn an_empty_body_need_not_be_read() {
    let calls = Recorder::default();
    let layer = MetricsLayer::new(calls.hooks(), Classifier::new("cluster"));
    let service = tower::Layer::layer(
        &layer,
        tower::service_fn(async |_: http::Request<String>| {
            crate::harness::Sure::Ok(Response::new(http_body_util::Empty::<bytes::Bytes>::new()))
        }),
    );
    let response = service.oneshot(request("HEAD", POD)).await.unwrap();
    drop(response);
    let calls = calls.take();
    assert!(calls.last().unwrap().contains(" completed "), "{calls:?}");
}

/// What client-go's hooks find in the context of the call.
#[derive(Clone)]
struct Tenant(&'static str);

#[tokio::test(start_paused = true)]
async fn hooks_see_what_was_captured_of_the_request_until_its_end() {
    let calls = Recorder::default();
    let (at_head, at_end) = (calls.clone(), calls.clone());
    let hooks = Hooks::default()
        .with_request_context(|request: &RequestHead<'_>, context: &mut Context| {
            if let Some(tenant) = request.extensions.get::<Tenant>() {
                context.insert(tenant.clone());
            }
        })
        .with_request_context(|request: &RequestHead<'_>, context: &mut Context| {
            context.insert(format!("{} {}", request.method, request.uri.path()));
            context.insert(request.headers.len());
        })
        .with_attempt_end(move |call: &Call, report: &AttemptReport| {
            let Tenant(name) = call.context.get().unwrap();
            at_head.record(format!(
                "{name} {} {} {:?} {}",
                report.attempt,
                report.code,
                report.sent,
                report.duration.as_millis()
            ));
        })
        .with_request_latency(move |call: &Call, _: Duration| {
            let Tenant(name) = call.context.get().unwrap();
            let (path, headers): (&String, &usize) =
                (call.context.get().unwrap(), call.context.get().unwrap());
            at_end.record(format!("{name} {path} {headers}"));
        });
    let layer = MetricsLayer::new(hooks, Classifier::new("cluster"));
    let service = tower::Layer::layer(
        &layer,
        tower::service_fn(async |_: http::Request<String>| {
            tokio::time::sleep(Duration::from_millis(7)).await;
            Ok::<_, Broken>(respond(200, Script::text("{}")))
        }),
    );
    let mut request = request("GET", POD);
    request.extensions_mut().insert(Tenant("blue"));
    exchange(service, request).await;
    assert_eq!(
        calls.take(),
        [
            "blue 1 200 Some(0) 7",
            "blue GET /api/v1/namespaces/space/pods/object 0"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn several_hooks_are_called_in_order() {
    let calls = Recorder::default();
    let note = |name: &'static str| {
        let calls = calls.clone();
        move |_: &Call, _: Code| calls.record(name.to_owned())
    };
    let registries = [Registry::new(), Registry::new()];
    let [one, two] = &registries;
    let hooks = Hooks::default()
        .with_request_result(note("first"))
        .and(one)
        .with_request_result(note("second"))
        .and(Hooks::default())
        .and(two)
        .and(Hooks::default().with_request_result(note("third")));
    let layer = MetricsLayer::new(hooks, Classifier::new("cluster"));
    let service = tower::Layer::layer(
        &layer,
        tower::service_fn(async |_: http::Request<String>| {
            Ok::<_, Broken>(respond(200, Script::text("{}")))
        }),
    );
    exchange(service, request("GET", POD)).await;
    assert_eq!(calls.take(), ["first", "second", "third"]);
    for registry in registries {
        let text = registry.encode();
        assert_eq!(sum(&text, "rest_client_requests_total", &[]), 1);
        assert_eq!(sum(&text, "kube_client_requests_total", &[]), 1);
    }
}
