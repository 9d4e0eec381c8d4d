//! The end of a connection or a request, classified.

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;
use kubevitals_telemetry::RequestFailure;

use crate::decode::Status;
use crate::state::RestartReason;

/// The maximum of `Retry-After` that is honored.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// The maximum length of a server's message in characters.
const MAX_MESSAGE: usize = 300;

#[derive(Debug)]
pub(super) struct Disconnect {
    pub(super) reason: RestartReason,
    pub(super) message: String,
    /// The `Retry-After` of the server.
    pub(super) retry_after: Option<Duration>,
    pub(super) failure: RequestFailure,
    /// Whether the server rejected the request itself, and so may not support it.
    is_bad_request: bool,
}

impl Disconnect {
    pub(super) fn new(reason: RestartReason, message: String) -> Self {
        Self {
            failure: reason.failure(),
            reason,
            message,
            retry_after: None,
            is_bad_request: false,
        }
    }

    /// A streaming list without an end, though the server seemed to support it.
    pub(super) fn without_initial_events_end() -> Self {
        let message = "server did not mark the end of a streaming list".to_owned();
        Self::new(RestartReason::NoStreamingLists, message)
    }

    /// An ERROR event of a watch.
    pub(super) fn from_event(status: &Status) -> Self {
        Self::from_status(status.code, status)
    }

    /// A response with an error status.
    pub(super) fn from_response(code: u16, headers: &HeaderMap, status: Option<Status>) -> Self {
        let mut disconnect = Self::from_status(code, &status.unwrap_or_default());
        if matches!(
            disconnect.reason,
            RestartReason::Throttled | RestartReason::ServerError
        ) {
            let seconds = headers
                .get(RETRY_AFTER)
                .and_then(|value| value.to_str().ok()?.parse().ok());
            let requested = seconds.map(Duration::from_secs);
            disconnect.retry_after = requested.map(|requested| requested.min(MAX_RETRY_AFTER));
        }
        disconnect
    }

    /// The same for the request of a streaming list: a server that rejects it may still serve paged
    /// lists.
    pub(super) fn of_streaming_list(mut self) -> Self {
        if self.is_bad_request {
            self.reason = RestartReason::NoStreamingLists;
        }
        self
    }

    fn from_status(code: u16, status: &Status) -> Self {
        let reason = match code {
            _ if status.is_expired() => RestartReason::Expired,
            401 => RestartReason::Unauthorized,
            403 => RestartReason::Forbidden,
            404 => RestartReason::NotFound,
            410 => RestartReason::Expired,
            429 => RestartReason::Throttled,
            408 | 500.. => RestartReason::ServerError,
            _ => RestartReason::Rejected,
        };
        let detail: String = status.message.chars().take(MAX_MESSAGE).collect();
        let message = match (code, detail.as_str()) {
            (0, "") => "server ended the watch with an error".to_owned(),
            (_, "") => format!("server responded with {code}"),
            _ => format!("server responded with {code}: {detail}"),
        };
        Self {
            is_bad_request: matches!(code, 400 | 405 | 406 | 415 | 422),
            failure: RequestFailure::of_status(code),
            ..Self::new(reason, message)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(code: u16, retry_after: &'static str) -> Disconnect {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, retry_after.parse().unwrap());
        Disconnect::from_response(code, &headers, None)
    }

    #[test]
    fn status_codes_map_to_reasons() {
        for (code, reason) in [
            (401, RestartReason::Unauthorized),
            (403, RestartReason::Forbidden),
            (404, RestartReason::NotFound),
            (410, RestartReason::Expired),
            (429, RestartReason::Throttled),
            (500, RestartReason::ServerError),
            (504, RestartReason::ServerError),
            (409, RestartReason::Rejected),
        ] {
            assert_eq!(response(code, "1").reason, reason, "{code}");
        }
    }

    #[test]
    fn retry_after_is_honored_up_to_the_maximum() {
        assert_eq!(response(429, "7").retry_after, Some(Duration::from_secs(7)));
        assert_eq!(response(503, "7").retry_after, Some(Duration::from_secs(7)));
        assert_eq!(response(429, "99999999").retry_after, Some(MAX_RETRY_AFTER));
        assert_eq!(
            response(429, "Wed, 21 Oct 2026 07:28:00 GMT").retry_after,
            None
        );
        assert_eq!(response(403, "7").retry_after, None);
    }

    #[test]
    fn only_a_rejected_request_falls_back_to_paged_lists() {
        let reason = |code| response(code, "1").of_streaming_list().reason;
        assert_eq!(reason(422), RestartReason::NoStreamingLists);
        assert_eq!(reason(400), RestartReason::NoStreamingLists);
        assert_eq!(reason(403), RestartReason::Forbidden);
        assert_eq!(reason(429), RestartReason::Throttled);
    }
}
