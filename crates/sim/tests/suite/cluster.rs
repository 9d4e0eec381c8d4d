//! All parts together: kubelet authorization by the cluster, logs, and faults from a ConfigMap.

use std::time::Duration;

use http::StatusCode;
use kubevitals_sim::api::{Rule, User};
use kubevitals_sim::cluster::{ClusterError, SimCluster, SimClusterConfig};
use kubevitals_sim::faults::Fault;
use kubevitals_sim::objects::Resource;
use serde_json::json;

use crate::support::{DEADLINE, admin, bearer};

async fn cluster(faults: &[&str]) -> Result<SimCluster, ClusterError> {
    let config = SimClusterConfig {
        faults: faults.iter().map(|fault| fault.parse().unwrap()).collect(),
        ..SimClusterConfig::default()
    };
    SimCluster::start(config, |_| ()).await
}

/// Checks again whenever the runtime is idle, until the condition holds.
async fn eventually(what: &str, holds: impl Fn() -> bool) {
    let waited = tokio::time::timeout(DEADLINE, async {
        while !holds() {
            tokio::task::yield_now().await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("never: {what}"));
}

#[tokio::test]
async fn a_cluster_starts_with_all_parts() {
    let mut reports = Vec::new();
    let config = SimClusterConfig::default();
    let cluster = SimCluster::start(config, |progress| reports.push(progress))
        .await
        .unwrap();
    assert_eq!(cluster.api().count(Resource::Nodes), 3);
    assert!(cluster.api().count(Resource::Pods) >= 30);
    let last = reports.last().unwrap();
    assert!(
        last.pods >= last.expected && last.expected == 30,
        "{reports:?}"
    );
    cluster.shutdown().await;
}

#[tokio::test]
async fn kubelets_authorize_requests_with_the_cluster() {
    let cluster = cluster(&[]).await.unwrap();
    let kubelet = cluster.fleet().address("node-00001").unwrap();
    let token = cluster
        .api()
        .issue_token(User::new("reader", []), None)
        .unwrap();
    let ask = |token: Option<String>| {
        let client = bearer(cluster.api(), &kubelet.to_string(), token.as_deref());
        async move { client.get("/metrics/resource").await.code }
    };
    assert_eq!(ask(None).await, StatusCode::UNAUTHORIZED);
    assert_eq!(
        ask(Some("forged".to_owned())).await,
        StatusCode::UNAUTHORIZED
    );
    assert_eq!(ask(Some(token.clone())).await, StatusCode::FORBIDDEN);
    cluster
        .api()
        .allow(Rule::for_user("reader", ["get"], "", ["nodes/metrics"]));
    assert_eq!(ask(Some(token.clone())).await, StatusCode::OK);
    let client = bearer(cluster.api(), &kubelet.to_string(), Some(&token));
    assert_eq!(
        client.get("/stats/summary").await.code,
        StatusCode::FORBIDDEN,
        "another right"
    );
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_config_map_sets_faults_and_its_deletion_removes_them() {
    let cluster = cluster(&["500=node-00002"]).await.unwrap();
    let faults = cluster.fleet().faults().clone();
    assert_eq!(faults.of("node-00002"), [Fault::ServerError]);
    let writer = cluster.api().writer();
    let map = |faults: &str| json!({"metadata": {"namespace": "kube-system", "name": "kubevitals-sim"}, "data": {"faults": faults}});
    writer
        .create(
            Resource::ConfigMaps,
            map("slow:5s=node-00000, hang=node-00001"),
        )
        .unwrap();
    eventually("both faults", || {
        faults.of("node-00000") == [Fault::Slow(Duration::from_secs(5))]
            && faults.of("node-00001") == [Fault::Hang]
    })
    .await;
    assert_eq!(
        faults.of("node-00002"),
        [Fault::ServerError],
        "those from the start stay"
    );

    writer
        .replace(Resource::ConfigMaps, map("nonsense"))
        .unwrap();
    writer
        .replace(Resource::ConfigMaps, map("reset=node-00000"))
        .unwrap();
    eventually("the last fault", || {
        faults.of("node-00000") == [Fault::Reset]
    })
    .await;
    assert_eq!(faults.of("node-00001"), []);

    writer
        .delete(Resource::ConfigMaps, Some("kube-system"), "kubevitals-sim")
        .unwrap();
    eventually("healed", || faults.of("node-00000").is_empty()).await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn pod_logs_have_the_requested_lines() {
    let cluster = cluster(&[]).await.unwrap();
    let pods = cluster.api().objects(Resource::Pods);
    let pod = pods
        .iter()
        .find(|pod| pod["status"]["phase"] == "Running")
        .unwrap();
    let path = format!(
        "/api/v1/namespaces/{}/pods/{}/log",
        pod["metadata"]["namespace"].as_str().unwrap(),
        pod["metadata"]["name"].as_str().unwrap()
    );
    let container = pod["spec"]["containers"][0]["name"].as_str().unwrap();
    let client = admin(cluster.api());
    let all = client.get(&format!("{path}?container={container}")).await;
    assert_eq!(all.code, StatusCode::OK);
    assert!(String::from_utf8_lossy(&all.body).contains(container));
    let none = client
        .get(&format!("{path}?container={container}&tailLines=0"))
        .await;
    assert_eq!((none.code, none.body.len()), (StatusCode::OK, 0));
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_fault_for_an_unknown_node_is_an_error() {
    let error = cluster(&["hang=elsewhere"]).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "no node matches the fault `hang=elsewhere`"
    );
}

#[tokio::test]
async fn two_clusters_in_one_process_are_isolated() {
    let (one, other) = (
        cluster(&[]).await.unwrap(),
        cluster(&["hang=all"]).await.unwrap(),
    );
    assert_ne!(one.api().address(), other.api().address());
    assert!(one.fleet().faults().of("node-00000").is_empty());
    let token = one
        .api()
        .issue_token(User::new("a", ["system:masters"]), None)
        .unwrap();
    let address = other.api().address().to_string();
    let other_client = bearer(other.api(), &address, Some(&token));
    assert_eq!(
        other_client.get("/api/v1/nodes").await.code,
        StatusCode::UNAUTHORIZED
    );
    one.shutdown().await;
    other.shutdown().await;
}
