//! Rows of pods and workloads.

use std::time::SystemTime;

use serde_json::{Value, json};

use super::cells::{
    age, condition, flag, human_duration, integer, labels, list, or, text, texts, time,
};
use crate::objects::Resource;

/// Sums over the containers of a pod.
#[derive(Default)]
struct Tally {
    ready: usize,
    restarts: i64,
    last_restart: Option<SystemTime>,
}

impl Tally {
    fn restarted(&mut self, status: &Value) {
        self.restarts += integer(status, "/restartCount");
        self.last_restart = self
            .last_restart
            .max(time(status, "/lastState/terminated/finishedAt"));
    }
}

pub(super) fn pod(object: &Value, name: String, age_text: String, now: SystemTime) -> Vec<Value> {
    let sidecar = |name: &Value| {
        list(object, "/spec/initContainers")
            .any(|init| init["name"] == *name && init["restartPolicy"] == "Always")
    };
    let total = list(object, "/spec/containers").count()
        + list(object, "/spec/initContainers")
            .filter(|init| init["restartPolicy"] == "Always")
            .count();
    let phase = text(object, "/status/phase");
    let mut reason = or(text(object, "/status/reason"), &phase);
    let gated = list(object, "/status/conditions").any(|condition| {
        condition["type"] == "PodScheduled" && condition["reason"] == "SchedulingGated"
    });
    if gated {
        "SchedulingGated".clone_into(&mut reason);
    }
    let mut all = Tally::default();
    let mut lasting = Tally::default();
    let mut initializing = false;
    let inits = list(object, "/spec/initContainers").count();
    for (index, status) in list(object, "/status/initContainerStatuses").enumerate() {
        all.restarted(status);
        let is_sidecar = sidecar(&status["name"]);
        if is_sidecar {
            lasting.restarted(status);
        }
        let terminated = status
            .pointer("/state/terminated")
            .filter(|state| state.is_object());
        let waiting = text(status, "/state/waiting/reason");
        match terminated {
            Some(state) if integer(state, "/exitCode") == 0 => continue,
            _ if is_sidecar && flag(status, "/started") => {
                lasting.ready += usize::from(flag(status, "/ready"));
                continue;
            }
            Some(state) => reason = format!("Init:{}", termination_reason(state)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => {
                reason = format!("Init:{waiting}");
            }
            None => reason = format!("Init:{index}/{inits}"),
        }
        initializing = true;
        break;
    }
    let tally = if !initializing || condition(object, "Initialized") == Some("True") {
        reason = containers(object, reason, &mut lasting);
        lasting
    } else {
        all.ready = lasting.ready;
        all
    };
    if object
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(Value::is_string)
    {
        if text(object, "/status/reason") == "NodeLost" {
            "Unknown".clone_into(&mut reason);
        } else if !matches!(phase.as_str(), "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut reason);
        }
    }
    let restarts = match tally.last_restart {
        Some(last) if tally.restarts > 0 => {
            let ago = human_duration(now.duration_since(last).unwrap_or_default());
            format!("{} ({ago} ago)", tally.restarts)
        }
        _ => tally.restarts.to_string(),
    };
    let gates = list(object, "/spec/readinessGates").count();
    let gates = if gates == 0 {
        "<none>".to_owned()
    } else {
        let open = list(object, "/spec/readinessGates")
            .filter(|gate| condition(object, &text(gate, "/conditionType")) == Some("True"));
        format!("{}/{gates}", open.count())
    };
    texts([
        name,
        format!("{}/{total}", tally.ready),
        reason,
        restarts,
        age_text,
        or(text(object, "/status/podIPs/0/ip"), "<none>"),
        or(text(object, "/spec/nodeName"), "<none>"),
        or(text(object, "/status/nominatedNodeName"), "<none>"),
        gates,
    ])
}

/// Adds up the regular containers, and returns the status that they give the pod.
fn containers(object: &Value, mut reason: String, tally: &mut Tally) -> String {
    let mut has_running = false;
    let mut error_reason = None;
    let statuses: Vec<&Value> = list(object, "/status/containerStatuses").collect();
    for status in statuses.into_iter().rev() {
        tally.restarted(status);
        let waiting = text(status, "/state/waiting/reason");
        if !waiting.is_empty() {
            reason = waiting;
        } else if let Some(state) = status
            .pointer("/state/terminated")
            .filter(|s| s.is_object())
        {
            reason = termination_reason(state);
            if integer(state, "/exitCode") != 0 {
                error_reason = Some(reason.clone());
            }
        } else if flag(status, "/ready") && status.pointer("/state/running").is_some() {
            has_running = true;
            tally.ready += 1;
        }
    }
    if reason == "Completed" {
        if has_running && condition(object, "Ready") == Some("True") {
            "Running".clone_into(&mut reason);
        } else if let Some(error) = error_reason {
            reason = error;
        } else if has_running {
            "NotReady".clone_into(&mut reason);
        }
    }
    reason
}

/// Returns the reason for which a container terminated.
fn termination_reason(state: &Value) -> String {
    let reason = text(state, "/reason");
    if !reason.is_empty() {
        return reason;
    }
    match integer(state, "/signal") {
        0 => format!("ExitCode:{}", integer(state, "/exitCode")),
        signal => format!("Signal:{signal}"),
    }
}

/// Deployments, ReplicaSets and so on.
pub(super) fn replicated(resource: Resource, object: &Value, name: &str, age: &str) -> Vec<Value> {
    let status = |member: &str| integer(object, &format!("/status/{member}"));
    let desired = object
        .pointer("/spec/replicas")
        .and_then(Value::as_i64)
        .unwrap_or(1);
    let ready = format!("{}/{desired}", status("readyReplicas"));
    let mut cells = match resource {
        Resource::DaemonSets => vec![
            json!(name),
            json!(status("desiredNumberScheduled")),
            json!(status("currentNumberScheduled")),
            json!(status("numberReady")),
            json!(status("updatedNumberScheduled")),
            json!(status("numberAvailable")),
            json!(labels(object, "/spec/template/spec/nodeSelector")),
            json!(age),
        ],
        Resource::Deployments => vec![
            json!(name),
            json!(ready),
            json!(status("updatedReplicas").to_string()),
            json!(status("availableReplicas").to_string()),
            json!(age),
        ],
        Resource::StatefulSets => vec![json!(name), json!(ready), json!(age)],
        _ => vec![
            json!(name),
            json!(desired),
            json!(status("replicas")),
            json!(status("readyReplicas")),
            json!(age),
        ],
    };
    cells.extend(container_cells(object));
    match resource {
        Resource::StatefulSets => {}
        Resource::ReplicationControllers => cells.push(json!(labels(object, "/spec/selector"))),
        _ => cells.push(json!(labels(object, "/spec/selector/matchLabels"))),
    }
    cells
}

pub(super) fn job(object: &Value, name: String, age_text: String, now: SystemTime) -> Vec<Value> {
    let is = |kind: &str| condition(object, kind) == Some("True");
    let status = if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if object
        .pointer("/metadata/deletionTimestamp")
        .is_some_and(Value::is_string)
    {
        "Terminating"
    } else {
        ["Suspended", "FailureTarget", "SuccessCriteriaMet"]
            .into_iter()
            .find(|kind| is(kind))
            .unwrap_or("Running")
    };
    let succeeded = integer(object, "/status/succeeded");
    let completions = match object.pointer("/spec/completions").and_then(Value::as_i64) {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if integer(object, "/spec/parallelism") > 1 => {
            format!("{succeeded}/1 of {}", integer(object, "/spec/parallelism"))
        }
        None => format!("{succeeded}/1"),
    };
    let started = time(object, "/status/startTime");
    let duration = match (started, time(object, "/status/completionTime")) {
        (None, _) => String::new(),
        (Some(_), None) => age(object, "/status/startTime", now),
        (Some(start), Some(end)) => human_duration(end.duration_since(start).unwrap_or_default()),
    };
    let mut cells = texts([name, status.to_owned(), completions, duration, age_text]);
    cells.extend(container_cells(object));
    cells.push(json!(labels(object, "/spec/selector/matchLabels")));
    cells
}

fn container_cells(object: &Value) -> [Value; 2] {
    let join = |member: &str| {
        let all: Vec<String> = list(object, "/spec/template/spec/containers")
            .map(|container| text(container, member))
            .collect();
        json!(all.join(","))
    };
    [join("/name"), join("/image")]
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::api::table::{cells, columns};

    fn status_of(pod_status: &Value, spec: &Value) -> (Value, Value, Value) {
        let object = json!({"metadata": {"name": "p", "creationTimestamp": "1970-01-01T00:00:00Z"},
                            "spec": spec, "status": pod_status});
        let now = UNIX_EPOCH + Duration::from_hours(1);
        let cells = cells::cells(Resource::Pods, &object, now);
        assert_eq!(cells.len(), columns::columns(Resource::Pods).len());
        (cells[1].clone(), cells[2].clone(), cells[3].clone())
    }

    #[test]
    fn the_status_of_a_pod_is_what_kubectl_shows() {
        let two = json!({"containers": [{"name": "a"}, {"name": "b"}]});
        let running = json!({"phase": "Running", "containerStatuses": [
            {"name": "a", "ready": true, "state": {"running": {}}},
            {"name": "b", "ready": false, "restartCount": 3, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
             "lastState": {"terminated": {"finishedAt": "1970-01-01T00:55:00Z"}}},
        ]});
        assert_eq!(
            status_of(&running, &two),
            (json!("1/2"), json!("CrashLoopBackOff"), json!("3 (5m ago)"))
        );
        let init = json!({"initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}], "containers": [{"name": "a"}]});
        let waiting = json!({"phase": "Pending", "initContainerStatuses": [
            {"name": "i", "state": {"waiting": {"reason": "PodInitializing"}}}]});
        assert_eq!(
            status_of(&waiting, &init),
            (json!("0/2"), json!("Init:0/2"), json!("0"))
        );
        let started = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
            "initContainerStatuses": [
                {"name": "i", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
                {"name": "s", "started": true, "ready": true, "state": {"running": {}}}],
            "containerStatuses": [{"name": "a", "ready": true, "state": {"running": {}}}]});
        assert_eq!(
            status_of(&started, &init),
            (json!("2/2"), json!("Running"), json!("0"))
        );
        let gated = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]});
        assert_eq!(status_of(&gated, &two).1, "SchedulingGated");
        let failed = json!({"phase": "Failed", "containerStatuses": [
            {"name": "a", "state": {"terminated": {"exitCode": 137}}}]});
        assert_eq!(status_of(&failed, &two).1, "ExitCode:137");
    }

    #[test]
    fn durations_are_short() {
        let cases = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (150, "2m30s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (28_800, "8h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (63_172_000, "2y1d"),
            (252_288_000, "8y"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(
                human_duration(Duration::from_secs(seconds)),
                expected,
                "{seconds}"
            );
        }
    }

    #[test]
    fn every_resource_has_a_cell_for_each_column() {
        let object = json!({"metadata": {"name": "x"}});
        for info in crate::api::resources::all() {
            let cells = cells::cells(info.resource, &object, UNIX_EPOCH);
            assert_eq!(
                cells.len(),
                columns::columns(info.resource).len(),
                "{}",
                info.plural
            );
        }
    }
}
