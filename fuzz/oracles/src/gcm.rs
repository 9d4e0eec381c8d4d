//! Answers of Cloud Monitoring, and files of credentials.

use kubevitals_gcm::{Code, Credentials, Verdict, judge, parse_failure, parse_series_errors};

/// Tokens of errors and of credentials.
pub(crate) const TOKENS: &[&[u8]] = &[
    b"{\"error\":{\"code\":400,\"message\":\"",
    b"\",\"details\":[{\"@type\":\"type.googleapis.com/google.monitoring.v3.CreateTimeSeriesSummary\",",
    b"\"totalPointCount\":5,\"successPointCount\":3}]}}",
    b"\"totalPointCount\":\"18446744073709551615\"",
    b"timeSeries[",
    b"timeSeries[0-4]",
    b"timeSeries[18446744073709551615]",
    b"]",
    b"; ",
    b": ",
    b"Field ",
    b"failed with: ",
    b"Points must be written in order",
    b"sampling period",
    b"Internal error",
    b"{\"type\":\"service_account\",\"private_key\":\"",
    b"{\"type\":\"external_account\",\"credential_source\":{\"url\":\"",
    b"-----BEGIN PRIVATE KEY-----",
];

/// Whatever is answered, each series has one verdict, and a series is only found to be a duplicate
/// if it was sent before.
///
/// # Panics
///
/// If the property is violated.
pub fn gcm_response(bytes: &[u8]) {
    let failure = parse_failure(bytes);
    for series in [0, 1, 5, 200] {
        for error in parse_series_errors(&failure.message, series) {
            assert!(error.first <= error.last && error.last < series);
        }
        for status in [200, 400, 403, 429, 500, 503, 504] {
            for was_attempted in [false, true] {
                let judged = judge(status, bytes, series, |_| was_attempted);
                assert_eq!(judged.verdicts.len(), series);
                assert!(judged.message.chars().count() < 400);
                for verdict in judged.verdicts {
                    match verdict {
                        Verdict::Duplicate => assert!(was_attempted),
                        Verdict::Rejected(Code::OutOfOrder | Code::TooFrequent) => {
                            assert!(!was_attempted);
                        }
                        Verdict::Rejected(_) | Verdict::Unknown => assert!(status < 503),
                        Verdict::Sent => assert!(matches!(status, 200 | 400 | 500)),
                        Verdict::Retry => assert_ne!(status, 200),
                    }
                }
            }
        }
    }
    if let Ok(credentials) = Credentials::parse(bytes) {
        assert!(format!("{credentials:?}").len() < 20, "a secret is printed");
    }
}
