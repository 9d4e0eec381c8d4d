//! Writes families in the Prometheus text format 0.0.4, ordered and spelt as Go does it.
//!
//! Families are sorted by name and series by label values, labels by name; a histogram's lines are
//! its buckets, sum and count. What the format does not know (units, exemplars, creation times) is
//! left out.

use std::{borrow::Cow, cmp::Ordering};

use kubevitals_promtext::{unescape, write_escaped_help, write_go_float};

use super::family::Family;

/// One line, taken apart so that it can be sorted and written anew.
struct Sample<'t> {
    part: &'static str,
    labels: Vec<Label<'t>>,
    /// `le` or `quantile`, which Go writes last and sorts as a number.
    bound: Option<(&'static str, f64)>,
    value: f64,
    timestamp: Option<f64>,
}

/// A label with its value as it stands in the text, escapes included.
struct Label<'t> {
    name: &'t str,
    value: &'t str,
}

/// Families under the names that they have in this format, by name.
pub(super) fn named<'f, 't>(families: &'f [Family<'t>]) -> Vec<(String, &'f Family<'t>)> {
    let mut named: Vec<(String, &Family<'_>)> = families
        .iter()
        .map(|family| (format!("{}{}", family.name, family.kind.suffix), family))
        .collect();
    named.sort_by(|a, b| a.0.cmp(&b.0));
    named
}

/// Writes one family, if it has a sample.
pub(super) fn write((name, family): (String, &Family<'_>), out: &mut Vec<u8>) {
    let mut samples: Vec<Sample<'_>> = family
        .lines
        .iter()
        .filter_map(|line| Sample::parse(line, family))
        .collect();
    if samples.is_empty() {
        return;
    }
    samples.sort_by(Sample::compare);
    if let Some(help) = family.help {
        extend(out, &["# HELP ", &name, " "]);
        // Resolved first: OpenMetrics escapes quotes too, and the library writes help texts as they
        // were registered, escaped or not.
        write_escaped_help(out, &unescape(help));
        out.push(b'\n');
    }
    extend(out, &["# TYPE ", &name, " ", family.kind.word, "\n"]);
    for sample in samples {
        extend(out, &[family.name, sample.part]);
        sample.write_rest(out);
    }
}

impl<'t> Sample<'t> {
    /// `None` if the line is malformed or has no place in the older format.
    fn parse(line: &'t str, family: &Family<'_>) -> Option<Self> {
        let name_end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at_checked(name_end)?;
        let part = family.part_of(name).filter(|part| *part != "_created")?;
        let (mut labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => parse_labels(rest)?,
            None => (Vec::new(), rest),
        };
        let mut words = rest.strip_prefix(' ')?.split(' ');
        let value = words.next()?.parse().ok()?;
        let timestamp = match words.next() {
            None | Some("#") => None,
            Some(seconds) => Some(seconds.parse().ok()?),
        };
        let mut bound = None;
        if family.kind.is_compound() {
            let name = if part == "_bucket" { "le" } else { "quantile" };
            if let Some(at) = labels.iter().position(|label| label.name == name) {
                bound = Some((name, labels.remove(at).value.parse().ok()?));
            }
        }
        labels.sort_by(|a, b| a.name.cmp(b.name));
        Some(Self {
            part,
            labels,
            bound,
            value,
            timestamp,
        })
    }

    /// The order of a Go registry: fewer labels first, then by label values, then by place in the
    /// series.
    fn compare(&self, other: &Self) -> Ordering {
        self.labels
            .len()
            .cmp(&other.labels.len())
            .then_with(|| self.label_values().cmp(other.label_values()))
            .then_with(|| self.label_names().cmp(other.label_names()))
            .then_with(|| self.place().cmp(&other.place()))
            .then_with(|| match (self.bound, other.bound) {
                (Some((_, a)), Some((_, b))) => a.total_cmp(&b),
                _ => Ordering::Equal,
            })
    }

    fn label_values(&self) -> impl Iterator<Item = Cow<'t, str>> {
        self.labels.iter().map(|label| unescape(label.value))
    }

    fn label_names(&self) -> impl Iterator<Item = &'t str> {
        self.labels.iter().map(|label| label.name)
    }

    fn place(&self) -> u8 {
        match self.part {
            "_sum" => 1,
            "_count" => 2,
            _ => 0,
        }
    }

    fn write_rest(&self, out: &mut Vec<u8>) {
        let mut separator = "{";
        for label in &self.labels {
            extend(out, &[separator, label.name, "=\"", label.value, "\""]);
            separator = ",";
        }
        if let Some((name, bound)) = self.bound {
            extend(out, &[separator, name, "=\""]);
            write_go_float(out, bound);
            out.push(b'"');
            separator = ",";
        }
        if separator == "," {
            out.push(b'}');
        }
        out.push(b' ');
        write_go_float(out, self.value);
        if let Some(seconds) = self.timestamp {
            // Rounded to whole milliseconds, so the plain notation has no decimals.
            let milliseconds = (seconds * 1000.0).round();
            extend(out, &[" ", &milliseconds.to_string()]);
        }
        out.push(b'\n');
    }
}

/// Reads labels up to the closing brace and gives what follows it.
fn parse_labels(mut rest: &str) -> Option<(Vec<Label<'_>>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once("=\"")?;
        let (value, after) = split_value(after)?;
        labels.push(Label { name, value });
        rest = after.strip_prefix(',').unwrap_or(after);
    }
}

/// Splits at the quote that ends a label value.
fn split_value(text: &str) -> Option<(&str, &str)> {
    let mut escaped = false;
    let end = text.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })?;
    Some((text.get(..end)?, text.get(end + 1..)?))
}

fn extend(out: &mut Vec<u8>, pieces: &[&str]) {
    for piece in pieces {
        out.extend_from_slice(piece.as_bytes());
    }
}
