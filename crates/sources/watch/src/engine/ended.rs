//! How a connection or a request ended, and what that means.

use std::time::Duration;

use http::HeaderMap;
use http::header::RETRY_AFTER;

use crate::decode::Status;
use crate::state::Restart;

/// No server may keep a stream waiting for longer.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(5);

/// What a server says is shown up to here.
const MAX_WORDS: usize = 300;

#[derive(Debug)]
pub(super) struct Ended {
    pub(super) why: Restart,
    pub(super) words: String,
    /// The server asked not to be bothered for so long.
    pub(super) retry_after: Option<Duration>,
    /// Whether the server found fault with the request itself, and so may not know what was asked
    /// of it.
    is_misunderstood: bool,
}

impl Ended {
    pub(super) fn new(why: Restart, words: String) -> Self {
        Self {
            why,
            words,
            retry_after: None,
            is_misunderstood: false,
        }
    }

    /// A streaming list that never came to its end, though the server seemed to have agreed to it.
    pub(super) fn without_initial_events_end() -> Self {
        let words = "server did not mark the end of a streaming list".to_owned();
        Self::new(Restart::NoStreamingLists, words)
    }

    /// The server ended the watch with an event that says why.
    pub(super) fn by_event(status: &Status) -> Self {
        Self::by_status(status.code, status)
    }

    /// The server refused a request.
    pub(super) fn by_answer(code: u16, headers: &HeaderMap, status: Option<Status>) -> Self {
        let mut ended = Self::by_status(code, &status.unwrap_or_default());
        if matches!(ended.why, Restart::Throttled | Restart::ServerError) {
            let seconds = headers
                .get(RETRY_AFTER)
                .and_then(|value| value.to_str().ok()?.parse().ok());
            let asked = seconds.map(Duration::from_secs);
            ended.retry_after = asked.map(|asked| asked.min(MAX_RETRY_AFTER));
        }
        ended
    }

    /// The same end when it was a streaming list that was asked for: a server that finds fault with
    /// the request may still do paged lists.
    pub(super) fn of_streaming_list(mut self) -> Self {
        if self.is_misunderstood {
            self.why = Restart::NoStreamingLists;
        }
        self
    }

    fn by_status(code: u16, status: &Status) -> Self {
        let why = match code {
            _ if status.is_expired() => Restart::Expired,
            401 => Restart::Unauthorized,
            403 => Restart::Forbidden,
            404 => Restart::NotFound,
            410 => Restart::Expired,
            429 => Restart::Throttled,
            408 | 500.. => Restart::ServerError,
            _ => Restart::Refused,
        };
        let said: String = status.message.chars().take(MAX_WORDS).collect();
        let words = match (code, said.as_str()) {
            (0, "") => "server ended the watch with an error".to_owned(),
            (_, "") => format!("server answered {code}"),
            _ => format!("server answered {code}: {said}"),
        };
        Self {
            is_misunderstood: matches!(code, 400 | 405 | 406 | 415 | 422),
            ..Self::new(why, words)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(code: u16, retry_after: &'static str) -> Ended {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, retry_after.parse().unwrap());
        Ended::by_answer(code, &headers, None)
    }

    #[test]
    fn answers_are_told_apart() {
        for (code, why) in [
            (401, Restart::Unauthorized),
            (403, Restart::Forbidden),
            (404, Restart::NotFound),
            (410, Restart::Expired),
            (429, Restart::Throttled),
            (500, Restart::ServerError),
            (504, Restart::ServerError),
            (409, Restart::Refused),
        ] {
            assert_eq!(answer(code, "1").why, why, "{code}");
        }
    }

    #[test]
    fn the_server_is_left_alone_for_as_long_as_it_asks_within_reason() {
        assert_eq!(answer(429, "7").retry_after, Some(Duration::from_secs(7)));
        assert_eq!(answer(503, "7").retry_after, Some(Duration::from_secs(7)));
        assert_eq!(answer(429, "99999999").retry_after, Some(MAX_RETRY_AFTER));
        assert_eq!(
            answer(429, "Wed, 21 Oct 2026 07:28:00 GMT").retry_after,
            None
        );
        assert_eq!(answer(403, "7").retry_after, None);
    }

    #[test]
    fn only_a_server_that_may_not_know_streaming_lists_is_asked_for_pages() {
        let asked = |code| answer(code, "1").of_streaming_list().why;
        assert_eq!(asked(422), Restart::NoStreamingLists);
        assert_eq!(asked(400), Restart::NoStreamingLists);
        assert_eq!(asked(403), Restart::Forbidden);
        assert_eq!(asked(429), Restart::Throttled);
    }
}
