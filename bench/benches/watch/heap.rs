//! What pods cost in memory: slim types next to `kube` with `k8s-openapi`.
//!
//! `cargo bench -p kubevitals-bench --bench watch_heap` prints a table; the bar is a fifth of what the typed objects
//! keep. It is a program of its own because counting every allocation costs the side that allocates more some time.
#![expect(clippy::print_stdout, reason = "the table is the output")]

mod pods;

use std::alloc::System;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use kube::api::WatchEvent as TypedEvent;
use kubevitals_model::Timestamp;
use kubevitals_watch::{Decoder, Kind, Metadata, Mirror, Pod, PodBrief, WatchEvent, decode_event};
use kubevitals_watch::{Resync, ResyncCause, Update};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PODS: usize = 5_000;

/// What something cost, for each pod.
#[derive(Clone, Copy)]
struct Cost {
    kept: usize,
    allocated: usize,
    allocations: usize,
}

fn main() {
    let lines = pods::lines(PODS);
    println!(
        "{PODS} pods of {} bytes on average, for each pod\n",
        lines.concat().len() / PODS
    );
    println!(
        "{:<28} {:>10} {:>14} {:>12} {:>8}",
        "", "kept", "allocated", "allocations", "kept"
    );

    // Nothing but the objects themselves: a store of kube's would add its keys.
    let typed = cost(|| {
        let decode = |line: &Vec<u8>| {
            let line = String::from_utf8(line.clone()).expect("JSON is UTF-8");
            match serde_json::from_str(&line).expect("a watch event") {
                TypedEvent::<core::Pod>::Added(pod) => Arc::new(pod),
                _ => Arc::default(),
            }
        };
        lines.iter().map(decode).collect::<Vec<_>>()
    });
    row("kube + k8s-openapi Pod", typed, typed);
    row("kubevitals Pod", cost(|| view::<Pod>(&lines)), typed);
    row(
        "kubevitals PodBrief",
        cost(|| view::<PodBrief>(&lines)),
        typed,
    );
    row(
        "kubevitals Metadata",
        cost(|| view::<Metadata>(&lines)),
        typed,
    );
}

/// All that a stream keeps: the objects, the strings they share, and the view they are found in.
fn view<K: Kind>(lines: &[Vec<u8>]) -> (Decoder, Mirror<K>) {
    let decoder = Decoder::default();
    let decode = |line: &Vec<u8>| match decode_event(line, &decoder) {
        Ok(WatchEvent::Added(pod)) => Some(Arc::new(pod)),
        _ => None,
    };
    let objects: Vec<Arc<K>> = lines.iter().filter_map(decode).collect();
    assert_eq!(objects.len(), PODS);
    let cause = ResyncCause::Subscribed;
    let mut mirror = Mirror::new();
    mirror.apply(
        Update::Resync(Resync { cause, objects }),
        Timestamp::from_unix_millis(0),
    );
    (decoder, mirror)
}

fn cost<T>(make: impl FnOnce() -> T) -> Cost {
    let region = Region::new(COUNTING);
    let made = make();
    let change = region.change();
    drop(made);
    Cost {
        kept: change
            .bytes_allocated
            .saturating_sub(change.bytes_deallocated)
            / PODS,
        allocated: change.bytes_allocated / PODS,
        allocations: (change.allocations + change.reallocations) / PODS,
    }
}

fn row(name: &str, cost: Cost, against: Cost) {
    #[expect(
        clippy::cast_precision_loss,
        reason = "sizes of objects are far below 2^53"
    )]
    let ratio = against.kept as f64 / cost.kept as f64;
    let Cost {
        kept,
        allocated,
        allocations,
    } = cost;
    println!("{name:<28} {kept:>8} B {allocated:>12} B {allocations:>12} {ratio:>7.1}x");
}
