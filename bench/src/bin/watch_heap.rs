//! Memory of watched pods: our slim types next to `kube` with `k8s-openapi` and to Go's client-go.
//!
//! A separate program because counting every allocation slows down the contender that allocates
//! more.

use std::alloc::System;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use clap::ValueEnum;
use k8s_openapi::api::core::v1 as core;
use kube::api::WatchEvent as TypedEvent;
use kubevitals_bench::jobs::{Implementation, Workers};
use kubevitals_bench::pods::{self, BASELINE};
use kubevitals_bench::result::Metric;
use kubevitals_bench::worker;
use kubevitals_bench::worker_bench::WorkerBench;
use kubevitals_model::{PartialObjectMeta, Pod, PodSummary, Timestamp};
use kubevitals_watch::{
    Decoder, Kind, Mirror, Resync, ResyncCause, Update, WatchEvent, decode_event,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PODS: u32 = 5_000;

/// Type of the retained objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Retained {
    Typed,
    Pod,
    PodSummary,
    Metadata,
}

fn main() -> ExitCode {
    let bench = WorkerBench {
        name: "watch-heap",
        about: "Measure the heap of watched pods",
        go: "watch",
        versions: pods::VERSIONS,
        baseline: (BASELINE, BASELINE),
        repeats: (3, 1),
        metrics: || vec![Metric::bytes("heap.kept", "heap per pod")],
        prepare: |folder| pods::input(folder, PODS),
        implementations,
        serve,
    };
    bench.main()
}

fn implementations(own: &Workers, go: Option<&Workers>) -> Vec<Implementation> {
    let heap = |name: &str, workers: &Workers, mode: &str| {
        Implementation::new(name, vec![workers.job("heap", mode, 1)])
    };
    let mut all = vec![
        heap("kubevitals PodSummary", own, "pod-summary"),
        heap("kubevitals Pod", own, "pod"),
        heap("kubevitals Metadata", own, "metadata"),
        heap(BASELINE, own, "typed"),
    ];
    all.extend(go.map(|go| heap("Go client-go", go, "heap")));
    all
}

fn serve(retained: Retained, _: u32, file: &Path) -> std::io::Result<()> {
    let lines = pods::read(file)?;
    worker::serve_once(|| match retained {
        Retained::Typed => cost(|| typed(&lines), Vec::len),
        Retained::Pod => cost(|| view::<Pod>(&lines), |(_, mirror)| mirror.len()),
        Retained::PodSummary => cost(|| view::<PodSummary>(&lines), |(_, mirror)| mirror.len()),
        Retained::Metadata => cost(
            || view::<PartialObjectMeta>(&lines),
            |(_, mirror)| mirror.len(),
        ),
    })
}

/// Retains only the objects themselves: a store of kube would add its keys.
fn typed(lines: &[Vec<u8>]) -> Vec<Arc<core::Pod>> {
    let decode = |line: &Vec<u8>| {
        let line = String::from_utf8(line.clone()).expect("JSON is UTF-8");
        match serde_json::from_str(&line).expect("a watch event") {
            TypedEvent::<core::Pod>::Added(pod) => Arc::new(pod),
            _ => Arc::default(),
        }
    };
    lines.iter().map(decode).collect()
}

/// Retains what a reflector does: the objects, their interned strings, and the cache.
fn view<K: Kind>(lines: &[Vec<u8>]) -> (Decoder, Mirror<K>) {
    let decoder = Decoder::default();
    let decode = |line: &Vec<u8>| match decode_event(line, &decoder) {
        Ok(WatchEvent::Added(pod)) => Some(Arc::new(pod)),
        _ => None,
    };
    let objects: Vec<Arc<K>> = lines.iter().filter_map(decode).collect();
    let cause = ResyncCause::Subscribed;
    let mut mirror = Mirror::new();
    mirror.apply(
        Update::Resync(Resync { cause, objects }),
        Timestamp::from_unix_millis(0),
    );
    (decoder, mirror)
}

/// Returns the number of objects and the bytes that they retain.
fn cost<T>(make: impl FnOnce() -> T, count: impl FnOnce(&T) -> usize) -> (u64, u64) {
    let region = Region::new(COUNTING);
    let made = make();
    let change = region.change();
    let kept = change
        .bytes_allocated
        .saturating_sub(change.bytes_deallocated);
    let wide = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    (wide(count(&made)), wide(kept))
}
