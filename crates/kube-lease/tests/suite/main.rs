//! Candidates for a lease on the simulated cluster.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests fail by panicking"
)]

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube_client_metrics::Registry;
use kube_lease::{Election, Elector};
use kubevitals_sim::api::{SimApi, SimApiConfig, SimApiHandle};
use tokio::time::timeout;

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
async fn a_released_lease_is_acquired_by_the_next_candidate() {
    let sim = SimApi::start(SimApiConfig::default()).await.unwrap();
    let registry = Registry::new();
    let client = kube_client_metrics::client(config(&sim).await, &registry).unwrap();
    let candidate = |identity: &str, name: &str| {
        // Each candidate stands for a process and has its own registry.
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

    // The second waits while the first holds the lease, and acquires it once it is released.
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
