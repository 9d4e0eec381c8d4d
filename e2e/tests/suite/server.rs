//! `kubevitals server` in place of metrics-server: kubectl, autoscalers and restarts.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use kubevitals_e2e::{Burner, Cluster, MetricsApiServer, Stop, TestNamespace, is_ready};
use kubevitals_model::Timestamp;
use serde_json::{Value, json};

use crate::{assert_within_a_tenth, in_time};

/// Polling interval of responses.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The staleness limit of the server: three times the resolution.
const STALENESS: Duration = Duration::from_secs(30);

/// Returns the rows of `kubectl top`, if it has any yet.
async fn top(namespace: &TestNamespace, arguments: &[&str]) -> Option<Vec<Vec<String>>> {
    let command = [&["top"], arguments, &["--no-headers"]].concat();
    let table = namespace.kubectl(&command).await.ok()?;
    let rows = table.lines().map(|row| row.split_whitespace());
    let rows: Vec<Vec<String>> = rows.map(|row| row.map(str::to_owned).collect()).collect();
    (!rows.is_empty()).then_some(rows)
}

fn millicores(cell: &str) -> u64 {
    let number = cell.strip_suffix('m');
    let number = number.unwrap_or_else(|| panic!("{cell} is not in millicores"));
    number.parse().unwrap()
}

/// Waits until a burner's rate spans only samples of its steady state.
async fn settled_burner(namespace: &TestNamespace, server: &mut MetricsApiServer) -> Value {
    let path = format!(
        "/apis/metrics.k8s.io/v1/namespaces/{}/pods/burner",
        namespace.name()
    );
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    let mut seen: Option<Value> = None;
    in_time("a second measurement of the burner", async {
        loop {
            ticks.tick().await;
            server.must_run().unwrap();
            let Ok(text) = namespace.kubectl(&["get", "--raw", &path]).await else {
                continue;
            };
            let pod: Value = serde_json::from_str(&text).unwrap();
            let first = seen.get_or_insert_with(|| pod.clone());
            if first["timestamp"] != pod["timestamp"] {
                return pod;
            }
        }
    })
    .await
}

#[tokio::test]
async fn kubectl_top_shows_a_burner_through_our_server() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("server-top").await?;
    let burner = Burner::new("burner")
        .cpu_millicores(200)
        .memory_mebibytes(64);
    namespace.apply(&burner.pod()).await?;
    namespace.wait_for::<Pod>("burner", is_ready).await?;
    let mut server = MetricsApiServer::start(&namespace).await?;

    // Available: the API server has verified the certificate.
    let registered: Api<APIService> = Api::all(cluster.client());
    for version in ["v1.metrics.k8s.io", "v1beta1.metrics.k8s.io"] {
        let spec = registered.get(version).await?.spec.unwrap();
        assert!(spec.ca_bundle.is_some(), "{version} has no caBundle");
        assert_ne!(spec.insecure_skip_tls_verify, Some(true), "{version}");
    }

    settled_burner(&namespace, &mut server).await;
    let pods = top(&namespace, &["pods", "burner", "--containers"]).await;
    let pods = pods.expect("the burner is known");
    // POD NAME CPU(cores) MEMORY(bytes)
    assert_eq!(pods[0][..2], ["burner", "burner"]);
    assert_within_a_tenth("millicores", millicores(&pods[0][2]), 200, &pods);
    let memory = pods[0][3].strip_suffix("Mi").unwrap().parse()?;
    assert_within_a_tenth("mebibytes", memory, 64, &pods);

    let nodes = top(&namespace, &["nodes"])
        .await
        .expect("the node is known");
    assert_eq!(nodes[0][0], cluster.node_name());
    assert!(millicores(&nodes[0][1]) >= 180, "{nodes:?}");
    let swapping = top(&namespace, &["pods", "--show-swap"]).await;
    let swapping = swapping.expect("swap is shown");
    assert_eq!(swapping[0].len(), 4, "{swapping:?}");

    let table = namespace.kubectl(&["get", "podmetrics", "burner"]).await?;
    assert!(table.contains("WINDOW"), "{table}");
    let explained = namespace.kubectl(&["explain", "podmetrics"]).await?;
    assert!(explained.contains("PodMetrics"), "{explained}");
    let selected = namespace.kubectl(&["get", "podmetrics", "-l", "app=burner", "-o", "name"]);
    assert_eq!(selected.await?.lines().count(), 1);
    let unknown = ["get", "podmetrics", "nobody", "-n", namespace.name()];
    let missing = cluster.kubectl(&unknown);
    let missing = missing.await?.succeeded().unwrap_err().to_string();
    assert!(missing.contains("NotFound"), "{missing}");

    server.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}

