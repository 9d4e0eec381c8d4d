//! Usage by a closed form: value = f(pod, time), so that two reads at one time are equal and no
//! reader changes what another sees.

use std::f64::consts::TAU;
use std::time::Duration;

use k8s_openapi::api::core::v1::Container;
use kubevitals_model::node_stats::{
    CgroupStats, ContainerStats, CpuStats, MachineInfo, MemoryStats, NodeStats, PodStats,
};
use kubevitals_model::{Bytes, CoreNanos, CpuUsage, Moment, Quantity, Timestamp};

use crate::SimConfig;
use crate::pod::SimPod;

const CPU: &str = "sim.kubevitals.io/cpu";
const MEMORY: &str = "sim.kubevitals.io/memory";

const DEFAULT_MILLICORES: f64 = 10.0;
const DEFAULT_MEMORY: f64 = 16.0 * 1024.0 * 1024.0;

/// The time in which usage rises and falls once.
const PERIOD: f64 = 120.0;

/// The part of the mean by which CPU rises and falls.
const SWING: f64 = 0.5;

/// The sample of a node.
pub(crate) fn node_stats(
    config: &SimConfig,
    started: Moment,
    pods: &[SimPod],
    now: Moment,
) -> NodeStats {
    let pods: Vec<PodStats> = pods.iter().filter_map(|pod| pod_stats(pod, now)).collect();
    let usage = sum(pods.iter().map(|pod| &pod.usage), now.wall);
    NodeStats {
        name: config.node_name.clone(),
        started: Some(started.wall),
        usage: CgroupStats {
            path: "/".to_owned(),
            ..usage
        },
        machine: MachineInfo {
            cores: Some(config.cores),
            memory: Some(Bytes::new(config.memory)),
            ..MachineInfo::default()
        },
        pods,
        ..NodeStats::default()
    }
}

/// The statistics of a pod that runs.
fn pod_stats(pod: &SimPod, now: Moment) -> Option<PodStats> {
    let started = pod.started.filter(|_| pod.ended.is_none())?;
    let age = now.monotonic.saturating_sub(started.monotonic);
    let containers: Vec<ContainerStats> = pod
        .containers()
        .iter()
        .map(|container| ContainerStats {
            name: container.name.clone(),
            id: pod.container_id(&container.name).replace("sim://", ""),
            image: container.image.clone().unwrap_or_default(),
            started: Some(started.wall),
            usage: usage(
                format!("/kubepods/pod{}/{}", pod.id.uid, container.name),
                millicores(pod, container),
                memory(pod, container),
                age,
                now.wall,
            ),
            ..ContainerStats::default()
        })
        .collect();
    let usage = sum(
        containers.iter().map(|container| &container.usage),
        now.wall,
    );
    Some(PodStats {
        key: pod.id.key.clone(),
        uid: pod.id.uid.clone(),
        started: Some(started.wall),
        usage: CgroupStats {
            path: format!("/kubepods/pod{}", pod.id.uid),
            ..usage
        },
        network: None,
        volumes: Vec::new(),
        ephemeral_storage: None,
        process_count: None,
        containers,
    })
}

fn usage(path: String, millicores: f64, memory: f64, age: Duration, at: Timestamp) -> CgroupStats {
    let seconds = age.as_secs_f64();
    let angle = TAU * seconds / PERIOD;
    // The integral of `mean * (1 + SWING * sin(angle))`.
    let mean = millicores / 1e3;
    let total = mean * (seconds + SWING * PERIOD / TAU * (1.0 - angle.cos()));
    let rate = mean * (1.0 + SWING * angle.sin());
    let working_set = memory * (0.75 + 0.25 * angle.sin().powi(2));
    CgroupStats {
        path,
        cpu: Some(CpuStats {
            rate: Some(CpuUsage::from_nanocores(whole(rate * 1e9))),
            ..CpuStats::new(at, CoreNanos::from_seconds(total).unwrap_or_default())
        }),
        memory: Some(memory_stats(at, whole(working_set))),
        ..CgroupStats::default()
    }
}

/// The sum of the parts; absent without any.
fn sum<'a>(parts: impl Iterator<Item = &'a CgroupStats>, at: Timestamp) -> CgroupStats {
    let (mut total, mut rate, mut memory) = (0_u64, 0_u64, 0_u64);
    for part in parts {
        if let Some(cpu) = &part.cpu {
            total = total.saturating_add(cpu.total.get());
            rate = rate.saturating_add(cpu.rate.map_or(0, CpuUsage::nanocores));
        }
        let used = part.memory.and_then(|memory| memory.working_set);
        memory = memory.saturating_add(used.map_or(0, Bytes::count));
    }
    CgroupStats {
        cpu: Some(CpuStats {
            rate: Some(CpuUsage::from_nanocores(rate)),
            ..CpuStats::new(at, CoreNanos::new(total))
        }),
        memory: Some(memory_stats(at, memory)),
        ..CgroupStats::default()
    }
}

fn memory_stats(at: Timestamp, working_set: u64) -> MemoryStats {
    MemoryStats {
        usage: Some(Bytes::new(working_set)),
        working_set: Some(Bytes::new(working_set)),
        rss: Some(Bytes::new(working_set)),
        ..MemoryStats::new(at)
    }
}

fn millicores(pod: &SimPod, container: &Container) -> f64 {
    let annotated = pod.annotation(CPU).and_then(nanos);
    let requested = request(container, "cpu").map(|nanos| nanos / 2.0);
    let nanos = annotated.or(requested);
    nanos.map_or(DEFAULT_MILLICORES, |nanos| nanos / 1e6)
}

fn memory(pod: &SimPod, container: &Container) -> f64 {
    let annotated = pod.annotation(MEMORY).and_then(nanos);
    let nanos = annotated.or_else(|| request(container, "memory"));
    nanos.map_or(DEFAULT_MEMORY, |nanos| nanos / 1e9)
}

fn request(container: &Container, resource: &str) -> Option<f64> {
    let requests = container.resources.as_ref()?.requests.as_ref()?;
    nanos(&requests.get(resource)?.0)
}

fn nanos(text: &str) -> Option<f64> {
    let quantity: Quantity = text.parse().ok()?;
    #[expect(clippy::cast_precision_loss, reason = "a simulated value")]
    let nanos = quantity.nanos() as f64;
    (nanos >= 0.0).then_some(nanos)
}

/// A value that is not negative, without its fraction.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the cast saturates, and values are not negative"
)]
fn whole(value: f64) -> u64 {
    value as u64
}
