//! The processor time of a probe by `kubevitals prober` and by `blackbox_exporter`: the same
//! targets at the same rate, with the same modules.

mod case;
mod contenders;
mod drive;
mod simulated;
mod targets;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use kubevitals_bench::contender::Running;
use kubevitals_bench::flags::RunFlags;
use kubevitals_bench::measure::{Plan, Schedule, Values};
use kubevitals_bench::proc::scheduled_time;
use kubevitals_bench::result::{ContenderResult, Metric, Report};
use kubevitals_bench::session::{self, Session, check_conditions, print_line};
use kubevitals_bench::{BenchError, versions};

use self::case::Case;
use self::contenders::{Prober, TargetServers};
use self::drive::Pace;

const BLACKBOX: &str = "blackbox_exporter";

/// Largest share of `blackbox_exporter`'s processor time.
const MAX_CPU_SHARE: f64 = 0.25;

/// Probes of each target before those that are measured.
const WARM_UP: Pace = Pace {
    rate: 10,
    seconds: 1,
};

/// Compare the cost of probes with `blackbox_exporter`
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench prober")]
struct Flags {
    #[command(flatten)]
    run: RunFlags,

    /// Probes per second
    #[arg(long, value_name = "N", default_value_t = 100,
          value_parser = clap::value_parser!(u32).range(1..=500))]
    rate: u32,

    /// Duration of each kind of probe [default: 10, with --quick 3]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=3_600))]
    seconds: Option<u32>,

    /// Measure cluster mode on a simulated cluster of 5,000 nodes (see --size) instead, for a
    /// minute
    #[arg(long)]
    sim: bool,

    #[command(flatten)]
    parameters: simulated::SimFlags,

    /// Path of kubevitals [default: next to this program]
    #[arg(long, value_name = "FILE")]
    kubevitals: Option<PathBuf>,

    /// Path of `blackbox_exporter`
    #[arg(long, value_name = "FILE", env = "KUBEVITALS_BLACKBOX_EXPORTER")]
    blackbox_exporter: Option<PathBuf>,

    /// Measure one program only
    #[arg(long, value_name = "NAME", value_parser = ["kubevitals", "blackbox"])]
    only: Option<String>,

    #[command(subcommand)]
    mode: Option<Mode>,
}

#[derive(Debug, Subcommand)]
enum Mode {
    /// The servers that are probed, for the harness
    #[command(hide = true)]
    Targets { folder: PathBuf },
}

/// What the probes of one case cost.
struct CaseCost {
    probes: u64,
    cpu: Duration,
    values: Values,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    match &flags.mode {
        Some(Mode::Targets { folder }) => match targets::serve(folder) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                print_line(&format!("error: {error}"));
                ExitCode::FAILURE
            }
        },
        None if flags.sim => session::run_all(&flags.run, async |session| {
            let program = flags.program()?;
            simulated::run(&flags.parameters, flags.run.quick, &program, session).await
        }),
        None => session::run_all(&flags.run, async |session| run(&flags, session).await),
    }
}

async fn run(flags: &Flags, session: &Session) -> Result<(), BenchError> {
    let pace = Pace {
        rate: flags.rate,
        seconds: flags.seconds.unwrap_or(flags.run.pick(10, 3)),
    };
    let plan = Plan {
        schedule: Schedule::OneAfterOther,
        repeats: flags.run.repeats_or(3, 1),
    };
    let servers = TargetServers::start(&session.scratch).await?;
    let probers = flags.probers(session).await?;
    print_line(&format!(
        "{} kinds of probes, {} per second for {} s each; {} turns of {} contenders",
        Case::ALL.len(),
        pace.rate,
        pace.seconds,
        plan.repeats,
        probers.len()
    ));
    let measured = plan.run(probers.len(), async |index, _| {
        let prober = probers
            .get(index)
            .expect("the plan has as many as there are");
        measure(prober, &servers, pace).await
    });
    let measured = measured.await?;
    let contenders = probers.iter().zip(measured);
    let contenders = contenders.map(|(prober, repeats)| ContenderResult {
        name: prober.name().to_owned(),
        repeats,
    });
    let report = Report {
        bench: "prober".to_owned(),
        started: session.started.clone(),
        machine: session.machine.clone(),
        versions: versions::of(&session.bench, &["rustls", "hyper"], &[]).await,
        parameters: BTreeMap::from([
            ("rate".to_owned(), pace.rate.to_string()),
            ("seconds".to_owned(), pace.seconds.to_string()),
        ]),
        schedule: plan.schedule,
        baseline: BLACKBOX.to_owned(),
        metrics: metrics(),
        contenders: contenders.collect(),
    };
    for prober in probers {
        prober.end().await;
    }
    session.show(&report);
    let path = report.write(&session.results, &session.file_name(&report.bench))?;
    print_line(&format!("wrote all values to {}", path.display()));
    check_conditions(
        &violations(&report),
        "the same verdicts, a quarter of blackbox_exporter's processor time",
    )
}

