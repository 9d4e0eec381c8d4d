//! The status of a pod, by the kubelet's rules. Pure functions.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{
    ContainerState as ApiState, ContainerStateRunning, ContainerStateTerminated,
    ContainerStateWaiting, ContainerStatus, HostIP, Pod, PodCondition, PodIP, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::resources::QosClass;
use crate::state::{ContainerState, Ended, Phase, PodState, RestartPolicy, Role, container};

/// The scheme of container ids.
pub(crate) const SCHEME: &str = "process://";

/// The reason of a program that could not be started.
pub(crate) const START_ERROR: &str = "StartError";

const PENDING: &str = "Pending";
const RUNNING: &str = "Running";
const SUCCEEDED: &str = "Succeeded";
const FAILED: &str = "Failed";

/// The status of a pod without the conditions of the virtual node. The times of conditions that
/// changed are kept in `state`.
pub(crate) fn pod_status(
    pod: &Pod,
    state: &mut PodState,
    is_prepared: bool,
    ips: &[IpAddr],
    now_ms: i64,
) -> PodStatus {
    let has_inits = state.containers.iter().any(|one| one.role != Role::Main);
    let statuses = |is_main: bool| -> Vec<ContainerStatus> {
        let mut found: Vec<ContainerStatus> = state
            .containers
            .iter()
            .filter(|one| (one.role == Role::Main) == is_main)
            .map(|one| container_status(pod, one, has_inits))
            .collect();
        // Main containers of a pod that was never initialized go on waiting.
        let mut inits = state.containers.iter().filter(|one| one.role == Role::Init);
        if state.is_terminated && (!is_main || inits.all(ContainerState::has_succeeded)) {
            close(&mut found, is_main);
        }
        found
    };
    let inits = statuses(false);
    let mut mains = statuses(true);
    mains.sort_by(|a, b| a.name.cmp(&b.name));
    let phase = phase_of(pod, state, &inits, &mains);
    let conditions = conditions(pod, state, phase, &inits, &mains, is_prepared, now_ms);
    PodStatus {
        phase: Some(phase.to_owned()),
        reason: state.failure.as_ref().map(|one| one.reason.clone()),
        message: state.failure.as_ref().map(|one| one.message.clone()),
        conditions: Some(conditions),
        container_statuses: Some(mains),
        init_container_statuses: has_inits.then_some(inits),
        host_ip: ips.first().map(ToString::to_string),
        host_ips: (!ips.is_empty())
            .then(|| ips.iter().map(|ip| HostIP { ip: ip.to_string() }).collect()),
        pod_ip: ips.first().map(ToString::to_string),
        pod_ips: (!ips.is_empty())
            .then(|| ips.iter().map(|ip| PodIP { ip: ip.to_string() }).collect()),
        start_time: time(state.started_ms),
        qos_class: Some(QosClass::of(pod).as_str().to_owned()),
        ..PodStatus::default()
    }
}

/// A pod that has ended has no container that waits: those that never ran are unknown.
fn close(statuses: &mut [ContainerStatus], is_main: bool) {
    for status in statuses {
        let state = status.state.get_or_insert_default();
        // Of init containers only those that had begun.
        let was_begun = is_main || state.waiting.is_none();
        if state.terminated.is_none() && was_begun {
            if let Some(last) = status.last_state.take().and_then(|one| one.terminated) {
                state.terminated = Some(last);
            } else {
                state.terminated = Some(ContainerStateTerminated {
                    exit_code: 137,
                    reason: Some("ContainerStatusUnknown".to_owned()),
                    message: Some(
                        "The container could not be located when the pod was terminated".to_owned(),
                    ),
                    ..ContainerStateTerminated::default()
                });
            }
            state.waiting = None;
        }
    }
}

/// The phase. A pod that has ended stays in its phase.
fn phase_of(
    pod: &Pod,
    state: &PodState,
    inits: &[ContainerStatus],
    mains: &[ContainerStatus],
) -> &'static str {
    if state.failure.is_some() {
        return FAILED;
    }
    let found = phase(pod, state, inits, mains);
    match found {
        SUCCEEDED | FAILED => found,
        // The kubelet calls a pod that ended without a result failed.
        _ if state.is_terminated => FAILED,
        _ => found,
    }
}

