//! The forms in which metrics leave the process, and how a scraper chooses.
//!
//! The registry itself writes OpenMetrics. [`Format::OpenMetrics`] hands that out with its families
//! sorted and those of one name joined; [`Format::Prometheus`] is converted from it into the very
//! bytes that Go's client library would send for the same metrics, so that a program compared
//! against Go expositions sees no difference. [`Format::Protobuf`] is converted from that again,
//! and the only form with native histograms.
//!
//! Histograms of [`HistogramFamily`](crate::HistogramFamily) are written here in each form, among
//! the families of the registry.

mod accept;
mod family;
mod histogram;
mod prometheus;
mod protobuf;

use std::sync::Arc;

use http::{HeaderMap, header};

use self::family::index;
use crate::histogram::HistogramSource;

/// A form of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The Prometheus text format 0.0.4, which everything reads.
    Prometheus,
    /// `io.prometheus.client.MetricFamily` messages, each after its length.
    Protobuf,
}

impl Format {
    /// Chooses a text form by the `Accept` headers of a request.
    ///
    /// OpenMetrics is for those who name it, with at least the weight of `text/plain`, or rank it
    /// higher through a wildcard. All others get the Prometheus form, as from Go: a client that
    /// accepts neither can still read plain text.
    pub fn negotiate(headers: &HeaderMap) -> Self {
        if preference(headers).prefers_open_metrics() {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// Chooses among all forms. Protobuf is for those who name it with at least the weight of any
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

    /// Brings OpenMetrics text as `prometheus_client` writes it into this form.
    ///
    /// A line that is not OpenMetrics is left out of the other forms; nothing makes this fail.
    pub fn render(self, open_metrics: &str) -> Vec<u8> {
        render(self, open_metrics, &[])
    }
}

/// Writes OpenMetrics text and histograms that are not in it in one form.
pub(crate) fn render(
    format: Format,
    open_metrics: &str,
    histograms: &[Arc<dyn HistogramSource>],
) -> Vec<u8> {
    let mut out = Vec::with_capacity(open_metrics.len());
    let mut histograms: Vec<&dyn HistogramSource> = histograms
        .iter()
        .map(|source| &**source)
        .filter(|source| !source.is_empty())
        .collect();
    histograms.sort_by_key(|source| source.spec().name);
    let families = index(open_metrics);
    match format {
        Format::OpenMetrics => {
            let mut named: Vec<_> = families
                .iter()
                .map(|family| (family.name, family))
                .collect();
            named.sort_by_key(|(name, _)| *name);
            merge(
                named,
                histograms,
                &mut out,
                |(_, family), out| family.write_open_metrics(out),
                histogram::write_open_metrics,
            );
            out.extend_from_slice(b"# EOF\n");
        }
        Format::Prometheus => merge(
            prometheus::named(&families),
            histograms,
            &mut out,
            prometheus::write,
            histogram::write_prometheus,
        ),
        Format::Protobuf => {
            let mut text = Vec::with_capacity(open_metrics.len());
            for (name, family) in prometheus::named(&families) {
                prometheus::write((name, family), &mut text);
            }
            protobuf::write(&text, histograms, &mut out);
        }
    }
    out
}

/// Lists `type name` of every family in OpenMetrics text, named as in the Prometheus form.
pub(crate) fn family_names(open_metrics: &str) -> Vec<String> {
    let mut names: Vec<String> = index(open_metrics)
        .iter()
        .map(|family| format!("{} {}{}", family.kind.word, family.name, family.kind.suffix))
        .collect();
    names.sort_by(|a, b| a.split(' ').next_back().cmp(&b.split(' ').next_back()));
    names
}

/// Writes two lists that are sorted by name as one that is.
fn merge<N: AsRef<str>, T>(
    left: Vec<(N, T)>,
    right: Vec<&dyn HistogramSource>,
    out: &mut Vec<u8>,
    write_left: impl Fn((N, T), &mut Vec<u8>),
    write_right: impl Fn(&dyn HistogramSource, &mut Vec<u8>),
) {
    let mut right = right.into_iter().peekable();
    for (name, one) in left {
        while let Some(source) = right.next_if(|source| source.spec().name < name.as_ref()) {
            write_right(source, out);
        }
        write_left((name, one), out);
    }
    for source in right {
        write_right(source, out);
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
