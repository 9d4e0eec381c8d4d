//! Text input of the simulated cluster: faults, and selectors of lists and watches.

use std::collections::BTreeMap;

use kubevitals_sim::faults::FaultSpec;
use kubevitals_sim::objects::Resource;
use kubevitals_sim::selectors::{SelectorError, fields_match, labels_match};
use serde_json::json;

/// Tokens of faults.
pub(crate) const FAULT_TOKENS: &[&[u8]] = &[
    b"=",
    b":",
    b"%",
    b".",
    b"-",
    b"+",
    b"0",
    b"9",
    b"100",
    b"all",
    b"node-1",
    b"slow",
    b"hang",
    b"huge",
    b"skew",
    b"401",
    b"missing-sibling",
    b"ms",
    b"s",
    b"m",
    b"h",
    b"Ki",
    b"Mi",
    b"Gi",
    b"18446744073709551615",
    b"9223372036854775808",
    b"\xc3\xa9",
    b"\0",
];

/// Tokens of selectors.
pub(crate) const SELECTOR_TOKENS: &[&[u8]] = &[
    b",",
    b"=",
    b"==",
    b"!=",
    b"!",
    b"(",
    b")",
    b">",
    b"<",
    b" ",
    b"\\",
    b"\\,",
    b"\\=",
    b" in ",
    b" notin ",
    b"app",
    b"web",
    b"tier",
    b"example.com/rank",
    b"7",
    b"-9223372036854775808",
    b"metadata.name",
    b"metadata.namespace",
    b"spec.nodeName",
    b"status.phase",
    b"n1",
    b"/",
    b"_",
    b"\xc3\xa9",
    b"\0",
];

/// A valid fault prints a text that parses as the same fault, and error messages are short.
///
/// # Panics
///
/// If the property is violated.
pub fn fault_spec(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    match text.parse::<FaultSpec>() {
        Ok(fault) => assert_eq!(fault.to_string().parse(), Ok(fault), "{text:?}"),
        Err(error) => {
            let words = error.to_string();
            assert!(words.len() < 1_000, "{words}");
        }
    }
}

/// A valid selector selects the same if it is repeated, or if true requirements are added; and the
/// length of an error message is in proportion to the selector.
///
/// # Panics
///
/// If the property is violated.
pub fn selector(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let labels = [("app", "web"), ("tier", ""), ("example.com/rank", "7")];
    let labels: BTreeMap<String, String> = labels
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let of_labels = |selector: &str| labels_match(selector, &labels);
    let truths = ["app", "!absent", "example.com/rank>6", "tier="];
    // A selector without a requirement cannot be extended by a comma.
    if !text.trim_matches([' ', '\t', '\r', '\n']).is_empty() {
        check_repeated(text, of_labels, &truths);
    }

    let pod = json!({
        "metadata": {"name": "a", "namespace": "default"},
        "spec": {"nodeName": "n1"},
        "status": {"phase": "Running"},
    });
    let of_pod = |selector: &str| fields_match(Resource::Pods, selector, &pod);
    let truths = ["", "metadata.name=a", "spec.nodeName!=n2"];
    check_repeated(text, of_pod, &truths);
    let of_map = |selector: &str| fields_match(Resource::ConfigMaps, selector, &pod);
    check_repeated(text, of_map, &["metadata.namespace=default"]);
}

fn check_repeated(
    text: &str,
    matches: impl Fn(&str) -> Result<bool, SelectorError>,
    truths: &[&str],
) {
    match matches(text) {
        Ok(selects) => {
            for more in truths.iter().chain([&text]) {
                let both = format!("{text},{more}");
                assert_eq!(matches(&both), Ok(selects), "{both:?}");
            }
        }
        Err(error) => {
            let words = error.to_string();
            // The message may quote the text twice, and escape each byte to up to six.
            assert!(words.len() <= 1_000 + 12 * text.len(), "{words}");
        }
    }
}
