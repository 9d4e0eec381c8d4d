//! `kubevitals node --provider host` and the real kubelet read the same machine.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubevitals_e2e::{
    Burner, Cluster, Kubelet, MetricsApiServer, ResourceMetrics, Rule, VirtualNode, is_ready,
};
use kubevitals_model::{ContainerKey, ContainerSample, CpuSample};
use serde_json::{Value, json};

use crate::in_time;

/// The rights of a scraper.
const MAY_SCRAPE: &[Rule] = &[Rule::get(&["nodes/metrics", "nodes/stats"])];

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// What both said of one container, or of the node.
#[derive(Debug, Default)]
struct Compared {
    theirs: Vec<CpuSample>,
    ours: Vec<CpuSample>,
    has_cpu: bool,
    has_memory: bool,
}

impl Compared {
    /// Adds a sample of each. CPU time never falls, so that ours is between those of the kubelet
    /// before and after it; memory is compared as of now, since it may still change.
    fn add(&mut self, theirs: &ContainerSample, ours: &ContainerSample) {
        for (samples, sample) in [(&mut self.theirs, theirs.cpu), (&mut self.ours, ours.cpu)] {
            if let Some(sample) = sample
                && samples.last().is_none_or(|last| last.at < sample.at)
            {
                samples.push(sample);
            }
        }
        for our in &self.ours {
            let before = self.theirs.iter().rfind(|their| their.at <= our.at);
            let after = self.theirs.iter().find(|their| their.at >= our.at);
            if let (Some(before), Some(after)) = (before, after) {
                let total = our.total.get();
                let least = before.total.get() - before.total.get() / 100;
                let most = after.total.get() + after.total.get() / 100;
                assert!(
                    (least..=most).contains(&total),
                    "{before:?} {our:?} {after:?}"
                );
                self.has_cpu = true;
            }
        }
        if let (Some(theirs), Some(ours)) = (theirs.memory, ours.memory) {
            let difference = ours.bytes.count().abs_diff(theirs.bytes.count());
            self.has_memory |= difference <= theirs.bytes.count() / 100;
        }
    }
}

/// Pods of several kinds: busy, idle with two containers, and with an init container that ended.
fn pods() -> Vec<Value> {
    let burner = Burner::new("burner")
        .cpu_millicores(200)
        .memory_mebibytes(64);
    let idle = |name: &str| {
        json!({"name": name, "image": "kubevitals.test/busybox:1",
               "command": ["sleep", "86400"]})
    };
    let pod = |name: &str, spec: Value| {
        let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}});
        pod["spec"] = spec;
        pod["spec"]["terminationGracePeriodSeconds"] = json!(0);
        pod
    };
    let mut init = idle("first");
    init["command"] = json!(["true"]);
    vec![
        burner.pod(),
        pod("two", json!({"containers": [idle("one"), idle("other")]})),
        pod(
            "after-init",
            json!({"initContainers": [init], "containers": [idle("app")]}),
        ),
    ]
}

/// Every container that the kubelet reports is reported with the same memory, and with the CPU
/// time that it had at the time of the sample.
#[tokio::test]
async fn values_are_those_of_the_kubelet() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("node-host").await?;
    for pod in pods() {
        namespace.apply(&pod).await?;
    }
    for name in ["burner", "two", "after-init"] {
        namespace.wait_for::<Pod>(name, is_ready).await?;
    }
    let access = namespace.access("scraper", MAY_SCRAPE).await?;
    let kubelet = Kubelet::of(&cluster, Some(&access))?;
    let node = VirtualNode::start_on_host(&namespace).await?;

    let containers = [
        ("burner", "burner"),
        ("two", "one"),
        ("two", "other"),
        ("after-init", "app"),
    ];
    let mut compared: BTreeMap<_, Compared> = BTreeMap::new();
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    in_time("the same usage of all containers on both", async {
        while !containers.iter().all(|key| {
            let one = compared.get(key);
            one.is_some_and(|one| one.has_cpu && one.has_memory)
        }) {
            ticks.tick().await;
            let theirs = kubelet.resource_metrics().await.unwrap();
            let body = node
                .get("/metrics/resource", Some(access.token()))
                .await
                .unwrap();
            let ours = ResourceMetrics::parse(&body.body).unwrap();
            for key in containers {
                let name = ContainerKey::new(namespace.name(), key.0, key.1);
                if let (Some(theirs), Some(ours)) = (theirs.container(&name), ours.container(&name))
                {
                    assert_eq!(theirs.started.is_some(), ours.started.is_some(), "{key:?}");
                    compared.entry(key).or_default().add(theirs, ours);
                }
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
        json!({"limits": {"cpu": "100m"}, "requests": {"cpu": "100m"}});
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
