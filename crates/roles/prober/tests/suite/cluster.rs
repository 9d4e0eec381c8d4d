//! Cluster mode.

use kubevitals_sim::objects::Resource;
use serde_json::json;

use crate::support::{Cluster, node, pod, sorted, workload};

const RECORDED: &str = "available nodes";

#[tokio::test]
async fn every_provider_receives_nodes_and_expected_addons() {
    let cluster = Cluster::start().await;
    cluster.create(Resource::Nodes, node("a", "True"));
    cluster.create(Resource::Nodes, node("b", "Unknown"));
    let status = json!({"desiredNumberScheduled": 2, "numberReady": 1});
    cluster.create(Resource::DaemonSets, workload("netd", 0, &status));
    cluster.create(
        Resource::Deployments,
        workload("kube-dns", 3, &json!({"replicas": 3})),
    );
    let mut role = cluster.cluster_role(None).await;
    role.until("a tick", |role, lines| {
        lines.contains(RECORDED) && role.is_ready()
    })
    .await;
    assert_eq!(
        role.series("cluster_node_condition"),
        sorted([
            r#"{nodepool="pool-1",zone="z-a",type="DiskPressure",status="False"} 2"#,
            r#"{nodepool="pool-1",zone="z-a",type="Ready",status="True"} 1"#,
            r#"{nodepool="pool-1",zone="z-a",type="Ready",status="Unknown"} 1"#,
        ])
    );
    assert_eq!(
        role.series("cluster_node_available"),
        sorted([
            r#"{nodepool="pool-1",zone="z-a",ready="False",schedulable="True",done_warming="True",available="False"} 1"#,
            r#"{nodepool="pool-1",zone="z-a",ready="True",schedulable="True",done_warming="True",available="True"} 1"#,
        ])
    );
    assert_eq!(
        role.series("cluster_addons_expected"),
        sorted([
            r#"{addon="kube-dns",version="v1",controller="Deployment"} 3"#,
            r#"{addon="netd",version="v1",controller="DaemonSet"} 2"#,
        ])
    );
    let lines = role.stop().await;
    for line in [
        "pool pool-1: Ready=Unknown on 1\n",
        "available nodes: 1\n",
        "addon netd: expected 2\n",
    ] {
        assert!(lines.contains(line), "{lines}");
    }
    assert!(lines.ends_with("flushed\n"), "{lines}");
}

/// gke-prober panics on an empty list.
#[tokio::test]
async fn a_cluster_without_nodes_has_no_series() {
    let cluster = Cluster::start().await;
    let mut role = cluster.cluster_role(None).await;
    role.until("a tick", |_, lines| lines.contains("available nodes: 0\n"))
        .await;
    assert_eq!(role.series("cluster_node_condition"), [""; 0]);
    role.stop().await;
}

#[tokio::test]
async fn series_end_with_what_they_count_and_changes_to_not_ready_count() {
    let cluster = Cluster::start().await;
    cluster.create(Resource::Nodes, node("a", "True"));
    let mut role = cluster.cluster_role(None).await;
    let not_ready = |total: u32| vec![format!(r#"{{nodepool="pool-1",zone="z-a"}} {total}"#)];
    role.until("no change", |role, _| {
        role.series("cluster_node_not_ready_total") == not_ready(0)
    })
    .await;
    let condition =
        json!([{"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-03T00:00:00Z"}]);
    let members = json!({"conditions": condition});
    cluster.set(Resource::Nodes, "a", "status", members);
    role.until("a change", |role, _| {
        role.series("cluster_node_not_ready_total") == not_ready(1)
    })
    .await;
    assert_eq!(
        role.series("cluster_node_condition"),
        sorted([r#"{nodepool="pool-1",zone="z-a",type="Ready",status="False"} 1"#])
    );
    role.stop().await;
}

/// The prober of a node that is down cannot report.
#[tokio::test]
async fn nodes_without_a_ready_prober_are_silent() {
    let cluster = Cluster::start().await;
    for name in ["a", "b", "c"] {
        cluster.create(Resource::Nodes, node(name, "True"));
    }
    for (name, ready) in [("a", true), ("b", false)] {
        let mut prober = pod("prober", name, ready, 0);
        prober["metadata"]["labels"] = json!({"app": "prober"});
        cluster.create(Resource::Pods, prober);
    }
    let mut role = cluster.cluster_role(None).await;
    let silent = sorted([
        r#"{node="b",nodepool="pool-1",zone="z-a",reason="not_ready"} 1"#,
        r#"{node="c",nodepool="pool-1",zone="z-a",reason="no_prober"} 1"#,
    ]);
    role.until("silent nodes", |role, _| {
        role.series("cluster_node_silent") == silent
    })
    .await;
    role.stop().await;
}

#[tokio::test]
async fn one_replica_reports_and_another_takes_over() {
    let cluster = Cluster::start().await;
    cluster.create(Resource::Nodes, node("a", "True"));
    let mut first = cluster.cluster_role(Some("first")).await;
    first
        .until("the first leads", |_, lines| lines.contains(RECORDED))
        .await;
    let mut second = cluster.cluster_role(Some("second")).await;
    second
        .until("the second is a standby", |role, _| {
            role.is_ready()
                && role.series("ticks_total").iter().any(|series| {
                    series.starts_with(r#"{result="standby"}"#) && !series.ends_with(" 0")
                })
        })
        .await;
    assert_eq!(second.series("cluster_node_available"), [""; 0]);
    first.stop().await;
    second
        .until("the second leads", |role, lines| {
            lines.contains(RECORDED) && role.series("cluster_node_available").len() == 1
        })
        .await;
    second.stop().await;
}
