//! Reads `Accept` headers (RFC 9110, 12.5.1) as far as three media types need it.

/// The most ranges read per header; Prometheus sends seven at most.
const MAX_RANGES: usize = 64;

/// How well each form is liked by all ranges read so far.
#[derive(Debug, Default)]
pub(super) struct Preference {
    open_metrics: Liking,
    plain: Liking,
    protobuf: Liking,
}

/// The weight of the most specific range that matches, in thousandths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Liking {
    specificity: u8,
    weight: u16,
}

/// One media range with the parameters that matter.
struct Range<'h> {
    media: &'h [u8],
    version: Option<&'h [u8]>,
    /// `proto` and `encoding`, which say what kind of protobuf is meant.
    proto: Option<&'h [u8]>,
    encoding: Option<&'h [u8]>,
    weight: Option<u16>,
}

impl Preference {
    pub(super) fn read(&mut self, header: &[u8]) {
        for range in split_quoted(header, b',').take(MAX_RANGES) {
            let Some(range) = Range::parse(range) else {
                continue;
            };
            let weight = range.weight.unwrap_or(1000);
            let is = |media: &str| range.media.eq_ignore_ascii_case(media.as_bytes());
            if is("*/*") {
                self.open_metrics.offer(1, weight);
                self.plain.offer(1, weight);
            } else if is("application/*") {
                self.open_metrics.offer(2, weight);
            } else if is("text/*") {
                self.plain.offer(2, weight);
            } else if is("application/openmetrics-text") && range.has_version(b"1.0.0") {
                self.open_metrics.offer(3, weight);
            } else if is("application/vnd.google.protobuf") && range.is_of_families() {
                self.protobuf.offer(3, weight);
            } else if is("text/plain") && range.has_version(b"0.0.4") {
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

impl Liking {
    /// Whether it was asked for by name.
    fn is_named(self) -> bool {
        self.specificity == 3 && self.weight > 0
    }

    /// The most specific range counts; of two alike, the one with more weight.
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

impl<'h> Range<'h> {
    /// `None` if the range is not written as the standard says; it then asks for nothing.
    fn parse(text: &'h [u8]) -> Option<Self> {
        let mut parts = split_quoted(text, b';').map(<[u8]>::trim_ascii);
        let mut range = Self {
            media: parts.next()?,
            version: None,
            proto: None,
            encoding: None,
            weight: None,
        };
        for part in parts {
            let mut halves = part.splitn(2, |byte| *byte == b'=');
            let (name, Some(value)) = (halves.next()?, halves.next()) else {
                continue;
            };
            if name.eq_ignore_ascii_case(b"q") {
                range.weight = Some(parse_weight(value)?);
            } else if name.eq_ignore_ascii_case(b"version") {
                range.version = Some(unquote(value));
            } else if name.eq_ignore_ascii_case(b"proto") {
                range.proto = Some(unquote(value));
            } else if name.eq_ignore_ascii_case(b"encoding") {
                range.encoding = Some(unquote(value));
            }
        }
        Some(range)
    }

    /// Both parameters are asked for, as Go's client does it: there are other forms of protobuf.
    fn is_of_families(&self) -> bool {
        self.proto == Some(b"io.prometheus.client.MetricFamily")
            && self.encoding == Some(b"delimited")
    }

    fn has_version(&self, ours: &[u8]) -> bool {
        self.version.is_none_or(|version| version == ours)
    }
}

/// `0`, `1`, or either with up to three decimals, not above one.
fn parse_weight(text: &[u8]) -> Option<u16> {
    let (whole, decimals) = match text {
        [whole] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut weight = match whole {
        b'0' => 0,
        b'1' => 1000,
        _ => return None,
    };
    let mut unit = 100;
    for digit in decimals {
        if !digit.is_ascii_digit() {
            return None;
        }
        weight += u16::from(digit - b'0') * unit;
        unit /= 10;
    }
    (weight <= 1000).then_some(weight)
}

fn unquote(value: &[u8]) -> &[u8] {
    value
        .strip_prefix(b"\"")
        .and_then(|rest| rest.strip_suffix(b"\""))
        .unwrap_or(value)
}

/// Splits at a separator that does not stand inside a quoted string.
fn split_quoted(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |byte| {
        if escaped {
            escaped = false;
            return false;
        }
        match byte {
            b'\\' if quoted => escaped = true,
            b'"' => quoted = !quoted,
            _ => return *byte == separator && !quoted,
        }
        false
    })
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
    fn protobuf_is_for_those_who_name_it() {
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
            // Other forms of protobuf are not written, and a wildcard asks for something readable.
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
            // Prometheus 2 and 3 as they come, with and without protobuf and UTF-8 names.
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
            // Versions that we do not speak ask for nothing.
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

    #[test]
    fn weights_are_thousandths() {
        for (text, want) in [
            ("1", Some(1000)),
            ("1.000", Some(1000)),
            ("0", Some(0)),
            ("0.", Some(0)),
            ("0.5", Some(500)),
            ("0.05", Some(50)),
            ("0.999", Some(999)),
            ("1.1", None),
            ("0.5000", None),
            ("", None),
            (".5", None),
            ("-0", None),
            ("0.5x", None),
        ] {
            assert_eq!(parse_weight(text.as_bytes()), want, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_header_is_read(header in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut preference = Preference::default();
            preference.read(&header);
            preference.prefers_open_metrics();
        }

        #[test]
        fn any_header_made_of_the_right_pieces_is_read(
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
