//! Pod changes received by `kubevitals transitions`, next to a shared informer of client-go that
//! only counts them: both read the same stream of the same fake API server, each on one core.

mod contenders;
mod fake_apiserver;
mod script;
mod simulated;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use kubevitals_bench::flags::RunFlags;
use kubevitals_bench::measure::{Plan, Schedule, Values};
use kubevitals_bench::result::{Better, ContenderResult, Metric, Report, Unit};
use kubevitals_bench::session::{self, Session, print_line};
use kubevitals_bench::{BenchError, go, versions};
use tokio::time::{Instant, sleep};

use self::contenders::{FakeApiServer, Watcher};
use self::script::Script;

/// The peer.
const INFORMER: &str = "client-go informer";

const KUBEVITALS: &str = "kubevitals transitions";

/// Pause between the list and the first change, so that work after the list is done.
const SETTLE_TIME: Duration = Duration::from_secs(2);

/// Process pod changes on one core
#[derive(Debug, Parser)]
#[command(name = "cargo xtask bench transitions")]
struct Flags {
    #[command(flatten)]
    run: RunFlags,

    /// Pods that are listed and then started [default: 20000, with --quick 2000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pods: Option<u32>,

    /// Run on a simulated cluster with 150,000 pods in which 1,000 are created per second (see
    /// --quick), for a minute
    #[arg(long)]
    sim: bool,

    #[command(flatten)]
    parameters: simulated::SimFlags,

    /// Path of kubevitals [default: next to this program]
    #[arg(long, value_name = "FILE")]
    kubevitals: Option<PathBuf>,

    /// Measure one program only
    #[arg(long, value_name = "NAME", value_parser = ["kubevitals", "informer"])]
    only: Option<String>,

    #[command(subcommand)]
    mode: Option<Mode>,
}

#[derive(Debug, Subcommand)]
enum Mode {
    /// The fake API server, for the harness
    #[command(hide = true)]
    FakeApiserver { pods: usize, kubeconfig: PathBuf },
}

fn main() -> ExitCode {
    let flags = Flags::parse();
    match &flags.mode {
        Some(Mode::FakeApiserver { pods, kubeconfig }) => {
            match fake_apiserver::serve(*pods, kubeconfig) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    print_line(&format!("error: {error}"));
                    ExitCode::FAILURE
                }
            }
        }
        None if flags.sim => session::run_all(&flags.run, async |session| {
            simulated::run(
                &flags.parameters,
                flags.run.quick,
                &flags.program()?,
                session,
            )
            .await
        }),
        None => session::run(&flags.run, async |session| run(&flags, session).await),
    }
}

async fn run(flags: &Flags, session: &Session) -> Result<Report, BenchError> {
    let pods = flags.pods.unwrap_or(flags.run.pick(20_000, 2_000));
    let script = Script::new(usize::try_from(pods).unwrap_or(usize::MAX));
    let watchers = flags.watchers(session).await?;
    let plan = Plan {
        schedule: Schedule::OneAfterOther,
        repeats: flags.run.repeats_or(3, 2),
    };
    let (updates, bytes) = (script.updates(), script.update_bytes());
    print_line(&format!(
        "{pods} pods, then {updates} changes of {} bytes on average; {} turns of {} contenders",
        bytes.checked_div(updates).unwrap_or_default(),
        plan.repeats,
        watchers.len()
    ));
    let measured = plan.run(watchers.len(), async |index, _| {
        let watcher = watchers
            .get(index)
            .expect("the plan has as many as there are");
        measure(watcher, &script, session).await
    });
    let measured = measured.await?;
    let contenders = watchers
        .iter()
        .zip(measured)
        .map(|(watcher, repeats)| ContenderResult {
            name: watcher.name().to_owned(),
            repeats,
        });
    let count = |key, label, better| Metric::new(key, label, Unit::Count, better);
    Ok(Report {
        bench: "transitions".to_owned(),
        started: session.started.clone(),
        machine: session.machine.clone(),
        versions: versions::of(&session.bench, &["kube"], &["k8s.io/client-go"]).await,
        parameters: BTreeMap::from([
            ("pods".to_owned(), pods.to_string()),
            ("updates".to_owned(), updates.to_string()),
            ("bytes".to_owned(), bytes.to_string()),
        ]),
        schedule: plan.schedule,
        baseline: INFORMER.to_owned(),
        metrics: vec![
            count("rate", "changes per second, one core", Better::Higher),
            Metric::seconds("cpu", "CPU per change"),
            Metric::bytes("steady", "RSS meanwhile, median"),
            Metric::bytes("peak", "  peak since the start"),
            Metric::bytes("listed", "  after the list"),
            Metric::seconds("list.cpu", "CPU per listed pod"),
            Metric::count("updates", "changes received"),
            Metric::count("lines", "pods with a record"),
            Metric::count("feeder", "cores used by the fake API server"),
        ],
        contenders: contenders.collect(),
    })
}

