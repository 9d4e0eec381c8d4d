//! `/stats/summary`, with the structure of a kubelet of Kubernetes 1.37.

use kubevitals_model::Timestamp;
use serde_json::{Map, Value, json};

use super::NodeSnapshot;
use super::usage::{self, ContainerUsage, MAX_SAMPLE_GAP_MILLIS};
use crate::seed::Seed;
use crate::workload::Pod;
use crate::workload::render::time;

const DISK_BYTES: u64 = 270_553_174_016;
const DISK_FREE: u64 = 73_279_832_064;
const INODES: u64 = 16_777_216;
const INODES_FREE: u64 = 16_260_792;
pub(crate) const MEMORY_BYTES: u64 = 24_682_416 << 10;

/// Renders the document at `now`; `brief` omits what `only_cpu_and_memory=true` omits.
pub(crate) fn document(node: &NodeSnapshot<'_>, now: Timestamp, brief: bool) -> Value {
    let pods: Vec<Value> = node
        .view
        .present
        .iter()
        .filter_map(|pod| self::pod(pod, now, brief))
        .collect();
    json!({"node": self::node(node, now, brief), "pods": pods})
}

fn node(node: &NodeSnapshot<'_>, now: Timestamp, brief: bool) -> Value {
    let at = usage::last_sample(node.seed, now);
    let nanos = |at| usage::node_cpu(&node.view, node.seed, node.booted, at);
    let pods_nanos = |at: Timestamp| -> u64 {
        node.view
            .present
            .iter()
            .map(|pod| usage::pod_cpu(pod, at))
            .sum()
    };
    let memory = usage::node_memory(&node.view, node.seed, node.booted, at);
    let pods_memory: u64 = node
        .view
        .present
        .iter()
        .map(|pod| usage::pod_memory(pod, at))
        .sum();
    let mut pods = Map::new();
    pods.insert("name".into(), "pods".into());
    pods.insert("startTime".into(), time(node.booted));
    insert_usage(
        &mut pods,
        at,
        pods_nanos,
        pods_memory,
        true,
        Some(MEMORY_BYTES),
        brief,
    );
    if !brief {
        pods.insert(
            "swap".into(),
            json!({"time": time(at), "swapUsageBytes": 0}),
        );
    }
    let mut fields = Map::new();
    fields.insert("nodeName".into(), node.name.as_ref().into());
    fields.insert("systemContainers".into(), json!([pods]));
    fields.insert("startTime".into(), time(node.booted));
    insert_usage(
        &mut fields,
        at,
        nanos,
        memory,
        true,
        Some(MEMORY_BYTES),
        brief,
    );
    if !brief {
        let seconds = crate::clock::millis_between(node.booted, at) / 1_000;
        let counters = |name: &str, received: u64, sent: u64| json!({"name": name, "rxBytes": received, "rxErrors": 0, "txBytes": sent, "txErrors": 0});
        let (received, sent) = (416_379_954 + seconds * 2_048, 2_106_672 + seconds * 512);
        let mut network = counters("eth0", received, sent);
        if let Some(network) = network.as_object_mut() {
            network.insert("time".into(), time(at));
            network.insert(
                "interfaces".into(),
                json!([counters("eth0", received, sent)]),
            );
        }
        let images = filesystem(now, 44_240_896, 161);
        fields.insert("network".into(), network);
        fields.insert("fs".into(), filesystem(at, 24_292_917_248, 516_424));
        fields.insert(
            "runtime".into(),
            json!({"imageFs": images.clone(), "containerFs": images}),
        );
        fields.insert(
            "rlimit".into(),
            json!({"time": time(now), "maxpid": 32_768, "curproc": 268}),
        );
        let swap = json!({"time": time(at), "swapAvailableBytes": 0, "swapUsageBytes": 0});
        fields.insert("swap".into(), swap);
    }
    fields.into()
}

