//! Writes `io.prometheus.client.MetricFamily` messages, each after its length: the one form that
//! has native histograms.
//!
//! Field numbers are those of `metrics.proto` of Prometheus' `client_model`.

use std::borrow::Cow;

use kubevitals_promtext::{Document, Family, LabelName, MetricType, Series, Suffix};
use kubevitals_protobuf::{
    put_delimited, put_double, put_int, put_message, put_sint, put_str, put_uint,
};

use super::histogram::help_of;
use crate::histogram::{HistogramSource, NativeBuckets, Reading};

/// One series of a histogram or summary, put together from its lines.
struct Compound<'d, 'a> {
    labels: Vec<&'d (LabelName<'a>, Cow<'a, str>)>,
    count: f64,
    sum: f64,
    /// Bounds or quantiles, and what stands with them.
    parts: Vec<(f64, f64)>,
    timestamp_ms: Option<i64>,
}

/// Writes all families of a body in the Prometheus text format, and histograms that are not in it.
pub(super) fn write(text: &[u8], histograms: Vec<&dyn HistogramSource>, out: &mut Vec<u8>) {
    let document = Document::parse(text);
    let families = document.families().iter();
    let named = families
        .filter(|family| family.series().next().is_some())
        .map(|family| (family.name().as_str(), family))
        .collect();
    let of_text = |(_, family): (&str, &Family<'_>), out: &mut Vec<u8>| write_family(family, out);
    super::merge(named, histograms, out, of_text, write_histograms);
}

fn write_family(family: &Family<'_>, out: &mut Vec<u8>) {
    let kind = family.kind().unwrap_or(MetricType::Untyped);
    let number = match kind {
        MetricType::Counter => 0,
        MetricType::Gauge => 1,
        MetricType::Summary => 2,
        MetricType::Untyped => 3,
        MetricType::Histogram => 4,
    };
    put_delimited(out, |out| {
        put_str(out, 1, family.name().as_str());
        if let Some(help) = family.help() {
            put_str(out, 2, help);
        }
        put_uint(out, 3, number);
        match kind {
            MetricType::Counter => write_simple(family, 3, out),
            MetricType::Gauge => write_simple(family, 2, out),
            MetricType::Untyped => write_simple(family, 5, out),
            MetricType::Summary => write_compounds(family, "quantile", write_summary, out),
            MetricType::Histogram => write_compounds(family, "le", write_classic, out),
        }
    });
}

/// Each line is a series; its value is a message with one number.
fn write_simple(family: &Family<'_>, field: u32, out: &mut Vec<u8>) {
    for series in family.series() {
        put_message(out, 4, |out| {
            for (name, value) in series.labels {
                put_label(out, name.as_str(), value);
            }
            put_message(out, field, |out| put_double(out, 1, series.value));
            put_timestamp(out, series.timestamp_ms);
        });
    }
}

/// Lines of one series stand together and end with their count, as the text form sorts them.
fn write_compounds(
    family: &Family<'_>,
    bound: &str,
    write: fn(&Compound<'_, '_>, &mut Vec<u8>),
    out: &mut Vec<u8>,
) {
    let mut current: Option<Compound<'_, '_>> = None;
    let mut finish = |done: Option<Compound<'_, '_>>| {
        let Some(done) = done else { return };
        put_message(out, 4, |out| {
            for (name, value) in &done.labels {
                put_label(out, name.as_str(), value);
            }
            write(&done, out);
            put_timestamp(out, done.timestamp_ms);
        });
    };
    for series in family.series() {
        let is_bound = |label: &&(LabelName<'_>, Cow<'_, str>)| label.0.as_str() == bound;
        let labels: Vec<_> = series.labels.iter().filter(|one| !is_bound(one)).collect();
        if current.as_ref().is_none_or(|known| known.labels != labels) {
            finish(current.take());
            current = Some(Compound {
                labels,
                count: 0.0,
                sum: 0.0,
                parts: Vec::new(),
                timestamp_ms: series.timestamp_ms,
            });
        }
        if let Some(current) = &mut current {
            current.take_in(&series, bound);
        }
    }
    finish(current);
}

impl Compound<'_, '_> {
    fn take_in(&mut self, series: &Series<'_, '_>, bound: &str) {
        match series.suffix {
            Suffix::Count => self.count = series.value,
            Suffix::Sum => self.sum = series.value,
            Suffix::Bucket | Suffix::None => {
                let at = series
                    .labels
                    .iter()
                    .find(|(name, _)| name.as_str() == bound);
                if let Some(at) = at.and_then(|(_, text)| text.parse().ok()) {
                    self.parts.push((at, series.value));
                }
            }
        }
    }
}

fn write_summary(series: &Compound<'_, '_>, out: &mut Vec<u8>) {
    put_message(out, 4, |out| {
        put_uint(out, 1, whole(series.count));
        put_double(out, 2, series.sum);
        for (quantile, value) in &series.parts {
            put_message(out, 3, |out| {
                put_double(out, 1, *quantile);
                put_double(out, 2, *value);
            });
        }
    });
}

fn write_classic(series: &Compound<'_, '_>, out: &mut Vec<u8>) {
    put_message(out, 7, |out| {
        put_uint(out, 1, whole(series.count));
        put_double(out, 2, series.sum);
        for (bound, below) in &series.parts {
            // The last is understood, as in Go.
            if bound.is_finite() {
                put_bucket(out, *bound, whole(*below));
            }
        }
    });
}

fn write_histograms(source: &dyn HistogramSource, out: &mut Vec<u8>) {
    let spec = source.spec();
    put_delimited(out, |out| {
        put_str(out, 1, spec.name);
        put_str(out, 2, &help_of(spec));
        put_uint(out, 3, 4);
        source.read(&mut |reading| {
            put_message(out, 4, |out| {
                for (name, value) in reading.labels {
                    put_label(out, name, value);
                }
                put_message(out, 7, |out| put_histogram(out, reading));
            });
        });
    });
}

fn put_histogram(out: &mut Vec<u8>, reading: &Reading<'_>) {
    put_uint(out, 1, reading.count);
    put_double(out, 2, reading.sum);
    for (bound, below) in reading.buckets {
        put_bucket(out, *bound, *below);
    }
    if let Some(native) = reading.native {
        put_native(out, native);
    }
}

fn put_native(out: &mut Vec<u8>, native: &NativeBuckets) {
    put_sint(out, 5, native.schema().into());
    put_double(out, 6, native.zero_threshold());
    put_uint(out, 7, native.zeros());
    let (spans, deltas) = native.spans();
    for span in &spans {
        put_message(out, 12, |out| {
            put_sint(out, 1, span.offset.into());
            put_uint(out, 2, span.length.into());
        });
    }
    // Not packed: the schema is of a version that does not pack unless told to.
    for delta in deltas {
        put_sint(out, 13, delta);
    }
}

fn put_bucket(out: &mut Vec<u8>, bound: f64, below: u64) {
    put_message(out, 3, |out| {
        put_uint(out, 1, below);
        put_double(out, 2, bound);
    });
}

fn put_label(out: &mut Vec<u8>, name: &str, value: &str) {
    put_message(out, 1, |out| {
        put_str(out, 1, name);
        put_str(out, 2, value);
    });
}

fn put_timestamp(out: &mut Vec<u8>, timestamp_ms: Option<i64>) {
    if let Some(timestamp) = timestamp_ms {
        put_int(out, 6, timestamp);
    }
}

/// A count as it came through a text: what is no count is none.
fn whole(count: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "counts are whole, and a cast of anything else stays within bounds"
    )]
    let whole = count as u64;
    whole
}
