//! Growth of processor time and memory of both servers with the cluster, and the cost of a node and
//! of a pod.

mod fit;
mod svg;

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use kubevitals_bench::BenchError;
use kubevitals_bench::campaign::Campaign;
use kubevitals_bench::flags::RunFlags;
use kubevitals_bench::measure::{Plan, Schedule};
use kubevitals_bench::result::Report;
use kubevitals_bench::serving::{Phases, ServerFlags, Testbed, program, report};
use kubevitals_bench::session::{self, Session, print_line};
use kubevitals_bench::sim::SimSize;

use self::fit::{Fit, Point};
use self::svg::{Line, Panel};

/// Measured sizes; the last is only for the fit, which must separate nodes from pods.
const SIZES: [SimSize; 7] = [
    SimSize::new(10, 30),
    SimSize::new(100, 30),
    SimSize::new(1_000, 30),
    SimSize::new(5_000, 30),
    SimSize::new(10_000, 30),
    SimSize::new(15_000, 30),
    SimSize::new(1_000, 10),
];

/// Pods per node in the chart.
const DRAWN_PODS: u32 = 30;

const RESOLUTION: Duration = Duration::from_secs(15);

/// Measure the cost of growing clusters
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench growth")]
struct Flags {
    #[command(flatten)]
    run: RunFlags,

    #[command(flatten)]
    programs: ServerFlags,

    /// Size to measure, may be repeated; the chart has all sizes with results
    /// [default: 10x30, 100x30, 1000x30, 5000x30, 10000x30, 15000x30, 1000x10; with --quick those
    /// up to 100 nodes]
    #[arg(long = "size", value_name = "NODESxPODS")]
    sizes: Vec<SimSize>,

    /// Length of each window, in seconds, rounded up to whole resolutions of 15 s
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = clap::value_parser!(u64).range(5..=3600))]
    duration: u64,

    /// Above this number of nodes only kubevitals is measured
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    max_peer_nodes: u32,

    /// Reuse the measurements in the result files, and make the missing ones
    #[arg(long)]
    resume: bool,

    /// Measure nothing, and draw the existing results
    #[arg(long)]
    draw: bool,

    /// File of the chart [default: docs/growth.svg, with --quick next to the results]
    #[arg(long, value_name = "FILE")]
    picture: Option<std::path::PathBuf>,
}

/// A cost in the chart and in the fit: its key, its title, and the size of its unit.
struct Cost {
    key: &'static str,
    title: &'static str,
    unit: f64,
    /// Whether it is divided by the duration of the window.
    is_time: bool,
}

const COSTS: [Cost; 3] = [
    Cost {
        key: "cpu.load",
        title: "CPU under load, thousandths of a core",
        unit: 1e-3,
        is_time: true,
    },
    Cost {
        key: "cpu.scrape",
        title: "CPU scraping only, thousandths of a core",
        unit: 1e-3,
        is_time: true,
    },
    Cost {
        key: "rss.peak",
        title: "peak RSS, MiB",
        unit: 1_048_576.0,
        is_time: false,
    },
];

fn main() -> ExitCode {
    let flags = Flags::parse();
    session::run_all(&flags.run, async |session| run(&flags, session).await)
}

async fn run(flags: &Flags, session: &Session) -> Result<(), BenchError> {
    let phases = Phases {
        resolution: RESOLUTION,
        duration: Phases::whole_scrapes(Duration::from_secs(flags.duration), RESOLUTION),
        aggregated: false,
        gzip: false,
        lost_scrape: false,
    };
    if !flags.draw {
        for size in sizes(flags) {
            measure(flags, size, &phases, session).await?;
        }
    }
    let reports: Vec<(SimSize, Report)> = SIZES
        .iter()
        .filter_map(|size| Some((*size, read(session, *size)?)))
        .collect();
    let picture = flags.picture.clone().unwrap_or_else(|| {
        if session.quick {
            session.results.join("growth.quick.svg")
        } else {
            session.bench.join("../docs/growth.svg")
        }
    });
    std::fs::write(&picture, svg::draw(&panels(&reports)))
        .map_err(BenchError::file("write", &picture))?;
    print_line("");
    print_line(&text(&reports));
    print_line(&format!("wrote the chart to {}", picture.display()));
    Ok(())
}

async fn measure(
    flags: &Flags,
    size: SimSize,
    phases: &Phases,
    session: &Session,
) -> Result<(), BenchError> {
    let mut servers = flags.programs.servers()?;
    if size.nodes > flags.max_peer_nodes {
        servers.retain(|server| server.name == program::KUBEVITALS);
    }
    let plan = Plan {
        schedule: Schedule::OneAfterOther,
        repeats: flags.run.repeats_or(1, 1),
    };
    let report = report::new(
        "growth",
        session,
        &servers,
        report::parameters(size, phases),
        plan.schedule,
        Phases::metrics(),
    );
    let name = session.file_name(&format!("growth.{size}"));
    let mut campaign = Campaign::new(plan, report, &session.results, &name);
    if flags.resume {
        campaign = campaign.resumed();
    }
    if campaign.remaining().is_empty() {
        return Ok(());
    }
    print_line(&format!("{size}"));
    let program = flags.programs.kubevitals()?;
    let testbed = Testbed::start(&program, size, &[], &session.scratch).await?;
    let measured = campaign.run(usize::MAX, async |index, repeat| {
        let server = servers.get(index).expect("the campaign has these servers");
        print_line(&format!(
            "{size}: {}, measurement {}",
            server.name,
            repeat + 1
        ));
        testbed.measure(server, phases).await
    });
    let measured = measured.await;
    testbed.stop().await;
    measured
}

