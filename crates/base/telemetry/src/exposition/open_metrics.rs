//! Reads the OpenMetrics text that `prometheus_client` writes, borrowing all of it.
//!
//! The text is the only way to walk the registry: its encoder is a closed enum, and the protobuf
//! variant needs a protobuf compiler at build time.

use std::borrow::Cow;
use std::cmp::Ordering::Equal;
use std::collections::HashMap;

use kubevitals_promtext::{MetricType, unescape};

use super::model::{Descriptor, Label, Metric, MetricFamily, Value, compare_labels};

/// All lines about one metric name, not yet parsed.
#[derive(Debug)]
pub(super) struct TextFamily<'t> {
    /// Without the suffix of its type.
    pub(super) name: &'t str,
    kind: &'static Kind,
    help: Option<&'t str>,
    unit: Option<&'t str>,
    lines: Vec<&'t str>,
}

/// A [`TextFamily`] with parsed samples.
struct ParsedFamily<'f, 't> {
    family: &'f TextFamily<'t>,
    /// Sorted by labels and bound; never empty.
    samples: Vec<Sample<'t>>,
}

struct Sample<'t> {
    /// The suffix of the sample's name.
    part: &'static str,
    /// Sorted by name.
    labels: Vec<Label<'t>>,
    /// The value of `le` or `quantile`, which is not among the labels.
    bound: Option<f64>,
    value: f64,
    timestamp_ms: Option<i64>,
}

/// An OpenMetrics type, and what becomes of it in the other formats.
#[derive(Debug)]
struct Kind {
    open_metrics: &'static str,
    prometheus: MetricType,
    /// The suffix of the family's name in the other formats.
    suffix: &'static str,
    /// The suffixes of the samples' names.
    parts: &'static [&'static str],
}

impl Kind {
    const fn new(
        open_metrics: &'static str,
        prometheus: MetricType,
        suffix: &'static str,
        parts: &'static [&'static str],
    ) -> Self {
        Self {
            open_metrics,
            prometheus,
            suffix,
            parts,
        }
    }

    fn from_word(word: &str) -> &'static Self {
        KINDS
            .iter()
            .find(|kind| kind.open_metrics == word)
            .unwrap_or(&UNKNOWN)
    }

    /// The label that distinguishes the samples of one series.
    fn bound_label(&self) -> Option<&'static str> {
        match self.prometheus {
            MetricType::Histogram => Some("le"),
            MetricType::Summary => Some("quantile"),
            MetricType::Counter | MetricType::Gauge | MetricType::Untyped => None,
        }
    }
}

const UNKNOWN: Kind = Kind::new("unknown", MetricType::Untyped, "", &[""]);

const KINDS: [Kind; 7] = [
    Kind::new(
        "counter",
        MetricType::Counter,
        "_total",
        &["_total", "_created"],
    ),
    Kind::new("gauge", MetricType::Gauge, "", &[""]),
    Kind::new(
        "histogram",
        MetricType::Histogram,
        "",
        &["_bucket", "_sum", "_count", "_created"],
    ),
    Kind::new("info", MetricType::Gauge, "_info", &["_info"]),
    Kind::new("stateset", MetricType::Gauge, "", &[""]),
    Kind::new(
        "summary",
        MetricType::Summary,
        "",
        &["", "_sum", "_count", "_created"],
    ),
    UNKNOWN,
];

impl<'t> TextFamily<'t> {
    fn new(name: &'t str) -> Self {
        Self {
            name,
            kind: &UNKNOWN,
            help: None,
            unit: None,
            lines: Vec::new(),
        }
    }

    /// The name and type of the family in the other formats.
    pub(super) fn prometheus_name(&self) -> (Cow<'t, str>, MetricType) {
        let name = if self.kind.suffix.is_empty() {
            Cow::Borrowed(self.name)
        } else {
            Cow::Owned(format!("{}{}", self.name, self.kind.suffix))
        };
        (name, self.kind.prometheus)
    }

