//! Pods as lines of a table.

use std::fmt::Write as _;
use std::io::{self, Write};

use kubevitals_model::Timestamp;
use kubevitals_transitions::{PodRecord, Spelled};

use super::Explained;
use crate::waterfall::{label, plain};

/// Where the cause is cut off unless the table may be wide.
const CAUSE: usize = 90;

/// Writes a table; a wide one has ages as of the time given.
pub(super) fn write(
    pods: &[Explained],
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
    let columns = rows.first().map_or(0, Vec::len);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            let cells = rows.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    for row in &rows {
        let mut line = String::new();
        for (index, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let is_number = index == 0;
            let written = if is_number {
                write!(line, "{cell:>width$}  ")
            } else {
                write!(line, "{cell:width$}  ")
            };
            written.expect("a String takes all that is written");
        }
        writeln!(out, "{}", line.trim_end())?;
    }
    match summary {
        Some(summary) => writeln!(out, "{summary}"),
        None => Ok(()),
    }
}

fn row(rank: usize, pod: &Explained, wide_at: Option<Timestamp>) -> Vec<String> {
    let record = &pod.record;
    let longest = record.longest().map_or_else(
        || "-".to_owned(),
        |piece| format!("{}, {}", label(&piece), Spelled(piece.took())),
    );
    let mut row = vec![
        rank.to_string(),
        plain(&record.pod.brief.identity.to_string()),
        record
            .total()
            .map_or_else(|| "-".to_owned(), |total| Spelled(total).to_string()),
        state(record).to_owned(),
        longest,
    ];
    let cause = plain(&record.cause_in(pod.pool.as_deref()));
    let Some(now) = wide_at else {
        row.push(clipped(cause));
        return row;
    };
    let known = |text: Option<&str>| text.map_or_else(|| "-".to_owned(), plain);
    let created = record.milestones.created.best();
    let age = created.and_then(|created| now.since(created));
    row.push(known(record.pod.brief.node.as_deref()));
    row.push(known(pod.pool.as_deref()));
    row.push(age.map_or_else(|| "-".to_owned(), |age| Spelled(age).to_string()));
    row.push(cause);
    row
}

/// How the start went.
fn state(record: &PodRecord) -> &'static str {
    if record.is_complete() {
        "ready"
    } else if record.is_unseen() {
        "partly known"
    } else if record.is_over() || record.milestones.deletion.is_some() {
        "never ready"
    } else {
        "not ready yet"
    }
}

fn clipped(text: String) -> String {
    if text.chars().count() <= CAUSE {
        return text;
    }
    text.chars().take(CAUSE - 1).chain(['…']).collect()
}