fn phase(
    pod: &Pod,
    state: &PodState,
    inits: &[ContainerStatus],
    mains: &[ContainerStatus],
) -> &'static str {
    let policy = RestartPolicy::of(pod);
    // A terminal phase must not change: not before the last process has ended.
    let is_live = state.containers.iter().any(|one| one.current().is_some());
    let is_terminal = state.is_terminated || (state.termination.is_some() && !is_live);
    let (mut pending, mut failed) = (0, 0);
    let (mut running, mut waiting, mut stopped, mut succeeded) = (0, 0, 0, 0);
    for (status, one) in inits.iter().zip(&state.containers) {
        let seen = Seen::of(status);
        match (one.role, seen) {
            (Role::Sidecar, Seen::Running) => {
                running += 1;
                pending += usize::from(status.started != Some(true));
            }
            (Role::Sidecar, Seen::Waiting) => {
                pending += 1;
                waiting += 1;
            }
            (Role::Sidecar, _) => {}
            (_, Seen::Running | Seen::Waiting) => pending += 1,
            (_, Seen::Ended(code) | Seen::BetweenRuns(code)) => failed += usize::from(code != 0),
        }
    }
    for status in mains {
        match Seen::of(status) {
            Seen::Running => running += 1,
            Seen::Waiting => waiting += 1,
            Seen::Ended(code) => {
                stopped += 1;
                succeeded += usize::from(code == 0);
            }
            Seen::BetweenRuns(code) => {
                stopped += 1;
                succeeded += usize::from(code == 0 && is_terminal);
            }
        }
    }
    let restarts = |status: &ContainerStatus| match (Seen::of(status), container(pod, &status.name))
    {
        (Seen::Ended(code), Some((role, spec))) => policy.restarts(spec, role, code),
        (Seen::BetweenRuns(_), _) => true,
        _ => false,
    };
    if failed > 0 && policy == RestartPolicy::Never {
        return FAILED;
    }
    if pending > 0 || waiting > 0 {
        return PENDING;
    }
    if running > 0 {
        return RUNNING;
    }
    if stopped == 0 {
        return PENDING;
    }
    if !is_terminal && mains.iter().any(restarts) {
        return RUNNING;
    }
    if stopped == succeeded {
        SUCCEEDED
    } else {
        FAILED
    }
}

/// A container status, as far as the phase needs it.
#[derive(Debug, Clone, Copy)]
enum Seen {
    Running,
    /// Never started.
    Waiting,
    Ended(i32),
    /// Waits to be started again.
    BetweenRuns(i32),
}

impl Seen {
    fn of(status: &ContainerStatus) -> Self {
        let state = status.state.as_ref();
        if let Some(ended) = state.and_then(|one| one.terminated.as_ref()) {
            return Self::Ended(ended.exit_code);
        }
        if state.is_some_and(|one| one.running.is_some()) {
            return Self::Running;
        }
        match status
            .last_state
            .as_ref()
            .and_then(|one| one.terminated.as_ref())
        {
            Some(ended) => Self::BetweenRuns(ended.exit_code),
            None => Self::Waiting,
        }
    }
}

