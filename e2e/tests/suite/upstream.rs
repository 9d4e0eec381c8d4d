//! metrics-server's own end-to-end tests, unmodified, against our server from `deploy/server.yaml`.

use std::time::Duration;

use kubevitals_e2e::{Cluster, InstalledServer};
use serde_json::json;
use tokio::process::Command;

/// They wait for pods for up to five minutes.
const TIMEOUT: Duration = Duration::from_mins(5);

/// The end of the report. Another test, of a sidecar among init containers, is defined only where a
/// pod `kube-apiserver-e2e-control-plane` has a feature gate for it, which is kind's name.
const SUMMARY: &str = "Ran 10 of 10 Specs";

#[tokio::test]
async fn the_tests_of_metrics_server_pass() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    // They measure the CPU of pods within 10m, and use the namespace `default`.
    let _alone = cluster.exclusive().await;
    let namespace = cluster.namespace("upstream").await?;
    let server = InstalledServer::install_changed(&namespace, |manifest| {
        // They find the server by this label.
        let deployment = manifest
            .object_mut("Deployment", "kubevitals-server")
            .unwrap();
        deployment["spec"]["template"]["metadata"]["labels"]["k8s-app"] = json!("metrics-server");
    })
    .await?;

    let tests = Command::new(cluster.program("metrics-server-e2e")?)
        .args(["--ginkgo.no-color", "--ginkgo.v"])
        .env("KUBECONFIG", cluster.kubeconfig())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(TIMEOUT, tests).await??;
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}", output.status);
    assert!(text.contains(SUMMARY), "no {SUMMARY:?}");

    server.remove(&namespace).await?;
    Ok(namespace.finish().await?)
}
