//! A server under many simultaneous requests for the full list, half of them from slow readers:
//! does it keep its memory, its resolution and its probes, and do rejected clients get a
//! `Retry-After`?
//!
//! Two rounds: one with the server's own limits, one with a limit so low that some requests must be
//! rejected. A condition that is not met fails the benchmark, after the table.

mod conditions;
mod readers;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use clap::Parser;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use kubevitals_bench::BenchError;
use kubevitals_bench::flags::RunFlags;
use kubevitals_bench::measure::{Plan, Schedule, Values};
use kubevitals_bench::result::{ContenderResult, Metric, Unit};
use kubevitals_bench::serving::reads::API_PODS;
use kubevitals_bench::serving::{ServerFlags, ServerProgram, Testbed, report, reported};
use kubevitals_bench::session::{self, Session, check_conditions, print_line};
use kubevitals_bench::sim::SimSize;
use tokio::sync::Barrier;
use tokio::time::{Instant, sleep};

use self::conditions::Bounds;
use self::readers::{KUBELET, Liveness, Outcome, READERS, Reader, probe};

/// Interval of requests for the ages of samples.
const AGES_INTERVAL: Duration = Duration::from_secs(3);

/// Load a server with many simultaneous readers
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench load")]
struct Flags {
    #[command(flatten)]
    run: RunFlags,

    #[command(flatten)]
    programs: ServerFlags,

    /// Size of the cluster [default: 1000x30, with --quick 100x30]
    #[arg(long, value_name = "NODESxPODS")]
    size: Option<SimSize>,

    /// Scrape interval of the server, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(10..=300))]
    resolution: u64,

    /// Clients that request the full list at the same time
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    readers: u32,

    /// Number of them that read slowly
    #[arg(long, value_name = "N", default_value_t = 100)]
    slow: u32,

    /// Read rate of slow clients, in KiB per second
    #[arg(long, value_name = "KIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pace: u32,

    /// Duration of each round, in seconds [default: 60, with --quick 20]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    hold: Option<u64>,

    /// Maximum requests in flight in the second round
    #[arg(long, value_name = "N", default_value_t = 50)]
    max_inflight: u32,
}

/// One round of load.
#[derive(Debug, Clone, Copy)]
struct Round {
    name: &'static str,
    /// None for the server's own limit.
    max_inflight: Option<u32>,
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    session::run_all(&flags.run, async |session| run(&flags, session).await)
}

async fn run(flags: &Flags, session: &Session) -> Result<(), BenchError> {
    let size = flags.size.unwrap_or(
        flags
            .run
            .pick(SimSize::new(1_000, 30), SimSize::new(100, 30)),
    );
    let server = flags.programs.server()?;
    let testbed =
        Testbed::start(&flags.programs.kubevitals()?, size, &[], &session.scratch).await?;
    let rounds = [
        Round {
            name: "its own limits",
            max_inflight: None,
        },
        Round {
            name: "low limit",
            max_inflight: Some(flags.max_inflight),
        },
    ];
    let plan = Plan {
        schedule: Schedule::OneAfterOther,
        repeats: 1,
    };
    let measured = plan.run(rounds.len(), async |index, _| {
        let round = rounds.get(index).expect("the plan has these rounds");
        round.measure(flags, &testbed, &server).await
    });
    let measured = measured.await;
    testbed.stop().await;

    let mut report = report::new(
        "load",
        session,
        &[server],
        parameters(flags, size),
        plan.schedule,
        metrics(),
    );
    report.contenders = rounds
        .iter()
        .zip(measured?)
        .map(|(round, repeats)| ContenderResult {
            name: round.name.to_owned(),
            repeats,
        })
        .collect();
    session.show(&report);
    let path = report.write(&session.results, &session.file_name("load"))?;
    print_line(&format!("wrote all values to {}", path.display()));
    let bounds = Bounds::new(flags.readers, Duration::from_secs(flags.resolution));
    let violations: Vec<String> = rounds
        .iter()
        .zip(&report.contenders)
        .filter_map(|(round, measured)| Some((round, measured.repeats.first()?)))
        .flat_map(|(round, repeat)| {
            let violations = bounds.violations(&repeat.values, round.max_inflight.is_some());
            violations
                .into_iter()
                .map(|clause| format!("{}: {clause}", round.name))
        })
        .collect();
    check_conditions(&violations, &bounds.to_string())
}

