//! Our own record: the whole lifecycle of a pod.

use kubevitals_transitions::{
    ContainerRecord, End, Failures, Milestones, Moment, PodRecord, Pull, Segment,
};
use serde::Serialize;

use crate::transitions::printed;

#[derive(Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent fields of a record, for searching"
)]
pub(crate) struct Lifecycle {
    r#final: bool,
    complete: bool,
    reconstructed: bool,
    at_most: bool,
    clock_skew: bool,
    phase: &'static str,
    end: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    total_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    incomplete: Option<Incomplete>,
    cause: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    longest: Option<Piece>,
    critical_path: Vec<Piece>,
    milestones: Passed,
    readiness_gates: Vec<Gate>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unschedulable: Option<Since>,
    #[serde(skip_serializing_if = "Option::is_none")]
    disruption: Option<Since>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resize: Option<ResizePart>,
    containers: Vec<Container>,
}

#[derive(Serialize)]
struct Incomplete {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

#[derive(Serialize)]
struct Piece {
    phase: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<String>,
    start_timestamp: String,
    seconds: f64,
    done: bool,
}

#[derive(Serialize)]
struct When {
    #[serde(skip_serializing_if = "Option::is_none")]
    api_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observed_timestamp: Option<String>,
}

#[derive(Serialize)]
struct Passed {
    created: When,
    #[serde(skip_serializing_if = "Option::is_none")]
    gated: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ungated: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    scheduled: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    accepted: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    initialized: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    containers_ready: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deletion: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stopped: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gone: Option<When>,
}

#[derive(Serialize)]
struct Gate {
    condition: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    held: Option<When>,
}

#[derive(Serialize)]
struct Since {
    since: When,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Serialize)]
struct ResizePart {
    count: u32,
    began: When,
    #[serde(skip_serializing_if = "Option::is_none")]
    over: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Serialize)]
struct Container {
    name: String,
    role: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    running: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ready: Option<When>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished: Option<When>,
    restarts: i32,
    down_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_exit: Option<ExitPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image_pull: Option<PullPart>,
    #[serde(skip_serializing_if = "Option::is_none")]
    startup_probe_failures: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    readiness_probe_failures: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    liveness_probe_failures: Option<u32>,
}

#[derive(Serialize)]
struct ExitPart {
    code: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

#[derive(Serialize)]
struct PullPart {
    #[serde(skip_serializing_if = "Option::is_none")]
    already_present: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queued_seconds: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    attempts: u32,
    failures: u32,
    back_offs: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

impl Lifecycle {
    pub(crate) fn of(record: &PodRecord) -> Self {
        let gates = record.pod.readiness_gates.iter().zip(&record.gates);
        Self {
            r#final: record.end != End::Open,
            complete: record.is_complete(),
            reconstructed: record.reconstructed,
            at_most: record.is_upper_bound(),
            clock_skew: record.is_skewed(),
            phase: record.phase().as_str(),
            end: record.end.as_str(),
            total_seconds: record.total().map(|total| total.as_secs_f64()),
            incomplete: record.blocker().map(|found| Incomplete {
                kind: found.kind.as_str(),
                container: owned(found.container.as_deref()),
                reason: owned(found.reason.as_deref()),
                message: owned(found.message.as_deref()),
            }),
            cause: record.cause(),
            longest: record.longest().as_ref().map(Piece::of),
            critical_path: record.critical_path().iter().map(Piece::of).collect(),
            milestones: Passed::of(&record.milestones),
            readiness_gates: gates
                .map(|(condition, held)| Gate {
                    condition: condition.to_string(),
                    held: When::of(*held),
                })
                .collect(),
            unschedulable: record.unschedulable.as_ref().map(|found| Since {
                since: When::from(found.since),
                reason: owned(found.message.as_deref()),
            }),
            disruption: record.disruption.as_ref().map(|found| Since {
                since: When::from(found.since),
                reason: owned(found.reason.as_deref()),
            }),
            resize: record.resize.as_ref().map(|resize| ResizePart {
                count: resize.count,
                began: When::from(resize.began),
                over: When::of(resize.over),
                reason: owned(resize.reason.as_deref()),
            }),
            containers: record
                .containers
                .iter()
                .map(|container| Container::of(record, container))
                .collect(),
        }
    }
}

impl Piece {
    fn of(segment: &Segment) -> Self {
        Self {
            phase: segment.phase.as_str(),
            container: owned(segment.container.as_deref()),
            start_timestamp: segment.from.rfc3339_millis().to_string(),
            seconds: segment.took().as_secs_f64(),
            done: segment.is_done,
        }
    }
}

impl When {
    fn of(moment: Option<Moment>) -> Option<Self> {
        moment.map(Self::from)
    }
}

impl From<Moment> for When {
    fn from(moment: Moment) -> Self {
        Self {
            api_timestamp: moment.api.map(printed),
            observed_timestamp: moment
                .observed
                .map(|observed| observed.rfc3339_millis().to_string()),
        }
    }
}

impl Passed {
    fn of(reached: &Milestones) -> Self {
        Self {
            created: When::from(reached.created),
            gated: When::of(reached.gated),
            ungated: When::of(reached.ungated),
            scheduled: When::of(reached.scheduled),
            accepted: When::of(reached.accepted),
            sandbox: When::of(reached.sandbox),
            initialized: When::of(reached.initialized),
            containers_ready: When::of(reached.containers_ready),
            ready: When::of(reached.ready),
            deletion: When::of(reached.deletion),
            stopped: When::of(reached.stopped),
            gone: When::of(reached.gone),
        }
    }
}

impl Container {
    fn of(record: &PodRecord, container: &ContainerRecord) -> Self {
        let facts = record.facts_of(container);
        let failures =
            |trouble: Option<&Failures>| trouble.map(Failures::times).filter(|&times| times > 0);
        Self {
            name: container.name.to_string(),
            role: container.role.as_str(),
            image: owned(container.image.as_deref()),
            running: When::of(container.running),
            started: When::of(container.started),
            ready: When::of(container.ready),
            finished: When::of(container.finished),
            restarts: container.restarts,
            down_seconds: container.down.as_secs_f64(),
            last_exit: container.last_exit.as_ref().map(|exit| ExitPart {
                code: exit.code,
                signal: exit.signal,
                reason: owned(exit.reason.as_deref()),
            }),
            image_pull: facts
                .map(|facts| &facts.pull)
                .filter(|pull| pull.is_known())
                .map(PullPart::of),
            startup_probe_failures: failures(facts.map(|facts| &facts.startup_probe)),
            readiness_probe_failures: failures(facts.map(|facts| &facts.readiness_probe)),
            liveness_probe_failures: failures(facts.map(|facts| &facts.liveness_probe)),
        }
    }
}

impl PullPart {
    fn of(pull: &Pull) -> Self {
        let done = pull.done.as_ref();
        let queued = done.and_then(|done| done.with_waiting?.checked_sub(done.pull?));
        Self {
            already_present: done.map(|done| done.already_present),
            started_timestamp: pull.started().map(printed),
            finished_timestamp: done.map(|done| printed(done.at)),
            seconds: pull.took().map(|took| took.as_secs_f64()),
            queued_seconds: queued.map(|queued| queued.as_secs_f64()),
            bytes: done.and_then(|done| done.bytes),
            attempts: pull.attempts(),
            failures: pull.failed.times(),
            back_offs: pull.backed_off.times(),
            failure: owned(pull.failed.message.as_deref()),
        }
    }
}

fn owned(text: Option<&str>) -> Option<String> {
    text.map(str::to_owned)
}
