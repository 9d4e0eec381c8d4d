//! Whole clients over real sockets, against the simulated cluster.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, WatchParams};
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use kube_client_metrics::{ClientOptions, RateLimiter, Registry};
use kubevitals_sim::api::{Effect, RequestFault, SimApi, SimApiConfig, SimApiHandle};
use kubevitals_sim::objects::Resource;
use serde_json::json;

use crate::families::sum;

#[path = "../../examples/custom_adapter.rs"]
mod custom_adapter;
#[path = "../../examples/plain_client.rs"]
mod plain_client;

pub(crate) async fn start() -> (SimApiHandle, Config) {
    let api = SimApi::start(SimApiConfig::default()).await.unwrap();
    for name in ["a", "b"] {
        let pod = json!({
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": "node", "containers": [{"name": "web", "image": "web:1"}]},
        });
        api.writer().create(Resource::Pods, pod).unwrap();
    }
    let kubeconfig = Kubeconfig::from_yaml(&api.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    (api, config.unwrap())
}

fn client(config: &Config, registry: &Registry) -> Client {
    kube_client_metrics::client(config.clone(), registry).unwrap()
}

#[tokio::test]
async fn requests_of_a_real_client_are_counted_under_its_host() {
    let (api, config) = start().await;
    let registry = Registry::new();
    let pods: Api<Pod> = Api::namespaced(client(&config, &registry), "default");
    assert_eq!(
        pods.list(&ListParams::default()).await.unwrap().items.len(),
        2
    );
    assert!(pods.get_opt("nobody").await.unwrap().is_none());
    let text = registry.encode();
    let host = api.address().to_string();
    let with = |code| [("code", code), ("method", "GET"), ("host", host.as_str())];
    assert_eq!(
        sum(&text, "rest_client_requests_total", &with("200")),
        1,
        "{text}"
    );
    assert_eq!(sum(&text, "rest_client_requests_total", &with("404")), 1);
    assert_eq!(
        sum(
            &text,
            "rest_client_request_duration_seconds_count",
            &[("verb", "GET")]
        ),
        2
    );
    assert_eq!(sum(&text, "rest_client_response_size_bytes_count", &[]), 2);
    assert_eq!(
        sum(
            &text,
            "kube_client_requests_total",
            &[("verb", "list"), ("resource", "pods")]
        ),
        1
    );
    assert!(!text.contains("nobody"), "a name became a label");
    api.shutdown().await;
}

#[tokio::test]
async fn retries_inside_kube_are_counted() {
    let (api, config) = start().await;
    let registry = Registry::new();
    let fault = RequestFault::always(Effect::Unavailable).on_verb("list");
    api.inject(fault.times(2));
    let pods: Api<Pod> = Api::all(client(&config, &registry));
    assert_eq!(
        pods.list(&ListParams::default()).await.unwrap().items.len(),
        2
    );
    let text = registry.encode();
    assert_eq!(
        sum(&text, "rest_client_requests_total", &[("code", "503")]),
        2,
        "{text}"
    );
    assert_eq!(
        sum(&text, "rest_client_requests_total", &[("code", "200")]),
        1
    );
    assert_eq!(
        sum(
            &text,
            "rest_client_request_retries_total",
            &[("code", "503")]
        ),
        1
    );
    assert_eq!(
        sum(
            &text,
            "rest_client_request_retries_total",
            &[("code", "200")]
        ),
        1
    );
    assert_eq!(
        sum(
            &text,
            "kube_client_requests_total",
            &[("outcome", "completed")]
        ),
        1
    );
    api.shutdown().await;
}

#[tokio::test]
async fn retries_can_be_disabled() {
    let (api, mut config) = start().await;
    config.default_retry = false;
    let registry = Registry::new();
    api.inject(RequestFault::always(Effect::Unavailable).times(1));
    let pods: Api<Pod> = Api::all(client(&config, &registry));
    assert!(pods.list(&ListParams::default()).await.is_err());
    let text = registry.encode();
    assert_eq!(sum(&text, "rest_client_requests_total", &[]), 1, "{text}");
    assert_eq!(sum(&text, "rest_client_request_retries_total", &[]), 0);
    api.shutdown().await;
}

#[tokio::test]
async fn a_watch_of_a_real_client_is_a_stream() {
    use futures_util::StreamExt;

    let (api, config) = start().await;
    let registry = Registry::new();
    let pods: Api<Pod> = Api::all(client(&config, &registry));
    {
        let events = pods.watch(&WatchParams::default(), "0").await.unwrap();
        let mut events = std::pin::pin!(events);
        let first = tokio::time::timeout(Duration::from_secs(30), events.next());
        first.await.unwrap().unwrap().unwrap();
        let open = [("kind", "watch"), ("resource", "pods")];
        assert_eq!(
            sum(&registry.encode(), "kube_client_streams_open", &open),
            1
        );
    }
    let text = registry.encode();
    assert_eq!(sum(&text, "kube_client_streams_open", &[]), 0);
    assert!(
        sum(&text, "kube_client_stream_events_total", &[]) >= 1,
        "{text}"
    );
    assert_eq!(
        sum(
            &text,
            "kube_client_stream_duration_seconds_count",
            &[("end", "client")]
        ),
        1
    );
    assert_eq!(
        sum(&text, "rest_client_request_duration_seconds_count", &[]),
        0
    );
    api.shutdown().await;
}

#[tokio::test]
async fn an_unreachable_server_is_an_error() {
    let (api, config) = start().await;
    api.shutdown().await;
    let registry = Registry::new();
    let pods: Api<Pod> = Api::all(client(&config, &registry));
    assert!(pods.list(&ListParams::default()).await.is_err());
    let text = registry.encode();
    assert_eq!(
        sum(&text, "rest_client_requests_total", &[("code", "<error>")]),
        1,
        "{text}"
    );
    assert_eq!(
        sum(
            &text,
            "kube_client_requests_total",
            &[("outcome", "failed")]
        ),
        1
    );
}

#[tokio::test]
async fn a_limited_client_waits_for_its_turn() {
    let (api, config) = start().await;
    let registry = Registry::new();
    let client = ClientOptions::new(&registry)
        .with_rate_limiter(RateLimiter::new(50.0, 1))
        .with_subresources(["vitals"])
        .client(config)
        .unwrap();
    let pods: Api<Pod> = Api::all(client);
    let started = std::time::Instant::now();
    for _ in 0..3 {
        pods.list(&ListParams::default()).await.unwrap();
    }
    assert!(started.elapsed() >= Duration::from_millis(40));
    drop(pods.watch(&WatchParams::default(), "0").await.unwrap());
    let text = registry.encode();
    let name = "rest_client_rate_limiter_duration_seconds_count";
    assert_eq!(sum(&text, name, &[("verb", "GET")]), 3, "{text}");
    api.shutdown().await;
}

#[cfg(feature = "rustls-tls")]
#[tokio::test]
async fn connections_of_a_client_are_timed() {
    let (api, mut config) = start().await;
    // A name, so that it is resolved; the certificate has the address.
    config.tls_server_name = Some("127.0.0.1".to_owned());
    let port = api.address().port();
    let url = format!("https://localhost:{port}");
    config.cluster_url = url.parse().unwrap();
    let registry = Registry::new();
    let options = ClientOptions::new(&registry).with_timed_connections();
    let pods: Api<Pod> = Api::all(options.client(config).unwrap());
    for _ in 0..2 {
        let listed = pods.list(&ListParams::default()).await.unwrap();
        assert_eq!(listed.items.len(), 2);
    }
    let text = registry.encode();
    let host = format!("localhost:{port}");
    let connected = [("host", host.as_str()), ("outcome", "connected")];
    assert_eq!(
        sum(
            &text,
            "kube_client_connect_duration_seconds_count",
            &connected
        ),
        1,
        "{text}"
    );
    assert_eq!(
        sum(
            &text,
            "rest_client_dns_resolution_duration_seconds_count",
            &[("host", "localhost")]
        ),
        1
    );
    api.shutdown().await;
}

/// kube runs the plugin while the client is built.
#[tokio::test]
async fn exec_plugins_of_a_client_are_counted() {
    let (api, config) = start().await;
    let registry = Registry::new();
    let build = |command: &str, argument: &str| {
        let mut config = config.clone();
        let exec = json!({
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": command,
            "args": ["-c", argument],
            "interactiveMode": "Never",
        });
        config.auth_info = AuthInfo {
            exec: Some(serde_json::from_value(exec).unwrap()),
            ..AuthInfo::default()
        };
        kube_client_metrics::client(config, &registry).map(drop)
    };
    let credential = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "token"},
    });
    build("sh", &format!("echo '{credential}'")).unwrap();
    build("sh", "exit 3").unwrap_err();
    build("sh", "echo no credential").unwrap_err();
    build("there-is-no-such-plugin", "").unwrap_err();
    let text = registry.encode();
    for (code, status) in [
        ("0", "no_error"),
        ("3", "plugin_execution_error"),
        ("1", "client_internal_error"),
        ("1", "plugin_not_found_error"),
    ] {
        let labels = [("code", code), ("call_status", status)];
        let calls = sum(&text, "rest_client_exec_plugin_call_total", &labels);
        assert_eq!(calls, 1, "{status}: {text}");
    }
    api.shutdown().await;
}

#[tokio::test]
async fn the_examples_run() {
    let (api, config) = start().await;
    let text = plain_client::run(config.clone()).await.unwrap();
    assert!(
        text.contains("rest_client_requests_total{code=\"200\",method=\"GET\",host="),
        "{text}"
    );
    let report = custom_adapter::run(config).await.unwrap();
    assert!(report.contains("list /api/v1/pods"), "{report}");
    api.shutdown().await;
}
