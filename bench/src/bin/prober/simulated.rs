//! Cluster mode of `kubevitals prober` on a simulated cluster with many nodes.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use clap::Args;
use kubevitals_bench::contender::Contender;
use kubevitals_bench::measure::{Plan, Repeat, Schedule, Values};
use kubevitals_bench::result::{ContenderResult, Metric, Report, Unit};
use kubevitals_bench::serving::free_address;
use kubevitals_bench::session::{Session, check_conditions, print_line};
use kubevitals_bench::sim::{SimProcess, SimSize, poll_until};
use kubevitals_bench::{BenchError, versions};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::CpuMark;
use crate::drive::{PlainClient, total};

const NAME: &str = "kubevitals prober";

/// Bars.
const MAX_BYTES: f64 = 100.0 * 1024.0 * 1024.0;
const MAX_MILLICORES: f64 = 50.0;

/// Timeout of the first lists.
const LIST_TIMEOUT: Duration = Duration::from_mins(3);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// As Prometheus scrapes it.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(15);

/// Pause after the lists, so that what follows them is done.
const SETTLE_TIME: Duration = Duration::from_secs(5);

/// The simulated cluster of --sim
#[derive(Debug, Clone, Args)]
pub(crate) struct SimFlags {
    /// With --sim: size of the cluster [default: 5000x10, with --quick 500x10]
    #[arg(long, value_name = "NODESxPODS")]
    size: Option<SimSize>,

    /// With --sim: duration of the measurement [default: 60, with --quick 20]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(5..=86_400))]
    sim_seconds: Option<u64>,

    /// With --sim: time between two reports
    #[arg(long, value_name = "SECONDS", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=3_600))]
    report_interval: u32,
}

pub(crate) async fn run(
    flags: &SimFlags,
    is_quick: bool,
    program: &Path,
    session: &Session,
) -> Result<(), BenchError> {
    let default = if is_quick { 500 } else { 5_000 };
    let size = flags.size.unwrap_or(SimSize::new(default, 10));
    let seconds = flags.sim_seconds.unwrap_or(if is_quick { 20 } else { 60 });
    print_line(&format!(
        "starting {size}; cluster mode for {seconds} s, a report every {} s",
        flags.report_interval
    ));
    let sim = SimProcess::start(program, size, &[], &session.scratch).await?;
    let plan = Plan {
        schedule: Schedule::OneAfterOther,
        repeats: 1,
    };
    let measured = plan
        .run(1, async |_, _| {
            measure(flags, seconds, program, &sim, session).await
        })
        .await;
    sim.stop().await;
    let repeats = measured?.into_iter().next().unwrap_or_default();
    let violations = match repeats.first() {
        Some(repeat) => violations(&repeat.values, size),
        None => vec!["nothing was measured".to_owned()],
    };
    let report = report(flags, size, seconds, session, repeats).await;
    session.show(&report);
    let path = report.write(&session.results, &session.file_name("prober-sim"))?;
    print_line(&format!("wrote all values to {}", path.display()));
    check_conditions(&violations, "100 MiB, 50 mCPU, every node reported")
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts and sizes are far below 2^53"
)]
async fn measure(
    flags: &SimFlags,
    seconds: u64,
    program: &Path,
    sim: &SimProcess,
    session: &Session,
) -> Result<Values, BenchError> {
    let address = free_address().await?;
    let contender = Contender {
        name: NAME.to_owned(),
        program: program.to_owned(),
        arguments: vec![
            "prober".to_owned(),
            "--mode=cluster".to_owned(),
            "--provider=prometheus".to_owned(),
            "--leader-elect=true".to_owned(),
            "--namespace=kube-system".to_owned(),
            format!("--report-interval={}s", flags.report_interval),
            format!("--kubeconfig={}", sim.kubeconfig().display()),
            format!("--listen-address={address}"),
        ],
        environment: Vec::new(),
        log: session.scratch.join("prober.log"),
    };
    let mut running = contender.start()?;
    let client = PlainClient::new(address);
    poll_until(
        "the first report",
        POLL_INTERVAL,
        LIST_TIMEOUT,
        async || {
            running.check()?;
            let text = client.get("/metrics").await.unwrap_or_default();
            Ok(total(&text, "kubevitals_prober_cluster_node_available").map(drop))
        },
    )
    .await?;
    let ready = running.age();
    sleep(SETTLE_TIME).await;
    let (before, started) = (CpuMark::read(&running)?, Instant::now());
    let sim_before = sim.cpu()?;
    let end = started + Duration::from_secs(seconds);
    let work = async {
        let mut scrapes = interval(SCRAPE_INTERVAL);
        scrapes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut text = String::new();
        loop {
            tokio::select! {
                biased;
                () = tokio::time::sleep_until(end) => return Ok(text),
                _ = scrapes.tick() => text = client.get("/metrics").await?,
            }
        }
    };
    let (text, usage) = running.during(work).await?;
    let took = started.elapsed().as_secs_f64();
    let cpu = CpuMark::read(&running)?.since(before).as_secs_f64();
    let sim_cpu = sim.cpu()?.saturating_sub(sim_before).as_secs_f64();
    let anonymous = running.memory()?.anonymous;
    running.stop().await;
    let mut values = Values::from([
        ("cpu".to_owned(), 1e3 * cpu / took),
        ("steady".to_owned(), usage.steady),
        ("peak".to_owned(), usage.peak as f64),
        ("ready".to_owned(), ready.as_secs_f64()),
        ("exposed".to_owned(), text.len() as f64),
        ("sim.cpu".to_owned(), 1e3 * sim_cpu / took),
    ]);
    let nodes = total(&text, "kubevitals_prober_cluster_node_available");
    values.extend(nodes.map(|nodes| ("nodes".to_owned(), nodes)));
    values.extend(anonymous.map(|bytes| ("anonymous".to_owned(), bytes as f64)));
    Ok(values)
}