/// Returns a Deployment whose pods burn twice their request, or nothing.
fn deployment(burns: bool) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    "containers": [{
                        "name": "burner",
                        "image": "kubevitals.test/burner:1",
                        "imagePullPolicy": "Never",
                        "env": [{"name": "BURN", "value": if burns { "yes" } else { "no" }}],
                        "resources": {"requests": {"cpu": "50m"}, "limits": {"cpu": "100m"}},
                    }],
                },
            },
        },
    })
}

#[tokio::test]
async fn an_autoscaler_scales_up_and_down_by_our_metrics() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("server-hpa").await?;
    let server = MetricsApiServer::start(&namespace).await?;
    namespace.apply(&deployment(true)).await?;
    namespace
        .apply(&json!({
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 1,
                "maxReplicas": 3,
                "metrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60},
                }}],
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}},
            },
        }))
        .await?;
    let scaled_to = |replicas| {
        move |deployment: Option<&Deployment>| {
            let status = deployment.and_then(|deployment| deployment.status.as_ref());
            status.is_some_and(|status| status.ready_replicas == Some(replicas))
        }
    };
    namespace.wait_for("web", scaled_to(3)).await?;
    let hpa: HorizontalPodAutoscaler = namespace.api().get("web").await?;
    let current = hpa.status.and_then(|status| status.current_metrics);
    let shown = serde_json::to_string(&current)?;
    assert!(shown.contains("averageUtilization"), "{shown}");

    namespace.apply(&deployment(false)).await?;
    namespace.wait_for("web", scaled_to(1)).await?;
    server.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}

#[tokio::test]
async fn a_restarted_kubelet_leaves_no_gap() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let alone = cluster.exclusive().await;
    let namespace = cluster.namespace("server-gap").await?;
    let burner = Burner::new("burner").cpu_millicores(100);
    namespace.apply(&burner.pod()).await?;
    namespace.wait_for::<Pod>("burner", is_ready).await?;
    let mut server = MetricsApiServer::start(&namespace).await?;
    let before = settled_burner(&namespace, &mut server).await;

    let path = format!(
        "/apis/metrics.k8s.io/v1/namespaces/{}/pods/burner",
        namespace.name()
    );
    let restarted = cluster.restart(&alone, "kubelet", Stop::Kill);
    let watched = in_time("a measurement by the new kubelet", async {
        let mut ticks = tokio::time::interval(POLL_INTERVAL);
        let mut moved = 0;
        let mut last = before["timestamp"].clone();
        // Two new timestamps after the restart began: the window of the second is after it.
        while moved < 3 {
            ticks.tick().await;
            let text = namespace.kubectl(&["get", "--raw", &path]).await;
            let pod: Value =
                serde_json::from_str(&text.expect("the pod is always served")).unwrap();
            let at = pod["timestamp"].as_str().unwrap();
            let age = Timestamp::from_system_time(std::time::SystemTime::now())
                .since(at.parse().unwrap())
                .unwrap_or_default();
            // A sample may be as old as the sampling interval when it is received.
            assert!(age <= STALENESS + Duration::from_secs(20), "{age:?} old");
            if pod["timestamp"] != last {
                moved += 1;
                last = pod["timestamp"].clone();
            }
        }
    });
    let (restarted, ()) = tokio::join!(restarted, watched);
    restarted?;
    server.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}
