//! The families: names, types, labels and buckets, as text.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use kube_client_metrics::hooks::{
    CaReload, ConnectOutcome, ExecCallStatus, InformerId, ReconcileResult, StreamKind,
};
use kube_client_metrics::{Classifier, Code, Format, Hooks, MetricsLayer, Registry};
use tower::Layer;

use crate::harness::{Broken, Script, exchange, request, respond};

/// Returns the sum of all series of a name with these labels.
pub(crate) fn sum(text: &str, name: &str, labels: &[(&str, &str)]) -> usize {
    let wanted: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{v}\"")).collect();
    text.lines()
        .filter(|line| line.split(['{', ' ']).next() == Some(name))
        .filter(|line| wanted.iter().all(|pair| line.contains(pair.as_str())))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap())
        .sum()
}

pub(crate) async fn call_every_hook(hooks: &Hooks) {
    let call = Classifier::new("cluster:6443").call(
        &Method::GET,
        &"/apis/apps/v1/namespaces/space/deployments/object/scale"
            .parse()
            .unwrap(),
    );
    let second = Duration::from_secs(1);
    hooks.request_latency.observe(&call, second);
    hooks.rate_limiter_latency.observe(&call, second);
    hooks.request_size.observe(&call, 100);
    hooks.response_size.observe(&call, 5_000);
    hooks.request_result.increment(&call, Code::Error);
    hooks
        .request_result
        .increment(&call, Code::Status(StatusCode::OK));
    hooks
        .request_retry
        .increment(&call, Code::Status(StatusCode::OK));
    hooks.streams.opened(&call, StreamKind::Log);
    hooks.streams.received(&call, StreamKind::Log, 3, 300);
    hooks.resolver_latency.observe("cluster", second);
    hooks
        .connect_latency
        .observe("cluster", ConnectOutcome::Failed, second);
    hooks.transport_ca_reloads.increment(CaReload::ParseError);
    hooks
        .exec_plugin_calls
        .increment(-1, ExecCallStatus::PluginNotFoundError);
    hooks.client_cert_expiry.set(None);
    hooks.client_cert_rotation_age.observe(second * 7_200);
    hooks.leader_election.on("lease");
    hooks.leader_election.slowpath_exercised("lease");
    let queue = hooks.workqueues.queue("queue");
    (0..4).for_each(|_| queue.added());
    queue.taken(second);
    queue.done(second);
    queue.retried();
    queue.abandoned(2);
    queue.in_progress(second * 3, second * 2);
    let controller = hooks.controllers.controller("controller");
    for result in [
        ReconcileResult::Success,
        ReconcileResult::RequeueAfter,
        ReconcileResult::Error,
        ReconcileResult::Panic,
        ReconcileResult::Cancelled,
    ] {
        controller.started();
        controller.finished(result, second / 4);
    }
    controller.max_concurrent(8);
    controller.started();
    let id = InformerId::new("informer", "apps", "v1", "deployments");
    let informer = hooks.informers.informer(&id);
    informer.processed(second / 50);
    informer.store_resource_version(9_000_000_000_000_000_077);
    let reflector = hooks.reflectors.reflector("pods");
    reflector.list_started();
    reflector.list_finished(second, 500);
    reflector.watch_started();
    reflector.watch_finished(Duration::ZERO, 0, true);
    reflector.last_resource_version(77);
    // Ends are reported by the layer only.
    let layer = MetricsLayer::new(hooks.clone(), Classifier::new("cluster:6443"));
    for uri in ["/api/v1/pods", "/api/v1/pods?watch=true"] {
        let service = layer.layer(tower::service_fn(async |_| {
            Ok::<_, Broken>(respond(200, Script::text("{}\n")))
        }));
        exchange(service, request("GET", uri)).await;
    }
}

/// For comparison with `k8s.io/component-base/metrics/prometheus`.
#[tokio::test(start_paused = true)]
async fn names_types_labels_and_buckets() {
    let registry = Registry::new();
    call_every_hook(&registry.hooks()).await;
    insta::assert_snapshot!(registry.encode());
}

