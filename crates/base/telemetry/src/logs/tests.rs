use tracing::{debug, info, info_span, warn};

use super::*;

fn logs(format: LogFormat, filter: &str) -> LogCapture {
    LogCapture::start(&LogOptions {
        format,
        filter: filter.parse().unwrap(),
        ansi: false,
    })
}

/// Checks the timestamp, then takes it away.
fn without_time(line: &str) -> &str {
    let (time, rest) = line.split_once(' ').unwrap();
    assert!(is_rfc3339_utc(time), "{time}");
    rest
}

fn is_rfc3339_utc(time: &str) -> bool {
    time.len() >= 20
        && time.ends_with('Z')
        && time
            .bytes()
            .zip(b"0000-00-00T00:00:00".iter())
            .all(|(byte, shape)| match shape {
                b'0' => byte.is_ascii_digit(),
                other => byte == *other,
            })
}

#[test]
fn text_is_one_plain_line_per_event() {
    let log = logs(LogFormat::Text, "info");
    warn!(node = "n17", error = %"bad\n2026-01-01T00:00:00Z  INFO forged", "scrape failed");
    let text = log.text();
    assert_eq!(text.lines().count(), 1);
    assert_eq!(
        without_time(&text),
        " WARN kubevitals_telemetry::logs::tests: scrape failed node=\"n17\" \
         error=bad\\n2026-01-01T00:00:00Z  INFO forged\n"
    );
}

#[test]
fn json_carries_fields_and_the_current_span() {
    let log = logs(LogFormat::Json, "info");
    {
        let _span = info_span!("scrape", node = "n17").entered();
        info!(bytes = 12, quote = "a\"b\nc", "scraped");
    }
    let line = log.text();
    let (time, rest) = line
        .strip_prefix("{\"timestamp\":\"")
        .unwrap()
        .split_once('"')
        .unwrap();
    assert!(is_rfc3339_utc(time), "{time}");
    assert_eq!(
        rest,
        ",\"level\":\"INFO\",\"message\":\"scraped\",\"bytes\":12,\"quote\":\"a\\\"b\\nc\",\
         \"target\":\"kubevitals_telemetry::logs::tests\",\
         \"span\":{\"node\":\"n17\",\"name\":\"scrape\"}}\n"
    );
}

#[test]
fn a_filter_set_at_run_time_takes_effect_at_once() {
    let log = logs(LogFormat::Text, "info");
    let speak = || debug!("hidden detail");
    speak();
    assert_eq!(log.take(), "");

    let handle = log.handle();
    handle
        .set(&"warn,kubevitals=debug".parse().unwrap())
        .unwrap();
    let change = log.take();
    assert!(change.contains("log filter changed previous=info filter=warn,kubevitals=debug"));
    speak();
    assert!(log.take().contains("hidden detail"));

    handle.set(&"off".parse().unwrap()).unwrap();
    speak();
    assert_eq!(log.take(), "");
    assert_eq!(handle.filter().as_str(), "off");
}

#[test]
fn a_handle_without_its_subscriber_returns_an_error() {
    let log = logs(LogFormat::Text, "info");
    let handle = log.handle().clone();
    drop(log);
    let error = handle.set(&"debug".parse().unwrap()).unwrap_err();
    assert!(matches!(error, TelemetryError::LogsGone(_)), "{error}");
    assert_eq!(handle.filter().as_str(), "info");
}

#[test]
fn colour_needs_a_terminal_and_no_no_color() {
    assert!(ansi_allowed(None, true));
    assert!(ansi_allowed(Some(OsStr::new("")), true));
    assert!(!ansi_allowed(Some(OsStr::new("1")), true));
    assert!(!ansi_allowed(None, false));
}

#[test]
fn formats_parse_and_print() {
    for format in [LogFormat::Text, LogFormat::Json] {
        assert_eq!(format.to_string().parse::<LogFormat>().unwrap(), format);
    }
    assert_eq!(
        "yaml".parse::<LogFormat>().unwrap_err().to_string(),
        "unknown log format `yaml`; use `text` or `json`"
    );
}
