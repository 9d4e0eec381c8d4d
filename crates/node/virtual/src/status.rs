//! The status of a pod as it is written: what the runtime reports, and what only the node knows.

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus, HostIP, Pod, PodCondition, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::time::whole_seconds;

const READY: &str = "Ready";
const CONTAINERS_READY: &str = "ContainersReady";
/// The conditions that a kubelet writes.
const OWN_CONDITIONS: [&str; 4] = [
    "PodReadyToStartContainers",
    "Initialized",
    READY,
    CONTAINERS_READY,
];
/// Written by the scheduler.
const POD_SCHEDULED: &str = "PodScheduled";

/// What the node adds to the status of a runtime.
#[derive(Debug, Clone)]
pub(crate) struct StatusContext<'a> {
    pub(crate) host_ip: Option<&'a str>,
    /// When the node accepted the pod.
    pub(crate) started: Option<&'a Time>,
    /// The generation that the runtime works on.
    pub(crate) generation: Option<i64>,
    pub(crate) now: &'a Time,
}

/// Whether a phase is final.
pub(crate) fn is_terminal(phase: Option<&str>) -> bool {
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// The phase of an object.
pub(crate) fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// The status to write for a status of the runtime. Conditions of others are left out: they are not
/// ours to apply.
pub(crate) fn desired(pod: &Pod, runtime: &PodStatus, context: &StatusContext<'_>) -> PodStatus {
    let empty = PodStatus::default();
    let written = pod.status.as_ref().unwrap_or(&empty);
    let mut status = runtime.clone();
    // Set by the API server, the scheduler and controllers.
    status.qos_class = None;
    status.nominated_node_name = None;
    status.resource_claim_statuses = None;
    keep_terminal(&mut status, written);
    if status.phase.is_none() {
        status.phase = written.phase.clone().or_else(|| Some("Pending".to_owned()));
    }
    if status.host_ip.is_none() {
        status.host_ip = context.host_ip.map(str::to_owned);
    }
    if status.host_ips.is_none() {
        let ip = status.host_ip.clone();
        status.host_ips = ip.map(|ip| vec![HostIP { ip }]);
    }
    let started = written.start_time.clone().or(status.start_time);
    status.start_time = started.or_else(|| context.started.cloned());
    status.observed_generation = context.generation;
    apply_readiness_gates(&mut status, pod);
    finish_conditions(&mut status, written, context);
    truncate_times(&mut status);
    status
}

/// The status of a pod whose processes have ended and that will not run again.
pub(crate) fn ended(pod: &Pod, runtime: &PodStatus, context: &StatusContext<'_>) -> PodStatus {
    let mut runtime = runtime.clone();
    if !is_terminal(runtime.phase.as_deref()) {
        runtime.phase = Some("Failed".to_owned());
    }
    let lists = [
        &mut runtime.init_container_statuses,
        &mut runtime.container_statuses,
        &mut runtime.ephemeral_container_statuses,
    ];
    for container in lists.into_iter().flatten().flatten() {
        end_container(container);
    }
    let reason = match runtime.phase.as_deref() {
        Some("Succeeded") => "PodCompleted",
        _ => "PodFailed",
    };
    let mut status = desired(pod, &runtime, context);
    for condition in status.conditions.iter_mut().flatten() {
        let is_readiness = matches!(condition.type_.as_str(), READY | CONTAINERS_READY);
        if is_readiness && condition.status == "True" {
            "False".clone_into(&mut condition.status);
            condition.reason = Some(reason.to_owned());
            condition.message = None;
            condition.last_transition_time = Some(context.now.clone());
        }
    }
    status
}

/// The status of a pod that the node does not run.
pub(crate) fn rejected(
    pod: &Pod,
    reason: &str,
    message: &str,
    context: &StatusContext<'_>,
) -> PodStatus {
    let status = PodStatus {
        phase: Some("Failed".to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(format!("Pod was rejected: {message}")),
        ..PodStatus::default()
    };
    desired(pod, &status, context)
}

/// What a node has written of a status: conditions of others are left out.
pub(crate) fn own_part(written: &PodStatus) -> PodStatus {
    let mut status = written.clone();
    if let Some(conditions) = &mut status.conditions {
        conditions.retain(|one| OWN_CONDITIONS.contains(&one.type_.as_str()));
    }
    status
}

/// Whether the API server has what is to be written. Fields that are not ours do not count.
pub(crate) fn is_written(pod: &Pod, desired: &PodStatus) -> bool {
    let Some(written) = &pod.status else {
        return false;
    };
    let conditions = written.conditions.as_deref().unwrap_or_default();
    let has_conditions = desired.conditions.iter().flatten().all(|own| {
        conditions
            .iter()
            .any(|one| one.type_ == own.type_ && is_same_condition(one, own))
    });
    has_conditions
        && written.phase == desired.phase
        && written.reason == desired.reason
        && written.message == desired.message
        && written.host_ip == desired.host_ip
        && written.pod_ip == desired.pod_ip
        && written.start_time == desired.start_time
        && written.observed_generation == desired.observed_generation
        && is_same_list(
            written.container_statuses.as_ref(),
            desired.container_statuses.as_ref(),
        )
        && is_same_list(
            written.init_container_statuses.as_ref(),
            desired.init_container_statuses.as_ref(),
        )
        && is_same_list(
            written.ephemeral_container_statuses.as_ref(),
            desired.ephemeral_container_statuses.as_ref(),
        )
}

/// Whether two statuses write the same, but for times that depend on the moment.
pub(crate) fn is_same_write(one: &PodStatus, other: &PodStatus) -> bool {
    let pod = Pod {
        status: Some(one.clone()),
        ..Pod::default()
    };
    is_written(&pod, other)
}

fn is_same_list(one: Option<&Vec<ContainerStatus>>, other: Option<&Vec<ContainerStatus>>) -> bool {
    // An absent list and an empty one are the same.
    let has_items = |list: &&Vec<ContainerStatus>| !list.is_empty();
    one.filter(has_items) == other.filter(has_items)
}

fn is_same_condition(one: &PodCondition, other: &PodCondition) -> bool {
    one.status == other.status
        && one.reason == other.reason
        && one.message == other.message
        && one.observed_generation == other.observed_generation
}

/// A terminal phase never changes, nor why it was reached.
fn keep_terminal(status: &mut PodStatus, written: &PodStatus) {
    if is_terminal(written.phase.as_deref()) {
        status.phase.clone_from(&written.phase);
        status.reason.clone_from(&written.reason);
        status.message.clone_from(&written.message);
    }
}

/// `Ready` also needs the conditions that the spec names.
fn apply_readiness_gates(status: &mut PodStatus, pod: &Pod) {
    let gates = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.readiness_gates.as_ref());
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.as_deref());
    let conditions = conditions.unwrap_or_default();
    let missing: Vec<String> = gates
        .into_iter()
        .flatten()
        .filter_map(|gate| {
            let name = &gate.condition_type;
            match conditions.iter().find(|one| one.type_ == *name) {
                None => Some(format!(
                    "corresponding condition of pod readiness gate {name:?} does not exist."
                )),
                Some(one) if one.status != "True" => Some(format!(
                    "the status of pod readiness gate {name:?} is not \"True\", but {}",
                    one.status
                )),
                Some(_) => None,
            }
        })
        .collect();
    if missing.is_empty() {
        return;
    }
    let ready = status.conditions.iter_mut().flatten();
    for condition in ready.filter(|one| one.type_ == READY && one.status == "True") {
        "False".clone_into(&mut condition.status);
        condition.reason = Some("ReadinessGatesNotReady".to_owned());
        condition.message = Some(missing.join(", "));
    }
}

