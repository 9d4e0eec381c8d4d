//! The formats in which metrics leave the process, and how a client chooses one.
//!
//! `prometheus_client` writes its registry as OpenMetrics text and offers no other way to walk it.
//! The text is split into families once. [`Format::OpenMetrics`] sorts them and joins those of one
//! name; the other formats are written from the series that a `MetricFamily` visits, which is
//! also how a [`HistogramFamily`](crate::HistogramFamily) is read:
//!
//! ```text
//! registry ──► OpenMetrics text ──split──► TextFamily ──────────────► OpenMetrics
//!                                              └─parse─┐      ┌─────► (histograms only)
//! HistogramFamily ─────────────────────────────────────┴► MetricFamily ──► Prometheus text
//!                                                             └──────────► protobuf
//! ```
//!
//! [`Format::Prometheus`] is byte for byte what Go's client library would send for the same
//! metrics, so that a comparison with a Go program shows no difference. [`Format::Protobuf`] is the
//! only one with native histograms.

mod accept;
mod model;
mod open_metrics;
mod protobuf;
mod text;

use std::borrow::Cow;
use std::sync::Arc;

use http::{HeaderMap, header};

pub(crate) use self::model::{Descriptor, Label, Metric, MetricFamily, Value, compare_labels};
use self::open_metrics::{TextFamily, split};
use crate::histogram::HistogramSource;

/// An exposition format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The Prometheus text format 0.0.4, which everything reads.
    Prometheus,
    /// `io.prometheus.client.MetricFamily` messages, each after its length.
    Protobuf,
}

enum Family<'f> {
    Text(&'f TextFamily<'f>),
    Histogram(&'f dyn HistogramSource),
}

impl Format {
    /// Chooses a text format by the `Accept` headers of a request.
    ///
    /// Returns OpenMetrics if the headers name it with at least the weight of `text/plain`, or rank
    /// it higher through a wildcard. All other clients get the Prometheus format, as from Go: a
    /// client that accepts neither can still read plain text.
    pub fn negotiate(headers: &HeaderMap) -> Self {
        if preference(headers).prefers_open_metrics() {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// Chooses among all formats: protobuf if the headers name it with at least the weight of any
    /// text.
    pub fn negotiate_with_protobuf(headers: &HeaderMap) -> Self {
        if preference(headers).prefers_protobuf() {
            Self::Protobuf
        } else {
            Self::negotiate(headers)
        }
    }

    /// The value of the `Content-Type` header.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::Protobuf => {
                "application/vnd.google.protobuf; proto=io.prometheus.client.MetricFamily; encoding=delimited"
            }
        }
    }

    /// Converts OpenMetrics text as `prometheus_client` writes it to this format.
    ///
    /// A line that is not OpenMetrics is left out of the other formats; nothing makes this fail.
    pub fn render(self, open_metrics: &str) -> Vec<u8> {
        render(self, open_metrics, &[])
    }
}

/// Writes OpenMetrics text, and histograms that are not in it, in one format.
pub(crate) fn render(
    format: Format,
    open_metrics: &str,
    histograms: &[Arc<dyn HistogramSource>],
) -> Vec<u8> {
    let text = split(open_metrics);
    let histograms = histograms.iter().filter(|source| !source.is_empty());
    let mut families: Vec<(Cow<'_, str>, Family<'_>)> = text
        .iter()
        .map(|family| match format {
            Format::OpenMetrics => (Cow::Borrowed(family.name), Family::Text(family)),
            Format::Prometheus | Format::Protobuf => {
                (family.prometheus_name().0, Family::Text(family))
            }
        })
        .chain(histograms.map(|source| {
            let name = Cow::Borrowed(source.spec().name);
            (name, Family::Histogram(&**source))
        }))
        .collect();
    families.sort_by(|a, b| a.0.cmp(&b.0));
    let mut out = Vec::with_capacity(open_metrics.len());
    for (_, family) in families {
        match (format, family) {
            (Format::OpenMetrics, Family::Text(family)) => family.write(&mut out),
            (_, Family::Text(family)) => {
                if let Some(parsed) = family.parse() {
                    format.write(&parsed, &mut out);
                }
            }
            (_, Family::Histogram(source)) => format.write(source, &mut out),
        }
    }
    if format == Format::OpenMetrics {
        out.extend_from_slice(b"# EOF\n");
    }
    out
}

/// Lists `type name` of every family in OpenMetrics text, named as in the Prometheus format.
pub(crate) fn family_names(open_metrics: &str) -> Vec<String> {
    let names = split(open_metrics);
    let mut names: Vec<_> = names.iter().map(TextFamily::prometheus_name).collect();
    names.sort_by(|a, b| a.0.cmp(&b.0));
    let lines = names.iter().map(|(name, kind)| format!("{kind} {name}"));
    lines.collect()
}

impl Format {
    fn write(self, family: &dyn MetricFamily, out: &mut Vec<u8>) {
        match self {
            Self::OpenMetrics => text::OPEN_METRICS.write(family, out),
            Self::Prometheus => text::PROMETHEUS.write(family, out),
            Self::Protobuf => protobuf::write(family, out),
        }
    }
}

fn preference(headers: &HeaderMap) -> accept::Preference {
    let mut preference = accept::Preference::default();
    for value in headers.get_all(header::ACCEPT) {
        preference.read(value.as_bytes());
    }
    preference
}

#[cfg(test)]
mod tests;
