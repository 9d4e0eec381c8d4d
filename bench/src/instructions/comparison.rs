//! The table of recorded and current counts.

use std::fmt::Write as _;

use super::record::{Count, Record};
use crate::table::Style;

/// Comparison of a count with the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Fewer instructions, by more than the threshold.
    Better,
    /// Within the threshold.
    Same,
    /// More instructions, by more than the threshold.
    Worse,
    /// Not recorded.
    New,
}

/// Counts next to their record.
#[derive(Debug)]
pub struct Comparison<'a> {
    record: &'a Record,
    counted: &'a [Count],
    /// As a fraction: 0.02 is two per cent.
    threshold: f64,
}

impl<'a> Comparison<'a> {
    /// Compares counts with their record; changes up to `threshold` (0.02 is two per cent) are
    /// ignored.
    pub fn new(record: &'a Record, counted: &'a [Count], threshold: f64) -> Self {
        Self {
            record,
            counted,
            threshold,
        }
    }

    /// Returns the paths with a verdict.
    pub fn paths(&self, verdict: Verdict) -> Vec<&'a str> {
        let is_it = |count: &&Count| self.verdict(count) == verdict;
        let counted = self.counted.iter().filter(is_it);
        counted.map(|count| count.path.as_str()).collect()
    }

    /// Renders the table.
    pub fn render(&self, style: Style) -> String {
        let head = ["path", "recorded", "now", "change", "for"].map(str::to_owned);
        let mut rows = vec![(head, Verdict::Same)];
        for count in self.counted {
            let recorded = self.record.of(&count.path);
            let change = match self.change(count) {
                Some(change) => format!("{:+.1} %", change * 100.0),
                None => "new".to_owned(),
            };
            let cells = [
                count.path.clone(),
                recorded.map_or_else(String::new, |count| grouped(count.instructions)),
                grouped(count.instructions),
                change,
                count.operation.clone(),
            ];
            rows.push((cells, self.verdict(count)));
        }
        let width = |column: usize| {
            let cells = rows.iter().filter_map(|(cells, _)| cells.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let [path, recorded, now, change] = [0, 1, 2, 3].map(width);
        let mut text = String::new();
        for ([a, b, c, d, e], verdict) in &rows {
            let (on, off) = colour(*verdict, style);
            let _ = writeln!(
                text,
                "{a:<path$}  {b:>recorded$}  {c:>now$}  {on}{d:>change$}{off}  {e}"
            );
        }
        text
    }

    fn verdict(&self, count: &Count) -> Verdict {
        match self.change(count) {
            None => Verdict::New,
            Some(change) if change > self.threshold => Verdict::Worse,
            Some(change) if change < -self.threshold => Verdict::Better,
            Some(_) => Verdict::Same,
        }
    }

    /// Change against the record, as a fraction of it.
    #[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
    fn change(&self, count: &Count) -> Option<f64> {
        let recorded = self.record.of(&count.path)?.instructions;
        (recorded > 0).then(|| count.instructions as f64 / recorded as f64 - 1.0)
    }
}

fn colour(verdict: Verdict, style: Style) -> (&'static str, &'static str) {
    match (style, verdict) {
        (Style::Colored, Verdict::Better) => ("\u{1b}[32m", "\u{1b}[0m"),
        (Style::Colored, Verdict::Worse) => ("\u{1b}[31m", "\u{1b}[0m"),
        _ => ("", ""),
    }
}

/// Formats a number with a comma between thousands.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(of: &[(&str, u64)]) -> Vec<Count> {
        of.iter()
            .map(|(path, instructions)| Count {
                path: (*path).to_owned(),
                operation: format!("one {path}"),
                instructions: *instructions,
            })
            .collect()
    }

    fn record() -> Record {
        Record {
            paths: counts(&[
                ("parse", 100_000),
                ("publish", 2_000),
                ("list", 7_654_321),
                ("old", 5),
            ]),
            ..Record::default()
        }
    }

    #[test]
    fn a_table_of_what_changed() {
        let counted = counts(&[
            ("parse", 97_000),
            ("publish", 2_041),
            ("list", 7_700_000),
            ("select", 12),
        ]);
        let record = record();
        let comparison = Comparison::new(&record, &counted, 0.02);
        insta::assert_snapshot!(comparison.render(Style::Plain), @"
        path      recorded        now  change  for
        parse      100,000     97,000  -3.0 %  one parse
        publish      2,000      2,041  +2.0 %  one publish
        list     7,654,321  7,700,000  +0.6 %  one list
        select                     12     new  one select
        ");
        assert_eq!(comparison.paths(Verdict::Worse), ["publish"]);
        assert_eq!(comparison.paths(Verdict::Better), ["parse"]);
        assert_eq!(comparison.paths(Verdict::Same), ["list"]);
        assert_eq!(comparison.paths(Verdict::New), ["select"]);
    }

    #[test]
    fn a_change_of_exactly_the_threshold_is_ignored() {
        let record = record();
        for (instructions, verdict) in [
            (2_040, Verdict::Same),
            (2_041, Verdict::Worse),
            (1_960, Verdict::Same),
            (1_959, Verdict::Better),
        ] {
            let counted = counts(&[("publish", instructions)]);
            let comparison = Comparison::new(&record, &counted, 0.020_000_1);
            assert_eq!(comparison.paths(verdict), ["publish"], "{instructions}");
        }
    }

    #[test]
    fn only_changes_are_coloured() {
        let record = record();
        let counted = counts(&[("parse", 1), ("publish", 2_001), ("list", u64::MAX)]);
        let comparison = Comparison::new(&record, &counted, 0.02);
        let text = comparison.render(Style::Colored);
        let coloured = |code: &str| {
            let lines = text.lines().filter(|line| line.contains(code));
            lines.map(|line| line.split(' ').next()).collect::<Vec<_>>()
        };
        assert_eq!(coloured("\u{1b}[32m"), [Some("parse")]);
        assert_eq!(coloured("\u{1b}[31m"), [Some("list")]);
    }

    #[test]
    fn thousands_are_separated_by_commas() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(grouped(number), text);
        }
    }
}
