//! `Accept` headers (RFC 9110, 12.5.1). Which range wins is decided by the callers: Kubernetes and
//! Prometheus order them differently.

/// Maximum number of ranges read per header; Prometheus sends at most seven, kubectl four.
const MAX_RANGES: usize = 32;

/// One media range of an `Accept` header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MediaRange<'a> {
    /// `application` of `application/json`, or `*`.
    pub kind: &'a str,
    /// `json` of `application/json`, or `*`.
    pub subtype: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

/// Parses an `Accept` header, in the order of the header. Malformed ranges are skipped.
pub fn parse(header: &str) -> impl Iterator<Item = MediaRange<'_>> {
    split_quoted(header, b',')
        .take(MAX_RANGES)
        .filter_map(MediaRange::parse)
}

impl<'a> MediaRange<'a> {
    /// Returns the value of a parameter, `q` included, without its quotes.
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters
            .iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name))
            .map(|(_, value)| *value)
    }

    /// Returns the weight `q` in thousandths; `None` if it is malformed.
    pub fn weight(&self) -> Option<u16> {
        self.parameter("q").map_or(Some(1000), parse_weight)
    }

    fn parse(text: &'a str) -> Option<Self> {
        let mut parts = split_quoted(text, b';').map(str::trim);
        let (kind, subtype) = match parts.next()? {
            "*" => ("*", "*"),
            media => media.split_once('/')?,
        };
        let (kind, subtype) = (kind.trim(), subtype.trim());
        if subtype.is_empty() || subtype.contains('/') {
            return None;
        }
        let parameters = parts
            .filter_map(|part| part.split_once('='))
            .map(|(name, value)| (name.trim(), unquote(value.trim())))
            .collect();
        Some(Self {
            kind,
            subtype,
            parameters,
        })
    }
}

/// `0`, `1`, or either with up to three decimals, not above one.
fn parse_weight(text: &str) -> Option<u16> {
    let (whole, decimals) = match text.as_bytes() {
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

fn unquote(value: &str) -> &str {
    value
        .strip_prefix('"')
        .and_then(|rest| rest.strip_suffix('"'))
        .unwrap_or(value)
}

/// Splits at an ASCII separator outside of quoted strings.
fn split_quoted(text: &str, separator: u8) -> impl Iterator<Item = &str> {
    let (mut quoted, mut escaped) = (false, false);
    text.split(move |character: char| {
        if escaped {
            escaped = false;
            return false;
        }
        match character {
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ => return character == char::from(separator) && !quoted,
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ranges_are_parsed_in_the_order_of_the_header() {
        let ranges: Vec<_> = parse("*;q=0, a/b ; V=\"1,2;3\";x;q=0.5 ,nonsense,a/,a/b/c,,\"a,b/c")
            .map(|range| {
                let version = range.parameter("v").unwrap_or_default();
                (range.kind, range.subtype, version, range.weight())
            })
            .collect();
        assert_eq!(
            ranges,
            [
                ("*", "*", "", Some(0)),
                ("a", "b", "1,2;3", Some(500)),
                ("\"a,b", "c", "", Some(1000)),
            ]
        );
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
            assert_eq!(parse_weight(text), want, "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

        #[test]
        fn any_header_is_parsed_within_bounds(header in "[a-z*/;,=q0-9.\" \\\\]{0,200}|\\PC{0,60}") {
            let ranges: Vec<_> = parse(&header).collect();
            prop_assert!(ranges.len() <= MAX_RANGES);
            for range in &ranges {
                prop_assert!(!range.subtype.is_empty() && !range.subtype.contains('/'));
                prop_assert!(range.weight().is_none_or(|weight| weight <= 1000));
            }
        }

        #[test]
        fn well_formed_ranges_are_parsed_completely(
            kinds in proptest::collection::vec(("[a-z]{1,5}", "[a-z.]{1,8}", 0_u16..=1000), 1..8),
        ) {
            let header: Vec<String> = kinds
                .iter()
                .map(|(kind, subtype, q)| format!(" {kind}/{subtype} ;v=1; q={}", f32::from(*q) / 1000.0))
                .collect();
            let header = header.join(",");
            let ranges: Vec<_> = parse(&header).collect();
            prop_assert_eq!(ranges.len(), kinds.len());
            for (range, (kind, subtype, q)) in ranges.iter().zip(&kinds) {
                prop_assert_eq!((range.kind, range.subtype), (kind.as_str(), subtype.as_str()));
                prop_assert_eq!((range.parameter("v"), range.weight()), (Some("1"), Some(*q)));
            }
        }
    }
}