/// The status of a container.
fn container_status(pod: &Pod, one: &ContainerState, has_inits: bool) -> ContainerStatus {
    let spec = container(pod, &one.name).map(|(_, spec)| spec);
    let ended = |ended: &Option<Ended>| {
        ended.as_ref().map(|ended| ApiState {
            terminated: Some(terminated(ended)),
            ..ApiState::default()
        })
    };
    let waiting = |reason: &str, message: Option<String>| {
        Some(ApiState {
            waiting: Some(ContainerStateWaiting {
                reason: Some(reason.to_owned()),
                message,
            }),
            ..ApiState::default()
        })
    };
    let default_reason = if has_inits {
        "PodInitializing"
    } else {
        "ContainerCreating"
    };
    let start_error = one.ended.as_ref().filter(|one| one.reason == START_ERROR);
    let (state, last_state) = match &one.phase {
        Phase::Waiting(Some(why)) => {
            let message = (!why.message.is_empty()).then(|| why.message.clone());
            (waiting(&why.reason, message), ended(&one.ended))
        }
        Phase::Starting { .. } if start_error.is_some() => {
            let message = start_error.and_then(|one| one.message.clone());
            (waiting("RunContainerError", message), ended(&one.ended))
        }
        Phase::Waiting(None) | Phase::Starting { .. } | Phase::Ended if one.ended.is_some() => {
            (ended(&one.ended), ended(&one.earlier))
        }
        Phase::Waiting(None) | Phase::Starting { .. } | Phase::Ended => {
            (waiting(default_reason, None), None)
        }
        Phase::Running(running) => {
            let state = ApiState {
                running: Some(ContainerStateRunning {
                    started_at: time(running.started_ms),
                }),
                ..ApiState::default()
            };
            (Some(state), ended(&one.ended))
        }
    };
    let running = one.running();
    let id = match (running, &one.ended) {
        (Some(running), _) => Some(&running.id),
        (None, Some(ended)) => Some(&ended.id),
        (None, None) => None,
    };
    let is_started = running.is_some_and(|one| one.is_started);
    ContainerStatus {
        name: one.name.clone(),
        image: spec.and_then(|spec| spec.image.clone()).unwrap_or_default(),
        image_id: String::new(),
        container_id: id.map(|id| format!("{SCHEME}{id}")),
        ready: match one.role {
            Role::Init => one.has_succeeded(),
            Role::Sidecar | Role::Main => is_started && running.is_some_and(|one| one.is_ready),
        },
        started: Some(is_started),
        restart_count: i32::try_from(one.restart_count).unwrap_or(i32::MAX),
        state,
        last_state: Some(last_state.unwrap_or_default()),
        resources: spec.and_then(|spec| spec.resources.clone()),
        allocated_resources: spec
            .and_then(|spec| spec.resources.as_ref())
            .and_then(|one| one.requests.clone()),
        ..ContainerStatus::default()
    }
}

fn terminated(ended: &Ended) -> ContainerStateTerminated {
    ContainerStateTerminated {
        container_id: Some(format!("{SCHEME}{}", ended.id)),
        exit_code: ended.code,
        // The kubelet leaves it out: the code tells it.
        signal: None,
        reason: Some(ended.reason.clone()),
        message: ended.message.clone(),
        started_at: ended.started_ms.and_then(time),
        finished_at: time(ended.finished_ms),
    }
}

/// The conditions in the kubelet's order.
fn conditions(
    pod: &Pod,
    state: &mut PodState,
    phase: &str,
    inits: &[ContainerStatus],
    mains: &[ContainerStatus],
    is_prepared: bool,
    now_ms: i64,
) -> Vec<PodCondition> {
    let sandbox = if is_prepared && !state.is_terminated {
        Verdict::yes()
    } else {
        Verdict::no("", String::new())
    };
    let containers_ready = containers_ready(state, phase, inits, mains);
    let found = [
        ("PodReadyToStartContainers", sandbox),
        ("Initialized", initialized(state, phase, inits, mains)),
        ("Ready", ready(pod, phase, &containers_ready)),
        ("ContainersReady", containers_ready),
    ];
    found
        .into_iter()
        .map(|(name, verdict)| verdict.condition(name, state, now_ms))
        .collect()
}

/// The value of a condition.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Verdict {
    is_true: bool,
    reason: String,
    message: String,
}

impl Verdict {
    fn yes() -> Self {
        Self {
            is_true: true,
            reason: String::new(),
            message: String::new(),
        }
    }

    fn no(reason: &str, message: String) -> Self {
        Self {
            is_true: false,
            reason: reason.to_owned(),
            message,
        }
    }

