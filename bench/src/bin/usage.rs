//! Costs of the usage store: bytes per container, and time per sample.
//!
//! `cargo xtask bench usage` builds a store with 5,000 nodes of 30 pods of 2 containers each, and
//! prints a table. Allocations are counted, except pods and their strings, which the reflector of
//! pods holds in any case.
#![expect(clippy::print_stdout, reason = "the table is the output")]

use std::alloc::System;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kubevitals_bench::timing::Timing;
use kubevitals_model::{
    Bytes, BytesSample, ContainerKeyRef, ContainerSample, CoreNanos, CpuSample, Identity, Labels,
    Moment, NodeBatch, NodeName, PodKeyRef, PodPhase, PodSummary, ResourceVersion, Timestamp, Uid,
};
use kubevitals_usage::{NodeUsage, UsageConfig, UsagePublisher, UsageStore};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const NODES: usize = 5_000;
const PODS_PER_NODE: usize = 30;
const CONTAINERS: [&str; 2] = ["app", "sidecar"];
const ROUNDS: usize = 8;
const BEGIN: i64 = 1_700_000_000_000;

/// Reads every container, as a renderer does, and retains nothing.
#[derive(Default)]
struct ReadingPublisher(AtomicU64);

impl UsagePublisher for ReadingPublisher {
    fn publish(&self, view: &NodeUsage<'_>) {
        let containers = view.pods.iter().flat_map(|pod| &pod.containers);
        let seen = containers.fold(0, |sum, own| sum ^ own.usage.cpu.nanocores());
        self.0.fetch_add(seen & 1, Ordering::Relaxed);
    }

    fn withdraw(&self, _: &NodeName) {}
}

fn main() {
    let pods = NODES * PODS_PER_NODE;
    let containers = pods * CONTAINERS.len();
    let names: Vec<NodeName> = (0..NODES)
        .map(|n| NodeName::new(format!("node-{n:04}")))
        .collect();
    let all: Vec<Arc<PodSummary>> = (0..pods)
        .filter_map(|n| Some(Arc::new(pod(names.get(n / PODS_PER_NODE)?, n))))
        .collect();
    let mut batch = NodeBatch::default();
    // The buffers of a publication belong to the thread, not to the store: they are warm before
    // anything is counted.
    let uids: Vec<Uid> = names.iter().map(|name| Uid::from(name.as_str())).collect();
    let publish = Arc::new(ReadingPublisher::default());
    let region = Region::new(COUNTING);
    let mut store = UsageStore::new(UsageConfig::new(Duration::from_secs(15)));
    store.add_publisher(Arc::<ReadingPublisher>::clone(&publish));
    let kept = || {
        let change = region.change();
        change
            .bytes_allocated
            .saturating_sub(change.bytes_deallocated)
    };
    for (name, uid) in names.iter().zip(&uids) {
        store.node_applied(name, &Labels::default(), uid);
    }
    let of_nodes = kept();
    store.pods_replaced(&all, now(0));
    store.flush(now(0));
    let of_pods = kept() - of_nodes;
    fill(&mut batch, &all, 0, 0);
    let of_batch = kept() - of_nodes - of_pods;
    let mut round = |number: usize| {
        for (index, (name, uid)) in names.iter().zip(&uids).enumerate() {
            fill(&mut batch, &all, index, number);
            store.ingest(name.as_str(), uid, &batch, now(number));
        }
    };
    round(0);
    round(1);
    let of_containers = kept() - of_nodes - of_pods - of_batch;
    println!("{NODES} nodes, {pods} pods, {containers} containers\n");
    println!("{:<34} {:>10} B", "per node", of_nodes / NODES);
    println!("{:<34} {:>10} B", "per pod", of_pods / pods);
    println!(
        "{:<34} {:>10} B",
        "per container",
        of_containers / containers
    );
    let total = of_nodes + of_pods + of_containers;
    println!("{:<34} {:>10} KiB", "total", total / 1_024);

    let mut next = 1;
    let filling = Timing::of_cpu(ROUNDS, |_| {
        for index in 0..NODES {
            fill(&mut batch, &all, index, 0);
        }
    });
    let timing = Timing::of_cpu(ROUNDS, |_| {
        next += 1;
        for (index, (name, uid)) in names.iter().zip(&uids).enumerate() {
            fill(&mut batch, &all, index, next);
            store.ingest(name.as_str(), uid, &batch, now(next));
        }
    });
    let each = |time: Duration| time.as_nanos() / containers as u128;
    let net = timing.best.saturating_sub(filling.best);
    println!(
        "{:<34} {:>10} ns",
        "ingest and publish a container",
        each(net)
    );
    let repeated = Timing::of_cpu(ROUNDS, |_| {
        for (index, (name, uid)) in names.iter().zip(&uids).enumerate() {
            fill(&mut batch, &all, index, next);
            store.ingest(name.as_str(), uid, &batch, now(next));
        }
    });
    let net = repeated.best.saturating_sub(filling.best);
    println!("{:<34} {:>10} ns", "ingest a repeated sample", each(net));
    let expiry = Timing::of_cpu(ROUNDS, |_| store.expire(now(next)));
    println!(
        "{:<34} {:>10} µs",
        "check expiry of all nodes",
        expiry.best.as_micros()
    );
    let ready = Timing::of_cpu(ROUNDS, |_| drop(store.readiness(now(next))));
    println!("{:<34} {:>10} µs", "readiness", ready.best.as_micros());
    assert_eq!(store.readiness(now(next)).counts.pods_served, pods);
}

fn now(round: usize) -> Moment {
    Moment {
        wall: time(round),
        monotonic: Duration::from_secs(15) * u32::try_from(round).unwrap_or(u32::MAX),
    }
}

fn time(round: usize) -> Timestamp {
    let round = i64::try_from(round).unwrap_or_default();
    Timestamp::from_unix_millis(BEGIN + round * 15_000)
}

fn pod(node: &NodeName, number: usize) -> PodSummary {
    PodSummary {
        identity: Identity {
            namespace: "default".into(),
            name: format!("web-6c5f4d7b9-{number:06}").into(),
            uid: Uid::from(format!("00000000-0000-4000-8000-{number:012}").as_str()),
            resource_version: ResourceVersion::from("1"),
        },
        labels: Labels::default(),
        node: Some(node.as_str().into()),
        phase: PodPhase::Running,
    }
}

/// Fills the batch of a node in a round.
fn fill(batch: &mut NodeBatch, all: &[Arc<PodSummary>], node: usize, round: usize) {
    batch.clear();
    let at = time(round);
    let total = CoreNanos::new(round as u64 * 1_234_567_890);
    let memory = Some(BytesSample {
        at,
        bytes: Bytes::new(64 << 20),
    });
    let cpu = Some(CpuSample { at, total });
    (batch.node.cpu, batch.node.memory) = (cpu, memory);
    let own = all.iter().skip(node * PODS_PER_NODE).take(PODS_PER_NODE);
    for pod in own {
        for container in CONTAINERS {
            let pod = PodKeyRef {
                namespace: &pod.identity.namespace,
                name: &pod.identity.name,
            };
            let sample = ContainerSample {
                cpu,
                memory,
                started: Some(Timestamp::from_unix_millis(BEGIN - 3_600_000)),
                ..ContainerSample::default()
            };
            batch.push(ContainerKeyRef { pod, container }, sample);
        }
    }
}
