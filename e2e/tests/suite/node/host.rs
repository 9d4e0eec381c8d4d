//! `kubevitals node --provider host` and the real kubelet read the same machine.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubevitals_e2e::{
    Burner, Cluster, Kubelet, MetricsApiServer, ResourceMetrics, Rule, VirtualNode, is_ready,
};
use kubevitals_model::ContainerKey;

use crate::in_time;

/// The rights of a scraper.
const MAY_SCRAPE: &[Rule] = &[Rule::get(&["nodes/metrics", "nodes/stats"])];

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// What a counter of a burner may grow between two samples that are this far apart, in
/// nanoseconds of CPU.
fn grown(apart: Duration, millicores: u64) -> u64 {
    u64::try_from(apart.as_nanos()).unwrap() * millicores / 1_000
}

/// Every container that the kubelet reports is reported with the same memory, and with the CPU
/// time that it had at the time of the sample.
#[tokio::test]
async fn values_are_those_of_the_kubelet() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("node-host").await?;
    let burner = Burner::new("burner")
        .cpu_millicores(200)
        .memory_mebibytes(64);
    namespace.apply(&burner.pod()).await?;
    namespace.wait_for::<Pod>("burner", is_ready).await?;
    let access = namespace.access("scraper", MAY_SCRAPE).await?;
    let kubelet = Kubelet::of(&cluster, Some(&access))?;
    let node = VirtualNode::start_on_host(&namespace).await?;

    let key = ContainerKey::new(namespace.name(), "burner", "burner");
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    in_time("the same usage of the burner on both", async {
        loop {
            ticks.tick().await;
            let theirs = kubelet.resource_metrics().await.unwrap();
            let body = node
                .get("/metrics/resource", Some(access.token()))
                .await
                .unwrap();
            let ours = ResourceMetrics::parse(&body.body).unwrap();
            let (Some(theirs), Some(ours)) = (theirs.container(&key), ours.container(&key)) else {
                continue;
            };
            let (Some(their_cpu), Some(our_cpu)) = (theirs.cpu, ours.cpu) else {
                continue;
            };
            let apart = our_cpu
                .at
                .since(their_cpu.at)
                .or(their_cpu.at.since(our_cpu.at))
                .unwrap();
            let difference = our_cpu.total.get().abs_diff(their_cpu.total.get());
            let allowed = grown(apart, 200) * 12 / 10 + their_cpu.total.get() / 100;
            assert!(difference <= allowed, "{their_cpu:?} {our_cpu:?}");
            let (Some(their_memory), Some(our_memory)) = (theirs.memory, ours.memory) else {
                continue;
            };
            let difference = our_memory
                .bytes
                .count()
                .abs_diff(their_memory.bytes.count());
            // The burner may still be writing its pages.
            if difference <= their_memory.bytes.count() / 100 {
                assert!(theirs.started.is_some() && ours.started.is_some());
                return;
            }
        }
    })
    .await;
    node.stop_on_host()?;
    Ok(namespace.finish().await?)
}

/// Go's metrics-server scrapes a virtual node as any kubelet.
#[tokio::test]
async fn metrics_server_scrapes_a_virtual_node() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("node-peer").await?;
    let node = super::process_node(&namespace).await?;
    let mut pod = super::pod(&node, "busy", "while :; do :; done");
    pod["spec"]["containers"][0]["resources"] =
        serde_json::json!({"limits": {"cpu": "100m"}, "requests": {"cpu": "100m"}});
    namespace.apply(&pod).await?;
    namespace.wait_for::<Pod>("busy", is_ready).await?;
    let server = MetricsApiServer::start_metrics_server(&namespace).await?;
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    let row = in_time("usage of the pod by metrics-server", async {
        loop {
            ticks.tick().await;
            let top = namespace.kubectl(&["top", "pods", "--no-headers"]).await;
            if let Ok(row) = top
                && row.starts_with("busy")
            {
                return row;
            }
        }
    })
    .await;
    println!("{row}");
    let cpu = row.split_whitespace().nth(1).unwrap();
    let millicores: u64 = cpu.strip_suffix('m').unwrap().parse()?;
    assert!((50..=150).contains(&millicores), "{row}");
    server.stop(&namespace).await?;
    namespace.delete::<Pod>("busy").await?;
    node.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}
