//! The two text forms in which metrics leave the process, and how a scraper chooses.
//!
//! The registry itself writes OpenMetrics. [`Format::OpenMetrics`] hands that out with its families
//! sorted and those of one name joined; [`Format::Prometheus`] is converted from it into the very
//! bytes that Go's client library would send for the same metrics, so that a program compared
//! against Go expositions sees no difference.

mod accept;
mod family;
mod prometheus;

use http::{HeaderMap, header};

use self::family::index;

/// A text form of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics 1.0.
    OpenMetrics,
    /// The Prometheus text format 0.0.4, which everything reads.
    Prometheus,
}

impl Format {
    /// Chooses by the `Accept` headers of a request.
    ///
    /// OpenMetrics is for those who name it, with at least the weight of `text/plain`, or rank it
    /// higher through a wildcard. All others get the Prometheus form, as from Go: a client that
    /// accepts neither can still read plain text.
    pub fn negotiate(headers: &HeaderMap) -> Self {
        let mut preference = accept::Preference::default();
        for value in headers.get_all(header::ACCEPT) {
            preference.read(value.as_bytes());
        }
        if preference.prefers_open_metrics() {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    /// The value of the `Content-Type` header.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// Brings OpenMetrics text as `prometheus_client` writes it into this form.
    ///
    /// A line that is not OpenMetrics is left out of the Prometheus form; nothing makes this fail.
    pub fn render(self, open_metrics: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(open_metrics.len());
        let mut families = index(open_metrics);
        match self {
            Self::OpenMetrics => {
                families.sort_by(|a, b| a.name.cmp(b.name));
                for family in &families {
                    family.write_open_metrics(&mut out);
                }
                out.extend_from_slice(b"# EOF\n");
            }
            Self::Prometheus => prometheus::write(&families, &mut out),
        }
        out
    }
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

#[cfg(test)]
mod tests;
