//! A server while many ask for everything at once, and half of them read slowly: does it keep its
//! memory, its resolution and its probes, and does whom it turns away learn when to come back?
//!
//! Two rounds: one with the server's own limits, one with so few places that some must be turned
//! away. A condition that is missed ends the benchmark with an error, after the table.

mod readers;
mod verdict;

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
use kubevitals_bench::result::{Better, Measured, Metric, Unit};
use kubevitals_bench::serving::reads::API_PODS;
use kubevitals_bench::serving::{Bed, ServerFlags, ServerProgram, program, report, told};
use kubevitals_bench::session::{self, Session, held, say};
use kubevitals_bench::sim::SimSize;
use tokio::sync::Barrier;
use tokio::time::{Instant, sleep};

use self::readers::{Ended, KUBELET, READERS, Reader, probe};
use self::verdict::Bounds;

/// How often samples' ages are looked at meanwhile.
const LOOK_AT_AGES: Duration = Duration::from_secs(3);

/// Hold a server under many readers at once
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench load")]
struct Flags {
    #[command(flatten)]
    run: RunFlags,

    #[command(flatten)]
    programs: ServerFlags,

    /// The cluster [default: 1000x30, with --quick 100x30]
    #[arg(long, value_name = "NODESxPODS")]
    size: Option<SimSize>,

    /// How often the server scrapes, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u64).range(10..=300))]
    resolution: u64,

    /// Who asks for the full list, all at once
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    readers: u32,

    /// How many of them read slowly
    #[arg(long, value_name = "N", default_value_t = 100)]
    slow: u32,

    /// How slowly, in KiB per second
    #[arg(long, value_name = "KIB", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pace: u32,

    /// How long they stay, in seconds [default: 60, with --quick 20]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=3600))]
    hold: Option<u64>,

    /// Places of the second round
    #[arg(long, value_name = "N", default_value_t = 50)]
    places: u32,
}

/// One round.
#[derive(Debug, Clone, Copy)]
struct Round {
    name: &'static str,
    /// None leaves the server's own limit.
    places: Option<u32>,
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
    let wanted = flags.programs.only.as_deref();
    let wanted = wanted.unwrap_or(program::KUBEVITALS);
    let servers = flags.programs.servers()?;
    let Some(server) = servers.into_iter().find(|server| server.name == wanted) else {
        return Err(BenchError::NoContender(format!("{wanted} is not known")));
    };
    let bed = Bed::start(&flags.programs.kubevitals()?, size, &[], &session.scratch).await?;
    let rounds = [
        Round {
            name: "its own limits",
            places: None,
        },
        Round {
            name: "few places",
            places: Some(flags.places),
        },
    ];
    let plan = Plan {
        schedule: Schedule::OneAfterOther,
        repeats: 1,
    };
    let measured = plan.run(rounds.len(), async |index, _| {
        let round = rounds.get(index).expect("the plan counts these rounds");
        round.hold(flags, &bed, &server).await
    });
    let measured = measured.await;
    bed.stop().await;

