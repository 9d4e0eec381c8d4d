//! The health checks of the role.
//!
//! **Readiness**: all pods are listed and the watches are connected. A standby is ready too.
//!
//! **Liveness** fails only where a restart helps. It helps against an event loop that is stuck. It
//! does not help against an unreachable API server, and would lose the state of pods that are
//! starting. But a process may also be cut off for a reason of its own, such as stale credentials
//! or a stale address. So an idle watch fails only after [`IDLE_TIMEOUT`] plus a random part of
//! [`IDLE_JITTER`], so that not all replicas restart at once. A process without its first list
//! is never restarted: it would only start over. An outage costs each replica one restart at most.

use std::time::Duration;

use kubevitals_cli::RunError;
use kubevitals_telemetry::{Health, Probe, Status};
use kubevitals_watch::WatchState;

use crate::Watches;
use crate::event_loop::Heartbeat;
use crate::metrics::Observer;

/// Readiness tolerates a lost connection for this long.
const RECONNECT_TIMEOUT: Duration = Duration::from_mins(1);

/// The loop ticks four times a second, unless it processes a list of all pods.
const STUCK_TIMEOUT: Duration = Duration::from_mins(2);

/// Time without data that a restart might end. Many attempts fit into it: the longest wait between
/// two is half a minute.
const IDLE_TIMEOUT: Duration = Duration::from_mins(10);

/// Largest random addition to [`IDLE_TIMEOUT`].
const IDLE_JITTER: Duration = Duration::from_mins(5);

/// Registers the checks; `jitter` is from 0 to 1.
pub(crate) fn register(
    health: &Health,
    watches: &Watches,
    heartbeat: Heartbeat,
    jitter: f64,
) -> Result<(), RunError> {
    let add = |name, probes, check: Box<dyn Fn() -> Status + Send + Sync>| {
        health.check(name, probes, check).map_err(RunError::runtime)
    };
    add(
        "pods",
        Probe::READINESS,
        Box::new(watches.pods.health_check(RECONNECT_TIMEOUT)),
    )?;
    if let Some(events) = &watches.events {
        add(
            "events",
            Probe::READINESS,
            Box::new(events.health_check(RECONNECT_TIMEOUT)),
        )?;
    }
    let ticks = move || loop_status(heartbeat.age());
    add("event-loop", Probe::ALL, Box::new(ticks))?;
    let timeout = IDLE_TIMEOUT + IDLE_JITTER.mul_f64(jitter.clamp(0.0, 1.0));
    for (name, observer) in [
        ("pods-watch", Some(watches.observe_pods())),
        ("events-watch", watches.observe_events()),
    ] {
        if let Some(observer) = observer {
            add(name, Probe::LIVENESS, idle_check(observer, timeout))?;
        }
    }
    Ok(())
}

fn idle_check(observer: Observer, timeout: Duration) -> Box<dyn Fn() -> Status + Send + Sync> {
    Box::new(move || match observer() {
        Some(state) => watch_status(&state, timeout),
        // The watch has ended: readiness fails, and supervision ends the process.
        None => Status::Ok,
    })
}

fn watch_status(state: &WatchState, timeout: Duration) -> Status {
    if !state.synced {
        return Status::warming_up("waiting for the first list");
    }
    if state.idle <= timeout {
        return Status::Ok;
    }
    let (seconds, failures) = (state.idle.as_secs(), state.consecutive_failures);
    Status::failing(format!(
        "no data received for {seconds} s in {failures} attempts"
    ))
}

fn loop_status(age: Option<Duration>) -> Status {
    let Some(age) = age else {
        return Status::warming_up("waiting for the first list of pods");
    };
    if age <= STUCK_TIMEOUT {
        return Status::Ok;
    }
    let seconds = age.as_secs();
    Status::failing(format!("the event loop is stuck for {seconds} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(synced: bool, idle: Duration) -> WatchState {
        WatchState {
            synced,
            idle,
            consecutive_failures: 30,
            connected: None,
            since_sync: None,
            resource_version: None,
            objects: 0,
            restarts: std::collections::BTreeMap::new(),
            last_error: None,
            events: 0,
            bytes: 0,
            decode_errors: 0,
            last_decode_error: None,
            subscribers: 0,
            lagging: 0,
            lags: 0,
            queue_depth: 0,
            blocked: Duration::ZERO,
            truncated_lists: 0,
        }
    }

    #[test]
    fn liveness_fails_after_a_long_outage_and_never_before_the_first_list() {
        let minutes = Duration::from_mins;
        let status = |synced, idle| watch_status(&state(synced, idle), minutes(10));
        assert_eq!(status(true, minutes(10)), Status::Ok);
        let failing = status(true, minutes(11));
        assert_eq!(
            failing,
            Status::failing("no data received for 660 s in 30 attempts")
        );
        assert!(matches!(status(false, minutes(60)), Status::WarmingUp(_)));
    }

    #[test]
    fn liveness_fails_when_the_event_loop_is_stuck() {
        assert!(matches!(loop_status(None), Status::WarmingUp(_)));
        assert_eq!(loop_status(Some(STUCK_TIMEOUT)), Status::Ok);
        let late = loop_status(Some(STUCK_TIMEOUT + Duration::from_secs(1)));
        assert_eq!(late, Status::failing("the event loop is stuck for 121 s"));
    }
}