    /// The suffix of a sample's name; `None` if the sample is of another family.
    fn part_of(&self, sample: &str) -> Option<&'static str> {
        let suffix = sample.strip_prefix(self.name)?;
        let mut parts = self.kind.parts.iter();
        parts.find(|part| **part == suffix).copied()
    }

    /// Parses all samples; `None` if there is none. Malformed lines are left out, and what the
    /// other formats lack: units, exemplars, creation times.
    pub(super) fn parse(&self) -> Option<impl MetricFamily> {
        let lines = self.lines.iter();
        let mut samples: Vec<Sample<'t>> =
            lines.filter_map(|line| self.parse_sample(line)).collect();
        samples.sort_by(|a, b| {
            let by_bound = || a.bound.partial_cmp(&b.bound);
            compare_labels(&a.labels, &b.labels).then_with(|| by_bound().unwrap_or(Equal))
        });
        (!samples.is_empty()).then_some(ParsedFamily {
            family: self,
            samples,
        })
    }

    fn parse_sample(&self, line: &'t str) -> Option<Sample<'t>> {
        let (name, rest) = line.split_at_checked(line.find(['{', ' '])?)?;
        let part = self.part_of(name).filter(|part| *part != "_created")?;
        let (mut labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => parse_labels(rest)?,
            None => (Vec::new(), rest),
        };
        let mut words = rest.strip_prefix(' ')?.split(' ');
        // Adding zero turns -0 into 0, as Go's text format does.
        let value = words.next()?.parse::<f64>().ok()? + 0.0;
        let timestamp_ms = match words.next() {
            None | Some("#") => None,
            Some(seconds) => Some(milliseconds(seconds.parse().ok()?)),
        };
        let mut bound = None;
        if let Some(name) = self.kind.bound_label()
            && let Some(at) = labels.iter().position(|label| label.0 == name)
        {
            bound = Some(labels.remove(at).1.parse().ok()?);
        }
        labels.sort_by(|a, b| a.0.cmp(&b.0));
        Some(Sample {
            part,
            labels,
            bound,
            value,
            timestamp_ms,
        })
    }

    /// Writes the family as it was read.
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let lines = [
            ("HELP", self.help),
            ("TYPE", Some(self.kind.open_metrics)),
            ("UNIT", self.unit),
        ];
        for (keyword, text) in lines {
            let Some(text) = text else { continue };
            for piece in ["# ", keyword, " ", self.name, " "] {
                out.extend_from_slice(piece.as_bytes());
            }
            write_quotes_escaped(out, text);
            out.push(b'\n');
        }
        for line in &self.lines {
            out.extend_from_slice(line.as_bytes());
            out.push(b'\n');
        }
    }
}

impl MetricFamily for ParsedFamily<'_, '_> {
    fn descriptor(&self) -> Descriptor<'_> {
        let (name, kind) = self.family.prometheus_name();
        Descriptor {
            name,
            // OpenMetrics escapes quotes too, and the library writes help texts as they were
            // registered, escaped or not.
            help: self.family.help.map(unescape),
            kind,
        }
    }

    fn visit(&self, visit: &mut dyn FnMut(&Metric<'_>)) {
        let kind = self.family.kind.prometheus;
        let (mut buckets, mut quantiles) = (Vec::new(), Vec::new());
        let is_compound = self.family.kind.bound_label().is_some();
        // A series of any other kind is one sample.
        let series = |a: &Sample<'_>, b: &Sample<'_>| is_compound && a.labels == b.labels;
        for samples in self.samples.chunk_by(series) {
            let Some(first) = samples.first() else {
                continue;
            };
            let part = |part: &str| samples.iter().find(|sample| sample.part == part);
            let sum = || part("_sum").map_or(0.0, |sample| sample.value);
            let count = || part("_count").map_or(0, |sample| whole(sample.value));
            let bounds = || {
                let bounded = |sample: &Sample<'_>| Some((sample.bound?, sample.value));
                samples.iter().filter_map(bounded)
            };
            let value = match kind {
                MetricType::Histogram => {
                    buckets.clear();
                    let finite = bounds().filter(|(bound, _)| bound.is_finite());
                    buckets.extend(finite.map(|(bound, value)| (bound, whole(value))));
                    Value::Histogram {
                        count: count(),
                        sum: sum(),
                        buckets: &buckets,
                        native: None,
                    }
                }
                MetricType::Summary => {
                    quantiles.clear();
                    quantiles.extend(bounds());
                    Value::Summary {
                        count: count(),
                        sum: sum(),
                        quantiles: &quantiles,
                    }
                }
                MetricType::Counter | MetricType::Gauge | MetricType::Untyped => {
                    Value::Number(first.value)
                }
            };
            visit(&Metric {
                labels: &first.labels,
                value,
                timestamp_ms: first.timestamp_ms,
            });
        }
    }
}

