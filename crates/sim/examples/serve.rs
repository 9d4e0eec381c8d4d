//! Serves a small simulated cluster until interrupted, for trying programs against it.
//!
//! The first argument is the file to write the kubeconfig to. The optional second one is the
//! address of an extension API server for `metrics.k8s.io`. A hangup signal restarts the server and
//! drops the watch history.

use std::sync::Arc;

use kubevitals_sim::api::{ADDRESS_ANNOTATION, History, SimApi, SimApiConfig};
use kubevitals_sim::objects::{LogRequest, PodLogs, Resource};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

struct Logs;

impl PodLogs for Logs {
    fn read(&self, request: &LogRequest<'_>) -> Option<String> {
        Some(format!("hello from {}\n", request.pod))
    }
}

fn node(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "node-role.kubernetes.io/worker": ""}},
        "spec": {"podCIDR": "10.0.0.0/24"},
        "status": {
            "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"},
            "allocatable": {"cpu": "4", "memory": "15Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status",
                            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": name}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {"kubeletVersion": "v1.37.1", "osImage": "Simulated", "kernelVersion": "6.18", "architecture": "amd64",
                         "containerRuntimeVersion": "sim://1", "operatingSystem": "linux", "kubeProxyVersion": "", "bootID": "b", "machineID": "m", "systemUUID": "s"},
        },
    })
}

fn pod(name: &str, node: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": [{"name": "web", "image": "web:1", "resources": {"requests": {"cpu": "100m"}}}]},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "startTime": "2026-01-01T00:00:00Z",
                   "conditions": [{"type": "Ready", "status": "True"}],
                   "containerStatuses": [{"name": "web", "ready": true, "restartCount": 0, "image": "web:1", "imageID": "",
                                          "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}]},
    })
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut sim = SimApi::start(SimApiConfig::default()).await?;
    sim.set_pod_logs(Arc::new(Logs));
    let writer = sim.writer();
    for name in ["node-a", "node-b"] {
        writer.create(Resource::Nodes, node(name))?;
        for index in 0..3 {
            writer.create(Resource::Pods, pod(&format!("web-{name}-{index}"), name))?;
        }
    }
    writer.create(
        Resource::Events,
        json!({"metadata": {"name": "web-node-a-0.1", "namespace": "default"}, "type": "Normal", "reason": "Started",
               "message": "Started container web", "count": 1, "source": {"component": "kubelet", "host": "node-a"},
               "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
               "involvedObject": {"kind": "Pod", "namespace": "default", "name": "web-node-a-0", "apiVersion": "v1"}}),
    )?;
    if let Some(file) = arguments.next() {
        std::fs::write(file, sim.kubeconfig())?;
    }
    if let Some(address) = arguments.next() {
        writer.create(
            Resource::ApiServices,
            json!({"metadata": {"name": "v1beta1.metrics.k8s.io", "annotations": {ADDRESS_ANNOTATION: address}},
                   "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "insecureSkipTLSVerify": true,
                            "groupPriorityMinimum": 100, "versionPriority": 100,
                            "service": {"namespace": "kube-system", "name": "metrics-server", "port": 443}}}),
        )?;
    }
    let mut hangups = signal(SignalKind::hangup())?;
    loop {
        tokio::select! {
            _ = hangups.recv() => sim.restart(History::Lose).await?,
            interrupted = tokio::signal::ctrl_c() => break interrupted?,
        }
    }
    sim.shutdown().await;
    Ok(())
}
