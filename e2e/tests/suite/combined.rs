//! Two roles in one process on a real API server.

use std::time::Duration;

use kubevitals_e2e::{Cluster, DEADLINE, RecordReader};
use serde_json::json;

use crate::in_time;
use crate::transitions::{container, pod, spec};

/// Polling interval of the API server's metrics.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Returns the number of open watches of pods, nodes and events, from the API server's metrics.
async fn open_watches(cluster: &Cluster) -> anyhow::Result<[u64; 3]> {
    let page = cluster.kubectl(&["get", "--raw", "/metrics"]).await?;
    let page = page.succeeded()?;
    let of = |resource: &str| {
        let resource = format!("resource=\"{resource}\"");
        let watches = page.lines().filter(|line| {
            line.starts_with("apiserver_longrunning_requests{")
                && line.contains("verb=\"WATCH\"")
                && line.contains(&resource)
        });
        let counts = watches.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
        counts.sum()
    };
    Ok([of("pods"), of("nodes"), of("events")])
}

async fn until_watches_are(cluster: &Cluster, wanted: [u64; 3], when: &str) -> anyhow::Result<()> {
    let mut last = Vec::new();
    let looking = async {
        loop {
            let now = open_watches(cluster).await?;
            if now == wanted {
                return anyhow::Ok(());
            }
            last.push(now);
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    match tokio::time::timeout(DEADLINE, looking).await {
        Ok(seen) => seen,
        Err(_) => anyhow::bail!(
            "{when}: {wanted:?} watches of pods, nodes and events are wanted, {last:?} were there"
        ),
    }
}

#[tokio::test]
async fn two_roles_in_one_process_watch_pods_once() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    // Other tests would open and close watches meanwhile.
    let _alone = cluster.exclusive().await;
    let namespace = cluster.namespace("roles").await?;
    let before = open_watches(&cluster).await?;
    let [pods, nodes, events] = before;

    let mut both = RecordReader::start_with_server(&namespace).await?;
    until_watches_are(&cluster, [pods + 1, nodes + 1, events + 1], "both roles").await?;
    let idle = container("main", "exec sleep 3600");
    let pod = pod("started", &spec(&json!([idle]), &json!({})));
    namespace.apply(&pod).await?;
    both.until("the start of a pod", |lines| {
        let mut records = lines.iter().map(|line| &line["kube_transition_metrics"]);
        records.any(|record| record["type"] == "pod" && record["pod_name"] == "started")
    })
    .await?;
    let metrics = in_time("metrics", both.metrics()).await?;
    for family in ["metrics_server_storage_points{", "pod_statistics_tracked"] {
        assert!(metrics.contains(family), "{family} is missing");
    }
    both.stop().await?;
    until_watches_are(&cluster, before, "afterwards").await?;

    let alone = RecordReader::start(&namespace, &[]).await?;
    until_watches_are(&cluster, [pods + 1, nodes, events + 1], "one role").await?;
    alone.stop().await?;
    Ok(namespace.finish().await?)
}
