//! Node mode.

use kubevitals_sim::objects::Resource;
use serde_json::json;

use crate::support::{Cluster, node, pod, sorted};

const NODE: &str = r#"nodepool="pool-1",zone="z-a""#;

#[tokio::test]
async fn a_daemon_set_that_is_broken_on_one_node_shows_as_exactly_that() {
    let cluster = Cluster::start().await;
    for name in ["a", "b", "c"] {
        cluster.create(Resource::Nodes, node(name, "True"));
        cluster.create(Resource::Pods, pod("netd", name, name != "b", 0));
        cluster.create(Resource::Pods, pod("kube-proxy", name, true, 0));
    }
    for name in ["a", "b", "c"] {
        let mut role = cluster.node_role(name).await;
        role.until("a tick", |role, _| {
            role.series("addon_available").len() == 2
        })
        .await;
        let good = if name == "b" { "False" } else { "True" };
        let addon = |addon: &str, good: &str| {
            format!(
                r#"{{node="{name}",{NODE},addon="{addon}",version="v1",controller="DaemonSet",available="{good}",node_available="True",running="{good}",healthy="Unknown",stable="True"}} 1"#
            )
        };
        assert_eq!(
            role.series("addon_available"),
            sorted([addon("kube-proxy", "True"), addon("netd", good)])
        );
        assert_eq!(
            role.series("addon_control_plane_available"),
            sorted([format!(r#"{{node="{name}",{NODE},available="{good}"}} 1"#)])
        );
        let lines = role.stop().await;
        let is_broken = lines.contains(&format!("node {name}: addon netd is broken"));
        assert_eq!(is_broken, name == "b", "{lines}");
        assert!(lines.contains(&format!("node {name}: available=true")));
    }
}

#[tokio::test]
async fn restarts_before_and_after_the_start_of_the_role_count() {
    let cluster = Cluster::start().await;
    cluster.create(Resource::Nodes, node("a", "True"));
    cluster.create(Resource::Pods, pod("netd", "a", true, 4));
    let mut role = cluster.node_role("a").await;
    let restarts = |total: u32| {
        sorted([format!(
            r#"{{node="a",{NODE},addon="netd",version="v1",controller="DaemonSet",namespace="kube-system",pod="netd-a",container_name="main",reason="OOMKilled",exit_code="137"}} {total}"#
        )])
    };
    role.until("earlier restarts", |role, _| {
        role.series("addon_restart_total") == restarts(4)
    })
    .await;
    let status = pod("netd", "a", true, 7)["status"].clone();
    cluster.set(Resource::Pods, "netd-a", "status", status);
    role.until("later restarts", |role, _| {
        role.series("addon_restart_total") == restarts(7)
    })
    .await;
    role.stop().await;
}

/// gke-prober panics when its node was deleted or renamed.
#[tokio::test]
async fn the_series_of_a_node_that_is_deleted_end() {
    let cluster = Cluster::start().await;
    cluster.create(Resource::Nodes, node("a", "True"));
    cluster.create(Resource::Pods, pod("netd", "a", true, 1));
    let mut role = cluster.node_role("a").await;
    role.until("a tick", |role, _| {
        !role.series("node_available").is_empty()
    })
    .await;
    assert_eq!(
        role.series("node_condition"),
        sorted([
            format!(r#"{{node="a",{NODE},type="DiskPressure",status="False"}} 1"#),
            format!(r#"{{node="a",{NODE},type="Ready",status="True"}} 1"#),
        ])
    );
    let writer = cluster.api.writer();
    writer.delete(Resource::Nodes, None, "a").unwrap();
    role.until("no series", |role, _| {
        role.series("node_available").is_empty() && role.series("addon_restart_total").is_empty()
    })
    .await;
    role.stop().await;
}

#[tokio::test]
async fn only_pods_of_the_node_are_its_addons() {
    let cluster = Cluster::start().await;
    cluster.create(Resource::Nodes, node("a", "True"));
    cluster.create(Resource::Pods, pod("netd", "a", true, 0));
    cluster.create(Resource::Pods, pod("netd", "b", false, 0));
    let mut ended = pod("job", "a", false, 0);
    ended["status"]["phase"] = json!("Succeeded");
    cluster.create(Resource::Pods, ended);
    let mut role = cluster.node_role("a").await;
    role.until("a tick", |role, _| {
        role.series("addon_control_plane_available")
            == sorted([format!(r#"{{node="a",{NODE},available="True"}} 1"#)])
    })
    .await;
    assert_eq!(role.series("addon_available").len(), 1);
    role.stop().await;
}
