//! A controller, its lists and watches, and candidates for a lease, on the simulated cluster.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube_client_metrics::Registry;
use kube_client_metrics::lease::{Election, Elector};
use kubevitals_sim::api::{SimApi, SimApiConfig, SimApiHandle};
use kubevitals_sim::objects::Resource;
use serde_json::json;
use tokio::time::timeout;

#[path = "../../examples/controller.rs"]
mod controller;

/// Longer than anything takes on a busy machine.
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
async fn the_example_of_a_controller_shows_its_queue_lists_and_watches() {
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
    // The last of them may just have been taken when the tenth result came.
    let done = queue("work_duration_seconds_count");
    assert!(done >= 10.0, "{text}");
    let taken = queue("queue_duration_seconds_count");
    assert!(taken >= done, "{text}");
    assert!(queue("adds_total") >= taken, "{text}");
    assert!(queue("retries_total") >= 8.0, "{text}");
    // The queue went with the controller.
    assert!(queue("depth").abs() < f64::EPSILON, "{text}");
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
async fn a_lease_goes_from_one_candidate_to_the_next() {
    let sim = SimApi::start(SimApiConfig::default()).await.unwrap();
    let registry = Registry::new();
    let client = kube_client_metrics::client(config(&sim).await, &registry).unwrap();
    let candidate = |identity: &str, name: &str| {
        // Each has a series of its own here; in life they are processes.
        let hooks = Registry::new();
        let election = Election::new("default", name, identity);
        let elector = Elector::new(client.clone(), election, &hooks.hooks()).unwrap();
        (elector, hooks)
    };
    let leads = |registry: &Registry| {
        let status = value(
            &registry.encode(),
            "leader_election_master_status{name=\"it\"}",
        );
        status > 0.5
    };
    let (mut first, first_metrics) = candidate("first", "it");
    let (mut second, second_metrics) = candidate("second", "it");
    timeout(DEADLINE, first.acquire()).await.unwrap();
    assert!(leads(&first_metrics) && !leads(&second_metrics));

    // The second waits while the first holds; it is let in as soon as the first gives it back.
    let waiting = tokio::spawn(async move {
        second.acquire().await;
        second
    });
    let leases: Api<Lease> = Api::default_namespaced(client.clone());
    let holder = async || {
        let lease = leases.get("it").await.unwrap();
        lease.spec.unwrap().holder_identity
    };
    assert_eq!(holder().await.as_deref(), Some("first"));
    timeout(DEADLINE, first.release()).await.unwrap();
    let second = timeout(DEADLINE, waiting).await.unwrap().unwrap();
    assert_eq!(holder().await.as_deref(), Some("second"));
    assert!(!leads(&first_metrics) && leads(&second_metrics));
    drop(second);
    assert!(!leads(&second_metrics));
    sim.shutdown().await;
}
