//! Controllers on the simulated cluster.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail by panicking"
)]

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube_client_metrics::Registry;
use kube_workqueue::{Action, Controller};
use kubevitals_sim::api::{Effect, RequestFault, SimApi, SimApiConfig, SimApiHandle};
use kubevitals_sim::objects::Resource;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

#[path = "../../examples/controller.rs"]
mod controller;
#[path = "../../examples/operator.rs"]
mod operator;

/// The dashboard for programs like the example.
const DASHBOARD: &str =
    include_str!("../../../kube-client-metrics/dashboards/kube-rs-operator.json");

/// Longer than any test takes on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

async fn config(sim: &SimApiHandle) -> kube::Config {
    let config = Kubeconfig::from_yaml(&sim.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options);
    config.await.unwrap()
}

/// The value of a series in the text of a registry.
fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    let value = line.unwrap_or_else(|| panic!("no {series} in:\n{text}"));
    value.trim().parse().unwrap()
}

#[tokio::test]
async fn the_example_reports_its_queue_lists_and_watches() {
    let sim = SimApi::start(SimApiConfig::default()).await.unwrap();
    for (name, data) in [("full", json!({"key": "value"})), ("empty", json!(null))] {
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": name, "namespace": "default"}, "data": data,
        });
        sim.writer().create(Resource::ConfigMaps, map).unwrap();
    }
    let ran = timeout(DEADLINE, controller::run(config(&sim).await)).await;
    let text = ran.unwrap().unwrap();
    let queue = |family: &str| value(&text, &format!("workqueue_{family}{{name=\"configmaps\"}}"));
    // The last of them may just have been started when the tenth result arrived.
    let done = queue("work_duration_seconds_count");
    assert!(done >= 10.0, "{text}");
    let taken = queue("queue_duration_seconds_count");
    assert!(taken >= done, "{text}");
    assert!(queue("adds_total") >= taken, "{text}");
    assert!(queue("retries_total") >= 8.0, "{text}");
    // The queue was closed with the controller.
    assert!(queue("depth").abs() < f64::EPSILON, "{text}");
    let reconciled = |family: &str| value(&text, &format!("controller_runtime_{family}"));
    assert!(reconciled("reconcile_time_seconds_count{controller=\"configmaps\"}") >= 10.0);
    let later = "reconcile_total{controller=\"configmaps\",result=\"requeue_after\"}";
    assert!(reconciled(later) >= 1.0, "{text}");
    assert!(reconciled("max_concurrent_reconciles{controller=\"configmaps\"}") >= 4.0);
    let watches = value(
        &text,
        "kube_client_reflector_watches_total{name=\"configmaps\"}",
    );
    assert!(watches >= 1.0, "{text}");
    let lists = "kube_client_reflector_list_items_sum{name=\"configmaps\"}";
    assert!(value(&text, lists) >= 2.0, "{text}");
    assert!(
        text.contains("rest_client_requests_total{code=\"200\",method=\"GET\""),
        "{text}"
    );
    sim.shutdown().await;
}

