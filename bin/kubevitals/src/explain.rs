//! `kubevitals explain`: why a pod took so long to start, or which pods took longest, read once
//! from the API server.
//!
//! The logic is in `crates/roles/explain`; this file reads the flags and prints.

use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::sync::Arc;

use clap::{Arg, Args, ValueEnum};
use kubevitals_cli::flags::go_bool;
use kubevitals_cli::{CliError, InvalidSetting, RunError, forward_signals};
use kubevitals_explain::{ExplainedPod, Explainer};
use kubevitals_jsonl::{LifecycleLines, TransitionLines};
use kubevitals_model::{Clock, GoDuration, Timestamp};
use kubevitals_telemetry::logs::ansi_allowed;
use kubevitals_terminal::{TableRow, Waterfall, write_table};
use kubevitals_transitions::Output;

use self::notices::StderrNotices;
use self::target::Selection;
use crate::kubeconfig::KubeconfigFlags;

pub(crate) mod notices;
mod target;

const MAX_SLOWEST: u32 = 10_000;

#[derive(Debug, Clone, Args)]
#[command(mut_args(go_bools))]
pub struct ExplainFlags {
    /// The pod: `pod NAMESPACE/NAME`, `pod NAME` or `pod/NAME`; more names may follow
    #[arg(value_name = "POD")]
    pub target: Vec<String>,

    /// Instead of named pods, the N pods that took longest from creation to ready, or are taking
    /// longest (20 if N is omitted)
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "20",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SLOWEST)))]
    pub slowest: Option<u32>,

    /// The namespace [default: that of the context, or with --slowest all]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// With --slowest: all namespaces, which is the default
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// With --slowest: only pods whose labels match
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,

    /// With --slowest: only pods created within this time
    #[arg(long, value_name = "DURATION")]
    pub since: Option<GoDuration>,

    /// Wait until the pod is ready or has failed; Ctrl-C prints the current state
    #[arg(short, long)]
    pub watch: bool,

    /// Output format [default: waterfall, or with --slowest table]
    #[arg(short, long, value_enum)]
    pub output: Option<ExplainOutput>,

    #[command(flatten)]
    pub(crate) cluster: KubeconfigFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExplainOutput {
    /// The phases of each start as bars, with the cause of the longest
    Waterfall,
    /// A line for each pod
    Table,
    /// A line for each pod with node, pool, age and the whole cause
    Wide,
    /// The JSON lines that `kubevitals transitions --lifecycle` writes
    Json,
}

/// Reads the pods that the flags select and prints them.
pub fn run(flags: &ExplainFlags, out: &mut (dyn Write + Send)) -> Result<(), RunError> {
    let selection = Selection::parse(flags)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(RunError::runtime)?;
    let result = runtime.block_on(explain(flags, selection, out));
    // A credential plugin may still run.
    runtime.shutdown_background();
    result
}

async fn explain(
    flags: &ExplainFlags,
    selection: Selection,
    out: &mut (dyn Write + Send),
) -> Result<(), RunError> {
    let clock = Clock::system();
    let config = flags.cluster.load().await?;
    let namespace = config.default_namespace.clone();
    let mut notices = StderrNotices::new();
    let mut explainer = Explainer::new(config, clock.clone(), &mut notices)?;
    let output = flags.output.unwrap_or(selection.default_output());
    let read_at = clock.now();
    let (pods, summary) = match selection {
        Selection::Slowest(query) => {
            let (pods, summary) = explainer.slowest(&query).await?;
            (pods, Some(summary.to_string()))
        }
        Selection::Pods(targets) => {
            // Without --watch a signal ends the process, as by default.
            let signals = flags.watch.then(forward_signals).transpose();
            let mut signals = signals.map_err(RunError::runtime)?;
            let mut pods = Vec::new();
            for target in targets {
                let pod = target.in_namespace(&namespace);
                pods.push(match &mut signals {
                    Some(signals) => explainer.wait(&pod, signals.recv()).await?,
                    None => explainer.pod(&pod).await?,
                });
            }
            (pods, None)
        }
    };
    print(output, &pods, summary.as_deref(), read_at, out)
}

fn print(
    output: ExplainOutput,
    pods: &[ExplainedPod],
    summary: Option<&str>,
    now: Timestamp,
    out: &mut (dyn Write + Send),
) -> Result<(), RunError> {
    let mut out = BufWriter::new(out);
    let rows = || -> Vec<TableRow<'_>> {
        let rows = pods.iter().map(|pod| TableRow {
            record: &pod.record,
            pool: pod.pool.as_deref(),
        });
        rows.collect()
    };
    let written = match output {
        ExplainOutput::Json => write_lines(pods, now, &mut out),
        ExplainOutput::Waterfall => draw(pods, now, &mut out),
        ExplainOutput::Table => write_table(&rows(), summary, None, &mut out),
        ExplainOutput::Wide => write_table(&rows(), summary, Some(now), &mut out),
    };
    match written.and_then(|()| out.flush()) {
        // A closed pipe means that the reader has seen enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(RunError::runtime(format!("cannot write output: {error}")))
        }
        _ => Ok(()),
    }
}

fn write_lines(pods: &[ExplainedPod], now: Timestamp, out: &mut impl Write) -> io::Result<()> {
    let lines = TransitionLines {
        compat: false,
        lifecycle: LifecycleLines::AtEnd,
    };
    for pod in pods {
        let record = Arc::new(pod.record.clone());
        for output in [
            Output::Startup(Arc::clone(&record)),
            Output::Lifecycle(record),
        ] {
            out.write_all(&lines.render(&output, now))?;
        }
    }
    Ok(())
}

fn draw(pods: &[ExplainedPod], now: Timestamp, out: &mut impl Write) -> io::Result<()> {
    let no_color = std::env::var_os("NO_COLOR");
    let in_color = ansi_allowed(no_color.as_deref(), io::stdout().is_terminal());
    let mut waterfall = Waterfall::live(in_color, now);
    for pod in pods {
        waterfall.draw(&pod.record, pod.pool.as_deref(), out)?;
    }
    if pods.len() > 1 {
        waterfall.summarize(out)?;
    }
    Ok(())
}

/// Booleans as kubectl accepts them.
fn go_bools(arg: Arg) -> Arg {
    match arg.get_id().as_str() {
        "all_namespaces" | "watch" => go_bool(arg),
        _ => arg,
    }
}

/// An error about the positional arguments.
fn invalid_arguments(problem: &str, advice: &str) -> RunError {
    let message = format!("{problem}; {advice}\n");
    let error = clap::Error::raw(clap::error::ErrorKind::ValueValidation, message);
    RunError::from(CliError::Usage(Box::new(error)))
}

/// An error about a flag.
fn invalid_flag(
    flag: &'static str,
    value: impl Into<String>,
    problem: &str,
    advice: &str,
) -> RunError {
    RunError::from(InvalidSetting {
        flag,
        value: value.into(),
        problem: problem.to_owned(),
        advice: advice.to_owned(),
    })
}
