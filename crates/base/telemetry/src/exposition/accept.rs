//! Chooses an exposition format by `Accept` headers (RFC 9110, 12.5.1).

use kubevitals_http::accept::{self, MediaRange};

/// The weight of each format in all headers read so far.
#[derive(Debug, Default)]
pub(super) struct Preference {
    open_metrics: FormatWeight,
    plain: FormatWeight,
    protobuf: FormatWeight,
}

/// The weight of the most specific range that matches a format, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FormatWeight {
    specificity: u8,
    weight: u16,
}

impl Preference {
    pub(super) fn read(&mut self, header: &[u8]) {
        for range in accept::parse(&String::from_utf8_lossy(header)) {
            let Some(weight) = range.weight() else {
                continue;
            };
            let is = |kind: &str, subtype: &str| {
                range.kind.eq_ignore_ascii_case(kind) && range.subtype.eq_ignore_ascii_case(subtype)
            };
            if is("*", "*") {
                self.open_metrics.offer(1, weight);
                self.plain.offer(1, weight);
            } else if is("application", "*") {
                self.open_metrics.offer(2, weight);
            } else if is("text", "*") {
                self.plain.offer(2, weight);
            } else if is("application", "openmetrics-text") && has_version(&range, "1.0.0") {
                self.open_metrics.offer(3, weight);
            } else if is("application", "vnd.google.protobuf") && is_metric_family(&range) {
                self.protobuf.offer(3, weight);
            } else if is("text", "plain") && has_version(&range, "0.0.4") {
                self.plain.offer(3, weight);
            }
        }
    }

    pub(super) fn prefers_open_metrics(&self) -> bool {
        let (open_metrics, plain) = (self.open_metrics.weight, self.plain.weight);
        open_metrics > plain || (self.open_metrics.is_named() && open_metrics == plain)
    }

    pub(super) fn prefers_protobuf(&self) -> bool {
        let text = self.open_metrics.weight.max(self.plain.weight);
        self.protobuf.is_named() && self.protobuf.weight >= text
    }
}

impl FormatWeight {
    /// Whether the format was requested by name.
    fn is_named(self) -> bool {
        self.specificity == 3 && self.weight > 0
    }

    /// Keeps the most specific range; of two alike, the one with more weight.
    fn offer(&mut self, specificity: u8, weight: u16) {
        if specificity > self.specificity {
            *self = Self {
                specificity,
                weight,
            };
        } else if specificity == self.specificity {
            self.weight = self.weight.max(weight);
        }
    }
}

/// Whether delimited messages are requested, as Go's client does: there are other protobuf formats.
fn is_metric_family(range: &MediaRange<'_>) -> bool {
    range.parameter("proto") == Some("io.prometheus.client.MetricFamily")
        && range.parameter("encoding") == Some("delimited")
}

