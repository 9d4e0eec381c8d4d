//! The Prometheus text format.

// The reference parser of the crate's own tests.
#[path = "../../../crates/base/promtext/tests/suite/reference.rs"]
mod reference;

use kubevitals_promtext::{Document, Item, Label, Summary, parse, unescape};

use reference::{What, expected, observed};

/// Tokens of the format.
pub(crate) const TOKENS: &[&[u8]] = &[
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b"{",
    b"}",
    b",",
    b"=",
    b"\"",
    b"\\",
    b"\\\\",
    b"\\\"",
    b"\\n",
    b"#",
    b"# HELP ",
    b"# TYPE ",
    b" counter",
    b" gauge",
    b" histogram",
    b" summary",
    b" untyped",
    b"_bucket",
    b"_sum",
    b"_count",
    b"le=\"+Inf\"",
    b"a",
    b"a 1\n",
    b"a{b=\"c\"} 1 2\n",
    b"b=\"c\"",
    b"__name__=\"",
    b"NaN",
    b"+Inf",
    b"-inf",
    b"1e309",
    b"0x1p4",
    b"1_0",
    b"9007199254740993",
    b"123456789.123456789",
    b"18446744073709551616",
    b"9223372036854775808",
    b"-5",
    b"1794773483261",
    b"\xff",
    b"\xc3\xbc",
    b"\0",
];

/// Parsing agrees with the slow reference, and encoding the parsed document loses nothing.
///
/// # Panics
///
/// If the property is violated.
pub fn promtext(body: &[u8]) {
    let found = observed(body);
    assert_eq!(found, expected(body), "differs from the reference");

    let summary = walk(body);
    let errors = found
        .iter()
        .filter(|found| matches!(found.what, What::Error(_)))
        .count();
    let samples = found
        .iter()
        .filter(|found| matches!(found.what, What::Sample { .. }))
        .count();
    assert_eq!((summary.samples, summary.errors), (samples, errors));

    let mut document = Document::parse(body);
    assert_eq!(document.summary(), Some(summary));
    let mut text = Vec::new();
    document.encode(&mut text);
    let again = walk(&text);
    assert_eq!(
        (again.samples, again.errors, again.terminated),
        (samples, 0, true)
    );
    assert_eq!(series(&text), series(body), "encoding changed a series");

    let mut document = Document::parse(&text);
    let mut same = Vec::new();
    document.encode(&mut same);
    assert!(same == text, "encoding what was encoded changed it");
}

/// Checks the properties of each item by itself.
fn walk(body: &[u8]) -> Summary {
    let mut last_line = 0;
    let mut pushed = 0;
    let mut follows = |line: usize| {
        assert!(line > last_line, "line numbers rise");
        last_line = line;
    };
    let summary = parse(body, |item| {
        pushed += 1;
        match item {
            Item::Sample(sample) => {
                follows(sample.line);
                assert_within(body, sample.name.as_str());
                for Label { name, raw, escaped } in sample.labels {
                    assert_within(body, name.as_str());
                    assert_within(body, raw);
                    assert_eq!(*escaped, raw.contains('\\'));
                    assert_eq!(*escaped, unescape(raw) != *raw);
                }
            }
            Item::Help(help) => {
                follows(help.line);
                assert_within(body, help.name.as_str());
                assert_within(body, help.raw);
            }
            Item::Type(kind) => {
                follows(kind.line);
                assert_within(body, kind.name.as_str());
            }
            Item::Comment(comment) => {
                follows(comment.line);
                assert_within(body, comment.text);
            }
            Item::Error(error) => {
                follows(error.line);
                let line = body.split(|byte| *byte == b'\n').nth(error.line - 1);
                assert!(line.is_some_and(|line| (1..=line.len() + 1).contains(&error.column)));
            }
        }
    });
    let lines = body.split_inclusive(|byte| *byte == b'\n').count();
    assert_eq!(summary.lines, lines);
    assert!(pushed <= summary.lines, "a line pushes one item at most");
    assert_eq!((summary.bytes, summary.skipped), (body.len(), 0));
    summary
}

/// Checks that `part` lies in `body`: no item may be a copy.
fn assert_within(body: &[u8], part: &str) {
    let (outer, inner) = (body.as_ptr_range(), part.as_bytes().as_ptr_range());
    assert!(
        outer.start <= inner.start && inner.end <= outer.end,
        "{part:?} is not in the body"
    );
}

/// A series: its name, its labels by name, the bits of its value and its timestamp.
type Series = (String, Vec<(String, String)>, u64, Option<i64>);

/// Returns every series in sorted order; negative zero is written as zero.
fn series(body: &[u8]) -> Vec<Series> {
    let mut all: Vec<Series> = observed(body)
        .into_iter()
        .filter_map(|found| match found.what {
            What::Sample {
                name,
                mut labels,
                value,
                timestamp_ms,
                ..
            } => {
                labels.sort();
                let value = if value == (-0.0_f64).to_bits() {
                    0
                } else {
                    value
                };
                Some((name, labels, value, timestamp_ms))
            }
            _ => None,
        })
        .collect();
    all.sort();
    all
}
