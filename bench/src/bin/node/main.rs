//! `kubevitals node` beside the real kubelet, on a real cluster of one node that is made for the
//! run: the processor time of the same node over the same time, resident memory, and the
//! throughput of exec.

mod cluster;
mod scraping;
mod streaming;
mod virtual_node;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use kubevitals_bench::BenchError;
use kubevitals_bench::flags::RunFlags;
use kubevitals_bench::measure::Values;
use kubevitals_bench::proc::Memory;
use kubevitals_bench::result::{Metric, Report};
use kubevitals_bench::session::{self, Session, check_conditions, print_line};
use tokio::time::sleep;

use self::cluster::RealCluster;
use self::virtual_node::{Provider, VirtualNode};

const KUBELET: &str = "kubelet";

/// Largest share of the kubelet's processor time.
const MAX_CPU_SHARE: f64 = 0.1;

/// Largest resident memory of an idle node.
const MAX_IDLE_BYTES: f64 = 12.0 * 1024.0 * 1024.0;

/// Time without requests before memory is read.
const IDLE_TIME: Duration = Duration::from_secs(10);

/// Compare a node with the real kubelet (needs root and Go)
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench node")]
struct Flags {
    #[command(flatten)]
    run: RunFlags,

    /// Duration of a measurement of processor time [default: 60, with --quick 15]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(15..=3_600))]
    seconds: Option<u64>,

    /// Pods of the real node meanwhile [default: 30, with --quick 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100))]
    pods: Option<u32>,

    /// Megabytes that are read from a pod [default: 1000, with --quick 100]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    megabytes: Option<u32>,

    /// Measure one part only
    #[arg(long, value_name = "PART", value_parser = ["scraping", "streaming"])]
    only: Option<String>,

    /// Leave the cluster `bench` for the next run
    #[arg(long)]
    keep: bool,

    /// Path of kubevitals [default: next to this program]
    #[arg(long, value_name = "FILE")]
    kubevitals: Option<PathBuf>,
}

/// What both parts need.
#[derive(Debug, Clone, Copy)]
struct Bed<'a> {
    flags: &'a Flags,
    session: &'a Session,
    cluster: &'a RealCluster,
    program: &'a std::path::Path,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    session::run_all(&flags.run, async |session| run(&flags, session).await)
}

async fn run(flags: &Flags, session: &Session) -> Result<(), BenchError> {
    let program = match &flags.kubevitals {
        Some(program) => program.clone(),
        None => std::env::current_exe()
            .map_err(BenchError::file("locate", "this program"))?
            .with_file_name("kubevitals"),
    };
    let cluster = RealCluster::up(&session.bench, &session.scratch, flags.keep).await?;
    let bed = Bed {
        flags,
        session,
        cluster: &cluster,
        program: &program,
    };
    let wants = |part: &str| flags.only.as_deref().is_none_or(|only| only == part);
    let mut violations = Vec::new();
    if wants("scraping") {
        let report = scraping::run(bed).await?;
        finish(session, &report)?;
        violations.extend(scraping::violations(&report));
    }
    if wants("streaming") {
        let report = streaming::run(bed).await?;
        finish(session, &report)?;
        violations.extend(streaming::violations(&report));
    }
    check_conditions(
        &violations,
        "a tenth of the kubelet's processor time, 12 MiB when idle, its throughput",
    )
}

fn finish(session: &Session, report: &Report) -> Result<(), BenchError> {
    session.show(report);
    let path = report.write(&session.results, &session.file_name(&report.bench))?;
    print_line(&format!("wrote all values to {}", path.display()));
    Ok(())
}

impl Bed<'_> {
    /// Starts a node; its memory is read after some time without requests.
    async fn start(&self, provider: Provider) -> Result<(VirtualNode, Values), BenchError> {
        let scratch = &self.session.scratch;
        let node = VirtualNode::start(provider, self.program, self.cluster, scratch).await?;
        if provider == Provider::Process {
            let name = provider.node_name(self.cluster);
            self.cluster.until_ready(&name).await?;
        }
        sleep(IDLE_TIME).await;
        let values = memory_values("idle", node.process.memory()?);
        Ok((node, values))
    }
}

/// Resident memory under two keys.
#[expect(clippy::cast_precision_loss, reason = "memory is far below 2^53 bytes")]
fn memory_values(prefix: &str, memory: Memory) -> Values {
    let mut values = Values::from([(format!("{prefix}.rss"), memory.resident as f64)]);
    if let Some(anonymous) = memory.anonymous {
        values.insert(format!("{prefix}.anon"), anonymous as f64);
    }
    values
}

/// The rows of idle memory.
fn idle_metrics() -> [Metric; 2] {
    [
        Metric::bytes("idle.rss", "RSS when idle"),
        Metric::bytes("idle.anon", "  of it anonymous"),
    ]
}

/// A violation if an idle node holds more than it may.
fn idle_violation(report: &Report, contender: &str) -> Option<String> {
    let own = report.contenders.iter().find(|one| one.name == contender)?;
    let idle = own.spread("idle.rss")?.median;
    (idle > MAX_IDLE_BYTES).then(|| {
        let mebibytes = idle / 1024.0 / 1024.0;
        format!("{contender} holds {mebibytes:.1} MiB when idle, more than 12")
    })
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_are_valid() {
        Flags::command().debug_assert();
    }

    #[test]
    fn memory_that_is_unknown_is_left_out() {
        let mut memory = Memory {
            resident: 10,
            peak: 20,
            anonymous: None,
        };
        assert_eq!(memory_values("idle", memory).len(), 1);
        memory.anonymous = Some(4);
        let values = memory_values("idle", memory);
        assert_eq!(values.get("idle.anon"), Some(&4.0));
    }
}
