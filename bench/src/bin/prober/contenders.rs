//! The programs that probe, and the servers that they probe.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use kubevitals_bench::BenchError;
use kubevitals_bench::contender::{Contender, Running};
use kubevitals_bench::measure::Values;
use kubevitals_bench::serving::free_address;
use kubevitals_bench::session::Session;
use kubevitals_bench::sim::{SimProcess, SimSize, poll_until};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::sleep;

use crate::case::{self, Case};
use crate::drive::{Driven, Pace, PlainClient, total};
use crate::targets::Targets;
use crate::{BLACKBOX, CaseCost, CpuMark, WARM_UP};

const ENDPOINT: &str = "kubevitals prober, /probe";
const SCHEDULED: &str = "kubevitals prober, scheduled";

const START_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// First runs are spread over an interval of a second, and wait for the first lists.
const FIRST_RUNS: Duration = Duration::from_secs(3);

/// A program and how it is made to probe.
#[derive(Debug)]
pub(crate) struct Prober {
    kind: Kind,
    program: PathBuf,
    scratch: PathBuf,
}

/// A running prober, and where it answers.
#[derive(Debug)]
pub(crate) struct RunningProber {
    pub(crate) process: Running,
    client: PlainClient,
}

#[derive(Debug, Clone)]
enum Kind {
    Blackbox,
    /// By requests of `/probe`.
    Endpoint(Rc<SimProcess>),
    /// By itself.
    Scheduled(Rc<SimProcess>),
}

/// The servers that are probed.
#[derive(Debug)]
pub(crate) struct TargetServers {
    targets: Targets,
    control: PlainClient,
    _process: Running,
    _streams: (ChildStdin, ChildStdout),
}

impl TargetServers {
    pub(crate) async fn start(scratch: &Path) -> Result<Self, BenchError> {
        let own = std::env::current_exe().map_err(BenchError::file("locate", "this program"))?;
        let contender = Contender {
            name: "the targets".to_owned(),
            program: own,
            arguments: vec!["targets".to_owned(), scratch.display().to_string()],
            environment: Vec::new(),
            log: scratch.join("targets.log"),
        };
        let (process, stdin, mut stdout) = contender.start_piped()?;
        let mut line = String::new();
        BufReader::new(&mut stdout)
            .read_line(&mut line)
            .await
            .map_err(BenchError::file("read from", "the targets"))?;
        let targets: Targets = serde_json::from_str(&line)?;
        Ok(Self {
            control: PlainClient::new(targets.control),
            targets,
            _process: process,
            _streams: (stdin, stdout),
        })
    }

    pub(crate) fn targets(&self) -> &Targets {
        &self.targets
    }

    /// The number of probes that have reached a target.
    async fn reached(&self, case: Case) -> Result<u64, BenchError> {
        let text = self.control.get("/counts").await?;
        let counts: std::collections::BTreeMap<String, u64> = serde_json::from_str(&text)?;
        Ok(counts.get(case.key()).copied().unwrap_or_default())
    }
}

impl Prober {
    /// Both ways to probe with ours. It needs an API server: that of a cluster of one node.
    pub(crate) async fn kubevitals(
        program: &Path,
        session: &Session,
    ) -> Result<[Self; 2], BenchError> {
        let sim = SimProcess::start(program, SimSize::new(1, 1), &[], &session.scratch).await?;
        let sim = Rc::new(sim);
        let kinds = [Kind::Endpoint(Rc::clone(&sim)), Kind::Scheduled(sim)];
        Ok(kinds.map(|kind| Self::new(kind, program.to_owned(), session)))
    }

    pub(crate) fn blackbox(program: PathBuf, session: &Session) -> Self {
        Self::new(Kind::Blackbox, program, session)
    }

