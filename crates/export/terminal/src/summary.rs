//! Statistics of the starts of many pods.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use kubevitals_transitions::stats::compare::{image_changes, phase_changes};
use kubevitals_transitions::stats::groups::GroupBy;
use kubevitals_transitions::stats::{StartStats, Statistic, human};
use kubevitals_transitions::{HumanDuration, PodRecord};

use crate::printable;
use crate::table::{truncated, write_columns};
use crate::waterfall::{color, painted, phase_label};

/// Columns of the bar of a phase that has all the time.
const BAR_WIDTH: u128 = 30;

/// Phases and causes that are shown.
const SHOWN: usize = 6;

/// Writes statistics of starts.
#[derive(Debug, Clone, Copy)]
pub struct Summaries {
    pub in_color: bool,
}

/// A group of pods in a table.
#[derive(Debug, Clone, Copy)]
pub struct GroupRow<'r> {
    pub name: &'r str,
    pub stats: &'r StartStats,
    /// The slowest pod and the pool of its node.
    pub slowest: Option<(&'r PodRecord, Option<&'r str>)>,
}

impl Summaries {
    /// Writes counts, durations, phases and causes below a title.
    pub fn write(self, title: &str, stats: &StartStats, out: &mut impl Write) -> io::Result<()> {
        let title = painted(self.in_color, "1", &printable(title));
        writeln!(out, "{title}  {}", counts(stats))?;
        writeln!(out, "  {}", durations(stats))?;
        let total = stats.total();
        if total.is_zero() {
            return write_causes(stats, out);
        }
        writeln!(out)?;
        let mut rows = vec![row(["SHARE", "MEAN", "PHASE", ""])];
        for phase in stats.phases().into_iter().take(SHOWN) {
            let percent = share(phase.total, total, 100);
            let width = usize::try_from(share(phase.total, total, BAR_WIDTH)).unwrap_or(0);
            let bar = "█".repeat(width.max(1));
            rows.push(vec![
                format!("{percent} %"),
                HumanDuration(stats.mean(phase)).to_string(),
                phase_label(phase.phase, phase.container.as_deref()),
                painted(self.in_color, color(phase.phase), &bar),
            ]);
        }
        write_columns(&rows, 2, "  ", out)?;
        write_causes(stats, out)
    }

    /// Writes groups whose pods took much longer than the others.
    pub fn write_outliers(
        self,
        by: GroupBy,
        outliers: &[(Arc<str>, StartStats)],
        out: &mut impl Write,
    ) -> io::Result<()> {
        if outliers.is_empty() {
            return Ok(());
        }
        writeln!(out)?;
        let head = format!("{}S THAT STAND OUT", by.as_str().to_ascii_uppercase());
        let mut rows = vec![row([head.as_str(), "PODS", "P50", "MAX"])];
        for (name, stats) in outliers {
            rows.push(vec![
                printable(name),
                stats.pods.to_string(),
                human(stats.statistic(Statistic::P50)),
                human(stats.statistic(Statistic::Max)),
            ]);
        }
        write_columns(&rows, 0, "  ", out)
    }

    /// Writes what differs from the starts before.
    pub fn write_changes(
        self,
        before: (&str, &StartStats),
        after: (&str, &StartStats),
        out: &mut impl Write,
    ) -> io::Result<()> {
        let (old, new) = (before.1, after.1);
        let count = |name: &str, of: fn(&StartStats) -> usize| {
            vec![name.to_owned(), of(old).to_string(), of(new).to_string()]
        };
        let mut rows = vec![
            vec![String::new(), printable(before.0), printable(after.0)],
            count("pods", |stats| stats.pods),
            count("ready", |stats| stats.ready),
            count("starting", |stats| stats.starting),
            count("failed", |stats| stats.failed),
        ];
        for statistic in [Statistic::P50, Statistic::P95, Statistic::Max] {
            let [was, is] = [old, new].map(|stats| stats.statistic(statistic));
            let mut row = vec![statistic.as_str().to_owned(), human(was), human(is)];
            row.extend(was.zip(is).map(|(was, is)| difference(was, is)));
            rows.push(row);
        }
        for change in phase_changes(old, new).into_iter().take(SHOWN) {
            let label = phase_label(change.phase, change.container.as_deref());
            rows.push(vec![
                format!("{label} (mean)"),
                HumanDuration(change.before).to_string(),
                HumanDuration(change.after).to_string(),
                difference(change.before, change.after),
            ]);
        }
        write_columns(&rows, 0, "  ", out)?;
        for change in image_changes(old, new) {
            let known =
                |image: Option<String>| image.map_or("none".to_owned(), |one| printable(&one));
            let container = printable(&change.container);
            let (was, is) = (known(change.before), known(change.after));
            writeln!(out, "  container {container}: image {was} → {is}")?;
        }
        Ok(())
    }

