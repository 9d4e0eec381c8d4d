//! Reads the containers of a pod.

use kubevitals_model::{ContainerSpec, ContainerState, ContainerStatus, Termination};
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::kind::Reading;
use crate::wire::{List, Text, Time};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerSpecWire<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    image: Text<'a>,
    #[serde(borrow)]
    restart_policy: Text<'a>,
    startup_probe: Option<IgnoredAny>,
    readiness_probe: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ContainerStatusWire<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    image: Text<'a>,
    ready: bool,
    started: Option<bool>,
    restart_count: i32,
    #[serde(borrow)]
    state: Option<StateWire<'a>>,
    #[serde(borrow)]
    last_state: Option<StateWire<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StateWire<'a> {
    #[serde(borrow)]
    waiting: Option<WaitingWire<'a>>,
    running: Option<RunningWire>,
    #[serde(borrow)]
    terminated: Option<TerminatedWire<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WaitingWire<'a> {
    #[serde(borrow)]
    reason: Text<'a>,
    #[serde(borrow)]
    message: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RunningWire {
    started_at: Time,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct TerminatedWire<'a> {
    exit_code: i32,
    signal: Option<i32>,
    #[serde(borrow)]
    reason: Text<'a>,
    #[serde(borrow)]
    message: Text<'a>,
    started_at: Time,
    finished_at: Time,
}

pub(crate) fn specs(
    list: List<ContainerSpecWire<'_>>,
    reading: &mut Reading<'_>,
) -> Box<[ContainerSpec]> {
    list.map(|wire| ContainerSpec {
        name: reading.pool.intern(&wire.name),
        image: reading.pool.intern_optional(&wire.image),
        restarts_always: &*wire.restart_policy == "Always",
        has_startup_probe: wire.startup_probe.is_some(),
        has_readiness_probe: wire.readiness_probe.is_some(),
    })
}

pub(crate) fn statuses(
    list: List<ContainerStatusWire<'_>>,
    reading: &mut Reading<'_>,
) -> Box<[ContainerStatus]> {
    list.map(|wire| ContainerStatus {
        name: reading.pool.intern(&wire.name),
        image: reading.pool.intern_optional(&wire.image),
        ready: wire.ready,
        started: wire.started,
        restart_count: wire.restart_count,
        state: state(wire.state, reading),
        last_state: state(wire.last_state, reading),
    })
}

fn state(wire: Option<StateWire<'_>>, reading: &mut Reading<'_>) -> ContainerState {
    let wire = wire.unwrap_or_default();
    if let Some(ended) = wire.terminated {
        ContainerState::Terminated(Box::new(Termination {
            exit_code: ended.exit_code,
            signal: ended.signal.filter(|&signal| signal != 0),
            reason: reading.pool.intern_optional(&ended.reason),
            message: reading.pool.intern_optional(&ended.message),
            started_at: ended.started_at.0,
            finished_at: ended.finished_at.0,
        }))
    } else if let Some(running) = wire.running {
        ContainerState::Running {
            started_at: running.started_at.0,
        }
    } else if let Some(waiting) = wire.waiting {
        ContainerState::Waiting {
            reason: reading.pool.intern_optional(&waiting.reason),
            message: reading.pool.intern_optional(&waiting.message),
        }
    } else {
        ContainerState::Unset
    }
}