/// Measures one contender from the list to the last change.
async fn measure(
    watcher: &Watcher,
    script: &Script,
    session: &Session,
) -> Result<Values, BenchError> {
    let folder = tempfile::Builder::new().tempdir_in(&session.scratch);
    let folder = folder.map_err(BenchError::file("create", &session.scratch))?;
    let mut server = FakeApiServer::start(script.pods(), folder.path()).await?;
    let mut running = watcher.start(server.kubeconfig(), folder.path()).await?;
    let listed = u64::try_from(script.pods()).unwrap_or(u64::MAX);
    running.until_listed(listed).await?;
    sleep(SETTLE_TIME).await;
    let list_cpu = running.process.cpu()?;
    let after_list = running.process.memory()?.resident;
    let wanted = script.updates();
    let (started, server_cpu) = (Instant::now(), server.cpu()?);
    let counts = running.counts.clone();
    let work = async {
        server.send_all().await?;
        let (seen, requested_at) = counts.until_changed(wanted).await?;
        Ok((
            seen,
            requested_at - started,
            server.cpu()?.saturating_sub(server_cpu),
        ))
    };
    let ((seen, took, server_cpu), usage) = running.process.during(work).await?;
    running.counts.until_confirmed(wanted).await?;
    let lines = running.end().await?;
    server.stop().await;
    #[expect(
        clippy::cast_precision_loss,
        reason = "counts and bytes are far below 2^53"
    )]
    let number = |count: u64| count as f64;
    let mut values = Values::from([
        ("rate".to_owned(), number(seen) / took.as_secs_f64()),
        ("cpu".to_owned(), usage.cpu.as_secs_f64() / number(seen)),
        ("steady".to_owned(), usage.steady),
        ("peak".to_owned(), number(usage.peak)),
        ("listed".to_owned(), number(after_list)),
        (
            "list.cpu".to_owned(),
            list_cpu.as_secs_f64() / number(listed),
        ),
        ("updates".to_owned(), number(seen)),
        (
            "feeder".to_owned(),
            server_cpu.as_secs_f64() / took.as_secs_f64(),
        ),
    ]);
    if let Some(lines) = lines {
        values.insert("lines".to_owned(), number(lines));
    }
    Ok(values)
}

impl Flags {
    fn program(&self) -> Result<PathBuf, BenchError> {
        if let Some(program) = &self.kubevitals {
            return Ok(program.clone());
        }
        let own = std::env::current_exe().map_err(BenchError::file("locate", "this program"))?;
        Ok(own.with_file_name("kubevitals"))
    }

    async fn watchers(&self, session: &Session) -> Result<Vec<Watcher>, BenchError> {
        let wants = |name: &str| self.only.as_deref().is_none_or(|only| only == name);
        let mut watchers = Vec::new();
        if wants("kubevitals") {
            watchers.push(Watcher::Kubevitals(self.program()?));
        }
        if wants("informer") {
            match go::build(&session.bench, "informer", &session.scratch).await? {
                Some(program) => watchers.push(Watcher::Informer(program)),
                None => print_line("Go is not installed: its contenders are skipped"),
            }
        }
        if watchers.is_empty() {
            return Err(BenchError::NoContender("Go is not installed".to_owned()));
        }
        Ok(watchers)
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
