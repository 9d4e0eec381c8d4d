//! The text format: kubelet bodies parsed and encoded, next to `prometheus-parse` and to the
//! libraries of Go programs.

mod snapshot;
mod work;

use std::path::Path;
use std::process::ExitCode;

use kubevitals_bench::BenchError;
use kubevitals_bench::jobs::{Implementation, Workers};
use kubevitals_bench::result::{Better, Metric, Unit};
use kubevitals_bench::worker_bench::{Input, WorkerBench};

use self::snapshot::Snapshot;

/// Different bodies, so that branch prediction cannot adapt to one.
const BODIES: u64 = 16;

const TEXTPARSE: &str = "Go textparse";
const PROMETHEUS_PARSE: &str = "prometheus-parse";

/// The peer in operations that the baseline does not support.
const EXPFMT: &str = "Go expfmt";

fn main() -> ExitCode {
    let bench = WorkerBench {
        name: "promtext",
        about: "Parse and encode responses of a kubelet",
        go: "promtext",
        versions: (
            &["prometheus-parse"],
            &[
                "github.com/prometheus/prometheus",
                "github.com/prometheus/common",
            ],
        ),
        baseline: (TEXTPARSE, PROMETHEUS_PARSE),
        repeats: (5, 2),
        metrics,
        prepare,
        implementations,
        serve: work::serve,
    };
    bench.main()
}

/// Passes are chosen so that each job takes about a second.
fn implementations(own: &Workers, go: Option<&Workers>) -> Vec<Implementation> {
    let mut all = vec![
        Implementation::new(
            "kubevitals",
            vec![
                own.job("parse", "parse", 250),
                own.job("five", "five", 400),
                own.job("document", "document", 80),
                own.job("encode", "encode", 250),
                own.job("sorted", "encode-document", 200),
                own.job("shuffled", "encode-shuffled", 30),
            ],
        ),
        Implementation::new(
            PROMETHEUS_PARSE,
            vec![own.job("parse", "prometheus-parse", 10)],
        ),
    ];
    if let Some(go) = go {
        all.push(Implementation::new(
            TEXTPARSE,
            vec![go.job("parse", "textparse", 40)],
        ));
        all.push(Implementation::new(
            EXPFMT,
            vec![
                go.job("parse", "expfmt", 12),
                go.job("encode", "expfmt-encode", 20),
            ],
        ));
    }
    all
}

fn metrics() -> Vec<Metric> {
    let speed =
        |key: &str, label: &str| Metric::new(key, label, Unit::BytesPerSecond, Better::Higher);
    vec![
        speed("parse.speed", "parse, all values and labels"),
        Metric::seconds("parse.cpu", "  CPU per byte"),
        Metric::bytes("parse.peak", "  peak RSS"),
        speed("five.speed", "parse, five families"),
        speed("document.speed", "parse to a document"),
        speed("encode.speed", "encode in order").against(EXPFMT),
        Metric::seconds("encode.cpu", "  CPU per byte").against(EXPFMT),
        speed("sorted.speed", "encode a document, sorted"),
        speed("shuffled.speed", "encode a document, shuffled"),
    ]
}

/// Writes the same bodies for all contenders.
fn prepare(scratch: &Path) -> Result<Input, BenchError> {
    let folder = scratch.join("bodies");
    std::fs::create_dir_all(&folder).map_err(BenchError::file("create", &folder))?;
    let mut bytes = 0_usize;
    for seed in 1..=BODIES {
        let body = Snapshot::random(seed).encoded();
        bytes += body.len();
        let path = folder.join(format!("{seed:02}.prom"));
        std::fs::write(&path, body).map_err(BenchError::file("write", &path))?;
    }
    let bytes = u32::try_from(bytes).expect("a few megabytes");
    Ok(Input {
        path: folder,
        units: f64::from(bytes),
        parameters: vec![("bodies", BODIES), ("bytes", u64::from(bytes))],
    })
}
