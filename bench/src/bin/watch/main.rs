//! Decoding of watched pods: our slim types next to `kube` with `k8s-openapi` and to Go's
//! client-go.

mod work;

use std::process::ExitCode;

use kubevitals_bench::jobs::{Implementation, Workers};
use kubevitals_bench::pods::{self, BASELINE};
use kubevitals_bench::result::Metric;
use kubevitals_bench::worker_bench::WorkerBench;

const PODS: u32 = 2_000;

fn main() -> ExitCode {
    let bench = WorkerBench {
        name: "watch",
        about: "Decode watched pods",
        go: "watch",
        versions: pods::VERSIONS,
        baseline: (BASELINE, BASELINE),
        repeats: (5, 2),
        metrics,
        prepare: |folder| pods::input(folder, PODS),
        implementations,
        serve: work::serve,
    };
    bench.main()
}

fn metrics() -> Vec<Metric> {
    vec![
        Metric::seconds("decode.cpu", "decode a pod, CPU"),
        Metric::seconds("decode.pass", "decode a pod, clock"),
        Metric::seconds("stream.cpu", "watch a pod into a cache, CPU"),
        Metric::seconds("stream.pass", "watch a pod into a cache, clock"),
        Metric::bytes("stream.peak", "  peak RSS"),
    ]
}

/// Passes are chosen so that each job takes about a second.
fn implementations(own: &Workers, go: Option<&Workers>) -> Vec<Implementation> {
    let mut all = vec![
        Implementation::new(
            "kubevitals PodSummary",
            vec![
                own.job("decode", "decode-pod-summary", 40),
                own.job("stream", "stream-pod-summary", 30),
            ],
        ),
        Implementation::new(
            "kubevitals Pod",
            vec![
                own.job("decode", "decode-pod", 24),
                own.job("stream", "stream-pod", 18),
            ],
        ),
        Implementation::new(
            "kubevitals Metadata",
            vec![own.job("decode", "decode-metadata", 40)],
        ),
        Implementation::new(
            BASELINE,
            vec![
                own.job("decode", "decode-typed", 8),
                own.job("stream", "stream-typed", 5),
            ],
        ),
    ];
    if let Some(go) = go {
        all.push(Implementation::new(
            "Go client-go",
            vec![go.job("decode", "decode", 3), go.job("stream", "stream", 3)],
        ));
    }
    all
}