fn sizes(flags: &Flags) -> Vec<SimSize> {
    if !flags.sizes.is_empty() {
        return flags.sizes.clone();
    }
    let mut sizes = SIZES.to_vec();
    if flags.run.quick {
        sizes.retain(|size| size.nodes <= 100);
    }
    sizes
}

fn read(session: &Session, size: SimSize) -> Option<Report> {
    let name = session.file_name(&format!("growth.{size}"));
    let text = std::fs::read(session.results.join(format!("{name}.json"))).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Returns the cost of a program at a size, in the unit of the chart.
fn cost_of(report: &Report, name: &str, cost: &Cost) -> Option<f64> {
    let measured = report.contenders.iter().find(|one| one.name == name)?;
    let value = measured.spread(cost.key)?.median;
    let window = if cost.is_time {
        report.parameters.get("duration-seconds")?.parse().ok()?
    } else {
        1.0
    };
    Some(value / window / cost.unit)
}

/// Returns the programs of some reports, ours first.
fn names(reports: &[(SimSize, Report)]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for measured in reports.iter().flat_map(|(_, report)| &report.contenders) {
        if !names.contains(&measured.name) {
            names.push(measured.name.clone());
        }
    }
    names
}

fn panels(reports: &[(SimSize, Report)]) -> Vec<Panel> {
    let line = |name: &String, cost: &Cost| Line {
        name: name.clone(),
        points: reports
            .iter()
            .filter(|(size, _)| size.pods_per_node == DRAWN_PODS)
            .filter_map(|(size, report)| {
                let value = cost_of(report, name, cost).filter(|value| *value > 0.0)?;
                Some((f64::from(size.nodes), value))
            })
            .collect(),
    };
    let drawn = COSTS.iter().filter(|cost| cost.key != "cpu.scrape");
    drawn
        .map(|cost| Panel {
            title: cost.title.to_owned(),
            lines: names(reports).iter().map(|name| line(name, cost)).collect(),
        })
        .collect()
}

/// Formats the costs as Markdown, with the cost of a node and of a pod.
fn text(reports: &[(SimSize, Report)]) -> String {
    let mut text = String::new();
    for cost in &COSTS {
        let _ = writeln!(text, "{}\n", cost.title);
        let _ = write!(text, "| nodes × pods |");
        let names = names(reports);
        for name in &names {
            let _ = write!(text, " {name} |");
        }
        let _ = writeln!(text, "\n|---|{}", "---|".repeat(names.len()));
        for (size, report) in reports {
            let _ = write!(text, "| {} × {} |", size.nodes, size.pods_per_node);
            for name in &names {
                match cost_of(report, name, cost) {
                    Some(value) => {
                        let _ = write!(text, " {value:.1} |");
                    }
                    None => text.push_str(" |"),
                }
            }
            text.push('\n');
        }
        text.push('\n');
        for name in &names {
            let _ = writeln!(text, "- {}", fitted(reports, name, cost));
        }
        text.push('\n');
    }
    text
}

/// Describes the cost of a node and of a pod in one line.
fn fitted(reports: &[(SimSize, Report)], name: &str, cost: &Cost) -> String {
    let points: Vec<Point> = reports
        .iter()
        .filter_map(|(size, report)| {
            Some(Point {
                nodes: f64::from(size.nodes),
                pods: f64::from(size.nodes) * f64::from(size.pods_per_node),
                cost: cost_of(report, name, cost)?,
            })
        })
        .collect();
    match Fit::of(&points) {
        Some(Fit {
            fixed,
            node,
            pod,
            worst,
        }) => format!(
            "{name}: {fixed:.2} + {:.3} per 1,000 nodes + {:.3} per 1,000 pods (maximum error {:.0} %)",
            node * 1e3,
            pod * 1e3,
            worst * 100.0
        ),
        None => format!("{name}: too few sizes for the cost of a node and of a pod"),
    }
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
    fn a_quick_run_is_limited_to_100_nodes() {
        let flags = |words: &[&str]| Flags::parse_from(["bench"].iter().chain(words));
        assert_eq!(sizes(&flags(&[])).len(), SIZES.len());
        assert_eq!(
            sizes(&flags(&["--quick"])),
            [SimSize::new(10, 30), SimSize::new(100, 30)]
        );
        assert_eq!(sizes(&flags(&["--size=7x5"])), [SimSize::new(7, 5)]);
    }
}
