//! Servers of `metrics.k8s.io` on one simulated cluster, under the load of autoscalers and people.
//!
//! Each contender is started with metrics-server's flags, so that any program that accepts them can
//! be compared. The cluster and the load run in their own processes.

use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use kubevitals_bench::BenchError;
use kubevitals_bench::campaign::Campaign;
use kubevitals_bench::flags::RunFlags;
use kubevitals_bench::measure::{Plan, Schedule};
use kubevitals_bench::serving::{
    ControlPlaneFlags, Phases, ServerFlags, ServerProgram, Testbed, program, report,
};
use kubevitals_bench::session::{self, Session, print_line};
use kubevitals_bench::sim::SimSize;

/// Above this size metrics-server is measured only on request: see `docs/benchmarks.md`.
const MAX_NODES_OF_PEER: u32 = 2_000;

/// Serve metrics.k8s.io on a simulated cluster under load
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench server", after_help = AFTER_HELP)]
struct Flags {
    #[command(flatten)]
    run: RunFlags,

    #[command(flatten)]
    programs: ServerFlags,

    #[command(flatten)]
    control_plane_programs: ControlPlaneFlags,

    /// Whether servers read a simulated API server, or a real one with the same nodes and pods
    #[arg(long, value_enum, default_value_t = ControlPlaneKind::Sim)]
    control_plane: ControlPlaneKind,

    /// Size of a cluster, may be repeated [default: 100x70, 1000x30, 1000x30 behind the
    /// aggregation layer, 5000x30; with --quick 100x30]
    #[arg(long = "size", value_name = "NODESxPODS", conflicts_with_all = ["nodes", "pods_per_node"])]
    sizes: Vec<SimSize>,

    /// Nodes of the cluster, instead of --size
    #[arg(long, value_name = "N")]
    nodes: Option<u32>,

    /// Pods per node
    #[arg(long, value_name = "N", default_value_t = 30)]
    pods_per_node: u32,

    /// Containers per pod
    #[arg(long, value_name = "N", default_value_t = 2)]
    containers_per_pod: u32,

    /// Scrape interval of the servers, in seconds [default: 15, with --quick 10]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(10..=300))]
    resolution: Option<u64>,

    /// Length of each window, in seconds, rounded up to whole resolutions: one with scraping only,
    /// one under load [default: 60, with --quick 20]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(5..=3600))]
    duration: Option<u64>,

    /// Whether contenders run one after the other or all at once
    #[arg(long, value_enum, default_value_t = ScheduleArg::OneAfterOther)]
    schedule: ScheduleArg,

    /// Send reads through the cluster's aggregation layer instead of directly to the server (one
    /// after the other only)
    #[arg(long)]
    aggregated: bool,

    /// Allow compressed responses, as Go's clients do
    #[arg(long)]
    gzip: bool,

    /// Reuse the measurements in the result file, and make the missing ones
    #[arg(long)]
    resume: bool,

    /// Make at most this many turns of each size; use --resume for the others
    #[arg(long, value_name = "N")]
    turns: Option<usize>,
}

const AFTER_HELP: &str = "A turn of both servers at 1000x30 takes about seven minutes, three turns of every size an hour \
and a half. Results are saved after each turn.

  cargo xtask bench server --size 1000x30 --repeats 3 --turns 1 --resume   one turn now, the others later";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ScheduleArg {
    OneAfterOther,
    Together,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ControlPlaneKind {
    Sim,
    Real,
}

/// A cluster and the phases of measurements on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Case {
    size: SimSize,
    control_plane: ControlPlaneKind,
    phases: Phases,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    session::run_all(&flags.run, async |session| run(&flags, session).await)
}

async fn run(flags: &Flags, session: &Session) -> Result<(), BenchError> {
    if flags.aggregated && flags.control_plane == ControlPlaneKind::Real {
        let real = "the aggregation layer is simulated: omit --control-plane real or --aggregated";
        return Err(BenchError::NoContender(real.to_owned()));
    }
    if flags.aggregated && flags.schedule == ScheduleArg::Together {
        let both = "the aggregation layer has one server at a time: omit --schedule together";
        return Err(BenchError::NoContender(both.to_owned()));
    }
    for case in cases(flags) {
        measure(flags, case, session).await?;
    }
    Ok(())
}

async fn measure(flags: &Flags, case: Case, session: &Session) -> Result<(), BenchError> {
    let servers = contenders(flags, case)?;
    let plan = plan(flags);
    let report = report::new(
        "server",
        session,
        &servers,
        report::parameters(case.size, &case.phases),
        plan.schedule,
        Phases::metrics(),
    );
    let name = session.file_name(&case.name());
    let mut campaign = Campaign::new(plan, report, &session.results, &name);
    if flags.resume {
        campaign = campaign.resumed();
    }
    let size = case.size;
    if campaign.remaining().is_empty() {
        print_line(&format!("{size}: all measurements exist"));
    } else {
        let SimSize {
            nodes,
            pods_per_node,
            ..
        } = size;
        print_line(&format!(
            "a simulated cluster of {nodes} nodes with {pods_per_node} pods each"
        ));
        let program = flags.programs.kubevitals()?;
        let mut testbed = Testbed::start(&program, size, &[], &session.scratch).await?;
        if case.control_plane == ControlPlaneKind::Real {
            testbed = testbed
                .with_control_plane(&flags.control_plane_programs)
                .await?;
        }
        let turns = flags.turns.unwrap_or(usize::MAX);
        let measured = campaign.run(turns, async |index, repeat| {
            let server = servers.get(index).expect("the campaign has these servers");
            let (name, number) = (server.name, repeat + 1);
            print_line(&format!("{name}, measurement {number} of {}", plan.repeats));
            let values = testbed.measure(server, &case.phases).await?;
            let took = values.get("took").copied().unwrap_or_default();
            print_line(&format!(
                "{name}, measurement {number}: done after {took:.0} s"
            ));
            Ok(values)
        });
        let measured = measured.await;
        testbed.stop().await;
        measured?;
    }
    session.show(campaign.report());
    print_line(&format!(
        "wrote all values to {}",
        campaign.path().display()
    ));
    Ok(())
}