/// Sets generation and times: the time of a transition stays while the status does.
fn finish_conditions(status: &mut PodStatus, written: &PodStatus, context: &StatusContext<'_>) {
    let Some(conditions) = &mut status.conditions else {
        return;
    };
    conditions.retain(|condition| condition.type_ != POD_SCHEDULED);
    for condition in conditions {
        let before = written.conditions.iter().flatten();
        let before = before.clone().find(|one| one.type_ == condition.type_);
        let kept = before
            .filter(|before| before.status == condition.status)
            .and_then(|before| before.last_transition_time.clone());
        let time = kept.or_else(|| condition.last_transition_time.take());
        condition.last_transition_time = time.or_else(|| Some(context.now.clone()));
        condition.observed_generation = context.generation;
        condition.last_probe_time = None;
    }
}

/// A container that did not report its end before the pod was gone.
fn end_container(container: &mut ContainerStatus) {
    container.ready = false;
    if container.started.is_some() {
        container.started = Some(false);
    }
    let state = container.state.get_or_insert_default();
    if state.terminated.is_some() {
        return;
    }
    let id = container.container_id.clone();
    *state = ContainerState {
        terminated: Some(ContainerStateTerminated {
            exit_code: 137,
            reason: Some("ContainerStatusUnknown".to_owned()),
            message: Some(
                "The container could not be located when the pod was terminated".to_owned(),
            ),
            container_id: id,
            ..ContainerStateTerminated::default()
        }),
        ..ContainerState::default()
    };
}

