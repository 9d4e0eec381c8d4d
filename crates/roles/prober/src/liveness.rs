//! `/liveness` in the JSON of gke-prober, and the same as health checks.

use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use kubevitals_model::Clock;
use kubevitals_telemetry::{Page, PageResponse, Status};
use parking_lot::Mutex;
use serde::Serialize;

/// When the loop last started a tick.
#[derive(Debug, Clone)]
pub struct Heartbeat(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: &'static str,
    clock: Clock,
    /// The longest time between the starts of two ticks.
    limit: Duration,
    /// The last start, and before that the creation: a first tick that never comes fails too.
    last: Mutex<Duration>,
}

#[derive(Debug, Serialize)]
struct Report<'a> {
    services: Vec<Service<'a>>,
    errors: Vec<Failure<'a>>,
    healthy: bool,
}

#[derive(Debug, Serialize)]
struct Service<'a> {
    name: &'a str,
    healthy: bool,
}

#[derive(Debug, Serialize)]
struct Failure<'a> {
    name: &'a str,
    message: String,
}

impl Heartbeat {
    /// A tick may start half an interval late, as in gke-prober.
    pub fn new(name: &'static str, clock: Clock, interval: Duration) -> Self {
        let last = Mutex::new(clock.moment().monotonic);
        Self(Arc::new(Inner {
            name,
            clock,
            limit: interval.saturating_mul(3) / 2,
            last,
        }))
    }

    pub(crate) fn beat(&self) {
        *self.0.last.lock() = self.0.clock.moment().monotonic;
    }

    /// Why the loop is not alive; `None` if it is.
    pub fn problem(&self) -> Option<String> {
        let now = self.0.clock.moment().monotonic;
        let age = now.saturating_sub(*self.0.last.lock());
        let (age, limit) = (age.as_secs_f64(), self.0.limit.as_secs_f64());
        (age > limit).then(|| {
            format!("last tick started {age:.1} s ago, more than {limit:.1} s: the loop is stuck")
        })
    }

    /// The health check of the loop.
    pub fn status(&self) -> Status {
        self.problem().map_or(Status::Ok, Status::failing)
    }

    /// The page of gke-prober. Its `services` say `healthy` also of one that is not; ours do not.
    pub fn page(&self) -> Page {
        let heartbeat = self.clone();
        Page::new(
            "/liveness",
            "whether ticks start in time, in the JSON of gke-prober",
            move |_| {
                let response = heartbeat.respond();
                async move { response }
            },
        )
    }

    fn respond(&self) -> PageResponse {
        let problem = self.problem();
        let name = self.0.name;
        let healthy = problem.is_none();
        let report = Report {
            services: vec![Service { name, healthy }],
            errors: problem
                .into_iter()
                .map(|message| Failure { name, message })
                .collect(),
            healthy,
        };
        let status = if healthy {
            StatusCode::OK
        } else {
            StatusCode::SERVICE_UNAVAILABLE
        };
        PageResponse::json(status, serde_json::to_vec(&report).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubevitals_model::{SteppedClock, Timestamp};

    #[test]
    fn a_loop_is_alive_for_one_and_a_half_intervals_after_a_tick() {
        let time = SteppedClock::new(Timestamp::from_unix_millis(1_000_000));
        let interval = Duration::from_mins(1);
        let heartbeat = Heartbeat::new("cluster", time.clock(), interval);
        time.advance(Duration::from_secs(30));
        heartbeat.beat();
        time.advance(Duration::from_secs(90));
        let alive = heartbeat.respond();
        assert_eq!(alive.status, StatusCode::OK);
        assert_eq!(
            alive.body,
            r#"{"services":[{"name":"cluster","healthy":true}],"errors":[],"healthy":true}"#
        );
        time.advance(Duration::from_secs(1));
        let stuck = heartbeat.respond();
        assert_eq!(stuck.status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            stuck.body,
            r#"{"services":[{"name":"cluster","healthy":false}],"errors":[{"name":"cluster","message":"last tick started 91.0 s ago, more than 90.0 s: the loop is stuck"}],"healthy":false}"#
        );
        assert!(matches!(heartbeat.status(), Status::Failing(_)));
    }
}
