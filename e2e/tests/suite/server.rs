//! `kubevitals server` in place of metrics-server: kubectl, autoscalers and restarts.

mod vpa;

use std::time::Duration;

use anyhow::Context;
use futures_util::{Stream, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{self, Event};
use kubevitals_e2e::{
    Burner, Cluster, Kubelet, MetricsApiServer, Rule, Stop, TestNamespace, is_ready,
};
use kubevitals_model::{GoDuration, Quantity, Timestamp};
use serde_json::{Value, json};

use self::vpa::Recommender;
use crate::{SHORTEST_WINDOW, assert_within_a_tenth, in_time};

/// Polling interval of responses.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The staleness limit of the server: three times the resolution.
const STALENESS: Duration = Duration::from_secs(30);

/// What the writer has written to its disk.
const WRITTEN_MEBIBYTES: u64 = 48;

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

/// Waits until a burner's rate spans only samples of its steady state: a new one, and not the short
/// window of a container's start.
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
            let window: GoDuration = pod["window"].as_str().unwrap().parse().unwrap();
            let is_long = Duration::try_from(window).unwrap() >= SHORTEST_WINDOW;
            if first["timestamp"] != pod["timestamp"] && is_long {
                return pod;
            }
        }
    })
    .await
}

/// Returns what the kubelet itself says that the burner has swapped out, in bytes.
async fn swap_of_burner(namespace: &TestNamespace) -> anyhow::Result<f64> {
    let rights = [Rule::get(&["nodes/metrics"])];
    let access = namespace.access("kubelet", &rights).await?;
    let kubelet = Kubelet::of(namespace.cluster(), Some(&access))?;
    let page = kubelet.get("/metrics/resource").await?;
    let page = String::from_utf8_lossy(&page.body);
    let own = format!("namespace=\"{}\",pod=\"burner\"", namespace.name());
    let line = page
        .lines()
        .find(|line| line.starts_with("container_swap_usage_bytes{") && line.contains(&own));
    let value = line.and_then(|line| line.split("} ").nth(1)?.split(' ').next()?.parse().ok());
    value.context("the kubelet reports no swap")
}

#[tokio::test]
async fn kubectl_and_watchers_read_pods_through_our_server() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("server-top").await?;
    let burner = Burner::new("burner")
        .cpu_millicores(200)
        .memory_mebibytes(64);
    namespace.apply(&burner.pod()).await?;
    let script = format!("head -c {WRITTEN_MEBIBYTES}m /dev/zero > /tmp/file; sleep 3600");
    namespace.apply(&Burner::script("writer", &script)).await?;
    for pod in ["burner", "writer"] {
        namespace.wait_for::<Pod>(pod, is_ready).await?;
    }
    let flags = ["--extra-resources=ephemeral-storage"];
    let mut server = MetricsApiServer::start_with(&namespace, &flags).await?;

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
    let swapping = top(&namespace, &["pods", "burner", "--show-swap"]).await;
    let swapping = swapping.expect("swap is shown");
    assert_eq!(swapping[0].len(), 4, "{swapping:?}");
    let mebibytes = swap_of_burner(&namespace).await? / f64::from(1 << 20);
    assert_eq!(swapping[0][3], format!("{}Mi", mebibytes.floor()));

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
    assert_ephemeral_storage(&namespace, &mut server).await?;
    assert_watched_to_its_end(&namespace).await?;

    server.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}

