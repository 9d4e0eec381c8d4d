//! Retries of reviews, by the rules of Go's webhooks (`DefaultShouldRetry`).
//!
//! A restart of the API server closes connections that are in use. Without retries every one of
//! these reviews becomes a failed request of a user. The client itself retries 429, 503 and 504.

use std::error::Error;
use std::io;
use std::time::Duration;

use http::StatusCode;
use kubevitals_model::Rng;

/// The wait after the first failure; each further one is half as long again.
const FIRST_WAIT: Duration = Duration::from_millis(500);
const MAX_RETRIES: u32 = 4;

/// The waits between the attempts of one review.
pub(super) struct Waits {
    left: u32,
    wait: Duration,
    rng: Rng,
}

impl Waits {
    pub(super) const fn new(rng: Rng) -> Self {
        Self {
            left: MAX_RETRIES,
            wait: FIRST_WAIT,
            rng,
        }
    }

    /// Returns the next wait, with up to a fifth of jitter; `None` after the last.
    pub(super) fn next(&mut self) -> Option<Duration> {
        self.left = self.left.checked_sub(1)?;
        let wait = self.wait;
        self.wait = wait * 3 / 2;
        Some(wait.mul_f64(1.0 + 0.2 * self.rng.fraction()))
    }
}

/// Whether a review may succeed when it is sent again. A refused connection is not among these:
/// the response should say so at once.
pub(super) fn is_transient(error: &kube::Error) -> bool {
    if let kube::Error::Api(status) = error {
        let code = StatusCode::from_u16(status.code).unwrap_or_default();
        return code == StatusCode::INTERNAL_SERVER_ERROR
            || code == StatusCode::GATEWAY_TIMEOUT
            || code == StatusCode::TOO_MANY_REQUESTS
            || matches!(
                status.reason.as_str(),
                "InternalError" | "Timeout" | "TooManyRequests"
            );
    }
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if is_lost_connection(error) {
            return true;
        }
        cause = error.source();
    }
    false
}

/// Whether an error means that the connection ended under a request.
fn is_lost_connection(error: &(dyn Error + 'static)) -> bool {
    if let Some(error) = error.downcast_ref::<hyper::Error>() {
        // The library of HTTP/2 is not a dependency: its errors are recognized by their prefix.
        return error.is_incomplete_message()
            || error.is_canceled()
            || error.is_closed()
            || error.to_string().starts_with("http2 error");
    }
    if let Some(error) = error.downcast_ref::<io::Error>() {
        return matches!(
            error.kind(),
            io::ErrorKind::ConnectionReset
                | io::ErrorKind::ConnectionAborted
                | io::ErrorKind::BrokenPipe
                | io::ErrorKind::UnexpectedEof
        );
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_as_in_go() {
        let mut waits = Waits::new(Rng::seeded(1));
        let mut expected = FIRST_WAIT;
        for _ in 0..MAX_RETRIES {
            let wait = waits.next().unwrap();
            assert!(
                wait >= expected && wait <= expected.mul_f64(1.2),
                "{wait:?}"
            );
            expected = expected * 3 / 2;
        }
        assert_eq!(waits.next(), None);
    }

    #[test]
    fn only_transient_errors_are_retried() {
        let service = |kind: io::ErrorKind| kube::Error::Service(Box::new(io::Error::from(kind)));
        for kind in [
            io::ErrorKind::ConnectionReset,
            io::ErrorKind::BrokenPipe,
            io::ErrorKind::UnexpectedEof,
        ] {
            assert!(is_transient(&service(kind)), "{kind:?}");
        }
        for kind in [io::ErrorKind::ConnectionRefused, io::ErrorKind::TimedOut] {
            assert!(!is_transient(&service(kind)), "{kind:?}");
        }
        let status = |code| {
            let mut status = kube::core::Status::failure("x", "");
            status.code = code;
            kube::Error::Api(Box::new(status))
        };
        for code in [429, 500, 504] {
            assert!(is_transient(&status(code)), "{code}");
        }
        for code in [400, 401, 403, 404, 409, 422, 501] {
            assert!(!is_transient(&status(code)), "{code}");
        }
    }
}
