//! The `Accept` header, as Go's Kubernetes reads it.

/// The most ranges that are looked at; clients send three or four.
const MAX_RANGES: usize = 32;

/// One element of an `Accept` header.
#[derive(Debug, Clone, PartialEq)]
pub struct MediaRange<'a> {
    /// `application` of `application/json`, or `*`.
    pub kind: &'a str,
    /// `json` of `application/json`, or `*`.
    pub subtype: &'a str,
    /// The weight. A weight that is no number counts as zero, and zero does not exclude.
    pub weight: f32,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> MediaRange<'a> {
    /// The value of a parameter; the last one wins.
    pub fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters
            .iter()
            .rev()
            .find(|(found, _)| *found == name)
            .map(|(_, value)| *value)
    }

    /// Whether a media type is in the range.
    pub fn matches(&self, kind: &str, subtype: &str) -> bool {
        (self.kind == kind && (self.subtype == subtype || self.subtype == "*"))
            || (self.kind == "*" && self.subtype == "*")
    }

    /// Kubernetes' order, which is no order in the mathematical sense: a named type goes before a
    /// wildcard even if its weight is lower.
    fn precedes(&self, other: &Self) -> bool {
        self.weight > other.weight
            || (self.kind != "*" && other.kind == "*")
            || (self.subtype != "*" && other.subtype == "*")
    }
}

/// Reads an `Accept` header, most wanted first. What cannot be read is passed over.
pub fn parse_accept(header: &str) -> Vec<MediaRange<'_>> {
    let mut ranges: Vec<MediaRange<'_>> = Vec::new();
    for range in header.split(',').take(MAX_RANGES).filter_map(parse_range) {
        // An insertion sort, since the result depends on how one sorts by such an order.
        let mut at = ranges.len();
        while at > 0
            && ranges
                .get(at - 1)
                .is_some_and(|before| range.precedes(before))
        {
            at -= 1;
        }
        ranges.insert(at, range);
    }
    ranges
}

fn parse_range(text: &str) -> Option<MediaRange<'_>> {
    let mut parts = text.split(';');
    let (kind, subtype) = match parts.next()?.trim().split_once('/') {
        Some((_, subtype)) if subtype.contains('/') || subtype.trim().is_empty() => return None,
        Some((kind, subtype)) => (kind.trim(), subtype.trim()),
        None if text.split(';').next()?.trim() == "*" => ("*", "*"),
        None => return None,
    };
    let mut range = MediaRange {
        kind,
        subtype,
        weight: 1.0,
        parameters: Vec::new(),
    };
    for part in parts {
        let Some((name, value)) = part.split_once('=') else {
            continue;
        };
        if value.is_empty() || value.contains('=') {
            continue;
        }
        if name.trim() == "q" {
            range.weight = value
                .parse()
                .ok()
                .filter(|weight: &f32| !weight.is_nan())
                .unwrap_or_default();
        } else {
            range.parameters.push((name.trim(), value.trim()));
        }
    }
    Some(range)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn order(header: &str) -> String {
        let names: Vec<String> = parse_accept(header)
            .iter()
            .map(|range| format!("{}/{}", range.kind, range.subtype))
            .collect();
        names.join(" ")
    }

    #[test]
    fn named_types_go_before_wildcards() {
        assert_eq!(order("*/*, application/json;q=0.1"), "application/json */*");
        assert_eq!(order("a/b;q=0.1, c/d"), "c/d a/b");
        assert_eq!(order("a/*, a/b, *, c/d"), "a/b c/d a/* */*");
        assert_eq!(order("nonsense, a/, a/b/c, ,a/b"), "a/b");
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

        #[test]
        fn whatever_is_accepted_is_bounded(header in "[a-z*/;,=q0-9. ]{0,200}") {
            let ranges = parse_accept(&header);
            prop_assert!(ranges.len() <= MAX_RANGES);
            for range in &ranges {
                prop_assert!(!range.subtype.is_empty() && !range.subtype.contains('/'));
                prop_assert!(!range.weight.is_nan());
            }
        }

        #[test]
        fn what_is_said_is_heard(
            kinds in proptest::collection::vec(("[a-z]{1,5}", "[a-z.]{1,8}", 0_u16..=1000), 1..8),
        ) {
            let header: Vec<String> = kinds
                .iter()
                .map(|(kind, subtype, q)| format!(" {kind}/{subtype} ;v=1; q={}", f32::from(*q) / 1000.0))
                .collect();
            let header = header.join(",");
            let ranges = parse_accept(&header);
            prop_assert_eq!(ranges.len(), kinds.len());
            prop_assert!(ranges.windows(2).all(|pair| pair[0].weight >= pair[1].weight));
            prop_assert!(ranges.iter().all(|range| range.parameter("v") == Some("1")));
        }
    }
}
