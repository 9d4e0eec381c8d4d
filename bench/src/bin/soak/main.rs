//! A server on a cluster where pods are created and deleted all the time and every node is
//! replaced: its memory must stay flat.

mod series;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use http::StatusCode;
use kubevitals_bench::BenchError;
use kubevitals_bench::flags::RunFlags;
use kubevitals_bench::https::Client;
use kubevitals_bench::measure::{Plan, Schedule};
use kubevitals_bench::result::{ContenderResult, Metric, Unit};
use kubevitals_bench::serving::reads::API;
use kubevitals_bench::serving::{ServerFlags, Testbed, report, reported};
use kubevitals_bench::session::{self, Session, check_conditions, print_line};
use kubevitals_bench::sim::SimSize;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use self::series::{Rule, Sample, Series};

/// Interval of samples.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);

/// Churned pods run for a minute and a half at most, and Deployments are created until enough are
/// rolling: by then as many pods are deleted as created.
const WARM_UP: Duration = Duration::from_mins(3);

/// The last third may exceed the first by a twentieth and two megabytes.
const RULE: Rule = Rule {
    share: 0.05,
    slack: 2e6,
};

/// Run a server while everything in its cluster is replaced
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench soak")]
struct Flags {
    #[command(flatten)]
    run: RunFlags,

    #[command(flatten)]
    programs: ServerFlags,

    /// Size of the cluster
    #[arg(long, value_name = "NODESxPODS", default_value = "100x30")]
    size: SimSize,

    /// Duration after a warm-up of three minutes [default: 10, with --quick 2]
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: Option<u64>,

    /// Pods created and deleted per second
    #[arg(long, value_name = "N", default_value_t = 100)]
    churn: u32,

    /// Scrape interval of the server, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(10..=300))]
    resolution: u64,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    session::run_all(&flags.run, async |session| run(&flags, session).await)
}

async fn run(flags: &Flags, session: &Session) -> Result<(), BenchError> {
    let minutes = flags.minutes.unwrap_or(flags.run.pick(10, 2));
    let server = flags.programs.server()?;
    // Every node once during the measurement.
    let per_hour = u64::from(flags.size.nodes) * 60 / minutes.max(1);
    let more = [
        format!("--churn={}/s", flags.churn),
        format!("--replace-nodes={per_hour}/h"),
    ];
    print_line(&format!(
        "{} on {} with {} pods replaced per second and {per_hour} nodes per hour: {} minutes of warm-up, then {minutes} \
         minutes",
        server.name,
        flags.size,
        flags.churn,
        WARM_UP.as_secs() / 60,
    ));
    let program = flags.programs.kubevitals()?;
    let testbed = Testbed::start(&program, flags.size, &more, &session.scratch).await?;
    let resolution = Duration::from_secs(flags.resolution);
    let plan = Plan {
        schedule: Schedule::OneAfterOther,
        repeats: 1,
    };
    let mut series = Series::default();
    let sampled = std::cell::RefCell::new(&mut series);
    let measured = plan.run(1, async |_, _| {
        let (mut running, address) = testbed.serve(&server, resolution, &[]).await?;
        let client = testbed.client(address)?;
        sleep(WARM_UP).await;
        let started = Instant::now();
        let samples = async {
            let mut ticks = interval_at(started, SAMPLE_INTERVAL);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let sample = sample(running.pid(), &client, &testbed.sim.api, started).await?;
                sampled.borrow_mut().0.push(sample);
                if started.elapsed() >= Duration::from_secs(minutes * 60) {
                    return Ok::<_, BenchError>(());
                }
            }
        };
        samples.await?;
        running.check()?;
        let cpu = running.cpu()?;
        let mut values = sampled.borrow().values();
        values.insert("cpu".to_owned(), cpu.as_secs_f64());
        values.insert("cluster".to_owned(), testbed.cpu()?.as_secs_f64());
        if let Some(ages) = reported::ages(&client).await? {
            values.insert("age.max".to_owned(), ages.oldest.as_secs_f64());
            values.insert(
                "nodes".to_owned(),
                f64::from(u32::try_from(ages.nodes).unwrap_or(0)),
            );
        }
        running.stop().await;
        Ok(values)
    });
    let measured = measured.await;
    testbed.stop().await;
    let mut report = report::new(
        "soak",
        session,
        std::slice::from_ref(&server),
        parameters(flags, minutes),
        plan.schedule,
        metrics(),
    );
    report.contenders = measured?
        .into_iter()
        .map(|repeats| ContenderResult {
            name: server.name.to_owned(),
            repeats,
        })
        .collect();
    session.show(&report);
    let name = session.file_name("soak");
    let path = report.write(&session.results, &name)?;
    let samples = session.results.join(format!("{name}.csv"));
    std::fs::write(&samples, series.csv()).map_err(BenchError::file("write", &samples))?;
    print_line(&format!(
        "wrote all values to {}, all samples to {}",
        path.display(),
        samples.display()
    ));
    check_conditions(&series.violations(RULE), "memory and series stayed flat")
}

async fn sample(
    pid: u32,
    client: &Client,
    cluster: &Client,
    started: Instant,
) -> Result<Sample, BenchError> {
    let memory = kubevitals_bench::proc::Memory::read(pid)?;
    let (_, pods) = client
        .count(&format!("{API}/pods"), br#""window":"#)
        .await?;
    // A page of one pod has the number of remaining ones.
    let (_, list) = cluster.json("/api/v1/pods?limit=1").await?;
    let remaining = list.pointer("/metadata/remainingItemCount");
    let remaining = remaining.and_then(serde_json::Value::as_f64);
    let (status, text) = client.text("/metrics").await?;
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts and sizes are far below 2^53"
    )]
    Ok(Sample {
        at: started.elapsed().as_secs_f64(),
        rss: memory.resident as f64,
        pods: pods as f64,
        cluster: remaining.unwrap_or_default() + 1.0,
        series: if status == StatusCode::OK {
            series as f64
        } else {
            0.0
        },
    })
}

fn metrics() -> Vec<Metric> {
    vec![
        Metric::info("rss.first", "RSS, first third", Unit::Bytes),
        Metric::info("rss.last", "  last third", Unit::Bytes),
        Metric::info("rss.max", "  maximum", Unit::Bytes),
        Metric::info("rss.slope", "  growth per minute", Unit::Bytes),
        Metric::count("pods.first", "pods served, first third"),
        Metric::count("pods.last", "  last third"),
        Metric::count("cluster.pods.first", "pods of the cluster, first third"),
        Metric::count("cluster.pods.last", "  last third"),
        Metric::count("series.first", "series of its own metrics, first third"),
        Metric::count("series.last", "  last third"),
        Metric::count("nodes", "nodes served at the end"),
        Metric::info("age.max", "oldest node sample at the end", Unit::Seconds),
        Metric::info("cpu", "CPU in total", Unit::Seconds),
        Metric::info("cluster", "CPU of the cluster", Unit::Seconds),
    ]
}

fn parameters(flags: &Flags, minutes: u64) -> std::collections::BTreeMap<String, String> {
    let pairs = [
        ("size", flags.size.to_string()),
        ("minutes", minutes.to_string()),
        ("warm-up-minutes", (WARM_UP.as_secs() / 60).to_string()),
        ("churn-per-second", flags.churn.to_string()),
        ("resolution-seconds", flags.resolution.to_string()),
    ];
    let pairs = pairs.into_iter();
    pairs.map(|(key, value)| (key.to_owned(), value)).collect()
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
