use base64::engine::general_purpose::STANDARD;
use kubevitals_protobuf::{put_int, put_message, put_str};
use proptest::prelude::*;

use super::*;

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &str)| {
        let name = http::HeaderName::from_static(name);
        (name, HeaderValue::from_str(value).unwrap())
    };
    pairs.iter().map(pair).collect()
}

fn is_retryable(error: &ExportError) -> bool {
    matches!(error, ExportError::Retryable { .. })
}

/// The delay of a retryable failure.
fn after(error: &ExportError) -> Option<Duration> {
    match error {
        ExportError::Retryable { after, .. } => *after,
        _ => None,
    }
}

fn of_http(status: u16, headers: &HeaderMap) -> ExportError {
    let status = StatusCode::from_u16(status).unwrap();
    http_failure(status, headers, b"busy", 7, SystemTime::UNIX_EPOCH)
}

#[test]
fn http_retries_only_what_the_specification_names() {
    let none = HeaderMap::new();
    for status in [429, 502, 503, 504] {
        assert!(is_retryable(&of_http(status, &none)), "{status}");
    }
    for status in [301, 400, 401, 403, 404, 408, 413, 500, 501, 505] {
        let error = of_http(status, &none);
        assert!(!is_retryable(&error), "{status}");
        assert!(matches!(error, ExportError::Rejected { records: 7, .. }));
    }
    let text = of_http(503, &none).to_string();
    assert_eq!(text, "the receiver answered 503 Service Unavailable: busy");
}

#[test]
fn a_delay_is_respected_within_a_limit() {
    let delay = |value: &str| after(&of_http(503, &headers(&[("retry-after", value)])));
    assert_eq!(delay("7"), Some(Duration::from_secs(7)));
    let date = "Thu, 01 Jan 1970 00:00:30 GMT";
    assert_eq!(delay(date), Some(Duration::from_secs(30)));
    assert_eq!(delay("99999999999"), Some(MAX_RETRY_DELAY));
    assert_eq!(
        delay("Fri, 31 Dec 9999 23:59:59 GMT"),
        Some(MAX_RETRY_DELAY)
    );
    for invalid in ["", "-1", "soon", "1.5", "99999999999999999999999"] {
        assert_eq!(delay(invalid), None, "{invalid}");
    }
    let later = SystemTime::UNIX_EPOCH + Duration::from_mins(1);
    // Without a pause a receiver could keep this process busy.
    assert_eq!(parse_retry_after(date, later), Some(MIN_RETRY_DELAY));
    assert_eq!(delay("0"), Some(MIN_RETRY_DELAY));
}

fn details(type_url: &str, seconds: i64, nanos: i64) -> String {
    let mut out = Vec::new();
    put_int(&mut out, 1, 8);
    put_message(&mut out, 3, |out| {
        put_str(out, 1, type_url);
        put_message(out, 2, |out| {
            put_message(out, 1, |out| {
                put_int(out, 1, seconds);
                put_int(out, 2, nanos);
            });
        });
    });
    STANDARD.encode(out)
}

#[test]
fn grpc_retries_only_what_the_specification_names() {
    let of = |code: u32| {
        let trailers = headers(&[
            ("grpc-status", &code.to_string()),
            ("grpc-message", "a%20b"),
        ]);
        grpc_failure(StatusCode::OK, &trailers, 7)
    };
    assert_eq!(of(0), None);
    for code in [1, 4, 10, 11, 14, 15] {
        assert!(is_retryable(&of(code).unwrap()), "{code}");
    }
    for code in [2, 3, 5, 6, 7, 8, 9, 12, 13, 16, 99] {
        assert!(!is_retryable(&of(code).unwrap()), "{code}");
    }
    let text = of(14).unwrap().to_string();
    assert_eq!(text, "the receiver answered with gRPC status 14: a b");
}

