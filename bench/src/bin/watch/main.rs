//! Pods from the wire: our slim types next to `kube` with `k8s-openapi` and to Go's client-go.

mod work;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kubevitals_bench::flags::RunFlags;
use kubevitals_bench::jobs::{self, Side, Workers};
use kubevitals_bench::measure::{Plan, Schedule};
use kubevitals_bench::result::{Metric, Report};
use kubevitals_bench::session::{self, Session, say};
use kubevitals_bench::{BenchError, go, pods};

const PODS: u32 = 2_000;

const BASELINE: &str = "kube + k8s-openapi";

/// Decode watched pods
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench watch")]
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
        mode: work::Mode,
        passes: u32,
        file: PathBuf,
    },
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    match flags.mode {
        None => session::run(&flags.run, async |session| run(&flags.run, session).await),
        Some(Mode::Worker { mode, passes, file }) => match work::serve(mode, passes, &file) {
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
    let sides = sides(&workers, go.as_deref(), flags.pick(4, 1));
    let plan = Plan {
        schedule: Schedule::OneAfterOther,
        repeats: flags.repeats_or(5, 2),
    };
    say(&format!(
        "{PODS} pods of {} bytes on average; {} turns of {} contenders",
        bytes / u64::from(PODS),
        plan.repeats,
        sides.len()
    ));
    let contenders = jobs::measure(&sides, plan).await?;
    Ok(Report {
        bench: "watch".to_owned(),
        started: session.started.clone(),
        machine: session.machine.clone(),
        versions: pods::versions(&session.bench).await,
        parameters: BTreeMap::from([
            ("pods".to_owned(), PODS.to_string()),
            ("bytes".to_owned(), bytes.to_string()),
        ]),
        schedule: plan.schedule,
        baseline: BASELINE.to_owned(),
        metrics: vec![
            Metric::seconds("decode.cpu", "decode a pod, CPU"),
            Metric::seconds("decode.pass", "decode a pod, clock"),
            Metric::seconds("stream.cpu", "stream a pod into a view, CPU"),
            Metric::seconds("stream.pass", "stream a pod into a view, clock"),
            Metric::bytes("stream.peak", "  peak RSS"),
        ],
        contenders,
    })
}

/// What each does. Passes are chosen so that each job takes about a second.
fn sides(workers: &Workers, go: Option<&Path>, scale: u32) -> Vec<Side> {
    let pods = f64::from(PODS);
    let job = |task, mode: &str, passes: u32| workers.job(task, mode, passes * scale, pods);
    let side = |name: &str, jobs| Side {
        name: name.to_owned(),
        jobs,
    };
    let mut sides = vec![
        side(
            "kubevitals PodSummary",
            vec![
                job("decode", "decode-pod-summary", 40),
                job("stream", "stream-pod-summary", 30),
            ],
        ),
        side(
            "kubevitals Pod",
            vec![
                job("decode", "decode-pod", 24),
                job("stream", "stream-pod", 18),
            ],
        ),
        side(
            "kubevitals Metadata",
            vec![job("decode", "decode-metadata", 40)],
        ),
        side(
            BASELINE,
            vec![
                job("decode", "decode-typed", 8),
                job("stream", "stream-typed", 5),
            ],
        ),
    ];
    if let Some(go) = go {
        let job =
            |task, mode: &str, passes: u32| workers.job_of(go, task, mode, passes * scale, pods);
        sides.push(side(
            "Go client-go",
            vec![job("decode", "decode", 3), job("stream", "stream", 3)],
        ));
    }
    sides
}