/// Returns `None` for a pod without running containers.
fn pod(pod: &Pod, now: Timestamp, brief: bool) -> Option<Value> {
    let containers: Vec<Value> = pod
        .parts()
        .filter_map(|part| {
            let usage = usage::running(pod, part.index)?;
            let at = usage::container_sample(pod, part.index, now)?;
            Some(container(
                part.name,
                &usage,
                pod.container_seed(part.index),
                at,
                now,
                brief,
            ))
        })
        .collect();
    let at = usage::pod_sample(pod, now)?;
    if containers.is_empty() {
        return None;
    }
    let used: u64 = 20_992_000;
    let mut fields = Map::new();
    fields.insert(
        "podRef".into(),
        json!({"name": pod.name(), "namespace": pod.namespace(), "uid": pod.uid().to_string()}),
    );
    fields.insert("startTime".into(), time(pod.start?));
    fields.insert("containers".into(), containers.into());
    let limit = u64::from(pod.template().total().memory_limit) << 20;
    let limit = (limit > 0).then_some(limit);
    let memory = usage::pod_memory(pod, at);
    insert_usage(
        &mut fields,
        at,
        |at| usage::pod_cpu(pod, at),
        memory,
        true,
        limit,
        brief,
    );
    if !brief {
        fields.insert("ephemeral-storage".into(), filesystem(now, used, 9));
        fields.insert(
            "swap".into(),
            json!({"time": time(at), "swapUsageBytes": 0}),
        );
    }
    Some(fields.into())
}

fn container(
    name: &str,
    usage: &ContainerUsage,
    seed: Seed,
    at: Timestamp,
    now: Timestamp,
    brief: bool,
) -> Value {
    let mut fields = Map::new();
    fields.insert("name".into(), name.into());
    fields.insert("startTime".into(), time(usage.started()));
    let memory = usage.memory_bytes(at);
    insert_usage(
        &mut fields,
        at,
        |at| usage.cpu_nanos(at),
        memory,
        false,
        Some(0),
        brief,
    );
    if !brief {
        let used = seed.derive_name("disk").next() % (64 << 20) / 4_096 * 4_096;
        fields.insert("rootfs".into(), filesystem(now, used, 7));
        fields.insert("logs".into(), filesystem(now, 4_096, 1));
        let swap = json!({"time": time(at), "swapAvailableBytes": 0, "swapUsageBytes": 0});
        fields.insert("swap".into(), swap);
    }
    fields.into()
}

/// Inserts `cpu`, `memory` and `io`. `limit` is the base of `availableBytes`; cgroups with children
/// report pressure, those of containers do not.
fn insert_usage(
    fields: &mut Map<String, Value>,
    at: Timestamp,
    nanos: impl Fn(Timestamp) -> u64,
    working_set: u64,
    pressure: bool,
    limit: Option<u64>,
    brief: bool,
) {
    let gap = MAX_SAMPLE_GAP_MILLIS.cast_signed();
    let earlier = Timestamp::from_unix_millis(at.unix_millis().saturating_sub(gap));
    let total = nanos(at);
    let rate = total.saturating_sub(nanos(earlier)) * 1_000 / MAX_SAMPLE_GAP_MILLIS;
    let cache = working_set / 8;
    let mut cpu = json!({"time": time(at), "usageNanoCores": rate, "usageCoreNanoSeconds": total});
    let mut memory = json!({
        "time": time(at),
        "usageBytes": working_set + cache,
        "workingSetBytes": working_set,
        "rssBytes": working_set / 2,
        "pageFaults": working_set / 4_096,
        "majorPageFaults": 0,
    });
    if let (Some(limit), Some(memory)) = (limit, memory.as_object_mut()) {
        memory.insert(
            "availableBytes".into(),
            limit.saturating_sub(working_set).into(),
        );
    }
    let mut io = json!({"time": time(at)});
    if pressure {
        for part in [&mut cpu, &mut memory, &mut io] {
            if let Some(part) = part.as_object_mut() {
                part.insert("psi".into(), psi());
            }
        }
    }
    fields.insert("cpu".into(), cpu);
    fields.insert("memory".into(), memory);
    if !brief {
        fields.insert("io".into(), io);
    }
}

fn psi() -> Value {
    let none = json!({"total": 0, "avg10": 0, "avg60": 0, "avg300": 0});
    json!({"full": none.clone(), "some": none})
}

fn filesystem(at: Timestamp, used: u64, inodes_used: u64) -> Value {
    json!({
        "time": time(at),
        "availableBytes": DISK_FREE,
        "capacityBytes": DISK_BYTES,
        "usedBytes": used,
        "inodesFree": INODES_FREE,
        "inodes": INODES,
        "inodesUsed": inodes_used,
    })
}
