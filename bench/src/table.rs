//! The table for people: for each metric the median and spread of each program, and how many times
//! better than the baseline it is.

use std::fmt::Write as _;
use std::io::IsTerminal;

use crate::measure::Spread;
use crate::result::{Better, Metric, NOISE_THRESHOLD, Report, Unit};

/// Smaller ratios either way are not coloured.
const NO_DIFFERENCE: f64 = 1.05;

/// Whether output is coloured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    Plain,
    /// Better in green, worse in red.
    Colored,
}

/// One row, by cell.
struct Row {
    cells: [String; 5],
    verdict: Option<Verdict>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Better,
    Worse,
}

impl Style {
    /// Colours on a terminal, unless the variable `NO_COLOR` is set and not empty (see
    /// no-color.org).
    pub fn of_stdout() -> Self {
        let unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if unwanted || !std::io::stdout().is_terminal() {
            Self::Plain
        } else {
            Self::Colored
        }
    }
}

/// Renders the table, with the noise of the machine below it.
pub fn render(report: &Report, style: Style) -> String {
    let mut rows = vec![Row {
        cells: [
            "metric".to_owned(),
            "program".to_owned(),
            "median".to_owned(),
            "min .. max".to_owned(),
            format!("times better than {}", report.baseline),
        ],
        verdict: None,
    }];
    for metric in &report.metrics {
        rows.extend(rows_of(report, metric));
    }
    let mut text = aligned(&rows, style);
    if let Some(noise) = report.noise() {
        let _ = write!(
            text,
            "\nmachine: a fixed calibration takes {} of processor time and took {} at worst; {} of {} measurements began or \
             ended on a busy machine (more than {:.0} % over)\n",
            format_value(Unit::Seconds, noise.best),
            format_value(Unit::Seconds, noise.worst),
            noise.noisy,
            noise.repeats,
            (NOISE_THRESHOLD - 1.0) * 100.0,
        );
    }
    text
}

