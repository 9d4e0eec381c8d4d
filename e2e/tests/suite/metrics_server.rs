//! The baseline: Go's metrics-server behind its APIService, as `kubectl top` sees it.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubevitals_e2e::{Burner, Cluster, E2eError, MetricsApiServer, TestNamespace, is_ready};

use crate::{assert_within_a_tenth, in_time};

/// Polling interval of `kubectl top`; the API has no watch.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the CPU of a container in millicores, once `kubectl top` has it.
async fn top(namespace: &TestNamespace, pod: &str) -> Option<u64> {
    let answer = namespace
        .kubectl(&["top", "pods", "--containers", "--no-headers"])
        .await;
    // POD NAME CPU(cores) MEMORY(bytes)
    let table = answer.ok()?;
    let row = table
        .lines()
        .find(|line| line.split_whitespace().next() == Some(pod))?;
    row.split_whitespace()
        .nth(2)?
        .strip_suffix('m')?
        .parse()
        .ok()
}

#[tokio::test]
async fn kubectl_top_shows_a_burner_through_metrics_server() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("top").await?;
    let burner = Burner::new("burner").cpu_millicores(200);
    namespace.apply(&burner.pod()).await?;
    namespace.wait_for::<Pod>("burner", is_ready).await?;
    let mut server = MetricsApiServer::start_metrics_server(&namespace).await?;

    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    let millicores = in_time("metrics of the burner", async {
        loop {
            ticks.tick().await;
            server.must_run()?;
            // Its first window starts with the container, which waited for its
            // image and its probe.
            if let Some(millicores) = top(&namespace, "burner").await {
                return Ok::<_, E2eError>(millicores);
            }
        }
    })
    .await?;
    assert_within_a_tenth("millicores", millicores, 200, &"kubectl top");
    server.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}
