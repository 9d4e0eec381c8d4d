//! Servers of `metrics.k8s.io` on one simulated cluster, under the load of autoscalers and people.
//!
//! Each contender is started with metrics-server's flags, so that whatever takes them can be put beside it. The cluster
//! and the load run in processes of their own.

mod phases;
mod reads;
mod server;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use kubevitals_bench::BenchError;
use kubevitals_bench::flags::RunFlags;
use kubevitals_bench::measure::{Plan, Schedule};
use kubevitals_bench::result::{Measured, Metric, Report};
use kubevitals_bench::session::{self, Session, say};
use kubevitals_bench::sim::{SimProcess, SimSize};

use self::phases::Bed;
use self::server::ServerProgram;

/// Serve metrics.k8s.io on a simulated cluster under load
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench server")]
struct Flags {
    #[command(flatten)]
    run: RunFlags,

    /// metrics-server's program
    #[arg(long, value_name = "FILE", env = "KUBEVITALS_METRICS_SERVER")]
    metrics_server: Option<PathBuf>,

    /// The program that simulates the cluster [default: kubevitals beside this program]
    #[arg(long, value_name = "FILE")]
    kubevitals: Option<PathBuf>,

    /// Nodes of the cluster [default: 1000, with --quick 100]
    #[arg(long, value_name = "N")]
    nodes: Option<u32>,

    /// Pods of each node
    #[arg(long, value_name = "N", default_value_t = 30)]
    pods_per_node: u32,

    /// Containers of each pod
    #[arg(long, value_name = "N", default_value_t = 2)]
    containers_per_pod: u32,

    /// How often servers scrape, in seconds [default: 15, with --quick 10]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(10..=300))]
    resolution: Option<u64>,

    /// How long each window is, in seconds, rounded up to whole resolutions: one with scraping only, one under load
    /// [default: 60, with --quick 20]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(5..=3600))]
    duration: Option<u64>,

    /// Whether contenders run one after the other or all at once
    #[arg(long, value_enum, default_value_t = Beside::OneAfterOther)]
    schedule: Beside,

    /// Send reads through the cluster's aggregation layer instead of straight to the server (one after the other only)
    #[arg(long)]
    aggregated: bool,

    /// Let answers be compressed, as Go's clients do
    #[arg(long)]
    gzip: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Beside {
    OneAfterOther,
    Together,
}

/// The flags with all defaults in place.
#[derive(Debug, Clone, Copy)]
struct Settings {
    size: SimSize,
    resolution: Duration,
    duration: Duration,
    plan: Plan,
    aggregated: bool,
    gzip: bool,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    session::run(&flags.run, async |session| run(&flags, session).await)
}

async fn run(flags: &Flags, session: &Session) -> Result<Report, BenchError> {
    let settings = Settings::new(flags);
    let program = match &flags.kubevitals {
        Some(program) => program.clone(),
        None => beside_this_program("kubevitals")?,
    };
    let servers = ServerProgram::all(&program, flags.metrics_server.as_deref());
    if settings.aggregated && settings.plan.schedule == Schedule::Together {
        let both = "behind the aggregation layer there is one server at a time: leave out --schedule together";
        return Err(BenchError::NoContender(both.to_owned()));
    }
    let SimSize {
        nodes,
        pods_per_node,
        ..
    } = settings.size;
    say(&format!(
        "a simulated cluster of {nodes} nodes with {pods_per_node} pods each"
    ));
    let sim = SimProcess::start(&program, settings.size, &session.scratch).await?;
    let bed = Bed::new(sim, settings, session).await?;
    let measured = settings
        .plan
        .run(servers.len(), async |index, repeat| {
            let server = servers
                .get(index)
                .expect("the plan counts these very servers");
            say(&format!(
                "{}, measurement {} of {}",
                server.name,
                repeat + 1,
                settings.plan.repeats
            ));
            bed.measure(server, repeat).await
        })
        .await;
    bed.stop().await;
    let measured = measured?;
    let contenders = servers
        .iter()
        .zip(measured)
        .map(|(server, repeats)| Measured {
            name: server.name.to_owned(),
            repeats,
        });
    let versions = servers
        .iter()
        .map(|server| (server.name.to_owned(), server.version()));
    let sim = (
        "kubevitals sim".to_owned(),
        env!("CARGO_PKG_VERSION").to_owned(),
    );
    Ok(Report {
        bench: "server".to_owned(),
        started: session.started.clone(),
        machine: session.machine.clone(),
        versions: versions.chain([sim]).collect(),
        parameters: settings.parameters(),
        schedule: settings.plan.schedule,
        baseline: server::METRICS_SERVER.to_owned(),
        metrics: metrics(),
        contenders: contenders.collect(),
    })
}

impl Settings {
    fn new(flags: &Flags) -> Self {
        let seconds = |wanted: Option<u64>, full, quick| {
            Duration::from_secs(wanted.unwrap_or(flags.run.pick(full, quick)))
        };
        let resolution = seconds(flags.resolution, 15, 10);
        Self {
            size: SimSize {
                nodes: flags.nodes.unwrap_or(flags.run.pick(1_000, 100)),
                pods_per_node: flags.pods_per_node,
                containers_per_pod: flags.containers_per_pod,
            },
            resolution,
            duration: whole_scrapes(seconds(flags.duration, 60, 20), resolution),
            plan: Plan {
                schedule: match flags.schedule {
                    Beside::OneAfterOther => Schedule::OneAfterOther,
                    Beside::Together => Schedule::Together,
                },
                repeats: flags.run.repeats_or(3, 1),
            },
            aggregated: flags.aggregated,
            gzip: flags.gzip,
        }
    }

