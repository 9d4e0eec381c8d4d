//! Prints reports about many pods, and turns checks into an exit code.

use std::io::{self, IsTerminal, Write};

use kubevitals_apiserver::yaml_from_json;
use kubevitals_cli::{EXIT_CHECK_FAILED, EXIT_NO_VERDICT, RunError};
use kubevitals_explain::document::Document;
use kubevitals_explain::{DiffReport, GroupReport, StartReport};
use kubevitals_model::Timestamp;
use kubevitals_telemetry::logs::ansi_allowed;
use kubevitals_terminal::{GroupRow, Summaries, TableRow, write_table};
use kubevitals_transitions::stats::threshold::Outcome;

use super::{ExplainOutput, finish};

/// Prints a report for people, or as a document.
pub(super) fn print<R: Document>(
    report: &R,
    output: ExplainOutput,
    out: &mut (dyn Write + Send),
    for_people: impl FnOnce(&R, Summaries, &mut (dyn Write + Send)) -> io::Result<()>,
) -> Result<(), RunError> {
    let written = match output {
        ExplainOutput::Json => write_json(report, out),
        ExplainOutput::Yaml => write_yaml(report, out),
        _ => for_people(
            report,
            Summaries {
                in_color: in_color(),
            },
            out,
        ),
    };
    finish(written.and_then(|()| out.flush()))
}

pub(super) fn in_color() -> bool {
    let no_color = std::env::var_os("NO_COLOR");
    ansi_allowed(no_color.as_deref(), io::stdout().is_terminal())
}

/// Writes the starts of a workload or of a node.
pub(super) fn write_report(
    report: &StartReport,
    wide_at: Option<Timestamp>,
    summaries: Summaries,
    mut out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let out = &mut out;
    let (kind, namespace, name) = report.target.parts();
    let name = namespace.map_or_else(
        || name.to_owned(),
        |namespace| format!("{namespace}/{name}"),
    );
    let revision = report.revision.as_ref();
    let revision = revision.map_or_else(String::new, |revision| format!(", {revision}"));
    summaries.write(&format!("{kind} {name}{revision}"), &report.stats, out)?;
    summaries.write_outliers(report.outliers_by, &report.outliers, out)?;
    writeln!(out)?;
    let rows: Vec<TableRow<'_>> = report
        .slowest
        .iter()
        .map(|pod| TableRow {
            record: &pod.record,
            pool: pod.pool.as_deref(),
        })
        .collect();
    write_table(&rows, None, wide_at, out)?;
    if let Some((revision, stats)) = &report.previous {
        writeln!(out)?;
        let now = report.revision.as_ref().map(ToString::to_string);
        let now = now.unwrap_or_default();
        summaries.write_changes((&revision.to_string(), stats), (&now, &report.stats), out)?;
    }
    let Some(slowest) = report.slowest.first() else {
        return Ok(());
    };
    let pod = kubevitals_terminal::printable(&slowest.record.pod.summary.identity.to_string());
    writeln!(
        out,
        "\n`kubevitals explain pod {pod}` shows the slowest pod"
    )
}

/// Writes groups of pods.
pub(super) fn write_groups(
    report: &GroupReport,
    is_wide: bool,
    summaries: Summaries,
    mut out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let out = &mut out;
    let rows: Vec<GroupRow<'_>> = report
        .groups
        .iter()
        .map(|group| GroupRow {
            name: &group.name,
            stats: &group.stats,
            slowest: group
                .slowest
                .as_ref()
                .map(|pod| (&pod.record, pod.pool.as_deref())),
        })
        .collect();
    summaries.write_groups(report.by, &rows, is_wide, out)?;
    let (shown, total, pods) = (rows.len(), report.total, report.pods);
    let by = report.by.as_str();
    writeln!(
        out,
        "slowest {shown} of {total} groups by {by}, of {pods} pods"
    )
}

/// Writes a comparison and its checks.
pub(super) fn write_diff(
    report: &DiffReport,
    summaries: Summaries,
    mut out: &mut (dyn Write + Send),
) -> io::Result<()> {
    let out = &mut out;
    let (before, after) = (&report.before, &report.after);
    let sides = (
        (&*before.label, &before.stats),
        (&*after.label, &after.stats),
    );
    summaries.write_changes(sides.0, sides.1, out)?;
    if !report.has_enough_pods() {
        let min = report.min_pods;
        writeln!(
            out,
            "  too few pods for a verdict: a side has fewer than {min}"
        )?;
    }
    for verdict in &report.verdicts {
        writeln!(out, "  {}", verdict.text(report.min_pods))?;
    }
    Ok(())
}

/// The result of the checks of a comparison.
pub(super) fn verdict(report: &DiffReport) -> Result<(), RunError> {
    let (code, wanted) = match report.outcome() {
        None | Some(Outcome::Within) => return Ok(()),
        Some(outcome @ Outcome::Beyond) => (EXIT_CHECK_FAILED, outcome),
        Some(outcome @ Outcome::TooFew) => (EXIT_NO_VERDICT, outcome),
    };
    let verdicts = report.verdicts.iter();
    let verdicts = verdicts.filter(|verdict| verdict.outcome == wanted);
    let texts: Vec<String> = verdicts
        .map(|verdict| verdict.text(report.min_pods))
        .collect();
    Err(RunError::Check {
        code,
        message: texts.join("; "),
    })
}

fn write_json(report: &impl Document, out: &mut (dyn Write + Send)) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &report.document())?;
    writeln!(out)
}

fn write_yaml(report: &impl Document, out: &mut (dyn Write + Send)) -> io::Result<()> {
    let text = yaml_from_json(report.document().to_string().as_bytes())?;
    out.write_all(text.as_bytes())
}
