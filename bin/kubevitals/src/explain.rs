//! `kubevitals explain`: why a pod took so long to start, or which pods took longest, read once
//! from the API server.
//!
//! Nothing is installed in the cluster: what is known comes from the pods' states and from what is
//! left of their events.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::sync::Arc;
use std::time::SystemTime;

use clap::{Arg, Args, ValueEnum};
use kubevitals_cli::flags::go_bool;
use kubevitals_cli::{CliError, InvalidSetting, RunError};
use kubevitals_jsonl::{LifecycleLines, TransitionLines};
use kubevitals_model::{GoDuration, Timestamp};
use kubevitals_telemetry::logs::ansi_allowed;
use kubevitals_transitions::{Arrival, Existing, Output, PodRecord, Tracker, TrackerConfig};
use kubevitals_watch::{Event, Pod};

use self::api::Api;
use self::target::{Target, Wanted};
use crate::kubeconfig::KubeconfigFlags;
use crate::waterfall::Waterfall;

mod api;
mod follow;
mod look;
mod slowest;
mod table;
mod target;

/// What is kept of each of them is small, but nobody reads through more.
const MAX_SLOWEST: u32 = 10_000;

/// Flags of the explanation.
#[derive(Debug, Clone, Args)]
#[command(mut_args(go_bools))]
pub struct ExplainFlags {
    /// The pod: `pod NAMESPACE/NAME`, `pod NAME` or `pod/NAME`; more names may follow
    #[arg(value_name = "POD")]
    pub target: Vec<String>,

    /// Instead of one pod the N that took longest from creation to ready, or have taken so far (20
    /// if no N is given)
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "20",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SLOWEST)))]
    pub slowest: Option<u32>,

    /// The namespace; else that of the context, or with --slowest all of them
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// With --slowest: all namespaces, as is the default
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// With --slowest: only pods whose labels satisfy this
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,

    /// With --slowest: only pods that were created within this time
    #[arg(long, value_name = "DURATION")]
    pub since: Option<GoDuration>,

    /// Wait until the pod is ready, or never will be; Ctrl-C shows how far it is
    #[arg(short, long)]
    pub watch: bool,

    /// What to print [default: waterfall, or with --slowest table]
    #[arg(short, long, value_enum)]
    pub output: Option<ExplainOutput>,

    #[command(flatten)]
    pub(crate) cluster: KubeconfigFlags,
}

/// What an explanation looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExplainOutput {
    /// A picture of each pod's start, with the cause of its longest phase in words
    Waterfall,
    /// A line for each pod
    Table,
    /// The same with node, pool and age, and nothing cut off
    Wide,
    /// The JSON lines that `kubevitals transitions --lifecycle` writes
    Json,
}

/// A pod as it is explained.
pub(crate) struct Explained {
    pub(crate) record: PodRecord,
    /// The pool of its node.
    pub(crate) pool: Option<Arc<str>>,
}

/// Reads what is asked for and prints it.
pub fn run(flags: &ExplainFlags, out: &mut (dyn Write + Send)) -> Result<(), RunError> {
    let wanted = Wanted::read(flags)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RunError::runtime)?;
    let ended = runtime.block_on(explain(flags, wanted, out));
    // A plugin that gives out credentials may still run.
    runtime.shutdown_background();
    ended
}

async fn explain(
    flags: &ExplainFlags,
    wanted: Wanted,
    out: &mut (dyn Write + Send),
) -> Result<(), RunError> {
    let config = flags.cluster.load().await?;
    let namespace = config.default_namespace.clone();
    let api = Api::new(config.clone())?;
    let form = flags.output.unwrap_or(wanted.usual_output());
    let now = now();
    let (found, summary) = match wanted {
        Wanted::Slowest(which) => {
            let (found, counts) = slowest::find(&api, &which, now).await?;
            (found, Some(counts.to_string()))
        }
        Wanted::Pods(targets) if flags.watch => {
            let mut found = Vec::new();
            for target in &targets {
                let target = target.in_namespace(&namespace);
                found.push(follow::until_settled(&api, &config, &target).await?);
            }
            (found, None)
        }
        Wanted::Pods(targets) => {
            let mut found = Vec::new();
            for target in &targets {
                let target = target.in_namespace(&namespace);
                found.push(look::at_pod(&api, &target, now).await?);
            }
            (found, None)
        }
    };
    print(form, &found, summary.as_deref(), now, out)
}