    let mut report = report::begun(
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
        .map(|(round, repeats)| Measured {
            name: round.name.to_owned(),
            repeats,
        })
        .collect();
    session.show(&report);
    let path = report.write(&session.results, &session.file_name("load"))?;
    say(&format!("every number is in {}", path.display()));
    let bounds = Bounds::new(flags.readers, Duration::from_secs(flags.resolution));
    let missed: Vec<String> = rounds
        .iter()
        .zip(&report.contenders)
        .filter_map(|(round, measured)| Some((round, measured.repeats.first()?)))
        .flat_map(|(round, repeat)| {
            let missed = bounds.missed(&repeat.values, round.places.is_some());
            missed
                .into_iter()
                .map(|what| format!("{}: {what}", round.name))
        })
        .collect();
    held(&missed, &bounds.to_string())
}

impl Round {
    async fn hold(
        self,
        flags: &Flags,
        bed: &Bed,
        server: &ServerProgram,
    ) -> Result<Values, BenchError> {
        let resolution = Duration::from_secs(flags.resolution);
        let hold = Duration::from_secs(flags.hold.unwrap_or(flags.run.pick(60, 20)));
        let limit = self.places.map(|n| format!("--max-requests-inflight={n}"));
        let limit: Vec<String> = limit.into_iter().collect();
        say(&format!("{}, with {}", server.name, self.name));
        let (mut running, address) = bed.serve(server, resolution, &limit).await?;
        let client = bed.client(address)?;
        bed.first_metrics(&mut running, &client, resolution).await?;
        let pause = async {
            sleep(resolution).await;
            Ok(())
        };
        let ((), before) = running.during(pause).await?;

        let tls = bed.sim.identity.self_signed_tls()?;
        let all = Arc::new(Barrier::new(usize::try_from(flags.readers).unwrap_or(1)));
        let readers: FuturesUnordered<_> = (0..flags.readers)
            .map(|number| {
                let reader = Reader {
                    address,
                    tls: tls.clone(),
                    path: API_PODS,
                    pace: (number < flags.slow).then(|| flags.pace.saturating_mul(1024)),
                    stays: hold,
                };
                reader.read(Arc::clone(&all))
            })
            .collect();
        let done = Arc::new(AtomicBool::new(false));
        let probers = [KUBELET, READERS].map(|from| {
            let (tls, done) = (tls.clone(), Arc::clone(&done));
            std::thread::spawn(move || probe(from, address, &tls, &done))
        });
        let until = Instant::now() + hold;
        let work = async {
            let ages = async {
                let mut oldest = Duration::ZERO;
                while Instant::now() < until {
                    sleep(LOOK_AT_AGES).await;
                    if let Some(ages) = told::ages(&client).await? {
                        oldest = oldest.max(ages.oldest);
                    }
                }
                Ok::<_, BenchError>(oldest)
            };
            let (ended, oldest) = tokio::join!(readers.collect::<Vec<Ended>>(), ages);
            Ok((ended, oldest?))
        };
        let held = running.during(work).await;
        done.store(true, Ordering::SeqCst);
        let [liveness, of_readers] = probers.map(|prober| prober.join().unwrap_or_default());
        let ((ended, oldest), during) = held?;
        let pause = async {
            sleep(resolution).await;
            Ok(())
        };
        let ((), after) = running.during(pause).await?;
        running.stop().await;

        let mut values = verdict::count(&ended);
        let told = [
            ("livez.p50", liveness.seconds(0.5)),
            ("livez.max", liveness.seconds(1.0)),
            ("livez.readers_max", of_readers.seconds(1.0)),
        ];
        let told = told
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)));
        values.extend(told.map(|(key, value)| (key.to_owned(), value)));
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
            ("rss.peak".to_owned(), during.most as f64),
            ("rss.after".to_owned(), after.steady),
            ("cpu".to_owned(), during.cpu.as_secs_f64()),
            ("age.max".to_owned(), oldest.as_secs_f64()),
        ]);
        for (whose, probes) in [("a kubelet", &liveness), ("the readers", &of_readers)] {
            if let Some(slowest) = probes.slowest {
                let words = format!("slowest /livez from the address of {whose}, {slowest}");
                say(&words);
            }
            if let Some(failure) = &probes.first_failure {
                say(&format!(
                    "/livez from the address of {whose} failed, first: {failure}"
                ));
            }
        }
        if let Some(failure) = ended.iter().find(|one| matches!(one, Ended::Failed(_))) {
            say(&format!("a reader failed: {failure:?}"));
        }
        Ok(values)
    }
}

fn metrics() -> Vec<Metric> {
    let told = |key, label, unit| Metric::new(key, label, unit, Better::Neither);
    vec![
        told("rss.before", "RSS before", Unit::Bytes),
        told("rss.peak", "most RSS meanwhile", Unit::Bytes),
        told("rss.after", "RSS after", Unit::Bytes),
        told("cpu", "CPU meanwhile", Unit::Seconds),
        told(
            "age.max",
            "oldest sample of a node meanwhile",
            Unit::Seconds,
        ),
        told("livez.p50", "/livez, p50", Unit::Seconds),
        told("livez.max", "  slowest", Unit::Seconds),
        told(
            "livez.readers_max",
            "  slowest, from the readers' address",
            Unit::Seconds,
        ),
        told("livez.count", "  answered", Unit::Count),
        told("livez.failed", "  failed", Unit::Count),
        told("whole", "readers with the whole list", Unit::Count),
        told("cut", "  that left in the middle", Unit::Count),
        told("away", "  that were turned away (429)", Unit::Count),
        told("away.blank", "  of them without Retry-After", Unit::Count),
        told("failed", "  that failed otherwise", Unit::Count),
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
        ("places", flags.places.to_string()),
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