    fn condition(self, name: &str, state: &mut PodState, now_ms: i64) -> PodCondition {
        let status = if self.is_true { "True" } else { "False" };
        let known = state.transitions.iter_mut().find(|(one, ..)| one == name);
        let changed_ms = if let Some((_, value, at)) = known {
            if value != status {
                status.clone_into(value);
                *at = now_ms;
            }
            *at
        } else {
            let entry = (name.to_owned(), status.to_owned(), now_ms);
            state.transitions.push(entry);
            now_ms
        };
        let text = |text: String| (!text.is_empty()).then_some(text);
        PodCondition {
            type_: name.to_owned(),
            status: status.to_owned(),
            reason: text(self.reason),
            message: text(self.message),
            last_transition_time: time(changed_ms),
            ..PodCondition::default()
        }
    }
}

fn initialized(
    state: &PodState,
    phase: &str,
    inits: &[ContainerStatus],
    mains: &[ContainerStatus],
) -> Verdict {
    if phase == SUCCEEDED {
        return Verdict {
            reason: "PodCompleted".to_owned(),
            ..Verdict::yes()
        };
    }
    // Once a main container has run, the pod was initialized.
    if mains
        .iter()
        .any(|one| !matches!(Seen::of(one), Seen::Waiting))
        && state
            .containers
            .iter()
            .any(|one| one.role == Role::Main && (one.ended.is_some() || one.running().is_some()))
    {
        return Verdict::yes();
    }
    let incomplete: Vec<&str> = inits
        .iter()
        .zip(&state.containers)
        .filter(|(status, one)| match one.role {
            Role::Sidecar => status.started != Some(true),
            _ => !status.ready,
        })
        .map(|(status, _)| status.name.as_str())
        .collect();
    if incomplete.is_empty() {
        return Verdict::yes();
    }
    let message = format!(
        "containers with incomplete status: [{}]",
        incomplete.join(" ")
    );
    Verdict::no("ContainersNotInitialized", message)
}

fn containers_ready(
    state: &PodState,
    phase: &str,
    inits: &[ContainerStatus],
    mains: &[ContainerStatus],
) -> Verdict {
    match phase {
        SUCCEEDED => return Verdict::no("PodCompleted", String::new()),
        FAILED => return Verdict::no("PodFailed", String::new()),
        _ => {}
    }
    let sidecars = inits
        .iter()
        .zip(&state.containers)
        .filter(|(_, one)| one.role == Role::Sidecar)
        .map(|(status, _)| status);
    // In the order of the specification, unlike the statuses.
    let in_order = state
        .containers
        .iter()
        .filter(|one| one.role == Role::Main)
        .filter_map(|one| mains.iter().find(|status| status.name == one.name));
    let unready: Vec<&str> = sidecars
        .chain(in_order)
        .filter(|one| !one.ready)
        .map(|one| one.name.as_str())
        .collect();
    if unready.is_empty() {
        return Verdict::yes();
    }
    let message = format!("containers with unready status: [{}]", unready.join(" "));
    Verdict::no("ContainersNotReady", message)
}

fn ready(pod: &Pod, phase: &str, containers_ready: &Verdict) -> Verdict {
    if !containers_ready.is_true || matches!(phase, SUCCEEDED | FAILED) {
        return containers_ready.clone();
    }
    let gates = pod
        .spec
        .iter()
        .flat_map(|spec| spec.readiness_gates.iter().flatten());
    let known = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let mut unready = Vec::new();
    for gate in gates {
        let name = &gate.condition_type;
        match known
            .unwrap_or_default()
            .iter()
            .find(|one| one.type_ == *name)
        {
            None => unready.push(format!(
                "corresponding condition of pod readiness gate {name:?} does not exist."
            )),
            Some(one) if one.status != "True" => unready.push(format!(
                "the status of pod readiness gate {name:?} is not \"True\", but {}",
                one.status
            )),
            Some(_) => {}
        }
    }
    if unready.is_empty() {
        return Verdict::yes();
    }
    Verdict::no("ReadinessGatesNotReady", unready.join(", "))
}

/// Times of the API, in whole seconds.
pub(crate) fn time(ms: i64) -> Option<Time> {
    jiff::Timestamp::from_second(ms.div_euclid(1000))
        .ok()
        .map(Time)
}

#[cfg(test)]
mod tests;
