//! What strangers send to the admin server, and what it makes of our own registry.

use http::{HeaderMap, HeaderValue, header};
use kubevitals_promtext::{Item, parse};
use kubevitals_telemetry::LogFilter;
use kubevitals_telemetry::exposition::Format;

/// What requests and filters are made of.
pub(crate) const ADMIN_TOKENS: &[&[u8]] = &[
    b"text/plain",
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

/// What OpenMetrics is made of.
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

/// An `Accept` header and a log filter may hold anything.
///
/// # Panics
///
/// If a filter that was read does not read as itself.
pub fn admin_input(data: &[u8]) {
    if let Ok(value) = HeaderValue::from_bytes(data) {
        let headers = HeaderMap::from_iter([(header::ACCEPT, value)]);
        let _ = Format::negotiate(&headers);
    }
    let text = std::str::from_utf8(data).ok();
    if let Some(filter) = text.and_then(|text| text.parse::<LogFilter>().ok()) {
        assert_eq!(filter.as_str().parse::<LogFilter>().ok(), Some(filter));
    }
}

/// Whatever the registry writes, each line for Prometheus is one that Prometheus reads.
///
/// # Panics
///
/// If a line that was valid became one that is not.
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
}

fn bad_lines(body: &[u8]) -> usize {
    let mut bad = 0;
    parse(body, |item| {
        bad += usize::from(matches!(item, Item::Error(_)));
    });
    bad
}
