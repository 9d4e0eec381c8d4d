//! `kubevitals explain`: why a pod took so long to start, which pods took longest, and how the pods
//! of a workload started, read once from the API server.
//!
//! The logic is in `crates/roles/explain`; this file reads the flags and prints.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::sync::Arc;

use clap::{Arg, Args, ValueEnum};
use kubevitals_cli::flags::go_bool;
use kubevitals_cli::{CliError, InvalidSetting, RunError, forward_signals};
use kubevitals_explain::{Checks, DiffReport, ExplainedPod, Explainer, diff_files};
use kubevitals_jsonl::{LifecycleLines, TransitionLines};
use kubevitals_model::{Clock, GoDuration, Timestamp};
use kubevitals_terminal::{TableRow, Waterfall, write_table};
use kubevitals_transitions::Output;
use kubevitals_transitions::stats::threshold::Threshold;

use self::notices::StderrNotices;
use self::target::{DiffSides, Selection};
use crate::kubeconfig::KubeconfigFlags;

pub(crate) mod notices;
mod reports;
mod target;
mod words;

const MAX_SLOWEST: u32 = 10_000;

#[derive(Debug, Clone, Args)]
#[command(mut_args(go_bools))]
pub struct ExplainFlags {
    /// `pod NAME...`, `deployment NAME`, `statefulset NAME`, `daemonset NAME`, `job NAME`, `node
    /// NAME`, or `diff`; a name may be NAMESPACE/NAME, and `pod/NAME` works too
    ///
    /// All pods of the newest revision of a workload, or of a node, are explained together.
    ///
    /// `diff deployment/NAME [REVISION REVISION]` compares two revisions, by number or hash;
    /// without them, the newest with the one before. `diff FILE FILE` compares the starts in two
    /// files of JSON lines, as `kubevitals transitions --lifecycle` writes them.
    #[arg(value_name = "TARGET")]
    pub target: Vec<String>,

