//! The families: names, types, labels and buckets, as text.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use kube_client_metrics::hooks::{
    CaReload, ConnectOutcome, ExecCallStatus, PolicyVerdict, StreamKind, TransportCacheGc,
    TransportCreate,
};
use kube_client_metrics::{Classifier, Code, Hooks, MetricsLayer, Registry};
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
    hooks.transport_cache_entries.observe(4);
    hooks
        .transport_create_calls
        .increment(TransportCreate::MissGc);
    hooks.transport_ca_reloads.increment(CaReload::ParseError);
    hooks.transport_cert_rotation_gc_calls.increment();
    hooks
        .transport_cache_gc_calls
        .increment(TransportCacheGc::Skipped);
    hooks
        .exec_plugin_calls
        .increment(-1, ExecCallStatus::PluginNotFoundError);
    hooks
        .exec_plugin_policy_calls
        .increment(PolicyVerdict::Denied);
    hooks.client_cert_expiry.set(None);
    hooks.client_cert_rotation_age.observe(second * 7_200);
    hooks.leader_election.on("lease");
    hooks.leader_election.slowpath_exercised("lease");
    hooks.workqueues.queue("queue").added();
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

#[test]
fn an_unused_registry_is_empty() {
    assert_eq!(Registry::new().encode(), "# EOF\n");
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
