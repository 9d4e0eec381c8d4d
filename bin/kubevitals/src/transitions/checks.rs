//! What `/livez` and `/readyz` say of the role.
//!
//! **Ready** is who has all pods and hears of changes. A standby is ready too.
//!
//! **Alive** is whom a restart would not mend. A loop that no longer turns is mended by one. An API
//! server that is away is not, and a restart would cost what is known of pods that are starting.
//! But a process may also be cut off for a reason of its own, such as credentials or an address
//! that it holds on to. So silence counts only after [`CUT_OFF`] and a part of [`SPREAD`] that each
//! process draws for itself, so that not all replicas restart at once. A process that has not yet
//! had its first list is never restarted: it would only begin again. An outage costs each replica
//! one restart at most.

use std::time::Duration;

use kubevitals_cli::RunError;
use kubevitals_telemetry::{Health, Probe, Status};
use kubevitals_watch::StreamState;

use super::Streams;
use super::event_loop::Pulse;
use super::metrics::Observer;

/// For so long after a connection was lost, what is known of pods is as good as new.
const PATIENCE: Duration = Duration::from_mins(1);

/// The loop turns four times a second, unless it takes in a list of all pods.
const STUCK: Duration = Duration::from_mins(2);

/// Silence that a restart might end. Many attempts fit into it: the longest wait between two is
/// half a minute.
const CUT_OFF: Duration = Duration::from_mins(10);

/// Added to that by chance.
const SPREAD: Duration = Duration::from_mins(5);

/// Registers the checks; `chance` is from 0 to 1.
pub(super) fn register(
    health: &Health,
    streams: &Streams,
    pulse: Pulse,
    chance: f64,
) -> Result<(), RunError> {
    let add = |name, probes, check: Box<dyn Fn() -> Status + Send + Sync>| {
        health.check(name, probes, check).map_err(RunError::runtime)
    };
    add(
        "pods",
        Probe::READINESS,
        Box::new(streams.pods.checked(PATIENCE)),
    )?;
    if let Some(events) = &streams.events {
        add(
            "events",
            Probe::READINESS,
            Box::new(events.checked(PATIENCE)),
        )?;
    }
    let turns = move || loop_status(pulse.age());
    add("event-loop", Probe::ALL, Box::new(turns))?;
    let cut_off = CUT_OFF + SPREAD.mul_f64(chance.clamp(0.0, 1.0));
    for (name, observer) in [
        ("pods-stream", Some(streams.observe_pods())),
        ("events-stream", streams.observe_events()),
    ] {
        if let Some(observer) = observer {
            add(name, Probe::LIVENESS, fresh(observer, cut_off))?;
        }
    }
    Ok(())
}

fn fresh(observer: Observer, cut_off: Duration) -> Box<dyn Fn() -> Status + Send + Sync> {
    Box::new(move || match observer() {
        Some(state) => stream_status(&state, cut_off),
        // It ends with the process.
        None => Status::Ok,
    })
}

fn stream_status(state: &StreamState, cut_off: Duration) -> Status {
    if !state.synced {
        return Status::warming_up("waiting for the first list");
    }
    if state.silent <= cut_off {
        return Status::Ok;
    }
    let (seconds, failures) = (state.silent.as_secs(), state.failures);
    Status::failing(format!(
        "nothing heard for {seconds} s in {failures} attempts"
    ))
}

fn loop_status(age: Option<Duration>) -> Status {
    let Some(age) = age else {
        return Status::warming_up("waiting for all pods");
    };
    if age <= STUCK {
        return Status::Ok;
    }
    let seconds = age.as_secs();
    Status::failing(format!("the event loop has not turned for {seconds} s"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(synced: bool, silent: Duration) -> StreamState {
        StreamState {
            synced,
            silent,
            failures: 30,
            connected: None,
            since_sync: None,
            resource_version: None,
            objects: 0,
            restarts: std::collections::BTreeMap::new(),
            trouble: None,
            changes: 0,
            bytes: 0,
            decode_errors: 0,
            last_decode_error: None,
            subscribers: 0,
            lagging: 0,
            lagged: 0,
            queued: 0,
            waited: Duration::ZERO,
            cut_lists: 0,
        }
    }

    #[test]
    fn an_outage_restarts_nobody_before_it_is_long_and_nobody_twice() {
        let minutes = Duration::from_mins;
        let status = |synced, silent| stream_status(&state(synced, silent), minutes(10));
        assert_eq!(status(true, minutes(10)), Status::Ok);
        let failing = status(true, minutes(11));
        assert_eq!(
            failing,
            Status::failing("nothing heard for 660 s in 30 attempts")
        );
        assert!(matches!(status(false, minutes(60)), Status::WarmingUp(_)));
    }

    #[test]
    fn a_loop_that_stands_still_is_restarted() {
        assert!(matches!(loop_status(None), Status::WarmingUp(_)));
        assert_eq!(loop_status(Some(STUCK)), Status::Ok);
        let late = loop_status(Some(STUCK + Duration::from_secs(1)));
        assert_eq!(
            late,
            Status::failing("the event loop has not turned for 121 s")
        );
    }
}