/// What is known of a pod that is looked at once.
///
/// What the API has no time for is left without one: when it was first seen, which is now, says
/// nothing about it.
pub(crate) fn record_of<'e>(
    pod: &Arc<Pod>,
    events: impl IntoIterator<Item = &'e Event>,
    now: Timestamp,
) -> PodRecord {
    let mut tracker = Tracker::new(TrackerConfig {
        linger: None,
        existing: Existing::All,
        ..TrackerConfig::default()
    });
    let mut life = None;
    let mut take = |output: Output| {
        if let Output::Life(record) = output {
            life = Some(record);
        }
    };
    tracker.pod(pod, Arrival::Listed, None, &mut take);
    for event in events {
        tracker.event(event, &mut take);
    }
    tracker.finish(&mut take);
    let life = life.expect("a pod that was given in has a life at the end");
    as_of(Arc::unwrap_or_clone(life), now)
}

/// Of a pod that is still starting, how long it has so far.
fn as_of(mut record: PodRecord, now: Timestamp) -> PodRecord {
    record.doubt_readiness();
    if !record.is_settled() {
        record.latest = record.latest.max(Some(now));
    }
    record
}

fn print(
    form: ExplainOutput,
    pods: &[Explained],
    summary: Option<&str>,
    now: Timestamp,
    out: &mut (dyn Write + Send),
) -> Result<(), RunError> {
    let mut out = BufWriter::new(out);
    let done = match form {
        ExplainOutput::Json => write_lines(pods, now, &mut out),
        ExplainOutput::Waterfall => draw(pods, now, &mut out),
        ExplainOutput::Table => table::write(pods, summary, None, &mut out),
        ExplainOutput::Wide => table::write(pods, summary, Some(now), &mut out),
    };
    match done.and_then(|()| out.flush()) {
        // Whoever read it has seen enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(RunError::runtime(format!("cannot write: {error}")))
        }
        _ => Ok(()),
    }
}

fn write_lines(pods: &[Explained], now: Timestamp, out: &mut impl Write) -> io::Result<()> {
    let lines = TransitionLines {
        compat: false,
        lifecycle: LifecycleLines::AtEnd,
    };
    for pod in pods {
        let record = Arc::new(pod.record.clone());
        for output in [Output::Startup(Arc::clone(&record)), Output::Life(record)] {
            out.write_all(&lines.render(&output, now))?;
        }
    }
    Ok(())
}

fn draw(pods: &[Explained], now: Timestamp, out: &mut impl Write) -> io::Result<()> {
    let no_color = std::env::var_os("NO_COLOR");
    let in_color = ansi_allowed(no_color.as_deref(), io::stdout().is_terminal());
    let mut waterfall = Waterfall::live(in_color, now);
    for pod in pods {
        waterfall.draw(&pod.record, pod.pool.as_deref(), out)?;
    }
    if pods.len() > 1 {
        waterfall.sum_up(out)?;
    }
    Ok(())
}

impl Target {
    fn in_namespace(&self, usual: &str) -> Self {
        Self {
            namespace: Some(self.namespace.clone().unwrap_or_else(|| usual.to_owned())),
            name: self.name.clone(),
        }
    }
}

fn now() -> Timestamp {
    Timestamp::from_system_time(SystemTime::now())
}

/// Written as kubectl takes them.
fn go_bools(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "all_namespaces" | "watch" => go_bool(arg),
        _ => arg,
    }
}

/// Nobody is left to tell when standard error is closed.
fn note(text: &str) {
    let _ = writeln!(io::stderr(), "warning: {}", crate::waterfall::plain(text));
}

/// Words that name no pod.
fn misused(problem: &str, advice: &str) -> RunError {
    let words = format!("{problem}; {advice}\n");
    let error = clap::Error::raw(clap::error::ErrorKind::ValueValidation, words);
    RunError::from(CliError::Usage(Box::new(error)))
}

/// What cannot be meant.
fn refused(flag: &'static str, value: impl Into<String>, problem: &str, advice: &str) -> RunError {
    RunError::from(InvalidSetting {
        flag,
        value: value.into(),
        problem: problem.to_owned(),
        advice: advice.to_owned(),
    })
}