    /// Writes a table of groups.
    pub fn write_groups(
        self,
        by: GroupBy,
        groups: &[GroupRow<'_>],
        is_wide: bool,
        out: &mut impl Write,
    ) -> io::Result<()> {
        let by = by.as_str().to_ascii_uppercase();
        let head = ["#", "PODS", "READY", &by, "P50", "P95", "MAX", "WAITING"];
        let mut rows = vec![row(head)];
        if let Some(head) = rows.first_mut() {
            head.push("CAUSE OF THE SLOWEST POD".to_owned());
        }
        for (rank, group) in (1_usize..).zip(groups) {
            let GroupRow { name, stats, .. } = group;
            let slowest = group.slowest.map(|(record, pool)| {
                let pod = printable(&record.pod.summary.identity.to_string());
                let text = format!("{pod}: {}", printable(&record.cause_in(pool)));
                if is_wide { text } else { truncated(text) }
            });
            rows.push(vec![
                rank.to_string(),
                stats.pods.to_string(),
                stats.ready.to_string(),
                printable(name),
                human(stats.statistic(Statistic::P50)),
                human(stats.statistic(Statistic::P95)),
                human(stats.statistic(Statistic::Max)),
                human(stats.longest_wait()),
                slowest.unwrap_or_else(|| "-".to_owned()),
            ]);
        }
        write_columns(&rows, 3, "", out)
    }
}

fn write_causes(stats: &StartStats, out: &mut impl Write) -> io::Result<()> {
    let causes = stats.causes();
    if causes.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut rows = vec![row(["PODS", "CAUSE, WITH ITS SLOWEST POD"])];
    for cause in causes.iter().take(SHOWN) {
        let (pod, text) = (printable(&cause.example), printable(&cause.example_cause));
        rows.push(vec![cause.pods.to_string(), format!("{pod}: {text}")]);
    }
    write_columns(&rows, 1, "  ", out)?;
    let rest: usize = causes.iter().skip(SHOWN).map(|cause| cause.pods).sum();
    if rest > 0 {
        writeln!(out, "  {rest} pods have other causes")?;
    }
    if stats.explained < stats.pods {
        let (explained, pods) = (stats.explained, stats.pods);
        writeln!(
            out,
            "  phases and causes are of the slowest {explained} of {pods} pods"
        )?;
    }
    Ok(())
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(ToOwned::to_owned).to_vec()
}

/// `12 pods: 9 ready, 2 starting, 1 failed`.
fn counts(stats: &StartStats) -> String {
    let counts = [
        (stats.ready, "ready"),
        (stats.starting, "starting"),
        (stats.failed, "failed"),
        (stats.completed, "completed"),
        (stats.unknown, "with a start that is only partly known"),
    ];
    let counts: Vec<String> = counts
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    let pods = if stats.pods == 1 { "pod" } else { "pods" };
    format!("{} {pods}: {}", stats.pods, counts.join(", "))
}

fn durations(stats: &StartStats) -> String {
    let known = |statistic: Statistic| {
        let took = stats.statistic(statistic)?;
        Some(format!("{} {}", statistic.as_str(), HumanDuration(took)))
    };
    let known: Vec<String> = [Statistic::P50, Statistic::P95, Statistic::Max]
        .into_iter()
        .filter_map(known)
        .collect();
    let ready = if known.is_empty() {
        "no pod became ready".to_owned()
    } else {
        format!("ready after {}", known.join(", "))
    };
    match stats.longest_wait() {
        Some(wait) => format!("{ready}; starting for up to {}", HumanDuration(wait)),
        None => ready,
    }
}

/// A part of a whole, out of `of`.
fn share(part: Duration, whole: Duration, of: u128) -> u128 {
    let whole = whole.as_millis().max(1);
    (part.as_millis() * of + whole / 2) / whole
}

/// `+3 s (+33 %)`.
fn difference(was: Duration, is: Duration) -> String {
    let sign = if is >= was { '+' } else { '-' };
    let by = was.abs_diff(is);
    if was.is_zero() || by.is_zero() {
        return format!("{sign}{}", HumanDuration(by));
    }
    let percent = share(by, was, 100);
    format!("{sign}{} ({sign}{percent} %)", HumanDuration(by))
}
