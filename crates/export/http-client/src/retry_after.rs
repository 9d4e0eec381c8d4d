//! The delay that a server asks for.

use std::time::{Duration, SystemTime};

/// A server that asks for no delay must not be asked without a pause.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(200);

/// A server may not stop the export for longer.
const MAX_RETRY_DELAY: Duration = Duration::from_mins(2);

/// Parses `Retry-After`: seconds, or a date. The result is between 200 ms and two minutes.
pub fn parse_retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    let delay = if let Ok(seconds) = text.parse() {
        Duration::from_secs(seconds)
    } else {
        let date = httpdate::parse_http_date(text).ok()?;
        date.duration_since(now).unwrap_or_default()
    };
    Some(delay.clamp(MIN_RETRY_DELAY, MAX_RETRY_DELAY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_are_seconds_or_dates_within_limits() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        for (text, expected) in [
            ("3", Some(Duration::from_secs(3))),
            ("0", Some(MIN_RETRY_DELAY)),
            ("86400", Some(MAX_RETRY_DELAY)),
            (
                "Sun, 06 Nov 1994 08:49:47 GMT",
                Some(Duration::from_secs(10)),
            ),
            ("Sun, 06 Nov 1994 08:49:27 GMT", Some(MIN_RETRY_DELAY)),
            ("soon", None),
            ("-1", None),
        ] {
            assert_eq!(parse_retry_after(text, now), expected, "{text}");
        }
    }
}