#[tokio::test]
async fn owned_and_related_objects_trigger_and_a_shutdown_drains_the_queue() {
    let sim = SimApi::start(SimApiConfig::default()).await.unwrap();
    let map = json!({"metadata": {"name": "it", "namespace": "default"}, "data": {}});
    sim.writer().create(Resource::ConfigMaps, map).unwrap();
    let registry = Registry::new();
    let client = kube_client_metrics::client(config(&sim).await, &registry).unwrap();
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    let uid = maps.get("it").await.unwrap().metadata.uid.unwrap();
    let selected = watcher::Config::default().fields("metadata.name=it");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (seen, mut reconciled) = tokio::sync::mpsc::channel(100);
    let controller = Controller::new("it", &registry.hooks(), maps, selected)
        .owns(
            Api::<Pod>::default_namespaced(client.clone()),
            watcher::Config::default(),
        )
        .watches(
            Api::<Service>::default_namespaced(client),
            watcher::Config::default(),
            |_: Service| [ObjectRef::new("it").within("default")],
        )
        .graceful_shutdown_on(async {
            let _ = stopped.await;
        });
    let running = tokio::spawn(
        controller
            .run(
                move |_: Arc<ConfigMap>, _| {
                    let seen = seen.clone();
                    async move {
                        seen.send(()).await.unwrap();
                        Ok::<_, Infallible>(Action::await_change())
                    }
                },
                |_, _, _| Action::await_change(),
                Arc::new(()),
            )
            .for_each(|_| std::future::ready(())),
    );
    let mut next = async || timeout(DEADLINE, reconciled.recv()).await.unwrap().unwrap();
    next().await;
    let pod = json!({
        "metadata": {"name": "owned", "namespace": "default", "ownerReferences": [
            {"apiVersion": "v1", "kind": "ConfigMap", "name": "it", "uid": uid},
        ]},
        "spec": {"nodeName": "node", "containers": [{"name": "web", "image": "web:1"}]},
    });
    sim.writer().create(Resource::Pods, pod).unwrap();
    next().await;
    let service = json!({"metadata": {"name": "related", "namespace": "default"}, "spec": {}});
    sim.writer().create(Resource::Services, service).unwrap();
    next().await;
    stop.send(()).unwrap();
    timeout(DEADLINE, running).await.unwrap().unwrap();
    let text = registry.encode();
    assert!(
        value(&text, "workqueue_adds_total{name=\"it\"}") >= 3.0,
        "{text}"
    );
    assert!(value(&text, "workqueue_depth{name=\"it\"}").abs() < f64::EPSILON);
    assert!(value(&text, "workqueue_retries_total{name=\"it\"}").abs() < f64::EPSILON);
    sim.shutdown().await;
}

/// Reads `/metrics` over a connection of its own.
async fn scrape(address: SocketAddr, accept: &str) -> String {
    let mut socket = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /metrics HTTP/1.1\r\nhost: {address}\r\naccept: {accept}\r\nconnection: close\r\n\r\n"
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    let mut limited = socket.take(10 << 20);
    limited.read_to_string(&mut response).await.unwrap();
    response
}

/// The names of metrics in the queries of the dashboard.
fn queried() -> BTreeSet<String> {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let queries: Vec<&str> = targets
        .map(|target| target["expr"].as_str().unwrap())
        .collect();
    assert!(queries.len() > 20);
    let words = queries
        .iter()
        .flat_map(|query| query.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'));
    let prefixes = [
        "rest_client_",
        "kube_client_",
        "informer_",
        "controller_runtime_",
        "workqueue_",
        "leader_election_",
    ];
    words
        .filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix)))
        .map(str::to_owned)
        .collect()
}

#[tokio::test]
async fn the_operator_serves_every_metric_of_the_dashboard() {
    let sim = SimApi::start(SimApiConfig::default()).await.unwrap();
    let map = json!({"metadata": {"name": "it", "namespace": "default"}, "data": {}});
    sim.writer().create(Resource::ConfigMaps, map).unwrap();
    // So that there are retries.
    sim.inject(
        RequestFault::always(Effect::Unavailable)
            .on_verb("list")
            .times(2),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let config = config(&sim).await;
    let running = tokio::spawn(async move {
        operator::run(config, listener).await.unwrap();
    });
    let mut missing = queried();
    let text = timeout(DEADLINE, async {
        // Events, since one may come before the watch is open.
        for number in 0.. {
            if number < 1_000 {
                let name = format!("more-{number}");
                let map = json!({"metadata": {"name": name, "namespace": "default"}, "data": {}});
                sim.writer().create(Resource::ConfigMaps, map).unwrap();
            }
            let text = scrape(address, "text/plain").await;
            missing.retain(|name| {
                !text
                    .lines()
                    .any(|line| line.starts_with(&format!("{name}{{")))
            });
            if missing.is_empty() {
                return text;
            }
        }
        String::new()
    })
    .await;
    let text = text.unwrap_or_else(|_| panic!("not served: {missing:?}"));
    assert!(
        text.contains("content-type: text/plain; version=0.0.4"),
        "{text}"
    );
    let open = scrape(address, "application/openmetrics-text; version=1.0.0").await;
    assert!(
        open.contains("content-type: application/openmetrics-text"),
        "{open}"
    );
    assert!(open.contains("# EOF"), "{open}");
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    sim.shutdown().await;
}
