//! Input of the admin server, and the exposition of our own registry.

use http::{HeaderMap, HeaderValue, header};
use kubevitals_promtext::{Item, parse};
use kubevitals_protobuf::{delimited, fields};
use kubevitals_telemetry::LogFilter;
use kubevitals_telemetry::exposition::Format;

/// Tokens of requests and filters.
pub(crate) const ADMIN_TOKENS: &[&[u8]] = &[
    b"text/plain",
    b"application/vnd.google.protobuf",
    b";proto=io.prometheus.client.MetricFamily",
    b";encoding=delimited",
    b"application/openmetrics-text",
    b"*/*",
    b";version=0.0.4",
    b";version=1.0.0",
    b";q=0.5",
    b";q=",
    b"1.001",
    b",",
    b";",
    b"=",
    b"\"",
    b"info",
    b"debug",
    b"kubevitals_tls=",
    b"[span{field=1}]",
    b"off",
    b" ",
];

/// Tokens of OpenMetrics.
pub(crate) const OPENMETRICS_TOKENS: &[&[u8]] = &[
    b"# HELP ",
    b"# TYPE ",
    b"# UNIT ",
    b"# EOF\n",
    b" counter\n",
    b" gauge\n",
    b" histogram\n",
    b" info\n",
    b" stateset\n",
    b" unknown\n",
    b" summary\n",
    b"quantile=\"0.5\"",
    b"_total",
    b"_bucket",
    b"_created",
    b"_info",
    b"_sum",
    b"_count",
    b"{",
    b"}",
    b"le=\"1.0\"",
    b"\\",
    b"\"",
    b"\n",
    b" 1.0",
    b" # {trace=\"a\"} 1 2.5",
    b"a",
    b" 1520430000.123",
    b"NaN",
    b"+Inf",
];

/// Parses any `Accept` header and log filter.
///
/// # Panics
///
/// If a parsed filter does not parse as itself, or if supporting protobuf changes which text format
/// is chosen.
pub fn admin_input(data: &[u8]) {
    if let Ok(value) = HeaderValue::from_bytes(data) {
        let headers = HeaderMap::from_iter([(header::ACCEPT, value)]);
        let text = Format::negotiate(&headers);
        let any = Format::negotiate_with_protobuf(&headers);
        assert!(any == text || any == Format::Protobuf);
    }
    let text = std::str::from_utf8(data).ok();
    if let Some(filter) = text.and_then(|text| text.parse::<LogFilter>().ok()) {
        assert_eq!(filter.as_str().parse::<LogFilter>().ok(), Some(filter));
    }
}

/// Converts any OpenMetrics text to the other formats.
///
/// # Panics
///
/// If valid lines become invalid ones, or if the protobuf format is malformed or has other families
/// than the text.
pub fn exposition(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let rendered = Format::Prometheus.render(text);
    let bad_before = bad_lines(data);
    if bad_before == 0 && data.ends_with(b"\n") {
        assert_eq!(
            bad_lines(&rendered),
            0,
            "{}",
            String::from_utf8_lossy(&rendered)
        );
    }
    let _ = Format::OpenMetrics.render(text);
    let families = families_of(&Format::Protobuf.render(text));
    let rendered = String::from_utf8_lossy(&rendered);
    let types = rendered
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let names: Vec<&str> = types
        .filter_map(|line| Some(line.rsplit_once(' ')?.0))
        .collect();
    assert_eq!(families, names);
}

/// Decodes every message of a protobuf body and returns the names of its families.
fn families_of(mut body: &[u8]) -> Vec<String> {
    let mut names = Vec::new();
    while !body.is_empty() {
        let (family, rest) = delimited(body).expect("messages are delimited by their length");
        body = rest;
        for field in fields(family).expect("a family is a message") {
            match (field.number, field.value) {
                (1, value) => names.extend(value.text().map(str::to_owned)),
                (4, value) => decode_nested(value.bytes().expect("a series is a message"), 3),
                _ => {}
            }
        }
    }
    names
}

/// Decodes the messages of a series: labels, values and buckets. Strings may or may not parse as
/// messages.
fn decode_nested(message: &[u8], depth: u32) {
    let is_text = |number: u32| depth == 2 && number <= 2;
    for field in fields(message).expect("a field is a message") {
        if let Some(inner) = field.value.bytes()
            && depth > 1
            && !is_text(field.number)
        {
            decode_nested(inner, depth - 1);
        }
    }
}

fn bad_lines(body: &[u8]) -> usize {
    let mut bad = 0;
    parse(body, |item| {
        bad += usize::from(matches!(item, Item::Error(_)));
    });
    bad
}

/// Tokens of heap profiles.
pub(crate) const HEAP_TOKENS: &[&[u8]] = &[
    b"heap_v2/524288\n",
    b"heap_v2/1\n",
    b"  t*: 1: 100 [0: 0]\n",
    b"  t*: 18446744073709551615: 18446744073709551615 [0: 0]\n",
    b"  t7: 0: 0 [0: 0]\n",
    b"@ 0x55d0 0xffffffffffffffff\n",
    b"@\n",
    b"\n",
    b"MAPPED_LIBRARIES:\n",
    b" 0x",
];

/// No text of an allocator makes the parser panic, and a sample stands for itself at least.
///
/// # Panics
///
/// If the property is violated.
pub fn heap_profile(bytes: &[u8]) {
    let Ok(profile) = kubevitals_telemetry::profile::heap::HeapProfile::parse(bytes) else {
        return;
    };
    assert!(bytes.starts_with(b"heap_v2/") && profile.sample_period > 0);
    for sample in &profile.samples {
        assert!(sample.bytes > 0 && sample.addresses.len() <= bytes.len());
    }
}