/// Formats a value with its unit, at about three significant digits.
pub fn format_value(unit: Unit, value: f64) -> String {
    let scaled = |scales: &[(f64, &str)]| {
        let last = scales.last().copied().unwrap_or((1.0, ""));
        let fitting = scales
            .iter()
            .copied()
            .find(|(scale, _)| value.abs() >= *scale);
        let (scale, name) = fitting.unwrap_or(last);
        format!("{} {name}", digits(value / scale))
    };
    match unit {
        _ if value == 0.0 => "0".to_owned(),
        Unit::Seconds => scaled(&[(1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns")]),
        Unit::Bytes => scaled(&[(f64::from(1 << 20), "MiB"), (1024.0, "KiB"), (1.0, "B")]),
        Unit::BytesPerSecond => scaled(&[(1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")]),
        Unit::Count => digits(value),
    }
}

fn rows_of(report: &Report, metric: &Metric) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for contender in &report.contenders {
        let Some(spread) = contender.spread(&metric.key) else {
            continue;
        };
        let is_baseline = contender.name == report.baseline_of(metric);
        let ratio = report.ratio(contender, metric).filter(|_| !is_baseline);
        let label = if rows.is_empty() {
            metric.label.clone()
        } else {
            String::new()
        };
        rows.push(Row {
            cells: [
                label,
                contender.name.clone(),
                format_value(metric.unit, spread.median),
                range(metric.unit, spread),
                ratio.map_or_else(String::new, |ratio| times(ratio, metric)),
            ],
            verdict: ratio
                .and_then(verdict)
                .filter(|_| metric.better != Better::Neither),
        });
    }
    rows
}

fn range(unit: Unit, spread: Spread) -> String {
    if spread.min.total_cmp(&spread.max).is_eq() {
        return String::new();
    }
    let mut text = format!(
        "{} .. {}",
        format_value(unit, spread.min),
        format_value(unit, spread.max)
    );
    if let Some(relative) = spread.relative() {
        let _ = write!(text, " (±{:.0} %)", relative * 100.0);
    }
    text
}

fn times(ratio: Spread, metric: &Metric) -> String {
    let one = |value: f64| {
        if value.is_infinite() {
            "∞".to_owned()
        } else {
            digits(value)
        }
    };
    let (min, median, max) = (one(ratio.min), one(ratio.median), one(ratio.max));
    let mut text = format!("{median}x");
    if min != max {
        let _ = write!(text, " ({min} .. {max})");
    }
    // The header of the column names another.
    if let Some(other) = &metric.against {
        let _ = write!(text, " than {other}");
    }
    text
}

/// Only a difference in every repeat counts.
fn verdict(ratio: Spread) -> Option<Verdict> {
    if ratio.min > NO_DIFFERENCE {
        Some(Verdict::Better)
    } else if ratio.max < 1.0 / NO_DIFFERENCE {
        Some(Verdict::Worse)
    } else {
        None
    }
}

fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 || size.fract() == 0.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

fn aligned(rows: &[Row], style: Style) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.cells.get(column));
        cells
            .map(|cell| cell.chars().count())
            .max()
            .unwrap_or_default()
    };
    let [measure, program, median, spread, _] = [0, 1, 2, 3, 4].map(width);
    let mut text = String::new();
    for row in rows {
        let [label, name, middle, range, ratio] = &row.cells;
        let ratio = match (style, row.verdict) {
            (Style::Colored, Some(Verdict::Better)) => format!("\u{1b}[32m{ratio}\u{1b}[0m"),
            (Style::Colored, Some(Verdict::Worse)) => format!("\u{1b}[31m{ratio}\u{1b}[0m"),
            _ => ratio.clone(),
        };
        let line = format!(
            "{label:<measure$}  {name:<program$}  {middle:>median$}  {range:<spread$}  {ratio}"
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::result::tests::report;

    #[test]
    fn a_table_of_two_servers() {
        insta::assert_snapshot!(render(&report(), Style::Plain));
    }

    #[test]
    fn one_program_alone_is_shown_without_ratios() {
        let mut alone = report();
        alone.contenders.remove(0);
        insta::assert_snapshot!(render(&alone, Style::Plain));
    }

    #[test]
    fn a_baseline_of_its_own_is_named() {
        let mut report = report();
        report.baseline = "another".to_owned();
        report.metrics.truncate(2);
        if let Some(metric) = report.metrics.first_mut() {
            *metric = metric.clone().against("peer");
        }
        let text = render(&report, Style::Plain);
        assert_eq!(
            text.matches("9.25x (8 .. 10.5) than peer").count(),
            1,
            "{text}"
        );
        // The baseline of the other metric was not measured, so it has no ratio.
        assert_eq!(text.matches("x (").count(), 1, "{text}");
    }

    #[test]
    fn colour_changes_no_text() {
        let colored = render(&report(), Style::Colored);
        assert!(
            colored.contains("\u{1b}[32m") && colored.contains("\u{1b}[31m"),
            "{colored}"
        );
        let stripped = ["\u{1b}[32m", "\u{1b}[31m", "\u{1b}[0m"]
            .iter()
            .fold(colored, |text, code| text.replace(code, ""));
        assert_eq!(stripped, render(&report(), Style::Plain));
    }

    #[test]
    fn values_have_a_unit_that_fits() {
        for (unit, value, expected) in [
            (Unit::Seconds, 12.345, "12.3 s"),
            (Unit::Seconds, 0.004_5, "4.50 ms"),
            (Unit::Seconds, 7.9e-6, "7.90 µs"),
            (Unit::Seconds, 3e-12, "0.00 ns"),
            (Unit::Bytes, 194.0, "194 B"),
            (Unit::Bytes, 719_323_136.0, "686 MiB"),
            (Unit::BytesPerSecond, 1.265e9, "1265 MB/s"),
            (Unit::Count, 0.0, "0"),
        ] {
            assert_eq!(format_value(unit, value), expected);
        }
    }
}