/// Splits a text into families, in the order in which they begin.
///
/// Families of one name are joined: two sub-registries that differ in a constant label write the
/// family twice, which no format allows. If they differ in type too, the first one counts.
pub(super) fn split(text: &str) -> Vec<TextFamily<'_>> {
    let mut families: Vec<TextFamily<'_>> = Vec::new();
    let mut positions: HashMap<&str, usize> = HashMap::new();
    let mut current: Option<usize> = None;
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix('#') {
            let Some((keyword, name, rest)) = split_comment(comment) else {
                continue;
            };
            let position = position_of(&mut families, &mut positions, name);
            current = Some(position);
            let Some(family) = families.get_mut(position) else {
                continue;
            };
            match keyword {
                "HELP" => family.help = family.help.or(Some(rest)),
                "UNIT" => family.unit = family.unit.or(Some(rest)),
                _ if family.lines.is_empty() => family.kind = Kind::from_word(rest),
                _ => {}
            }
        } else if !line.is_empty() {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            let belongs = current.filter(|at| {
                families
                    .get(*at)
                    .is_some_and(|family| family.part_of(name).is_some())
            });
            let position =
                belongs.unwrap_or_else(|| position_of(&mut families, &mut positions, name));
            if let Some(family) = families.get_mut(position) {
                family.lines.push(line);
            }
        }
    }
    families.retain(|family| !family.name.is_empty());
    families
}

fn position_of<'t>(
    families: &mut Vec<TextFamily<'t>>,
    positions: &mut HashMap<&'t str, usize>,
    name: &'t str,
) -> usize {
    *positions.entry(name).or_insert_with(|| {
        families.push(TextFamily::new(name));
        families.len() - 1
    })
}

/// `None` for `# EOF` and everything that is not about a family.
fn split_comment(comment: &str) -> Option<(&str, &str, &str)> {
    let mut words = comment.strip_prefix(' ')?.splitn(3, ' ');
    let keyword = words
        .next()
        .filter(|word| matches!(*word, "HELP" | "TYPE" | "UNIT"))?;
    Some((keyword, words.next()?, words.next().unwrap_or_default()))
}

/// Reads labels up to the closing brace and returns what follows it.
fn parse_labels(mut rest: &str) -> Option<(Vec<Label<'_>>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, after) = rest.split_once("=\"")?;
        let (value, after) = split_value(after)?;
        labels.push((Cow::Borrowed(name), unescape(value)));
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

/// OpenMetrics wants quotes escaped in help texts; the library writes them as they were registered.
fn write_quotes_escaped(out: &mut Vec<u8>, text: &str) {
    let mut escaped = false;
    for byte in text.bytes() {
        if byte == b'"' && !escaped {
            out.push(b'\\');
        }
        escaped = byte == b'\\' && !escaped;
        out.push(byte);
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts are whole, and a cast of anything else stays within bounds"
)]
fn whole(count: f64) -> u64 {
    count as u64
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a cast of a time out of range stays within bounds"
)]
fn milliseconds(seconds: f64) -> i64 {
    (seconds * 1000.0).round() as i64
}
