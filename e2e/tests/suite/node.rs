//! `kubevitals node` beside the real kubelet: pods as processes, as kubectl and controllers see
//! them.

mod host;
mod streams;

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use kubevitals_e2e::{Cluster, MetricsApiServer, TestNamespace, VirtualNode, is_ready, phase_is};
use serde_json::{Value, json};

use crate::in_time;

/// Polling interval of what nothing announces.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Starts a node whose pods are processes.
pub(crate) async fn process_node(namespace: &TestNamespace) -> anyhow::Result<VirtualNode> {
    let root = namespace.folder().join("pods");
    let flags = [
        format!("--root-dir={}", root.display()),
        // Below the cluster's cgroup no process is left when it is taken down.
        format!(
            "--cgroup-root={}/{}",
            namespace.cluster().cgroup(),
            namespace.name()
        ),
    ];
    Ok(VirtualNode::start(namespace, "process", &flags).await?)
}

/// A pod on a virtual node with one container that runs a script.
fn pod(node: &VirtualNode, name: &str, script: &str) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": spec(node, script),
    });
    pod["spec"]["restartPolicy"] = json!("Never");
    pod
}

fn spec(node: &VirtualNode, script: &str) -> Value {
    let mut spec = node.placement();
    spec["containers"] = json!([{
        "name": "app",
        "image": "none",
        "command": ["/bin/sh", "-c", script],
    }]);
    spec["automountServiceAccountToken"] = json!(false);
    spec["terminationGracePeriodSeconds"] = json!(5);
    spec
}

/// Returns the processes of the cluster's virtual nodes whose command line contains `marker`.
fn processes(marker: &str) -> BTreeSet<u32> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    ids.filter(|id| {
        std::fs::read(format!("/proc/{id}/cmdline"))
            .is_ok_and(|line| String::from_utf8_lossy(&line).contains(marker))
    })
    .collect()
}

async fn gone(marker: &str) {
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    in_time("the end of all processes of the pod", async {
        while !processes(marker).is_empty() {
            ticks.tick().await;
        }
    })
    .await;
}

#[tokio::test]
async fn deployments_and_jobs_run_on_a_process_node() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("node-workloads").await?;
    let mut node = process_node(&namespace).await?;

    let mut template = spec(&node, "echo \"I am $NAME\"; exec sleep 86399");
    template["containers"][0]["env"] = json!([
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]);
    template["containers"][0]["readinessProbe"] = json!({
        "exec": {"command": ["/bin/true"]}, "periodSeconds": 1,
    });
    namespace
        .apply(&json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "web"},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": template},
            },
        }))
        .await?;
    let available = |web: Option<&Deployment>| {
        let status = web.and_then(|web| web.status.as_ref());
        status.and_then(|status| status.available_replicas) == Some(2)
    };
    namespace.wait_for("web", available).await?;

    let mut job = spec(&node, "echo done; exit 0");
    job["restartPolicy"] = json!("Never");
    namespace
        .apply(&json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "task"},
            "spec": {"template": {"spec": job}},
        }))
        .await?;
    let complete = |job: Option<&Job>| {
        let status = job.and_then(|job| job.status.as_ref());
        status.and_then(|status| status.succeeded) == Some(1)
    };
    namespace.wait_for("task", complete).await?;

    let pods: Api<Pod> = namespace.api();
    let web = pods.list(&ListParams::default().labels("app=web")).await?;
    for pod in &web.items {
        let name = pod.metadata.name.as_deref().unwrap();
        let log = namespace.kubectl(&["logs", name]).await?;
        assert_eq!(log, format!("I am {name}\n"));
        let described = namespace.kubectl(&["describe", "pod", name]).await?;
        for word in ["Pulled", "Created", "Started", node.name()] {
            assert!(described.contains(word), "{word}: {described}");
        }
    }
    let log = namespace.kubectl(&["logs", "job/task"]).await?;
    assert_eq!(log, "done\n");

    // Scaled down: a controller's deletions are honoured.
    let scale = ["scale", "deployment/web", "--replicas=0"];
    namespace.kubectl(&scale).await?;
    gone("sleep\x0086399").await;
    node.must_run()?;
    node.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}

#[tokio::test]
async fn pods_outlive_a_crash_of_their_node_and_none_is_orphaned() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("node-crash").await?;
    let mut node = process_node(&namespace).await?;
    for (name, seconds) in [("stays", 86_398), ("goes", 86_397)] {
        let script = format!("echo started; exec sleep {seconds}");
        namespace.apply(&pod(&node, name, &script)).await?;
        namespace.wait_for::<Pod>(name, is_ready).await?;
    }
    let before = processes("sleep\x0086398");
    assert_eq!(before.len(), 1, "{before:?}");

    node.kill_and_restart(&namespace).await?;

    assert_eq!(processes("sleep\x0086398"), before, "it was not restarted");
    let stays: Pod = namespace.api().get("stays").await?;
    let statuses = stays.status.unwrap().container_statuses.unwrap();
    assert_eq!(statuses[0].restart_count, 0);
    assert!(statuses[0].ready, "{statuses:?}");
    let log = namespace.kubectl(&["logs", "stays"]).await?;
    assert_eq!(log, "started\n");
    namespace.delete::<Pod>("goes").await?;
    gone("sleep\x0086397").await;
    namespace.delete::<Pod>("stays").await?;
    gone("sleep\x0086398").await;
    node.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}