/// Returns a Deployment whose pods burn twice their request, or nothing.
pub(crate) fn deployment(burns: bool) -> Value {
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
async fn autoscalers_scale_and_recommend_by_our_metrics() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("server-hpa").await?;
    let server = MetricsApiServer::start(&namespace).await?;
    namespace.apply(&deployment(true)).await?;
    let recommender = Recommender::start(&namespace).await?;
    namespace
        .apply(&json!({
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "web"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
                "minReplicas": 1,
                "maxReplicas": 3,
                // The first scales; the others are read and never exceeded.
                "metrics": [
                    {"type": "Resource", "resource": {
                        "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60},
                    }},
                    {"type": "Resource", "resource": {
                        "name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"},
                    }},
                    {"type": "ContainerResource", "containerResource": {
                        "name": "cpu", "container": "burner",
                        "target": {"type": "AverageValue", "averageValue": "1"},
                    }},
                ],
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
    let current = serde_json::to_value(&current)?;
    for (index, value) in [
        "/resource/current/averageUtilization",
        "/resource/current/averageValue",
        "/containerResource/current/averageValue",
    ]
    .into_iter()
    .enumerate()
    {
        assert!(
            current[index].pointer(value).is_some(),
            "{value}: {current}"
        );
    }

    recommender.assert_cpu_of_100_millicores(&namespace).await?;
    namespace.apply(&deployment(false)).await?;
    namespace.wait_for("web", scaled_to(1)).await?;
    server.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}

/// Waits until the server returns what a container has written to its disk.
async fn assert_ephemeral_storage(
    namespace: &TestNamespace,
    server: &mut MetricsApiServer,
) -> anyhow::Result<()> {
    let path = format!(
        "/apis/metrics.k8s.io/v1/namespaces/{}/pods/writer",
        namespace.name()
    );
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    // The kubelet and its runtime measure disks at intervals of their own.
    let mebibytes = in_time("ephemeral storage of the writer", async {
        loop {
            ticks.tick().await;
            server.must_run()?;
            let Ok(text) = namespace.kubectl(&["get", "--raw", &path]).await else {
                continue;
            };
            let pod: Value = serde_json::from_str(&text)?;
            let used = &pod["containers"][0]["usage"]["ephemeral-storage"];
            let used: Option<Quantity> = used.as_str().map(str::parse).transpose()?;
            let bytes = used.and_then(Quantity::value).unwrap_or_default();
            let mebibytes = u64::try_from(bytes)? >> 20;
            if mebibytes >= WRITTEN_MEBIBYTES {
                return anyhow::Ok(mebibytes);
            }
        }
    })
    .await?;
    assert_within_a_tenth("mebibytes on disk", mebibytes, WRITTEN_MEBIBYTES, &"writer");
    Ok(())
}

async fn next_event(
    events: &mut (impl Stream<Item = Result<Event<DynamicObject>, watcher::Error>> + Unpin),
) -> anyhow::Result<Event<DynamicObject>> {
    let event = in_time("an event", events.try_next()).await?;
    event.context("the watch ended")
}

/// Follows the burner to its end with a watcher of kube, as controllers use it: a list, the changes
/// after it, and deletions.
async fn assert_watched_to_its_end(namespace: &TestNamespace) -> anyhow::Result<()> {
    let cluster = namespace.cluster();
    let kind = GroupVersionKind::gvk("metrics.k8s.io", "v1", "PodMetrics");
    let resource = ApiResource::from_gvk_with_plural(&kind, "pods");
    let api: Api<DynamicObject> =
        Api::namespaced_with(cluster.client(), namespace.name(), &resource);
    let only_burner = watcher::Config::default().fields("metadata.name=burner");
    let mut events = std::pin::pin!(watcher::watcher(api, only_burner));
    assert!(matches!(next_event(&mut events).await?, Event::Init));
    let Event::InitApply(first) = next_event(&mut events).await? else {
        panic!("no object in the list");
    };
    assert_eq!(first.metadata.name.as_deref(), Some("burner"));
    assert!(matches!(next_event(&mut events).await?, Event::InitDone));
    let Event::Apply(second) = next_event(&mut events).await? else {
        panic!("no change");
    };
    assert_ne!(first.data["timestamp"], second.data["timestamp"]);
    namespace.delete::<Pod>("burner").await?;
    loop {
        match next_event(&mut events).await? {
            Event::Apply(_) => {}
            Event::Delete(gone) => {
                assert_eq!(gone.metadata.name.as_deref(), Some("burner"));
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    Ok(())
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