/// Returns the conditions that are not met, as clauses.
fn violations(values: &Values, size: SimSize) -> Vec<String> {
    let get = |key: &str| values.get(key).copied().unwrap_or(f64::NAN);
    let mut violations = Vec::new();
    let (peak, millicores, nodes) = (get("peak"), get("cpu"), get("nodes"));
    let holds = [
        (
            peak <= MAX_BYTES,
            format!("{:.1} MiB at the peak", peak / 1024.0 / 1024.0),
        ),
        (
            millicores <= MAX_MILLICORES,
            format!("{millicores:.1} mCPU"),
        ),
        (
            nodes >= f64::from(size.nodes),
            format!("{nodes} of {} nodes reported", size.nodes),
        ),
    ];
    for (holds, problem) in holds {
        if !holds {
            violations.push(problem);
        }
    }
    violations
}

async fn report(
    flags: &SimFlags,
    size: SimSize,
    seconds: u64,
    session: &Session,
    repeats: Vec<Repeat>,
) -> Report {
    Report {
        bench: "prober-sim".to_owned(),
        started: session.started.clone(),
        machine: session.machine.clone(),
        versions: versions::of(&session.bench, &["kube"], &[]).await,
        parameters: BTreeMap::from([
            ("size".to_owned(), size.to_string()),
            ("seconds".to_owned(), seconds.to_string()),
            (
                "report-interval".to_owned(),
                flags.report_interval.to_string(),
            ),
        ]),
        schedule: Schedule::OneAfterOther,
        baseline: NAME.to_owned(),
        metrics: vec![
            Metric::info("cpu", "mCPU", Unit::Count),
            Metric::info("steady", "RSS, median", Unit::Bytes),
            Metric::info("peak", "  peak since the start", Unit::Bytes),
            Metric::info("anonymous", "  anonymous at the end", Unit::Bytes),
            Metric::info("ready", "start to the first report", Unit::Seconds),
            Metric::info("nodes", "nodes reported", Unit::Count),
            Metric::info("exposed", "size of its metrics", Unit::Bytes),
            Metric::info("sim.cpu", "mCPU of the cluster", Unit::Count),
        ],
        contenders: vec![ContenderResult {
            name: NAME.to_owned(),
            repeats,
        }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_that_are_missed_or_unknown_are_violations() {
        let size = SimSize::new(10, 1);
        let values = |peak: f64| {
            Values::from([
                ("peak".to_owned(), peak),
                ("cpu".to_owned(), 10.0),
                ("nodes".to_owned(), 10.0),
            ])
        };
        assert_eq!(violations(&values(1e6), size), Vec::<String>::new());
        assert_eq!(violations(&values(1e9), size).len(), 1);
        assert_eq!(violations(&Values::new(), size).len(), 3);
    }
}