    fn new(kind: Kind, program: PathBuf, session: &Session) -> Self {
        Self {
            kind,
            program,
            scratch: session.scratch.clone(),
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        match self.kind {
            Kind::Blackbox => BLACKBOX,
            Kind::Endpoint(_) => ENDPOINT,
            Kind::Scheduled(_) => SCHEDULED,
        }
    }

    /// Whether each case needs a process of its own: what is scheduled is in the configuration.
    pub(crate) fn restarts(&self) -> bool {
        matches!(self.kind, Kind::Scheduled(_))
    }

    /// Ends what it needs besides its own process.
    pub(crate) async fn end(self) {
        if let Kind::Endpoint(sim) | Kind::Scheduled(sim) = self.kind
            && let Ok(sim) = Rc::try_unwrap(sim)
        {
            sim.stop().await;
        }
    }

    /// Starts it and waits until it answers.
    pub(crate) async fn start(
        &self,
        case: Case,
        targets: &Targets,
        pace: Pace,
    ) -> Result<RunningProber, BenchError> {
        let address = free_address().await?;
        let text = match self.kind {
            Kind::Blackbox => case::blackbox_config(targets),
            Kind::Endpoint(_) => case::endpoint_config(targets),
            Kind::Scheduled(_) => case::scheduled_config(targets, case, pace.rate)?,
        };
        let file = self.scratch.join("prober.yaml");
        std::fs::write(&file, text).map_err(BenchError::file("write", &file))?;
        let file = file.display();
        let arguments = match &self.kind {
            Kind::Blackbox => vec![
                format!("--config.file={file}"),
                format!("--web.listen-address={address}"),
            ],
            Kind::Endpoint(sim) | Kind::Scheduled(sim) => vec![
                "prober".to_owned(),
                "--mode=cluster".to_owned(),
                "--provider=prometheus".to_owned(),
                format!("--kubeconfig={}", sim.kubeconfig().display()),
                format!("--probes={file}"),
                format!("--listen-address={address}"),
            ],
        };
        let contender = Contender {
            name: self.name().to_owned(),
            program: self.program.clone(),
            arguments,
            environment: Vec::new(),
            log: self.scratch.join("prober.log"),
        };
        let mut process = contender.start()?;
        let client = PlainClient::new(address);
        let path = match self.kind {
            Kind::Blackbox => "/-/healthy",
            Kind::Endpoint(_) | Kind::Scheduled(_) => "/readyz",
        };
        poll_until(
            "the prober to be ready",
            POLL_INTERVAL,
            START_TIMEOUT,
            async || {
                process.check()?;
                Ok(client.get(path).await.ok())
            },
        )
        .await?;
        Ok(RunningProber { process, client })
    }

    /// Measures the probes of one case.
    pub(crate) async fn measure(
        &self,
        running: &mut RunningProber,
        case: Case,
        servers: &TargetServers,
        pace: Pace,
    ) -> Result<CaseCost, BenchError> {
        let RunningProber { process, client } = running;
        process.check()?;
        match self.kind {
            Kind::Blackbox | Kind::Endpoint(_) => {
                let target = case.target(servers.targets())?;
                self.check(case, &client.drive(case, &target, WARM_UP).await?)?;
                let reached = servers.reached(case).await?;
                let before = CpuMark::read(process)?;
                let driven = client.drive(case, &target, pace).await?;
                let cpu = CpuMark::read(process)?.since(before);
                let reached = servers.reached(case).await?.saturating_sub(reached);
                self.check(case, &driven)?;
                self.check_work(reached, driven.probes)?;
                let mut values = Values::new();
                let quantiles = driven.durations.quantiles();
                for (name, share) in [("p50", 0.5), ("p99", 0.99)] {
                    if let Some(duration) = quantiles.at(share) {
                        let key = format!("{name}.{}", case.key());
                        values.insert(key, duration.as_secs_f64());
                    }
                }
                Ok(CaseCost {
                    probes: driven.probes,
                    cpu,
                    values,
                })
            }
            Kind::Scheduled(_) => {
                sleep(FIRST_RUNS).await;
                let earlier = runs(client).await?;
                let reached = servers.reached(case).await?;
                let before = CpuMark::read(process)?;
                sleep(Duration::from_secs(pace.seconds.into())).await;
                let cpu = CpuMark::read(process)?.since(before);
                let reached = servers.reached(case).await?.saturating_sub(reached);
                let later = runs(client).await?;
                let succeeded = later.succeeded.saturating_sub(earlier.succeeded);
                let probes = later.probes.saturating_sub(earlier.probes);
                self.check(
                    case,
                    &Driven {
                        probes,
                        succeeded,
                        ..Driven::default()
                    },
                )?;
                let wanted = u64::from(pace.total());
                // A tenth may be due on the other side of an end of the window.
                if reached.abs_diff(wanted) > wanted.div_ceil(10) {
                    self.check_work(reached, wanted)?;
                }
                Ok(CaseCost {
                    probes: reached,
                    cpu,
                    values: Values::new(),
                })
            }
        }
    }

    /// Checks that every verdict is the expected one.
    fn check(&self, case: Case, driven: &Driven) -> Result<(), BenchError> {
        let expected = if case.succeeds() { driven.probes } else { 0 };
        if driven.succeeded == expected && driven.probes > 0 {
            return Ok(());
        }
        Err(BenchError::ConditionsNotMet(format!(
            "{} says that {} of {} probes of {} succeed, expected {expected}",
            self.name(),
            driven.succeeded,
            driven.probes,
            case.key(),
        )))
    }

    fn check_work(&self, reached: u64, wanted: u64) -> Result<(), BenchError> {
        if reached == wanted {
            return Ok(());
        }
        Err(BenchError::DifferentWork {
            name: self.name().to_owned(),
            found: reached,
            reference: "the pace".to_owned(),
            expected: wanted,
        })
    }
}

/// The runs of all probes so far, by its own metrics.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are whole and not negative"
)]
async fn runs(client: &PlainClient) -> Result<Driven, BenchError> {
    let text = client.get("/metrics").await?;
    let count = |name: &str| total(&text, name).unwrap_or(0.0) as u64;
    Ok(Driven {
        probes: count("kubevitals_probe_total"),
        succeeded: count("kubevitals_probe_success_total"),
        ..Driven::default()
    })
}