#[test]
fn an_exhausted_receiver_is_tried_again_when_it_says_when() {
    let url = "type.googleapis.com/google.rpc.RetryInfo";
    let of = |code: &str, details: &str| {
        let trailers = headers(&[("grpc-status", code), ("grpc-status-details-bin", details)]);
        grpc_failure(StatusCode::OK, &trailers, 7).unwrap()
    };
    let delay = of("8", &details(url, 3, 500_000_000));
    assert_eq!(after(&delay), Some(Duration::from_millis(3500)));
    assert_eq!(
        after(&of("14", &details(url, 1 << 40, 0))),
        Some(MAX_RETRY_DELAY)
    );
    for invalid in [
        details("type.googleapis.com/google.rpc.Help", 3, 0),
        details(url, -1, 0),
        details(url, 0, -5),
        "!".to_owned(),
    ] {
        assert!(!is_retryable(&of("8", &invalid)), "{invalid}");
        assert_eq!(after(&of("14", &invalid)), None);
    }
}

#[test]
fn a_response_of_another_server_is_judged_by_its_http_status() {
    let of = |status: u16| {
        let status = StatusCode::from_u16(status).unwrap();
        grpc_failure(status, &HeaderMap::new(), 7).unwrap()
    };
    for status in [429, 502, 503, 504] {
        assert!(is_retryable(&of(status)), "{status}");
    }
    for status in [200, 400, 401, 403, 404, 500] {
        assert!(!is_retryable(&of(status)), "{status}");
    }
}

/// Bytes that the official Go types wrote.
#[test]
fn the_messages_of_go_are_understood() {
    let response = include_bytes!("../../tests/vectors/partial.pb");
    let text = rejected_by(response, 10).unwrap().to_string();
    assert_eq!(
        text,
        "3 records rejected: the receiver rejected a part: too old"
    );
    let details = include_str!("../../tests/vectors/exhausted.txt");
    let trailers = headers(&[("grpc-status", "8"), ("grpc-status-details-bin", details)]);
    let error = grpc_failure(StatusCode::OK, &trailers, 7).unwrap();
    assert_eq!(after(&error), Some(Duration::from_millis(3500)));
}

fn partial(rejected: i64, message: &str) -> Vec<u8> {
    let mut out = Vec::new();
    put_message(&mut out, 1, |out| {
        put_int(out, 1, rejected);
        put_str(out, 2, message);
    });
    out
}

#[test]
fn rejected_records_are_counted_up_to_those_that_were_sent() {
    let rejected = |response: &[u8]| match rejected_by(response, 10) {
        Some(ExportError::Rejected { records, .. }) => Some(records),
        Some(other) => panic!("{other}"),
        None => None,
    };
    assert_eq!(rejected(&partial(3, "too old")), Some(3));
    assert_eq!(rejected(&partial(1 << 40, "")), Some(10));
    assert_eq!(rejected(&partial(0, "deprecated")), None);
    assert_eq!(rejected(&partial(-3, "")), None);
    assert_eq!(rejected(b""), None);
    assert_eq!(rejected(b"<html>"), None);
    let text = rejected_by(&partial(3, "too\nold"), 10)
        .unwrap()
        .to_string();
    assert_eq!(
        text,
        "3 records rejected: the receiver rejected a part: too old"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_response_is_judged(
        status in 100_u16..600,
        body in proptest::collection::vec(any::<u8>(), 0..600),
        header in "[ -~]{0,40}",
    ) {
        let status = StatusCode::from_u16(status).unwrap();
        let names = ["retry-after", "grpc-status", "grpc-message", "grpc-status-details-bin"];
        let trailers = headers(&names.map(|name| (name, header.as_str())));
        for error in [
            Some(http_failure(status, &trailers, &body, 5, SystemTime::now())),
            grpc_failure(status, &trailers, 5),
            rejected_by(&body, 5),
        ].into_iter().flatten() {
            prop_assert!(error.to_string().chars().count() < 400);
            match error {
                ExportError::Retryable { after, .. } => {
                    prop_assert!(after.is_none_or(|after| after <= MAX_RETRY_DELAY));
                }
                ExportError::Rejected { records, .. } => prop_assert!((1..=5).contains(&records)),
                ExportError::Partial { .. } | ExportError::Closed { .. } => prop_assert!(false),
            }
        }
    }
}
