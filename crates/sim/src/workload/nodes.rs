//! Nodes, their heartbeats and their leases.

use kubevitals_model::Timestamp;
use serde_json::{Value, json};

use super::render::time;
use super::{StepContext, Transition, Workload};
use crate::clock::after;
use crate::kubelet::summary::MEMORY_BYTES;
use crate::node_set::Node;
use crate::objects::{Resource, TOPOLOGY_REGION, TOPOLOGY_ZONE};
use crate::seed::{Seed, Uid};

/// Namespace of node leases.
pub(super) const LEASE_NAMESPACE: &str = "kube-node-lease";

const LEASE_MILLIS: u64 = 10_000;
const HEARTBEAT_MILLIS: u64 = 300_000;
const VERSION: &str = "v1.37.0";

impl Workload {
    /// Creates a node with its lease, and plans its heartbeats.
    pub(super) fn add_node(&mut self, index: usize, ctx: StepContext<'_>) {
        let Some((node, seed)) = self.node(index) else {
            return;
        };
        let object = object(
            node,
            index,
            seed,
            ctx.now,
            ctx.now,
            self.config.pods_per_node,
        );
        let lease = lease(node, seed, ctx.now, ctx.now);
        let mut phase = seed.derive_name("phase");
        let (first_lease, first_beat) = (
            phase.between(0, LEASE_MILLIS),
            phase.between(0, HEARTBEAT_MILLIS),
        );
        let epoch = self.node_replacement.begin(index, ctx.now);
        self.written(ctx.writer.create(Resource::Nodes, object));
        if self.config.leases {
            self.written(ctx.writer.create(Resource::Leases, lease));
            self.plan(
                after(ctx.now, first_lease),
                Transition::Lease { index, epoch },
            );
        }
        self.plan(
            after(ctx.now, first_beat),
            Transition::Heartbeat { index, epoch },
        );
    }

    pub(super) fn renew_lease(&mut self, index: usize, epoch: u32, ctx: StepContext<'_>) {
        let Some(created) = self.node_replacement.since(index, epoch) else {
            return;
        };
        let Some((node, seed)) = self.node(index) else {
            return;
        };
        let object = lease(node, seed, created, ctx.now);
        self.written(ctx.writer.replace(Resource::Leases, object));
        self.plan(
            after(ctx.now, LEASE_MILLIS),
            Transition::Lease { index, epoch },
        );
    }

    pub(super) fn heartbeat(&mut self, index: usize, epoch: u32, ctx: StepContext<'_>) {
        let Some(created) = self.node_replacement.since(index, epoch) else {
            return;
        };
        let Some((node, seed)) = self.node(index) else {
            return;
        };
        let object = object(
            node,
            index,
            seed,
            created,
            ctx.now,
            self.config.pods_per_node,
        );
        self.written(ctx.writer.replace(Resource::Nodes, object));
        self.plan(
            after(ctx.now, HEARTBEAT_MILLIS),
            Transition::Heartbeat { index, epoch },
        );
    }

    fn node(&self, index: usize) -> Option<(&Node, Seed)> {
        let node = self.node_set.nodes().get(index)?;
        let seed = self.node_set.seed().derive_name(node.name());
        // A node that reuses a name is another machine.
        match self.node_replacement.reuse_count(index) {
            0 => Some((node, seed)),
            reuse_count => Some((node, seed.derive(u64::from(reuse_count)))),
        }
    }
}

/// The topology labels of a node, which the API server copies to the pods that are bound to it.
/// Zones take turns.
pub(super) fn topology_labels(index: usize) -> [(&'static str, &'static str); 2] {
    let zone = match index % 3 {
        0 => "local-1a",
        1 => "local-1b",
        _ => "local-1c",
    };
    [(TOPOLOGY_REGION, "local-1"), (TOPOLOGY_ZONE, zone)]
}

fn object(
    node: &Node,
    index: usize,
    seed: Seed,
    created: Timestamp,
    now: Timestamp,
    pods: usize,
) -> Value {
    let uid = uid(seed);
    let mut seed = seed.derive_name("node");
    let kibibytes = MEMORY_BYTES >> 10;
    let resources = |memory: u64| {
        json!({
            "cpu": "8",
            "ephemeral-storage": "270553174016",
            "hugepages-1Gi": "0",
            "hugepages-2Mi": "0",
            "memory": format!("{memory}Ki"),
            "pods": pods.max(110).to_string(),
        })
    };
    let condition = |kind: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": kind,
            "status": status,
            "lastHeartbeatTime": time(now),
            "lastTransitionTime": time(created),
            "reason": reason,
            "message": message,
        })
    };
    let name = &**node.name();
    let [region, zone] = topology_labels(index);
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": uid.to_string(),
            "creationTimestamp": time(created),
            "annotations": {
                "node.alpha.kubernetes.io/ttl": "0",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "labels": {
                "beta.kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                (region.0): region.1,
                (zone.0): zone.1,
            },
        },
        "spec": {},
        "status": {
            "addresses": [
                {"address": node.host().to_string(), "type": "InternalIP"},
                {"address": name, "type": "Hostname"},
            ],
            "allocatable": resources(kibibytes - 1_024),
            "capacity": resources(kibibytes),
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": node.port()}},
            "images": [{"names": [super::DEFAULT_IMAGE], "sizeBytes": 1_997_476}],
            "nodeInfo": {
                "architecture": "amd64",
                "bootID": seed.uid().to_string(),
                "containerRuntimeVersion": "containerd://1.6.20",
                "kernelVersion": "6.18.44",
                "kubeProxyVersion": "",
                "kubeletVersion": VERSION,
                "machineID": format!("{:016x}{:016x}", seed.next(), seed.next()),
                "operatingSystem": "linux",
                "osImage": "Debian GNU/Linux 12 (bookworm)",
                "runningInUserNamespace": false,
                "systemUUID": seed.uid().to_string(),
            },
        },
    })
}

fn uid(seed: Seed) -> Uid {
    seed.derive_name("uid").uid()
}

fn lease(node: &Node, seed: Seed, created: Timestamp, now: Timestamp) -> Value {
    let name = &**node.name();
    let millis = now.rfc3339_millis();
    json!({
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {
            "name": name,
            "namespace": LEASE_NAMESPACE,
            "uid": seed.derive_name("lease").uid().to_string(),
            "creationTimestamp": time(created),
            "ownerReferences": [{
                "apiVersion": "v1",
                "kind": "Node",
                "name": name,
                "uid": uid(seed).to_string(),
            }],
        },
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": 40,
            "renewTime": format!("{}000Z", millis.as_str().trim_end_matches('Z')),
        },
    })
}
