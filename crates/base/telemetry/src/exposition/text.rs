//! Writes families in the text formats.

use std::io::Write as _;

use kubevitals_promtext::{write_escaped_help, write_escaped_label_value, write_go_float};

use super::model::{Label, MetricFamily, Value};

/// The differences between the text formats.
pub(super) struct TextFormat {
    float: fn(&mut Vec<u8>, f64),
    count: fn(&mut Vec<u8>, u64),
    help: fn(&mut Vec<u8>, &str),
}

/// The Prometheus text format 0.0.4, ordered and spelt as Go does it.
pub(super) const PROMETHEUS: TextFormat = TextFormat {
    float: write_go_float,
    #[expect(
        clippy::cast_precision_loss,
        reason = "Go has counts as floats, and so has every reader"
    )]
    count: |out, count| write_go_float(out, count as f64),
    help: write_escaped_help,
};

/// OpenMetrics 1.0, as `prometheus_client` writes it. Only for histograms: names of counters and
/// infos differ from what families are called here.
pub(super) const OPEN_METRICS: TextFormat = TextFormat {
    // Whole numbers have a point, so that bounds are always the same text.
    float: |out, number| {
        let _ = write!(out, "{number:?}");
    },
    count: |out, count| {
        let _ = write!(out, "{count}");
    },
    help: write_escaped_label_value,
};

/// Bounds as text: nearly always those of the series before.
#[derive(Default)]
struct Bounds(Vec<(f64, Vec<u8>)>);

impl TextFormat {
    pub(super) fn write(&self, family: &dyn MetricFamily, out: &mut Vec<u8>) {
        let descriptor = family.descriptor();
        let name = descriptor.name.as_ref();
        if let Some(help) = &descriptor.help {
            extend(out, &["# HELP ", name, " "]);
            (self.help)(out, help);
            out.push(b'\n');
        }
        extend(out, &["# TYPE ", name, " ", descriptor.kind.as_str(), "\n"]);
        let mut labels = Vec::new();
        let mut known = Bounds::default();
        family.visit(&mut |metric| {
            write_labels(&mut labels, metric.labels);
            let end = |out: &mut Vec<u8>| {
                if let Some(timestamp) = metric.timestamp_ms {
                    let _ = write!(out, " {timestamp}");
                }
                out.push(b'\n');
            };
            let totals = |out: &mut Vec<u8>, sum: f64, count: u64| {
                start(out, &[name, "_sum"], &labels, None);
                (self.float)(out, sum);
                end(out);
                start(out, &[name, "_count"], &labels, None);
                (self.count)(out, count);
                end(out);
            };
            match metric.value {
                Value::Number(value) => {
                    start(out, &[name], &labels, None);
                    (self.float)(out, value);
                    end(out);
                }
                Value::Histogram {
                    count,
                    sum,
                    buckets,
                    ..
                } => {
                    let last = (f64::INFINITY, count);
                    for (at, (bound, below)) in buckets.iter().chain([&last]).enumerate() {
                        let bound = known.text(at, *bound, self.float);
                        start(out, &[name, "_bucket"], &labels, Some((b"le", bound)));
                        (self.count)(out, *below);
                        end(out);
                    }
                    totals(out, sum, count);
                }
                Value::Summary {
                    count,
                    sum,
                    quantiles,
                } => {
                    for (at, (quantile, value)) in quantiles.iter().enumerate() {
                        let bound = known.text(at, *quantile, self.float);
                        start(out, &[name], &labels, Some((b"quantile", bound)));
                        (self.float)(out, *value);
                        end(out);
                    }
                    totals(out, sum, count);
                }
            }
        });
    }
}

impl Bounds {
    fn text(&mut self, at: usize, bound: f64, write: fn(&mut Vec<u8>, f64)) -> &[u8] {
        let is_known = |known: &(f64, Vec<u8>)| known.0.to_bits() == bound.to_bits();
        if !self.0.get(at).is_some_and(is_known) {
            let mut text = Vec::new();
            if bound == f64::INFINITY {
                text.extend_from_slice(b"+Inf");
            } else {
                write(&mut text, bound);
            }
            self.0.truncate(at);
            self.0.push((bound, text));
        }
        self.0.get(at).map_or(b"", |known| &known.1)
    }
}

/// Writes name and labels of a sample, and the blank before its value.
fn start(out: &mut Vec<u8>, name: &[&str], labels: &[u8], bound: Option<(&[u8], &[u8])>) {
    extend(out, name);
    if !labels.is_empty() || bound.is_some() {
        out.push(b'{');
        out.extend_from_slice(labels);
        if let Some((name, value)) = bound {
            if !labels.is_empty() {
                out.push(b',');
            }
            out.extend_from_slice(name);
            out.extend_from_slice(b"=\"");
            out.extend_from_slice(value);
            out.push(b'"');
        }
        out.push(b'}');
    }
    out.push(b' ');
}

fn write_labels(out: &mut Vec<u8>, labels: &[Label<'_>]) {
    out.clear();
    let mut separator = "";
    for (name, value) in labels {
        extend(out, &[separator, name, "=\""]);
        write_escaped_label_value(out, value);
        out.push(b'"');
        separator = ",";
    }
}

fn extend(out: &mut Vec<u8>, pieces: &[&str]) {
    for piece in pieces {
        out.extend_from_slice(piece.as_bytes());
    }
}
