//! The initial report of benchmarks of servers.

use std::collections::BTreeMap;

use super::phases::Phases;
use super::program::{self, ServerProgram};
use crate::measure::Schedule;
use crate::result::{ContenderResult, Metric, Report};
use crate::session::Session;
use crate::sim::SimSize;

/// Returns a report without measurements yet.
pub fn new(
    bench: &str,
    session: &Session,
    servers: &[ServerProgram],
    parameters: BTreeMap<String, String>,
    schedule: Schedule,
    metrics: Vec<Metric>,
) -> Report {
    let versions = servers
        .iter()
        .map(|server| (server.name.to_owned(), server.version()));
    let sim = (
        "kubevitals sim".to_owned(),
        env!("CARGO_PKG_VERSION").to_owned(),
    );
    let contenders = servers.iter().map(|server| ContenderResult {
        name: server.name.to_owned(),
        repeats: Vec::new(),
    });
    Report {
        bench: bench.to_owned(),
        started: session.started.clone(),
        machine: session.machine.clone(),
        versions: versions.chain([sim]).collect(),
        parameters,
        schedule,
        baseline: program::METRICS_SERVER.to_owned(),
        metrics,
        contenders: contenders.collect(),
    }
}

/// Describes the cluster and the phases.
pub fn parameters(size: SimSize, phases: &Phases) -> BTreeMap<String, String> {
    let pairs = [
        ("nodes", size.nodes.to_string()),
        ("pods-per-node", size.pods_per_node.to_string()),
        ("containers-per-pod", size.containers_per_pod.to_string()),
        (
            "resolution-seconds",
            phases.resolution.as_secs().to_string(),
        ),
        ("duration-seconds", phases.duration.as_secs().to_string()),
        ("aggregated", phases.aggregated.to_string()),
        ("gzip", phases.gzip.to_string()),
    ];
    pairs
        .into_iter()
        .map(|(name, value)| (name.to_owned(), value))
        .collect()
}