    fn parameters(&self) -> BTreeMap<String, String> {
        let pairs = [
            ("nodes", self.size.nodes.to_string()),
            ("pods-per-node", self.size.pods_per_node.to_string()),
            (
                "containers-per-pod",
                self.size.containers_per_pod.to_string(),
            ),
            ("resolution-seconds", self.resolution.as_secs().to_string()),
            ("duration-seconds", self.duration.as_secs().to_string()),
            ("aggregated", self.aggregated.to_string()),
            ("gzip", self.gzip.to_string()),
        ];
        pairs
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect()
    }
}

fn metrics() -> Vec<Metric> {
    let mut metrics = vec![
        Metric::seconds("cpu.load", "CPU, under load"),
        Metric::seconds("cpu.scrape", "CPU, scraping only"),
        Metric::bytes("rss.peak", "peak RSS"),
        Metric::bytes("rss.load", "steady RSS, under load"),
        Metric::bytes("rss.scrape", "steady RSS, scraping only"),
        Metric::seconds("first.node", "first metrics after start"),
        Metric::seconds("first.most", "metrics of 99 % of pods after start"),
        Metric::seconds("first.all", "metrics of every pod after start"),
        Metric::seconds("blind", "without metrics after a lost scrape"),
    ];
    for (key, label) in reads::KINDS {
        let key = |name: &str| format!("{key}.{name}");
        metrics.extend([
            Metric::seconds(&key("p50"), &format!("{label}, p50")),
            Metric::seconds(&key("p99"), "  p99"),
            Metric::seconds(&key("first_byte_p50"), "  first byte, p50"),
            Metric::bytes(&key("bytes"), "  bytes on the wire"),
            Metric::count(&key("count"), "  answered"),
            Metric::count(&key("failed"), "  failed"),
        ]);
    }
    metrics
}

/// A window of whole resolutions: one that is cut at random holds a scrape more or less, which is chance and no cost.
fn whole_scrapes(duration: Duration, resolution: Duration) -> Duration {
    Duration::from_secs(
        duration
            .as_secs()
            .next_multiple_of(resolution.as_secs().max(1)),
    )
}

fn beside_this_program(name: &str) -> Result<PathBuf, BenchError> {
    let program = std::env::current_exe().map_err(BenchError::file("find", "this program"))?;
    Ok(program.with_file_name(name))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_are_sound() {
        Flags::command().debug_assert();
    }

    #[test]
    fn quick_is_smaller_and_what_is_asked_for_wins() {
        let settings =
            |words: &[&str]| Settings::new(&Flags::parse_from(["bench"].iter().chain(words)));
        let (full, quick) = (settings(&[]), settings(&["--quick"]));
        assert_eq!(
            (
                full.size.nodes,
                full.resolution.as_secs(),
                full.plan.repeats
            ),
            (1_000, 15, 3)
        );
        assert_eq!(
            (
                quick.size.nodes,
                quick.resolution.as_secs(),
                quick.plan.repeats
            ),
            (100, 10, 1)
        );
        let asked = settings(&["--quick", "--nodes=7", "--repeats=4", "--duration=33"]);
        assert_eq!(
            (
                asked.size.nodes,
                asked.plan.repeats,
                asked.duration.as_secs()
            ),
            (7, 4, 40)
        );
    }
}