#[tokio::test]
async fn exits_restarts_and_grace_are_those_of_a_kubelet() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("node-life").await?;
    let node = process_node(&namespace).await?;

    namespace
        .apply(&pod(&node, "fails", "echo no >&2; exit 7"))
        .await?;
    let failed = namespace
        .wait_for::<Pod>("fails", phase_is("Failed"))
        .await?;
    let status = failed.context("the pod exists")?.status.unwrap();
    let state = status.container_statuses.unwrap()[0].state.clone().unwrap();
    let ended = state.terminated.unwrap();
    assert_eq!(ended.exit_code, 7);
    assert_eq!(ended.reason.as_deref(), Some("Error"));

    // It ends by itself within its grace, and says so.
    let script = "trap 'echo terminating; sleep 1; exit 0' TERM; echo ready; \
                  while :; do sleep 0.1; done";
    namespace.apply(&pod(&node, "graceful", script)).await?;
    namespace.wait_for::<Pod>("graceful", is_ready).await?;
    let follow = "kubectl logs --follow graceful > follow.txt & \
                  until grep -q ready follow.txt; do sleep 0.1; done; \
                  kubectl delete pod graceful --wait=false >&2; wait $!; cat follow.txt";
    let folder = namespace.folder().display().to_string();
    let log = namespace.shell(&format!("cd '{folder}'; {follow}")).await?;
    assert_eq!(log, "ready\nterminating\n");
    let gone = |pod: Option<&Pod>| pod.is_none();
    namespace.wait_for("graceful", gone).await?;

    // It is restarted, with what it was before.
    let mut crashing = pod(&node, "crashing", "sleep 1; exit 3");
    crashing["spec"]["restartPolicy"] = json!("Always");
    namespace.apply(&crashing).await?;
    let waits = |pod: Option<&Pod>| {
        let statuses = pod.and_then(|pod| pod.status.as_ref()?.container_statuses.as_ref());
        statuses.and_then(|all| all.first()).is_some_and(|one| {
            let waiting = one.state.as_ref().and_then(|state| state.waiting.as_ref());
            waiting.and_then(|state| state.reason.as_deref()) == Some("CrashLoopBackOff")
                && one.restart_count >= 1
        })
    };
    namespace.wait_for("crashing", waits).await?;
    let previous = namespace
        .kubectl(&["logs", "--previous", "crashing"])
        .await?;
    assert_eq!(previous, "");
    let events = namespace.kubectl(&["events", "--for=pod/crashing"]).await?;
    assert!(events.contains("BackOff"), "{events}");
    for name in ["fails", "crashing"] {
        namespace.delete::<Pod>(name).await?;
    }
    node.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}

#[tokio::test]
async fn top_and_an_autoscaler_read_the_usage_of_a_process_node() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("node-hpa").await?;
    let node = process_node(&namespace).await?;
    let mut template = spec(&node, "while :; do :; done");
    template["containers"][0]["resources"] = json!({
        "requests": {"cpu": "100m"}, "limits": {"cpu": "100m"},
    });
    namespace
        .apply(&json!({
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "busy"},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": {"app": "busy"}},
                "template": {"metadata": {"labels": {"app": "busy"}}, "spec": template},
            },
        }))
        .await?;
    namespace
        .apply(&json!({
            "apiVersion": "autoscaling/v2",
            "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "busy"},
            "spec": {
                "minReplicas": 1,
                "maxReplicas": 2,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "busy"},
                "metrics": [{"type": "Resource", "resource": {
                    "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50},
                }}],
            },
        }))
        .await?;
    let server = MetricsApiServer::start(&namespace).await?;
    let scaled = |hpa: Option<&HorizontalPodAutoscaler>| {
        let status = hpa.and_then(|hpa| hpa.status.as_ref());
        status.is_some_and(|status| status.desired_replicas == 2)
    };
    namespace.wait_for("busy", scaled).await?;
    let top = namespace.kubectl(&["top", "pods", "--no-headers"]).await?;
    println!("{top}");
    let first = top.lines().next().context("a pod has usage")?;
    let cpu = first.split_whitespace().nth(1).unwrap();
    let millicores: u64 = cpu.strip_suffix('m').unwrap().parse()?;
    assert!((50..=150).contains(&millicores), "{top}");
    let nodes = namespace.kubectl(&["top", "nodes", "--no-headers"]).await?;
    assert!(nodes.contains(node.name()), "{nodes}");
    server.stop(&namespace).await?;
    namespace.delete::<Deployment>("busy").await?;
    node.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}

#[tokio::test]
async fn the_cluster_signs_the_certificate_of_a_node() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("node-certificate").await?;
    let root = namespace.folder().join("pods");
    let flags = [format!("--root-dir={}", root.display())];
    let mut node = VirtualNode::start_as_node(&namespace, "sim", &flags).await?;
    // It is not verified by the authority of the cluster.
    assert!(node.get("/healthz", None).await.is_err());
    let pending = format!(
        "kubectl get csr -o jsonpath='{{range .items[?(@.spec.username==\"system:node:{}\")]}}\
         {{.metadata.name}}{{end}}'",
        node.name()
    );
    let approve = format!(
        "until name=$({pending}) && test -n \"$name\"; do sleep 0.2; done; \
         kubectl certificate approve \"$name\""
    );
    in_time("a request of the node", namespace.shell(&approve)).await?;
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    in_time("a certificate of the cluster", async {
        while node.get("/healthz", None).await.is_err() {
            node.must_run()?;
            ticks.tick().await;
        }
        anyhow::Ok(())
    })
    .await?;
    node.stop(&namespace).await?;
    Ok(namespace.finish().await?)
}
