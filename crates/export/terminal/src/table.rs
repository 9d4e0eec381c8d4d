//! A table with a line for each pod.

use std::fmt::Write as _;
use std::io::{self, Write};

use kubevitals_model::Timestamp;
use kubevitals_transitions::{HumanDuration, PodRecord};

use crate::printable;
use crate::waterfall::label;

/// Columns of the cause, unless the table is wide.
const CAUSE_WIDTH: usize = 90;

/// A pod in a table.
#[derive(Debug, Clone, Copy)]
pub struct TableRow<'r> {
    pub record: &'r PodRecord,
    /// The pool of its node.
    pub pool: Option<&'r str>,
}

/// Writes a table. With `wide_at` it has node, pool, age at that time, and the whole cause.
pub fn write_table(
    pods: &[TableRow<'_>],
    summary: Option<&str>,
    wide_at: Option<Timestamp>,
    out: &mut impl Write,
) -> io::Result<()> {
    let mut head = vec!["#", "POD", "TOOK", "START", "LONGEST"];
    if wide_at.is_some() {
        head.extend(["NODE", "POOL", "AGE"]);
    }
    head.push("CAUSE");
    let mut rows = vec![head.into_iter().map(ToOwned::to_owned).collect::<Vec<_>>()];
    for (rank, pod) in (1..).zip(pods) {
        rows.push(row(rank, pod, wide_at));
    }
    write_columns(&rows, 1, "", out)?;
    match summary {
        Some(summary) => writeln!(out, "{summary}"),
        None => Ok(()),
    }
}

/// Writes rows as columns; the first `numbers` of them are aligned to the right.
pub(crate) fn write_columns(
    rows: &[Vec<String>],
    numbers: usize,
    indent: &str,
    out: &mut impl Write,
) -> io::Result<()> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    for row in rows {
        let mut line = String::new();
        for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
            // Writing to a String cannot fail.
            let _ = if index < numbers {
                write!(line, "{cell:>width$}  ")
            } else {
                write!(line, "{cell:width$}  ")
            };
        }
        writeln!(out, "{indent}{}", line.trim_end())?;
    }
    Ok(())
}

fn row(rank: usize, pod: &TableRow<'_>, wide_at: Option<Timestamp>) -> Vec<String> {
    let record = pod.record;
    let longest = record.longest().map_or_else(
        || "-".to_owned(),
        |segment| format!("{}, {}", label(&segment), HumanDuration(segment.took())),
    );
    let mut row = vec![
        rank.to_string(),
        printable(&record.pod.summary.identity.to_string()),
        record
            .total()
            .map_or_else(|| "-".to_owned(), |total| HumanDuration(total).to_string()),
        state(record).to_owned(),
        longest,
    ];
    let cause = printable(&record.cause_in(pod.pool));
    let Some(now) = wide_at else {
        row.push(truncated(cause));
        return row;
    };
    let known = |text: Option<&str>| text.map_or_else(|| "-".to_owned(), printable);
    let created = record.milestones.created.best();
    let age = created.and_then(|created| now.since(created));
    row.push(known(record.pod.summary.node.as_deref()));
    row.push(known(pod.pool));
    row.push(age.map_or_else(|| "-".to_owned(), |age| HumanDuration(age).to_string()));
    row.push(cause);
    row
}

/// The outcome of the start.
fn state(record: &PodRecord) -> &'static str {
    if record.is_upper_bound() {
        "ready, at most"
    } else if record.is_complete() {
        "ready"
    } else if record.is_unseen() {
        "partly known"
    } else if record.is_over() || record.milestones.deletion.is_some() {
        "never ready"
    } else {
        "not ready yet"
    }
}

pub(crate) fn truncated(text: String) -> String {
    if text.chars().count() <= CAUSE_WIDTH {
        return text;
    }
    text.chars().take(CAUSE_WIDTH - 1).chain(['…']).collect()
}
