//! `kubevitals server` and the Node objects of a simulated cluster.

use http::StatusCode;
use kubevitals_sim::objects::Resource;
use serde_json::json;

use crate::server::{NODES, Running, cluster};

const NODE: &str = "node-00001";

/// The end of the old node's scrapes once withdrew the new node, and its samples were dropped until
/// the Node object changed again.
#[tokio::test]
async fn a_node_that_is_deleted_and_recreated_keeps_its_metrics() {
    let cluster = cluster(3).await;
    let server = Running::start(&cluster, &[]).await;
    let path = format!("{NODES}/{NODE}");
    server.until_served(&path).await;
    let writer = cluster.api().writer();
    let mut node = cluster.api().object(Resource::Nodes, None, NODE).unwrap();
    for round in 0..20 {
        // Deleted and created at once: both changes may arrive together.
        node["metadata"]["uid"] = json!(format!("00000000-0000-4000-8000-{round:012}"));
        writer.delete(Resource::Nodes, None, NODE).unwrap();
        writer.create(Resource::Nodes, node.clone()).unwrap();
        tokio::task::yield_now().await;
    }
    server.until_served(&path).await;
    server.until_nodes(3).await;
    server.stop().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn an_excluded_node_is_explained_and_does_not_fail() {
    let cluster = cluster(3).await;
    let mut node = cluster.api().object(Resource::Nodes, None, NODE).unwrap();
    node["spec"]["taints"] =
        json!([{"key": "virtual-kubelet.io/provider", "effect": "NoSchedule"}]);
    let writer = cluster.api().writer();
    writer.replace(Resource::Nodes, node.clone()).unwrap();
    let flags = ["--exclude-node-taints=virtual-kubelet.io/provider"];
    let server = Running::start(&cluster, &flags).await;
    server.until_ready().await;
    let path = format!("{NODES}/{NODE}");
    let (status, missing) = server.get_as_admin(&path).await;
    assert_eq!(status, StatusCode::NOT_FOUND);
    let reason = "node node-00001 is not scraped: it has the taint virtual-kubelet.io/provider";
    assert!(missing.contains(reason), "{missing}");
    let (_, metrics) = server.get_as_admin("/metrics").await;
    for line in [
        "kubevitals_usage_nodes 2",
        "kubevitals_usage_nodes_excluded 1",
        "kubevitals_scrape_nodes{state=\"excluded\"} 1",
        "kubevitals_scrape_nodes{state=\"failing\"} 0",
    ] {
        assert!(metrics.contains(line), "{line}\n{metrics}");
    }
    // The annotation takes precedence.
    node["metadata"]["annotations"]["kubevitals.io/scrape"] = json!("true");
    writer.replace(Resource::Nodes, node).unwrap();
    server.until_served(&path).await;
    server.stop().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn an_invalid_annotation_is_named_in_the_404() {
    let cluster = cluster(2).await;
    let mut node = cluster.api().object(Resource::Nodes, None, NODE).unwrap();
    node["metadata"]["annotations"]["kubevitals.io/resolution"] = json!("often");
    let writer = cluster.api().writer();
    writer.replace(Resource::Nodes, node).unwrap();
    let server = Running::start(&cluster, &[]).await;
    let path = format!("{NODES}/{NODE}");
    let missing = server
        .until(&path, |_, body| body.contains("annotation"))
        .await;
    let missing: serde_json::Value = serde_json::from_str(&missing).unwrap();
    let message = missing["message"].as_str().unwrap();
    let reason = r#"annotation kubevitals.io/resolution of the node is "often", expected a duration from 1s to 22.5s"#;
    assert!(message.contains(reason), "{message}");
    // The others are served.
    server.until_nodes(1).await;
    server.stop().await;
    cluster.shutdown().await;
}

#[tokio::test]
async fn a_pod_that_starts_triggers_a_scrape_of_its_node() {
    let cluster = cluster(2).await;
    let server = Running::start(&cluster, &[]).await;
    server.until_ready().await;
    let triggers = |metrics: &str| {
        let mut lines = metrics.lines();
        let value = lines.find_map(|line| line.strip_prefix("kubevitals_scrape_triggers_total "));
        value.and_then(|value| value.parse::<u32>().ok()).unwrap()
    };
    let (_, metrics) = server.get_as_admin("/metrics").await;
    let before = triggers(&metrics);
    let pod = json!({
        "metadata": {"name": "new", "namespace": "default"},
        "spec": {"nodeName": NODE, "containers": [{"name": "app", "image": "app"}]},
        "status": {"phase": "Running"},
    });
    let writer = cluster.api().writer();
    writer.create(Resource::Pods, pod).unwrap();
    server
        .until("/metrics", |_, metrics| triggers(metrics) > before)
        .await;
    server.stop().await;
    cluster.shutdown().await;
}