/// Returns the servers of a case: at sizes that the peer does not support, only ours.
fn contenders(flags: &Flags, case: Case) -> Result<Vec<ServerProgram>, BenchError> {
    let mut servers = flags.programs.servers()?;
    if case.size.nodes > MAX_NODES_OF_PEER && flags.programs.only.is_none() {
        servers.retain(|server| server.name == program::KUBEVITALS);
    }
    Ok(servers)
}

fn plan(flags: &Flags) -> Plan {
    Plan {
        schedule: match flags.schedule {
            ScheduleArg::OneAfterOther => Schedule::OneAfterOther,
            ScheduleArg::Together => Schedule::Together,
        },
        repeats: flags.run.repeats_or(3, 1),
    }
}

fn cases(flags: &Flags) -> Vec<Case> {
    let seconds = |wanted: Option<u64>, full, quick| {
        Duration::from_secs(wanted.unwrap_or(flags.run.pick(full, quick)))
    };
    let resolution = seconds(flags.resolution, 15, 10);
    let phases = Phases {
        resolution,
        duration: Phases::whole_scrapes(seconds(flags.duration, 60, 20), resolution),
        aggregated: flags.aggregated,
        gzip: flags.gzip,
        lost_scrape: flags.schedule == ScheduleArg::OneAfterOther,
    };
    let case = |mut size: SimSize, aggregated| {
        size.containers_per_pod = flags.containers_per_pod;
        let phases = Phases {
            aggregated: phases.aggregated || aggregated,
            ..phases
        };
        Case {
            size,
            control_plane: flags.control_plane,
            phases,
        }
    };
    if let Some(nodes) = flags.nodes {
        return vec![case(SimSize::new(nodes, flags.pods_per_node), false)];
    }
    if !flags.sizes.is_empty() {
        let sizes = flags.sizes.iter();
        return sizes.map(|size| case(*size, false)).collect();
    }
    if flags.run.quick {
        return vec![case(SimSize::new(100, flags.pods_per_node), false)];
    }
    if flags.control_plane == ControlPlaneKind::Real {
        let sizes = [SimSize::new(100, 30), SimSize::new(1_000, 30)];
        return sizes.map(|size| case(size, false)).to_vec();
    }
    let mut all = vec![
        case(SimSize::new(100, 70), false),
        case(SimSize::new(1_000, 30), false),
        case(SimSize::new(5_000, 30), false),
    ];
    if flags.schedule == ScheduleArg::OneAfterOther && !flags.aggregated {
        all.insert(2, case(SimSize::new(1_000, 30), true));
    }
    all
}

impl Case {
    /// Name of the result.
    fn name(&self) -> String {
        let mut name = format!("server.{}", self.size);
        if self.control_plane == ControlPlaneKind::Real {
            name.push_str(".real");
        }
        if self.phases.aggregated {
            name.push_str(".aggregated");
        }
        if self.phases.gzip {
            name.push_str(".gzip");
        }
        name
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn flags(words: &[&str]) -> Flags {
        Flags::parse_from(["bench"].iter().chain(words))
    }

    fn names(words: &[&str]) -> Vec<String> {
        cases(&flags(words)).iter().map(Case::name).collect()
    }

    #[test]
    fn the_flags_are_valid() {
        Flags::command().debug_assert();
    }

    #[test]
    fn a_full_run_has_every_size() {
        let all = [
            "server.100x70",
            "server.1000x30",
            "server.1000x30.aggregated",
            "server.5000x30",
        ];
        assert_eq!(names(&[]), all);
        assert_eq!(names(&["--size=7x5", "--gzip"]), ["server.7x5.gzip"]);
        assert_eq!(names(&["--schedule=together"]).len(), 3);
        assert_eq!(
            names(&["--control-plane=real"]),
            ["server.100x30.real", "server.1000x30.real"]
        );
    }

    #[test]
    fn quick_is_smaller_and_explicit_flags_take_precedence() {
        let of = |words: &[&str]| {
            let flags = flags(words);
            let case = cases(&flags).pop().unwrap();
            let repeats = plan(&flags).repeats;
            (
                case.name(),
                case.phases.resolution.as_secs(),
                case.phases.duration.as_secs(),
                repeats,
            )
        };
        assert_eq!(of(&[]), ("server.5000x30".to_owned(), 15, 60, 3));
        assert_eq!(of(&["--quick"]), ("server.100x30".to_owned(), 10, 20, 1));
        let asked = of(&["--quick", "--nodes=7", "--repeats=4", "--duration=33"]);
        assert_eq!(asked, ("server.7x30".to_owned(), 10, 40, 4));
    }

    #[test]
    fn a_very_large_cluster_has_no_peer_unless_requested() {
        let of = |words: &[&str]| {
            let mut words = words.to_vec();
            words.extend(["--metrics-server=/x", "--kubevitals=/y"]);
            let flags = flags(&words);
            let servers = contenders(&flags, cases(&flags)[0]).unwrap();
            servers.iter().map(|server| server.name).collect::<Vec<_>>()
        };
        assert_eq!(of(&["--size=1000x30"]), ["kubevitals", "metrics-server"]);
        assert_eq!(of(&["--size=5000x30"]), ["kubevitals"]);
        assert_eq!(
            of(&["--size=5000x30", "--only=metrics-server"]),
            ["metrics-server"]
        );
    }
}
