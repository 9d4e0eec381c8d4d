//! An outage of the API server, which many parts of the process notice: one line in the log when it
//! begins, and one when it ends.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

use parking_lot::Mutex;

/// The log of outages. Clones share the outage.
#[derive(Debug, Clone, Default)]
pub struct OutageLog {
    state: Arc<Mutex<State>>,
}

/// A part of the process that sends requests to the API server.
#[derive(Debug)]
pub struct OutagePart {
    log: OutageLog,
    name: &'static str,
    is_periodic: bool,
    /// Whether the part has logged a failure of its own.
    is_failing: bool,
}

/// The class of a failed request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestFailure {
    /// The API server was not reached, or is not available to anybody.
    Unavailable,
    /// This request failed.
    Other,
}

#[derive(Debug, Default)]
struct State {
    is_ongoing: bool,
    /// The periodic parts that have not reached the server since the outage began.
    waiting: BTreeSet<&'static str>,
}

impl RequestFailure {
    /// The class of a response. A server or load balancer without a backend responds with 502 to
    /// 504; an error of the server itself (500) may be one of this request.
    pub const fn of_status(code: u16) -> Self {
        match code {
            502..=504 => Self::Unavailable,
            _ => Self::Other,
        }
    }
}

impl OutageLog {
    /// A part that repeats its requests until they succeed. An outage lasts until all of these have
    /// reached the server.
    pub fn periodic(&self, name: &'static str) -> OutagePart {
        self.part(name, true)
    }

    /// A part that sends requests now and then. The end of an outage does not wait for it.
    pub fn occasional(&self, name: &'static str) -> OutagePart {
        self.part(name, false)
    }

    fn part(&self, name: &'static str, is_periodic: bool) -> OutagePart {
        OutagePart {
            log: self.clone(),
            name,
            is_periodic,
            is_failing: false,
        }
    }
}

impl OutagePart {
    /// Records a failed request. Returns whether the part should log it: an outage is logged here,
    /// and of other failures in a row the first.
    pub fn failed(&mut self, failure: RequestFailure, error: &dyn Display) -> bool {
        let mut state = self.log.state.lock();
        if failure == RequestFailure::Unavailable {
            if self.is_periodic {
                state.waiting.insert(self.name);
            }
            if std::mem::replace(&mut state.is_ongoing, true) {
                tracing::debug!(part = self.name, %error, "API server is still unavailable");
            } else {
                tracing::warn!(part = self.name, %error, "API server is unavailable");
            }
            return false;
        }
        // A server that is starting may reject the first requests.
        if state.is_ongoing {
            state.reached(self.name);
            return false;
        }
        !std::mem::replace(&mut self.is_failing, true)
    }

    /// Records a request that succeeded. Returns whether the part should log that it recovered.
    pub fn succeeded(&mut self) -> bool {
        self.log.state.lock().reached(self.name);
        std::mem::take(&mut self.is_failing)
    }
}

impl State {
    fn reached(&mut self, part: &'static str) {
        self.waiting.remove(part);
        if self.is_ongoing && self.waiting.is_empty() {
            self.is_ongoing = false;
            tracing::info!(part, "API server is available again");
        }
    }
}

impl Drop for OutagePart {
    fn drop(&mut self) {
        let mut state = self.log.state.lock();
        if state.waiting.remove(self.name) && state.waiting.is_empty() {
            state.is_ongoing = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::RequestFailure::{Other, Unavailable};
    use super::*;

    fn is_ongoing(log: &OutageLog) -> bool {
        log.state.lock().is_ongoing
    }

    #[test]
    fn an_outage_lasts_until_all_periodic_parts_have_reached_the_server() {
        let log = OutageLog::default();
        let (mut nodes, mut pods) = (log.periodic("nodes"), log.periodic("pods"));
        let mut reviews = log.occasional("reviews");
        for part in [&mut reviews, &mut nodes, &mut pods] {
            assert!(
                !part.failed(Unavailable, &"refused"),
                "the outage is logged"
            );
            assert!(is_ongoing(&log));
        }
        assert!(!nodes.succeeded());
        assert!(is_ongoing(&log));
        // A response, though an error.
        assert!(!pods.failed(Other, &"forbidden"));
        assert!(!is_ongoing(&log), "reviews may never be sent again");
        assert!(pods.failed(Other, &"forbidden"), "it persists");
        assert!(!pods.failed(Other, &"forbidden"));
        assert!(pods.succeeded() && !pods.succeeded());
    }

    #[test]
    fn an_outage_that_only_an_occasional_part_has_noticed_ends_with_any_response() {
        let log = OutageLog::default();
        let (mut nodes, mut reviews) = (log.periodic("nodes"), log.occasional("reviews"));
        reviews.failed(Unavailable, &"refused");
        assert!(is_ongoing(&log));
        assert!(!reviews.failed(Other, &"timeout"));
        reviews.failed(Unavailable, &"refused");
        nodes.succeeded();
        assert!(!is_ongoing(&log));
        assert!(reviews.failed(Other, &"timeout"));
    }

    #[test]
    fn a_part_that_is_gone_is_not_waited_for() {
        let log = OutageLog::default();
        let mut nodes = log.periodic("nodes");
        nodes.failed(Unavailable, &"refused");
        drop(nodes);
        assert!(!is_ongoing(&log));
    }
}
