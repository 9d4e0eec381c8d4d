//! The behaviour of a kubelet that we rely on and simulate.

use std::collections::BTreeSet;

use http::StatusCode;
use k8s_openapi::api::core::v1::Pod;
use kubevitals_e2e::{Burner, Cluster, Kubelet, Rule, is_ready};
use kubevitals_model::ContainerKey;
use serde_json::Value;

const MAY_SCRAPE: &[Rule] = &[Rule::get(&["nodes/metrics"])];
const MAY_READ_STATS: &[Rule] = &[Rule::get(&["nodes/stats"])];

/// Series without a timestamp of their own.
const WITHOUT_TIMESTAMP: [&str; 2] = ["container_start_time_seconds", "resource_scrape_error"];

#[tokio::test]
async fn resource_metrics_have_the_known_series_with_timestamps() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("facts").await?;
    namespace.apply(&Burner::new("idle").pod()).await?;
    let access = namespace.access("scraper", MAY_SCRAPE).await?;
    let kubelet = Kubelet::of(&cluster, Some(&access))?;
    namespace.wait_for::<Pod>("idle", is_ready).await?;

    let key = ContainerKey::new(namespace.name(), "idle", "burner");
    let metrics = kubelet
        .watch_metrics("a full sample of a container", |metrics| {
            let container = metrics.container(&key)?;
            (container.cpu.is_some() && container.memory.is_some()).then(|| metrics.clone())
        })
        .await?;

    let container = metrics.container(&key).unwrap();
    assert!(container.started.is_some(), "{container:?}");
    assert!(metrics.node.cpu.is_some() && metrics.node.memory.is_some());
    let names = metrics.names();
    let always = BTreeSet::from([
        "container_cpu_usage_seconds_total",
        "container_memory_working_set_bytes",
        "container_start_time_seconds",
        "node_cpu_usage_seconds_total",
        "node_memory_working_set_bytes",
        "pod_cpu_usage_seconds_total",
        "pod_memory_working_set_bytes",
        "resource_scrape_error",
    ]);
    let missing: Vec<_> = always.difference(&names).collect();
    assert!(missing.is_empty(), "missing: {missing:?} of {names:?}");
    for series in &metrics.series {
        assert_eq!(
            series.timestamp_ms.is_none(),
            WITHOUT_TIMESTAMP.contains(&series.name.as_str()),
            "{series:?}"
        );
        let scope = match series.name.split('_').next().unwrap() {
            "container" => &["container", "namespace", "pod"][..],
            "pod" => &["namespace", "pod"],
            _ => &[],
        };
        assert_eq!(series.labels, scope, "{series:?}");
    }
    Ok(namespace.finish().await?)
}

#[tokio::test]
async fn the_summary_is_readable_with_nodes_stats() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("summary").await?;
    let access = namespace.access("reader", MAY_READ_STATS).await?;
    let answer = Kubelet::of(&cluster, Some(&access))?
        .get("/stats/summary")
        .await?;
    assert_eq!(answer.status, StatusCode::OK);
    let summary: Value = serde_json::from_slice(&answer.body).unwrap();
    let node = &summary["node"];
    assert_eq!(node["nodeName"], cluster.node_name());
    assert!(node["cpu"]["usageCoreNanoSeconds"].is_u64(), "{node}");
    assert!(node["memory"]["workingSetBytes"].is_u64(), "{node}");
    assert!(summary["pods"].is_array(), "{summary}");
    Ok(namespace.finish().await?)
}

#[tokio::test]
async fn an_unauthorized_client_is_rejected() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("refused").await?;
    let nobody = Kubelet::of(&cluster, None)?
        .get("/metrics/resource")
        .await?;
    assert_eq!(nobody.status, StatusCode::UNAUTHORIZED);
    let access = namespace.access("scraper", MAY_SCRAPE).await?;
    let scraper = Kubelet::of(&cluster, Some(&access))?;
    assert_eq!(
        scraper.get("/metrics/resource").await?.status,
        StatusCode::OK
    );
    assert_eq!(
        scraper.get("/stats/summary").await?.status,
        StatusCode::FORBIDDEN
    );
    Ok(namespace.finish().await?)
}