fn has_version(range: &MediaRange<'_>, supported: &str) -> bool {
    range
        .parameter("version")
        .is_none_or(|version| version == supported)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn prefers_open_metrics(headers: &[&str]) -> bool {
        let mut preference = Preference::default();
        for header in headers {
            preference.read(header.as_bytes());
        }
        preference.prefers_open_metrics()
    }

    fn prefers_protobuf(accept: &str) -> bool {
        let mut preference = Preference::default();
        preference.read(accept.as_bytes());
        preference.prefers_protobuf()
    }

    #[test]
    fn protobuf_must_be_requested_by_name() {
        const FAMILIES: &str = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";
        for (accept, protobuf) in [
            // Prometheus 3 with native histograms, and with the other order of protocols.
            (format!("{FAMILIES};q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"), true),
            (format!("application/openmetrics-text;version=1.0.0;q=0.6,{FAMILIES};q=0.5,*/*;q=0.2"), false),
            (FAMILIES.to_owned(), true),
            (FAMILIES.to_ascii_uppercase(), false),
            (format!("{FAMILIES};q=0"), false),
            (format!("{FAMILIES};q=0.5,*/*;q=0.5"), true),
            (format!("{FAMILIES};escaping=allow-utf-8;q=0.6,text/plain;q=0.5"), true),
            ("application/vnd.google.protobuf;proto=\"io.prometheus.client.MetricFamily\"; encoding=delimited".to_owned(), true),
            // Other protobuf formats are not supported, and a wildcard means something readable.
            ("application/vnd.google.protobuf".to_owned(), false),
            ("application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=text".to_owned(), false),
            ("application/*".to_owned(), false),
            ("*/*".to_owned(), false),
            (String::new(), false),
        ] {
            assert_eq!(prefers_protobuf(&accept), protobuf, "{accept}");
        }
    }

    #[test]
    fn negotiation_table() {
        for (accept, open_metrics) in [
            // Prometheus 2 and 3 by default, with and without protobuf and UTF-8 names.
            (
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                true,
            ),
            (
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                true,
            ),
            (
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited;q=0.6,application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
                true,
            ),
            ("text/plain;version=0.0.4;q=0.5,*/*;q=0.1", false),
            // curl, browsers, probes.
            ("*/*", false),
            ("", false),
            (
                "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
                false,
            ),
            // Weights.
            ("application/openmetrics-text", true),
            ("application/openmetrics-text;q=0.5,text/plain;q=0.5", true),
            ("text/plain, application/openmetrics-text", true),
            (
                "application/openmetrics-text;q=0.499,text/plain;q=0.5",
                false,
            ),
            ("application/openmetrics-text;q=0", false),
            ("application/openmetrics-text;q=0,*/*", false),
            ("application/openmetrics-text;q=0.2,*/*;q=0.9", false),
            // Wildcards: the more specific range wins, a tie goes to plain text.
            ("application/*", true),
            ("application/*;q=0.9,text/plain;q=0.9", false),
            ("text/plain;q=0.1,*/*", true),
            ("text/*", false),
            (
                "application/*;q=0.1,application/openmetrics-text;q=1,text/plain;q=0.5",
                true,
            ),
            // Unsupported versions are ignored.
            ("application/openmetrics-text;version=2.0.0", false),
            ("application/openmetrics-text;version=0.0.1", false),
            ("application/openmetrics-text;version=\"1.0.0\"", true),
            (
                "text/plain;version=1.0.0;q=1,application/openmetrics-text;q=0.5",
                true,
            ),
            // Case, blanks, quotes, and ranges that are not well-formed.
            (
                "  Application/OpenMetrics-Text ; Version=1.0.0 ; Q=1.000 ",
                true,
            ),
            (
                "text/plain;x=\"a,b;q=1\";q=0.1, application/openmetrics-text;q=0.2",
                true,
            ),
            ("application/openmetrics-text;q=2", false),
            ("application/openmetrics-text;q=0.1234", false),
            ("application/openmetrics-text;q=", false),
            ("application/openmetrics-text;q=1.001", false),
            (";,;,=", false),
        ] {
            assert_eq!(prefers_open_metrics(&[accept]), open_metrics, "{accept}");
        }
        assert!(prefers_open_metrics(&[
            "text/plain;q=0.3",
            "application/openmetrics-text;q=0.4"
        ]));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_header_is_parsed(header in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut preference = Preference::default();
            preference.read(&header);
            preference.prefers_open_metrics();
        }

        #[test]
        fn any_combination_of_valid_pieces_is_parsed(
            pieces in proptest::collection::vec(
                prop_oneof![
                    Just("application/openmetrics-text"), Just("text/plain"), Just("*/*"), Just(","),
                    Just(";"), Just("q="), Just("0.5"), Just("\""), Just("\\"), Just("version="),
                    Just("1.0.0"), Just(" "),
                ],
                0..40,
            )
        ) {
            prefers_open_metrics(&[&pieces.concat()]);
        }
    }
}
