//! A server for a while on a cluster where pods come and go all the time and every node is
//! replaced: its memory must stay what it is.

mod series;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use http::StatusCode;
use kubevitals_bench::BenchError;
use kubevitals_bench::flags::RunFlags;
use kubevitals_bench::https::Client;
use kubevitals_bench::measure::{Plan, Schedule};
use kubevitals_bench::result::{Better, Measured, Metric, Unit};
use kubevitals_bench::serving::reads::API;
use kubevitals_bench::serving::{Bed, ServerFlags, program, report, told};
use kubevitals_bench::session::{self, Session, held, say};
use kubevitals_bench::sim::SimSize;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use self::series::{Look, Rule, Series};

/// How often it is looked.
const EVERY: Duration = Duration::from_secs(5);

/// Pods that come and go live a minute and a half at most, and Deployments are made until enough
/// are rolling: by then as many go as come.
const WARM_UP: Duration = Duration::from_mins(3);

/// The last third may be a twentieth and two megabytes above the first.
const RULE: Rule = Rule {
    share: 0.05,
    slack: 2e6,
};

/// Keep a server running while everything in its cluster is replaced
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench soak")]
struct Flags {
    #[command(flatten)]
    run: RunFlags,

    #[command(flatten)]
    programs: ServerFlags,

    /// The cluster
    #[arg(long, value_name = "NODESxPODS", default_value = "100x30")]
    size: SimSize,

    /// How long, after a warm-up of three minutes [default: 10, with --quick 2]
    #[arg(long, value_name = "MINUTES", value_parser = clap::value_parser!(u64).range(1..=1440))]
    minutes: Option<u64>,

    /// Pods that come and go, per second
    #[arg(long, value_name = "N", default_value_t = 100)]
    churn: u32,

    /// How often the server scrapes, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(10..=300))]
    resolution: u64,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    session::run_all(&flags.run, async |session| run(&flags, session).await)
}

async fn run(flags: &Flags, session: &Session) -> Result<(), BenchError> {
    let minutes = flags.minutes.unwrap_or(flags.run.pick(10, 2));
    let wanted = flags.programs.only.as_deref();
    let wanted = wanted.unwrap_or(program::KUBEVITALS);
    let servers = flags.programs.servers()?;
    let Some(server) = servers.into_iter().find(|server| server.name == wanted) else {
        return Err(BenchError::NoContender(format!("{wanted} is not known")));
    };
    // Every node once while it is looked at.
    let per_hour = u64::from(flags.size.nodes) * 60 / minutes.max(1);
    let more = [
        format!("--churn={}/s", flags.churn),
        format!("--replace-nodes={per_hour}/h"),
    ];
    say(&format!(
        "{wanted} on {} with {} pods coming and going a second and {per_hour} nodes replaced an hour: {} minutes of warm-up, \
         then {minutes} minutes",
        flags.size,
        flags.churn,
        WARM_UP.as_secs() / 60,
    ));
    let program = flags.programs.kubevitals()?;
    let bed = Bed::start(&program, flags.size, &more, &session.scratch).await?;
    let resolution = Duration::from_secs(flags.resolution);
    let plan = Plan {
        schedule: Schedule::OneAfterOther,
        repeats: 1,
    };
    let mut series = Series::default();
    let looked = std::cell::RefCell::new(&mut series);
    let measured = plan.run(1, async |_, _| {
        let (mut running, address) = bed.serve(&server, resolution, &[]).await?;
        let client = bed.client(address)?;
        sleep(WARM_UP).await;
        let begun = Instant::now();
        let looks = async {
            let mut ticks = interval_at(begun, EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                let look = look(running.pid(), &client, &bed.sim.api, begun).await?;
                looked.borrow_mut().0.push(look);
                if begun.elapsed() >= Duration::from_secs(minutes * 60) {
                    return Ok::<_, BenchError>(());
                }
            }
        };
        looks.await?;
        running.check()?;
        let cpu = running.cpu()?;
        let mut values = looked.borrow().values();
        values.insert("cpu".to_owned(), cpu.as_secs_f64());
        values.insert("cluster".to_owned(), bed.cpu()?.as_secs_f64());
        if let Some(ages) = told::ages(&client).await? {
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
    bed.stop().await;
    let mut report = report::begun(
        "soak",
        session,
        std::slice::from_ref(&server),
        parameters(flags, minutes),
        plan.schedule,
        metrics(),
    );
    report.contenders = measured?
        .into_iter()
        .map(|repeats| Measured {
            name: server.name.to_owned(),
            repeats,
        })
        .collect();
    session.show(&report);
    let name = session.file_name("soak");
    let path = report.write(&session.results, &name)?;
    let looks = session.results.join(format!("{name}.csv"));
    std::fs::write(&looks, series.csv()).map_err(BenchError::file("write", &looks))?;
    say(&format!(
        "every number is in {}, every look in {}",
        path.display(),
        looks.display()
    ));
    held(&series.missed(RULE), "memory and series stayed flat")
}

async fn look(
    pid: u32,
    client: &Client,
    cluster: &Client,
    begun: Instant,
) -> Result<Look, BenchError> {
    let memory = kubevitals_bench::proc::Memory::read(pid)?;
    let (_, pods) = client
        .count(&format!("{API}/pods"), br#""window":"#)
        .await?;
    // One pod, and how many more there are.
    let (_, list) = cluster.json("/api/v1/pods?limit=1").await?;
    let remaining = list.pointer("/metadata/remainingItemCount");
    let remaining = remaining.and_then(serde_json::Value::as_f64);
    let (status, text) = client.text("/metrics").await?;
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts and sizes are far below 2^53"
    )]
    Ok(Look {
        at: begun.elapsed().as_secs_f64(),
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
    let told = |key, label, unit| Metric::new(key, label, unit, Better::Neither);
    vec![
        told("rss.first", "RSS, first third", Unit::Bytes),
        told("rss.last", "  last third", Unit::Bytes),
        told("rss.max", "  most", Unit::Bytes),
        told("rss.slope", "  growth a minute", Unit::Bytes),
        told("pods.first", "pods shown, first third", Unit::Count),
        told("pods.last", "  last third", Unit::Count),
        told(
            "cluster.pods.first",
            "pods of the cluster, first third",
            Unit::Count,
        ),
        told("cluster.pods.last", "  last third", Unit::Count),
        told(
            "series.first",
            "series of its own metrics, first third",
            Unit::Count,
        ),
        told("series.last", "  last third", Unit::Count),
        told("nodes", "nodes shown at the end", Unit::Count),
        told(
            "age.max",
            "oldest sample of a node at the end",
            Unit::Seconds,
        ),
        told("cpu", "CPU, all of it", Unit::Seconds),
        told("cluster", "CPU of the cluster", Unit::Seconds),
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
    fn the_flags_are_sound() {
        Flags::command().debug_assert();
    }
}