/// The API server keeps whole seconds: with a fraction a written status would never be equal.
fn truncate_times(status: &mut PodStatus) {
    let truncate = |time: &mut Option<Time>| {
        if let Some(time) = time {
            *time = whole_seconds(time);
        }
    };
    truncate(&mut status.start_time);
    for condition in status.conditions.iter_mut().flatten() {
        truncate(&mut condition.last_transition_time);
    }
    let lists = [
        &mut status.init_container_statuses,
        &mut status.container_statuses,
        &mut status.ephemeral_container_statuses,
    ];
    for container in lists.into_iter().flatten().flatten() {
        for state in [&mut container.state, &mut container.last_state] {
            let Some(state) = state else { continue };
            if let Some(running) = &mut state.running {
                truncate(&mut running.started_at);
            }
            if let Some(terminated) = &mut state.terminated {
                truncate(&mut terminated.started_at);
                truncate(&mut terminated.finished_at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    fn status(value: Value) -> PodStatus {
        serde_json::from_value(value).unwrap()
    }

    fn time(text: &str) -> Time {
        Time(text.parse().unwrap())
    }

    fn context(now: &Time) -> StatusContext<'_> {
        StatusContext {
            host_ip: Some("10.0.0.1"),
            started: Some(now),
            generation: Some(3),
            now,
        }
    }

    #[test]
    fn only_own_conditions_are_written_and_their_times_stay() {
        let now = time("2026-01-01T00:00:09Z");
        let pod = pod(
            json!({"status": {"phase": "Pending", "qosClass": "Burstable", "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
                {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:01Z"},
                {"type": "example.com/gate", "status": "True"},
            ]}}),
        );
        let runtime = status(
            json!({"phase": "Running", "qosClass": "Guaranteed", "conditions": [
                {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:05Z"},
                {"type": "Initialized", "status": "True"},
                {"type": "PodScheduled", "status": "False"},
            ]}),
        );
        let desired = desired(&pod, &runtime, &context(&now));
        let conditions = desired.conditions.clone().unwrap();
        let times: Vec<_> = conditions
            .iter()
            .map(|one| {
                (
                    one.type_.as_str(),
                    one.last_transition_time.clone().unwrap(),
                )
            })
            .collect();
        assert_eq!(
            times,
            [
                ("Ready", time("2026-01-01T00:00:01Z")),
                ("Initialized", now.clone())
            ]
        );
        assert!(
            conditions
                .iter()
                .all(|one| one.observed_generation == Some(3))
        );
        assert_eq!(desired.qos_class, None);
        assert_eq!(desired.host_ips.as_ref().unwrap()[0].ip, "10.0.0.1");
        assert_eq!(desired.start_time, Some(now));
        assert!(!is_written(&pod, &desired));
    }

    #[test]
    fn terminal_phases_never_change() {
        let now = time("2026-01-01T00:00:09Z");
        let pod = pod(json!({"status": {"phase": "Failed", "reason": "Evicted", "message": "m"}}));
        let runtime = status(json!({"phase": "Running"}));
        let desired = desired(&pod, &runtime, &context(&now));
        assert_eq!(desired.phase.as_deref(), Some("Failed"));
        assert_eq!(desired.reason.as_deref(), Some("Evicted"));
        let rejected = rejected(&pod, "OutOfpods", "too many", &context(&now));
        assert_eq!(rejected.reason.as_deref(), Some("Evicted"));
    }

    #[test]
    fn a_pod_that_ended_without_exit_codes_has_failed() {
        let now = time("2026-01-01T00:00:09.5Z");
        let pod = pod(json!({"status": {"phase": "Running"}}));
        let runtime = status(json!({"phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
            {"name": "a", "image": "i", "imageID": "", "ready": true, "restartCount": 0, "started": true,
             "containerID": "process://1", "state": {"running": {"startedAt": "2026-01-01T00:00:01.25Z"}}},
            {"name": "b", "image": "i", "imageID": "", "ready": false, "restartCount": 0,
             "state": {"terminated": {"exitCode": 0, "finishedAt": "2026-01-01T00:00:02.75Z"}}},
        ]}));
        let ended = ended(&pod, &runtime, &context(&now));
        assert_eq!(ended.phase.as_deref(), Some("Failed"));
        let containers = ended.container_statuses.unwrap();
        let state = |index: usize| containers[index].state.clone().unwrap().terminated.unwrap();
        assert_eq!(state(0).exit_code, 137);
        assert_eq!(state(0).container_id.as_deref(), Some("process://1"));
        assert!(!containers[0].ready && containers[0].started == Some(false));
        assert_eq!(state(1).finished_at, Some(time("2026-01-01T00:00:02Z")));
        let ready = &ended.conditions.unwrap()[0];
        assert_eq!(
            (ready.status.as_str(), ready.reason.as_deref()),
            ("False", Some("PodFailed"))
        );
    }

    #[test]
    fn readiness_gates_hold_back_ready() {
        let now = time("2026-01-01T00:00:09Z");
        let object = |gate: Value| {
            pod(json!({
                "spec": {"containers": [], "readinessGates": [{"conditionType": "example.com/gate"}]},
                "status": {"conditions": gate},
            }))
        };
        let runtime = status(json!({"conditions": [{"type": "Ready", "status": "True"}]}));
        let ready = |object: &Pod| {
            let status = desired(object, &runtime, &context(&now));
            status.conditions.unwrap()[0].clone()
        };
        let without = ready(&object(json!([])));
        assert_eq!(without.reason.as_deref(), Some("ReadinessGatesNotReady"));
        let with = ready(&object(
            json!([{"type": "example.com/gate", "status": "True"}]),
        ));
        assert_eq!((with.status.as_str(), with.reason), ("True", None));
    }
}