fn metrics() -> Vec<Metric> {
    let mut metrics = vec![Metric::seconds("cpu", "CPU per probe, all kinds")];
    for case in Case::ALL {
        let key = case.key();
        let (cpu, label) = (format!("cpu.{key}"), format!("  {key}"));
        metrics.push(Metric::seconds(&cpu, &label));
    }
    for case in Case::ALL {
        let key = case.key();
        for quantile in ["p50", "p99"] {
            let label = format!("duration of {key}, {quantile}");
            metrics.push(Metric::seconds(&format!("{quantile}.{key}"), &label));
        }
    }
    metrics.push(Metric::bytes("rss", "RSS at the end"));
    metrics.push(Metric::count("probes", "probes"));
    metrics
}

/// Measures all cases of one contender.
#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
async fn measure(
    prober: &Prober,
    servers: &TargetServers,
    pace: Pace,
) -> Result<Values, BenchError> {
    let mut values = Values::new();
    let (mut probes, mut cpu) = (0_u64, Duration::ZERO);
    let mut running = None;
    for case in Case::ALL {
        let mut current = match running.take() {
            Some(current) if !prober.restarts() => current,
            _ => prober.start(case, servers.targets(), pace).await?,
        };
        let mut cost = prober.measure(&mut current, case, servers, pace).await?;
        let each = cost.cpu.as_secs_f64() / cost.probes.max(1) as f64;
        values.insert(format!("cpu.{}", case.key()), each);
        values.append(&mut cost.values);
        probes += cost.probes;
        cpu += cost.cpu;
        let rss = current.process.memory()?.resident;
        values.insert("rss".to_owned(), rss as f64);
        if prober.restarts() {
            current.process.stop().await;
        } else {
            running = Some(current);
        }
    }
    if let Some(last) = running {
        last.process.stop().await;
    }
    values.insert("cpu".to_owned(), cpu.as_secs_f64() / probes.max(1) as f64);
    values.insert("probes".to_owned(), probes as f64);
    Ok(values)
}

/// Processor time since the start of a program: ticks count threads that have ended, the
/// scheduler's clock is finer.
#[derive(Debug, Clone, Copy)]
struct CpuMark {
    ticks: Duration,
    scheduled: Duration,
}

impl CpuMark {
    fn read(process: &Running) -> Result<Self, BenchError> {
        Ok(Self {
            ticks: process.cpu()?,
            scheduled: scheduled_time(process.pid())?,
        })
    }

    /// The larger of both, so that neither hides something.
    fn since(self, earlier: Self) -> Duration {
        let ticks = self.ticks.saturating_sub(earlier.ticks);
        ticks.max(self.scheduled.saturating_sub(earlier.scheduled))
    }
}

/// Returns the conditions that are not met, as clauses. Verdicts are checked where they are made.
fn violations(report: &Report) -> Vec<String> {
    let Some(cpu) = report.metrics.iter().find(|metric| metric.key == "cpu") else {
        return Vec::new();
    };
    let ours = report.contenders.iter().filter(|one| one.name != BLACKBOX);
    let shares = ours.filter_map(|one| {
        let share = 1.0 / report.ratio(one, cpu)?.median;
        let problem = format!(
            "{} takes {share:.2} of blackbox_exporter's processor time, more than {MAX_CPU_SHARE}",
            one.name
        );
        (share > MAX_CPU_SHARE).then_some(problem)
    });
    shares.collect()
}

impl Flags {
    fn program(&self) -> Result<PathBuf, BenchError> {
        if let Some(program) = &self.kubevitals {
            return Ok(program.clone());
        }
        let own = std::env::current_exe().map_err(BenchError::file("locate", "this program"))?;
        Ok(own.with_file_name("kubevitals"))
    }

    async fn probers(&self, session: &Session) -> Result<Vec<Prober>, BenchError> {
        let wants = |name: &str| self.only.as_deref().is_none_or(|only| only == name);
        let mut probers = Vec::new();
        if wants("kubevitals") {
            probers.extend(Prober::kubevitals(&self.program()?, session).await?);
        }
        if wants("blackbox") {
            let program = self.blackbox_exporter.clone().ok_or_else(|| {
                BenchError::NoContender("--blackbox-exporter is not given".to_owned())
            })?;
            probers.push(Prober::blackbox(program, session));
        }
        Ok(probers)
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
}