/// As Go's client library writes it: bounds like `1` and `1e-08`, families of counters with their
/// suffix.
#[tokio::test(start_paused = true)]
async fn the_text_format_has_the_bounds_of_go() {
    let registry = Registry::new();
    call_every_hook(&registry.hooks()).await;
    let text = registry.encode_as(Format::Text);
    let open = registry.encode();
    for (format, line) in [
        (&text, "# TYPE rest_client_requests_total counter"),
        (&open, "# TYPE rest_client_requests counter"),
        (
            &text,
            "rest_client_request_duration_seconds_bucket{verb=\"GET\",host=\"cluster:6443\",le=\"1\"} 2",
        ),
        (
            &open,
            "rest_client_request_duration_seconds_bucket{verb=\"GET\",host=\"cluster:6443\",le=\"1.0\"} 2",
        ),
        (
            &text,
            "rest_client_request_size_bytes_bucket{verb=\"GET\",host=\"cluster:6443\",le=\"1.048576e+06\"} 3",
        ),
        (
            &text,
            "workqueue_queue_duration_seconds_bucket{name=\"queue\",le=\"1e-08\"} 0",
        ),
        (&text, "rest_client_exec_plugin_ttl_seconds +Inf"),
    ] {
        assert!(
            format.lines().any(|other| other == line),
            "{line}\n{format}"
        );
    }
    assert!(!text.contains("# EOF") && open.ends_with("# EOF\n"));
}

#[test]
fn an_unused_registry_is_empty() {
    assert_eq!(Registry::new().encode(), "# EOF\n");
    assert_eq!(Registry::new().encode_as(Format::Text), "");
}

/// Clients intern endpoints separately, but equal labels must be one series.
#[test]
fn clients_that_share_a_registry_share_its_series() {
    let registry = Registry::new();
    let hooks = registry.hooks();
    for path in [
        "/api/v1/pods",
        "/api/v1/pods",
        "/api/v1/namespaces/space/pods",
    ] {
        let call = Classifier::new(Arc::from("cluster")).call(&Method::GET, &path.parse().unwrap());
        hooks.streams.opened(&call, StreamKind::Watch);
        hooks.request_result.increment(&call, Code::Error);
    }
    let text = registry.encode();
    let series = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(series("kube_client_streams_total{"), 1, "{text}");
    assert_eq!(series("rest_client_requests_total{"), 1, "{text}");
    assert_eq!(sum(&text, "kube_client_streams_total", &[]), 3);
}

/// The two libraries write the same series as the registry itself.
#[cfg(all(feature = "prometheus", feature = "prometheus-client"))]
#[tokio::test(start_paused = true)]
async fn collectors_of_both_libraries_have_all_series() {
    let registry = Registry::new();
    call_every_hook(&registry.hooks()).await;
    // Libraries order labels and write floats each in its own way.
    let series = |text: &str| -> std::collections::BTreeMap<String, f64> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| {
                let (name, value) = line.rsplit_once(' ').unwrap();
                let (name, labels) = name.split_once('{').unwrap_or((name, "}"));
                let mut labels: Vec<String> = labels
                    .trim_end_matches('}')
                    .split(',')
                    .map(|pair| match pair.strip_prefix("le=\"") {
                        Some(bound) => {
                            let bound: f64 = bound.trim_end_matches('"').parse().unwrap();
                            format!("le={bound}")
                        }
                        None => pair.to_owned(),
                    })
                    .collect();
                labels.sort();
                (
                    format!("{name} {}", labels.join(",")),
                    value.parse().unwrap(),
                )
            })
            .collect()
    };
    let own = series(&registry.encode_as(Format::Text));
    assert!(own.len() > 100);

    let mut exposed = prometheus_client::registry::Registry::default();
    exposed.register_collector(Box::new(registry.clone()));
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &exposed).unwrap();
    assert_eq!(series(&text), own);

    let exposed = prometheus::Registry::new();
    exposed.register(Box::new(registry.clone())).unwrap();
    let encoder = prometheus::TextEncoder::new();
    let text = encoder.encode_to_string(&exposed.gather()).unwrap();
    assert_eq!(series(&text), own);
}

#[cfg(feature = "prometheus-client")]
#[test]
fn a_registry_can_be_a_collector_of_another() {
    let registry = Registry::new();
    let mut exposed = prometheus_client::registry::Registry::with_prefix("app");
    exposed.register_collector(Box::new(registry.clone()));
    registry.hooks().leader_election.off("lease");
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &exposed).unwrap();
    assert!(
        text.contains("app_leader_election_master_status{name=\"lease\"} 0"),
        "{text}"
    );
}