    /// Instead of named pods, the N pods that took longest from creation to ready, or are taking
    /// longest (20 if N is omitted)
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "20",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SLOWEST)))]
    pub slowest: Option<u32>,

    /// Instead of single pods, the groups of pods that took longest (with --slowest N, the first N)
    #[arg(long, value_enum, value_name = "KEY")]
    pub by: Option<ByFlag>,

    /// With diff: the exit status is 2 if a statistic (p50, p90, p95, p99, max) is beyond a limit
    /// (p95=30s), or longer than before by more than a limit (p95=+5s, p95=+20%); may be repeated
    #[arg(long, value_name = "STATISTIC=LIMIT")]
    pub threshold: Vec<Threshold>,

    /// With diff: the fewest pods of each side for a verdict; with fewer the exit status is 3
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub min_pods: u32,

    /// The namespace [default: that of the context, or with --slowest, --by and files all]
    #[arg(short, long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,

    /// With --slowest and --by: all namespaces, which is the default
    #[arg(short = 'A', long)]
    pub all_namespaces: bool,

    /// With --slowest and --by: only pods whose labels match
    #[arg(short = 'l', long, value_name = "SELECTOR")]
    pub selector: Option<String>,

    /// With --slowest, --by, a workload or a node: only pods created within this time
    #[arg(long, value_name = "DURATION")]
    pub since: Option<GoDuration>,

    /// Wait until the pod is ready or has failed; Ctrl-C prints the current state
    #[arg(short, long)]
    pub watch: bool,

    /// Output format [default: waterfall for named pods, table for all else]
    #[arg(short, long, value_enum)]
    pub output: Option<ExplainOutput>,

    #[command(flatten)]
    pub(crate) cluster: KubeconfigFlags,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ExplainOutput {
    /// The phases of each start as bars, with the cause of the longest
    Waterfall,
    /// A line for each pod or group, or a summary of a workload or a node
    Table,
    /// The same with node, pool, age and the whole cause
    Wide,
    /// Of pods the JSON lines that `kubevitals transitions --lifecycle` writes, of all else one
    /// document
    Json,
    /// The same document as YAML
    Yaml,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum ByFlag {
    Image,
    Node,
    Workload,
    /// The pool of the node, from the labels of common providers
    Pool,
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
    let output = flags.output.unwrap_or(selection.default_output());
    let mut notices = StderrNotices::new();
    let checks = Checks {
        thresholds: flags.threshold.clone(),
        min_pods: usize::try_from(flags.min_pods).unwrap_or(usize::MAX),
    };
    if let Selection::Diff(DiffSides::Files(paths)) = &selection {
        let [before, after] = paths;
        let report = diff_files(
            [before, after],
            flags.namespace.as_deref(),
            &checks,
            &mut notices,
        )?;
        return print_diff(&report, output, out);
    }
    let config = flags.cluster.load().await?;
    let namespace = config.default_namespace.clone();
    let mut explainer = Explainer::new(config, clock.clone(), &mut notices)?;
    let read_at = clock.now();
    let wide_at = (output == ExplainOutput::Wide).then_some(read_at);
    let (pods, summary) = match selection {
        Selection::Groups(query, by) => {
            let report = explainer.groups(&query, by).await?;
            return reports::print(&report, output, out, |report, summaries, out| {
                reports::write_groups(report, wide_at.is_some(), summaries, out)
            });
        }
        Selection::Report(target, since) => {
            let target = target.in_namespace(&namespace);
            let report = explainer.report(&target, since).await?;
            return reports::print(&report, output, out, |report, summaries, out| {
                reports::write_report(report, wide_at, summaries, out)
            });
        }
        Selection::Diff(DiffSides::Revisions(workload, names)) => {
            let workload = workload.in_namespace(&namespace);
            let names = names.as_ref().map(|[before, after]| [&**before, &**after]);
            let report = explainer.diff(&workload, names, &checks).await?;
            return print_diff(&report, output, out);
        }
        // Handled above.
        Selection::Diff(DiffSides::Files(_)) => return Ok(()),
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
        ExplainOutput::Json | ExplainOutput::Yaml => write_lines(pods, now, &mut out),
        ExplainOutput::Waterfall => draw(pods, now, &mut out),
        ExplainOutput::Table => write_table(&rows(), summary, None, &mut out),
        ExplainOutput::Wide => write_table(&rows(), summary, Some(now), &mut out),
    };
    finish(written.and_then(|()| out.flush()))
}

fn print_diff(
    report: &DiffReport,
    output: ExplainOutput,
    out: &mut (dyn Write + Send),
) -> Result<(), RunError> {
    reports::print(report, output, out, reports::write_diff)?;
    reports::verdict(report)
}

/// The result of writing to standard output.
fn finish(written: io::Result<()>) -> Result<(), RunError> {
    match written {
        // A closed pipe means that the reader has seen enough.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(RunError::runtime(format!("cannot write output: {error}")))
        }
        _ => Ok(()),
    }
}

fn write_lines(pods: &[ExplainedPod], now: Timestamp, out: &mut impl Write) -> io::Result<()> {
    let lines = TransitionLines {
        lifecycle: LifecycleLines::AtEnd,
        ..TransitionLines::default()
    };
    for pod in pods {
        let record = Arc::new(pod.record.clone());
        let pulls = record.pulls().filter(|(_, pull)| pull.done.is_some());
        let pulls = pulls.map(|(target, _)| Output::ImagePull(Arc::clone(&record), target));
        let outputs = pulls.chain([
            Output::Startup(Arc::clone(&record)),
            Output::Lifecycle(Arc::clone(&record)),
        ]);
        for output in outputs {
            out.write_all(&lines.render(&output, now))?;
        }
    }
    Ok(())
}

fn draw(pods: &[ExplainedPod], now: Timestamp, out: &mut impl Write) -> io::Result<()> {
    let mut waterfall = Waterfall::live(reports::in_color(), now);
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
