//! Writes histograms of our own in the two text formats.

use std::fmt::Write;

use kubevitals_promtext::{write_escaped_help, write_escaped_label_value, write_go_float};

use crate::histogram::{HistogramSource, HistogramSpec, Reading};

/// How the two formats differ: in floating-point numbers, and in what a help text escapes.
struct Style {
    number: fn(&mut Vec<u8>, f64),
    help: fn(&mut Vec<u8>, &str),
}

pub(super) fn write_prometheus(source: &dyn HistogramSource, out: &mut Vec<u8>) {
    let style = Style {
        number: write_go_float,
        help: write_escaped_help,
    };
    style.write(source, out);
}

pub(super) fn write_open_metrics(source: &dyn HistogramSource, out: &mut Vec<u8>) {
    let style = Style {
        number: write_with_point,
        help: write_escaped_label_value,
    };
    style.write(source, out);
}

impl Style {
    fn write(&self, source: &dyn HistogramSource, out: &mut Vec<u8>) {
        let spec = source.spec();
        extend(out, &["# HELP ", spec.name, " "]);
        (self.help)(out, &help_of(spec));
        extend(out, &["\n# TYPE ", spec.name, " histogram\n"]);
        let bounds: Vec<Vec<u8>> = spec
            .bounds
            .iter()
            .map(|bound| {
                let mut text = Vec::new();
                (self.number)(&mut text, *bound);
                text
            })
            .collect();
        let mut labels = Vec::new();
        source.read(&mut |reading| {
            write_labels(&mut labels, reading);
            self.write_series(spec.name, &labels, &bounds, reading, out);
        });
    }

    fn write_series(
        &self,
        name: &str,
        labels: &[u8],
        bounds: &[Vec<u8>],
        reading: &Reading<'_>,
        out: &mut Vec<u8>,
    ) {
        let cumulative = reading.buckets.iter().map(|(_, below)| *below);
        let finite = bounds.iter().map(Vec::as_slice).zip(cumulative);
        for (bound, below) in finite.chain([(b"+Inf".as_slice(), reading.count)]) {
            extend(out, &[name, "_bucket{"]);
            out.extend_from_slice(labels);
            out.extend_from_slice(if labels.is_empty() {
                b"le=\""
            } else {
                b",le=\""
            });
            out.extend_from_slice(bound);
            out.extend_from_slice(b"\"} ");
            write_count(out, below);
        }
        let end = |suffix: &str, out: &mut Vec<u8>| {
            extend(out, &[name, suffix]);
            if !labels.is_empty() {
                out.push(b'{');
                out.extend_from_slice(labels);
                out.push(b'}');
            }
            out.push(b' ');
        };
        end("_sum", out);
        (self.number)(out, reading.sum);
        out.push(b'\n');
        end("_count", out);
        write_count(out, reading.count);
    }
}

/// As the library does it for the families of its registry.
pub(super) fn help_of(spec: &HistogramSpec) -> String {
    format!("{}.", spec.help)
}

fn write_labels(out: &mut Vec<u8>, reading: &Reading<'_>) {
    out.clear();
    let mut separator = "";
    for (name, value) in reading.labels {
        extend(out, &[separator, name, "=\""]);
        write_escaped_label_value(out, value);
        out.push(b'"');
        separator = ",";
    }
}

fn write_count(out: &mut Vec<u8>, count: u64) {
    let mut text = String::with_capacity(20);
    let _ = writeln!(text, "{count}");
    out.extend_from_slice(text.as_bytes());
}

/// Whole numbers have a point in OpenMetrics, so that bounds are always the same text.
fn write_with_point(out: &mut Vec<u8>, number: f64) {
    out.extend_from_slice(format!("{number:?}").as_bytes());
}

fn extend(out: &mut Vec<u8>, pieces: &[&str]) {
    for piece in pieces {
        out.extend_from_slice(piece.as_bytes());
    }
}