impl Round {
    async fn measure(
        self,
        flags: &Flags,
        testbed: &Testbed,
        server: &ServerProgram,
    ) -> Result<Values, BenchError> {
        let resolution = Duration::from_secs(flags.resolution);
        let hold = Duration::from_secs(flags.hold.unwrap_or(flags.run.pick(60, 20)));
        let limit = self
            .max_inflight
            .map(|n| format!("--max-requests-inflight={n}"));
        let limit: Vec<String> = limit.into_iter().collect();
        print_line(&format!("{}, with {}", server.name, self.name));
        let (mut running, address) = testbed.serve(server, resolution, &limit).await?;
        let client = testbed.client(address)?;
        testbed
            .first_metrics(&mut running, &client, resolution)
            .await?;
        let pause = async {
            sleep(resolution).await;
            Ok(())
        };
        let ((), before) = running.during(pause).await?;

        let tls = testbed.sim.identity.self_signed_tls()?;
        let all = Arc::new(Barrier::new(usize::try_from(flags.readers).unwrap_or(1)));
        let readers: FuturesUnordered<_> = (0..flags.readers)
            .map(|number| {
                let reader = Reader {
                    address,
                    tls: tls.clone(),
                    path: API_PODS,
                    pace: (number < flags.slow).then(|| flags.pace.saturating_mul(1024)),
                    max_duration: hold,
                };
                reader.read(Arc::clone(&all))
            })
            .collect();
        let done = Arc::new(AtomicBool::new(false));
        let probers = [KUBELET, READERS].map(|from| {
            let (tls, done) = (tls.clone(), Arc::clone(&done));
            std::thread::spawn(move || probe(from, address, &tls, &done))
        });
        let deadline = Instant::now() + hold;
        let work = async {
            let ages = async {
                let mut oldest = Duration::ZERO;
                while Instant::now() < deadline {
                    sleep(AGES_INTERVAL).await;
                    if let Some(ages) = reported::ages(&client).await? {
                        oldest = oldest.max(ages.oldest);
                    }
                }
                Ok::<_, BenchError>(oldest)
            };
            let (outcomes, oldest) = tokio::join!(readers.collect::<Vec<Outcome>>(), ages);
            Ok((outcomes, oldest?))
        };
        let measured = running.during(work).await;
        done.store(true, Ordering::SeqCst);
        let [liveness, of_readers] = probers.map(|prober| prober.join().unwrap_or_default());
        let ((outcomes, oldest), during) = measured?;
        let pause = async {
            sleep(resolution).await;
            Ok(())
        };
        let ((), after) = running.during(pause).await?;
        running.stop().await;

        let mut values = conditions::count(&outcomes);
        let latencies = [
            ("livez.p50", liveness.seconds(0.5)),
            ("livez.max", liveness.seconds(1.0)),
            ("livez.readers_max", of_readers.seconds(1.0)),
        ];
        let latencies = latencies
            .into_iter()
            .filter_map(|(key, value)| Some((key.to_owned(), value?)));
        values.extend(latencies);
        #[expect(
            clippy::cast_precision_loss,
            reason = "counts and sizes are far below 2^53"
        )]
        values.extend([
            (
                "livez.failed".to_owned(),
                (liveness.failed + of_readers.failed) as f64,
            ),
            ("livez.count".to_owned(), liveness.latency.count() as f64),
            ("rss.before".to_owned(), before.steady),
            ("rss.peak".to_owned(), during.max as f64),
            ("rss.after".to_owned(), after.steady),
            ("cpu".to_owned(), during.cpu.as_secs_f64()),
            ("age.max".to_owned(), oldest.as_secs_f64()),
        ]);
        print_probes("a kubelet", &liveness);
        print_probes("the readers", &of_readers);
        if let Some(failure) = outcomes
            .iter()
            .find(|one| matches!(one, Outcome::Failed(_)))
        {
            print_line(&format!("a reader failed: {failure:?}"));
        }
        Ok(values)
    }
}

fn print_probes(source: &str, probes: &Liveness) {
    if let Some(slowest) = probes.slowest {
        print_line(&format!("slowest /livez from {source}: {slowest}"));
    }
    if let Some(failure) = &probes.first_failure {
        print_line(&format!("first failure of /livez from {source}: {failure}"));
    }
}

fn metrics() -> Vec<Metric> {
    vec![
        Metric::info("rss.before", "RSS before", Unit::Bytes),
        Metric::info("rss.peak", "maximum RSS meanwhile", Unit::Bytes),
        Metric::info("rss.after", "RSS after", Unit::Bytes),
        Metric::info("cpu", "CPU meanwhile", Unit::Seconds),
        Metric::info("age.max", "oldest node sample meanwhile", Unit::Seconds),
        Metric::info("livez.p50", "/livez, p50", Unit::Seconds),
        Metric::info("livez.max", "  slowest", Unit::Seconds),
        Metric::info(
            "livez.readers_max",
            "  slowest, from the readers' address",
            Unit::Seconds,
        ),
        Metric::count("livez.count", "  succeeded"),
        Metric::count("livez.failed", "  failed"),
        Metric::count("whole", "readers with the whole list"),
        Metric::count("cut", "  disconnected before its end"),
        Metric::count("away", "  rejected (429)"),
        Metric::count("away.blank", "  of these without Retry-After"),
        Metric::count("failed", "  failed otherwise"),
    ]
}

fn parameters(flags: &Flags, size: SimSize) -> std::collections::BTreeMap<String, String> {
    let hold = flags.hold.unwrap_or(flags.run.pick(60, 20));
    let pairs = [
        ("size", size.to_string()),
        ("resolution-seconds", flags.resolution.to_string()),
        ("readers", flags.readers.to_string()),
        ("slow-readers", flags.slow.to_string()),
        ("pace-kib-per-second", flags.pace.to_string()),
        ("hold-seconds", hold.to_string()),
        ("max-inflight", flags.max_inflight.to_string()),
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
