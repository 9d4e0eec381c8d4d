//! What watched pods cost in memory: our slim types next to `kube` with `k8s-openapi` and to Go's
//! client-go.
//!
//! It is a program of its own because counting every allocation costs the side that allocates more
//! some time.

use std::alloc::System;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Parser, Subcommand, ValueEnum};
use k8s_openapi::api::core::v1 as core;
use kube::api::WatchEvent as TypedEvent;
use kubevitals_bench::flags::RunFlags;
use kubevitals_bench::jobs::{self, Side, Workers};
use kubevitals_bench::measure::{Plan, Schedule};
use kubevitals_bench::result::{Metric, Report};
use kubevitals_bench::session::{self, Session, say};
use kubevitals_bench::{BenchError, go, pods, worker};
use kubevitals_model::{PartialObjectMeta, Pod, PodSummary, Timestamp};
use kubevitals_watch::{
    Decoder, Kind, Mirror, Resync, ResyncCause, Update, WatchEvent, decode_event,
};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static COUNTING: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const PODS: u32 = 5_000;

const BASELINE: &str = "kube + k8s-openapi";

/// What watched pods keep on the heap
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench watch-heap")]
struct Flags {
    #[command(flatten)]
    run: RunFlags,
    #[command(subcommand)]
    mode: Option<Mode>,
}

#[derive(Debug, Subcommand)]
enum Mode {
    /// One contender of this benchmark, for the harness
    #[command(hide = true)]
    Worker {
        kept: Kept,
        passes: u32,
        file: PathBuf,
    },
}

/// What is kept of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Kept {
    Typed,
    Pod,
    PodSummary,
    Metadata,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    match flags.mode {
        None => session::run(&flags.run, async |session| run(&flags.run, session).await),
        Some(Mode::Worker { kept, file, .. }) => match serve(kept, &file) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
    }
}

async fn run(flags: &RunFlags, session: &Session) -> Result<Report, BenchError> {
    let file = session.scratch.join("pods.watch.jsonl");
    let bytes = pods::write(&file, PODS)?;
    let go = go::build(&session.bench, "watch", &session.scratch).await?;
    if go.is_none() {
        say("Go is not installed: its contender is left out");
    }
    let workers = Workers::of_this_program(&file, &session.scratch)?;
    let job = |mode: &str| vec![workers.job("heap", mode, 1, f64::from(PODS))];
    let side = |name: &str, jobs| Side {
        name: name.to_owned(),
        jobs,
    };
    let mut sides = vec![
        side("kubevitals PodSummary", job("pod-summary")),
        side("kubevitals Pod", job("pod")),
        side("kubevitals Metadata", job("metadata")),
        side(BASELINE, job("typed")),
    ];
    sides.extend(go.map(|go| {
        side(
            "Go client-go",
            vec![workers.job_of(&go, "heap", "heap", 1, f64::from(PODS))],
        )
    }));
    let plan = Plan {
        schedule: Schedule::OneAfterOther,
        repeats: flags.repeats_or(3, 1),
    };
    say(&format!(
        "{PODS} pods of {} bytes on average; {} turns of {} contenders",
        bytes / u64::from(PODS),
        plan.repeats,
        sides.len()
    ));
    let contenders = jobs::measure(&sides, plan).await?;
    Ok(Report {
        bench: "watch-heap".to_owned(),
        started: session.started.clone(),
        machine: session.machine.clone(),
        versions: pods::versions(&session.bench).await,
        parameters: BTreeMap::from([
            ("pods".to_owned(), PODS.to_string()),
            ("bytes".to_owned(), bytes.to_string()),
        ]),
        schedule: plan.schedule,
        baseline: BASELINE.to_owned(),
        metrics: vec![Metric::bytes("heap.kept", "heap kept for a pod")],
        contenders,
    })
}

fn serve(kept: Kept, file: &Path) -> std::io::Result<()> {
    let lines = pods::read(file)?;
    worker::serve_once(|| match kept {
        Kept::Typed => cost(|| typed(&lines), Vec::len),
        Kept::Pod => cost(|| view::<Pod>(&lines), |(_, mirror)| mirror.len()),
        Kept::PodSummary => cost(|| view::<PodSummary>(&lines), |(_, mirror)| mirror.len()),
        Kept::Metadata => cost(
            || view::<PartialObjectMeta>(&lines),
            |(_, mirror)| mirror.len(),
        ),
    })
}

/// Nothing but the objects themselves: a store of kube's would add its keys.
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

/// All that a stream keeps: the objects, the strings they share, and the view they are found in.
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

/// How many objects were made, and the bytes they keep.
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
