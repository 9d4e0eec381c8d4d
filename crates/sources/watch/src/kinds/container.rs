//! Containers of a pod: what was asked for and what became of it.

use std::sync::Arc;

use kubevitals_model::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::kind::Reading;
use crate::wire::{List, Text, Time};

/// A container as the pod asks for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerSpec {
    /// Its name.
    pub name: Arc<str>,
    /// The image asked for.
    pub image: Option<Arc<str>>,
    /// Whether it asks for `restartPolicy: Always`: an init container that does is a sidecar.
    pub restarts_always: bool,
    /// Whether a probe says when it has started; without one it has as soon as it runs.
    pub has_startup_probe: bool,
    /// Whether a probe says when it is ready; without one it is as soon as it has started.
    pub has_readiness_probe: bool,
}

/// A container as the kubelet last reported it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerStatus {
    /// Its name.
    pub name: Arc<str>,
    /// The image that runs.
    pub image: Option<Arc<str>>,
    /// Whether its readiness probe passed, or for an init container whether it ended well.
    pub ready: bool,
    /// Whether its startup probe passed.
    pub started: Option<bool>,
    /// How often it was restarted.
    pub restart_count: i32,
    /// What it does now.
    pub state: ContainerState,
    /// What it did before its last restart.
    pub last_state: ContainerState,
}

/// What a container does.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ContainerState {
    /// The kubelet has not said.
    #[default]
    Unset,
    /// It waits to be started.
    Waiting {
        /// Why, as one word.
        reason: Option<Arc<str>>,
        /// Why, for people.
        message: Option<Arc<str>>,
    },
    /// It runs.
    Running {
        /// Since when.
        started_at: Option<Timestamp>,
    },
    /// It ended. Boxed: most containers never do.
    Terminated(Box<Termination>),
}

/// How a container ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Termination {
    /// The exit status of its process.
    pub exit_code: i32,
    /// The signal that ended it, if one did.
    pub signal: Option<i32>,
    /// Why, as one word.
    pub reason: Option<Arc<str>>,
    /// Why, for people.
    pub message: Option<Arc<str>>,
    /// When it had started.
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub finished_at: Option<Timestamp>,
}

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
        name: reading.pool.text(&wire.name),
        image: reading.pool.optional(&wire.image),
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
        name: reading.pool.text(&wire.name),
        image: reading.pool.optional(&wire.image),
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
            reason: reading.pool.optional(&ended.reason),
            message: reading.pool.optional(&ended.message),
            started_at: ended.started_at.0,
            finished_at: ended.finished_at.0,
        }))
    } else if let Some(running) = wire.running {
        ContainerState::Running {
            started_at: running.started_at.0,
        }
    } else if let Some(waiting) = wire.waiting {
        ContainerState::Waiting {
            reason: reading.pool.optional(&waiting.reason),
            message: reading.pool.optional(&waiting.message),
        }
    } else {
        ContainerState::Unset
    }
}
