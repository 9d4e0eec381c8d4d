//! The text format: kubelet bodies parsed and encoded, next to `prometheus-parse` and to what Go
//! programs use.

mod snapshot;
mod work;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use kubevitals_bench::flags::RunFlags;
use kubevitals_bench::jobs::{self, Side, Workers};
use kubevitals_bench::measure::{Plan, Schedule};
use kubevitals_bench::result::{Better, Metric, Report, Unit};
use kubevitals_bench::session::{self, Session, say};
use kubevitals_bench::{BenchError, go, versions};

use self::snapshot::Snapshot;

/// Bodies that take turns, so that the processor cannot learn one by heart.
const BODIES: u64 = 16;

const BASELINE: &str = "Go textparse";

/// The peer in what the baseline cannot do.
const EXPFMT: &str = "Go expfmt";

/// Parse and encode what a kubelet serves
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench promtext")]
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
        folder: PathBuf,
    },
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    match flags.mode {
        None => session::run(&flags.run, async |session| run(&flags.run, session).await),
        Some(Mode::Worker {
            mode,
            passes,
            folder,
        }) => match work::serve(mode, passes, &folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
    }
}

async fn run(flags: &RunFlags, session: &Session) -> Result<Report, BenchError> {
    let folder = session.scratch.join("bodies");
    let bytes = write_bodies(&folder)?;
    let go = go::build(&session.bench, "promtext", &session.scratch).await?;
    if go.is_none() {
        say("Go is not installed: its contenders are left out");
    }
    let workers = Workers::of_this_program(&folder, &session.scratch)?;
    let sides = sides(&workers, go.as_deref(), bytes, flags.pick(4, 1));
    let plan = Plan {
        schedule: Schedule::OneAfterOther,
        repeats: flags.repeats_or(5, 2),
    };
    say(&format!(
        "{BODIES} bodies, {bytes} bytes; {} turns of {} contenders",
        plan.repeats,
        sides.len()
    ));
    let contenders = jobs::measure(&sides, plan).await?;
    let baseline = if go.is_some() {
        BASELINE
    } else {
        "prometheus-parse"
    };
    Ok(Report {
        bench: "promtext".to_owned(),
        started: session.started.clone(),
        machine: session.machine.clone(),
        versions: versions::of(
            &session.bench,
            &["prometheus-parse"],
            &[
                "github.com/prometheus/prometheus",
                "github.com/prometheus/common",
            ],
        )
        .await,
        parameters: BTreeMap::from([
            ("bodies".to_owned(), BODIES.to_string()),
            ("bytes".to_owned(), bytes.to_string()),
        ]),
        schedule: plan.schedule,
        baseline: baseline.to_owned(),
        metrics: metrics(),
        contenders,
    })
}

/// What each does. Passes are chosen so that each job takes about a second.
fn sides(workers: &Workers, go: Option<&Path>, bytes: u32, scale: u32) -> Vec<Side> {
    let bytes = f64::from(bytes);
    let job = |task, mode: &str, passes: u32| workers.job(task, mode, passes * scale, bytes);
    let side = |name: &str, jobs| Side {
        name: name.to_owned(),
        jobs,
    };
    let mut sides = vec![
        side(
            "kubevitals",
            vec![
                job("parse", "parse", 250),
                job("five", "five", 400),
                job("document", "document", 80),
                job("encode", "encode", 250),
                job("sorted", "encode-document", 200),
                job("shuffled", "encode-shuffled", 30),
            ],
        ),
        side(
            "prometheus-parse",
            vec![job("parse", "prometheus-parse", 10)],
        ),
    ];
    if let Some(go) = go {
        let job =
            |task, mode: &str, passes: u32| workers.job_of(go, task, mode, passes * scale, bytes);
        sides.push(side(BASELINE, vec![job("parse", "textparse", 40)]));
        let parse_and_encode = vec![
            job("parse", "expfmt", 12),
            job("encode", "expfmt-encode", 20),
        ];
        sides.push(side(EXPFMT, parse_and_encode));
    }
    sides
}

fn metrics() -> Vec<Metric> {
    let speed =
        |key: &str, label: &str| Metric::new(key, label, Unit::BytesPerSecond, Better::Higher);
    vec![
        speed("parse.speed", "parse, all values and labels"),
        Metric::seconds("parse.cpu", "  CPU for a byte"),
        Metric::bytes("parse.peak", "  peak RSS"),
        speed("five.speed", "parse, five families"),
        speed("document.speed", "parse to a document"),
        speed("encode.speed", "encode in order").against(EXPFMT),
        Metric::seconds("encode.cpu", "  CPU for a byte").against(EXPFMT),
        speed("sorted.speed", "encode a document, sorted"),
        speed("shuffled.speed", "encode a document, shuffled"),
    ]
}

/// The same bytes for all, as files.
fn write_bodies(folder: &Path) -> Result<u32, BenchError> {
    std::fs::create_dir_all(folder).map_err(BenchError::file("make", folder))?;
    let mut bytes = 0_usize;
    for seed in 1..=BODIES {
        let body = Snapshot::random(seed).encoded();
        bytes += body.len();
        let path = folder.join(format!("{seed:02}.prom"));
        std::fs::write(&path, body).map_err(BenchError::file("write", &path))?;
    }
    Ok(u32::try_from(bytes).expect("a few megabytes"))
}
