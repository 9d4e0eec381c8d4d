//! Starts reconstructed from the last state of a pod.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Event, Pod};
use kubevitals_transitions::{Arrival, Output, PodRecord};
use serde_json::{Value, json};

use crate::support::{PodBuilder, at, ended, patient, running, stamp, status, waiting};

/// The record of a pod that is read once.
fn reconstruct(pod: &Arc<Pod>) -> PodRecord {
    let mut tracker = patient();
    let mut found = None;
    tracker.pod(pod, Arrival::Listed, None, &mut |_| {});
    tracker.finish(&mut |output| {
        if let Output::Lifecycle(record) = output {
            found = Some(record);
        }
    });
    let mut record = Arc::unwrap_or_clone(found.unwrap());
    record.correct_readiness();
    record
}

fn made(probe: Value) -> PodBuilder {
    let mut container = json!({"name": "app", "image": "web:2"});
    if !probe.is_null() {
        container["readinessProbe"] = probe;
    }
    PodBuilder::new(json!({"nodeName": "n1", "containers": [container]}))
}

fn restarted(times: i32, state: Value, last: Value) -> Value {
    let mut status = status("app", state, true, true);
    status["restartCount"] = times.into();
    status["lastState"] = last;
    json!({"phase": "Running", "startTime": "2026-11-15T20:12:01Z", "containerStatuses": [status]})
}

fn conditions(containers: u32, ready: u32) -> [String; 4] {
    [
        "PodScheduled=True@1".to_owned(),
        "PodReadyToStartContainers=True@3".to_owned(),
        format!("ContainersReady=True@{containers}"),
        format!("Ready=True@{ready}"),
    ]
}

fn total(made: &mut PodBuilder, fields: Value, conditions: &[String]) -> Option<u64> {
    let conditions: Vec<&str> = conditions.iter().map(String::as_str).collect();
    let record = reconstruct(&made.status(fields, &conditions));
    record
        .milestones
        .ready
        .and_then(|_| record.total())
        .map(|took| took.as_secs())
}

#[test]
fn a_start_without_later_changes_is_taken_from_the_state() {
    let fields = restarted(0, running(5), json!({}));
    let took = total(&mut made(json!({})), fields, &conditions(400, 400));
    assert_eq!(took, Some(400));
}

#[test]
fn a_readiness_flap_makes_the_start_at_most_as_long() {
    let flapped = |ready: u32| {
        let conditions = conditions(ready, ready);
        let conditions: Vec<&str> = conditions.iter().map(String::as_str).collect();
        let fields = restarted(0, running(5), json!({}));
        reconstruct(&made(json!({})).status(fields, &conditions))
    };
    let record = flapped(1_728_000);
    assert!(record.is_complete() && record.is_upper_bound());
    assert_eq!(record.total(), Some(Duration::from_hours(480)));
    assert_eq!(record.certain_total(), Some(Duration::from_secs(5)));
    assert!(record.cause().contains(" at most "), "{}", record.cause());
    let quick = flapped(40);
    assert!(!quick.is_upper_bound());
    assert_eq!(quick.certain_total(), Some(Duration::from_secs(40)));
}

#[test]
fn a_finished_job_without_probes_was_ready_when_it_ran() {
    let finished = |probe: Value| {
        let ended = status("app", ended(5, 900, 0), false, false);
        let fields =
            json!({"phase": "Succeeded", "startTime": stamp(1), "containerStatuses": [ended]});
        let conditions = ["PodScheduled=True@1", "Ready=False@901/PodCompleted"];
        reconstruct(&made(probe).status(fields, &conditions))
    };
    let record = finished(Value::Null);
    assert!(record.is_complete() && !record.is_unseen());
    assert_eq!(record.total(), Some(Duration::from_secs(5)));
    let probed = finished(json!({}));
    assert!(!probed.is_complete() && probed.is_unseen());
}

#[test]
fn an_unreachable_node_does_not_prolong_the_start() {
    let fields = restarted(0, running(5), json!({}));
    let took = total(&mut made(json!({})), fields, &conditions(9, 90_000));
    assert_eq!(took, Some(9));
    // A gate is what a pod may wait for when its containers are ready.
    let mut gated = made(json!({}));
    gated.spec("readinessGates", json!([{"conditionType": "lb"}]));
    let fields = restarted(0, running(5), json!({}));
    let mut waited = conditions(9, 90).to_vec();
    waited.push("lb=True@90".to_owned());
    assert_eq!(total(&mut gated, fields, &waited), Some(90));
}

#[test]
fn a_pod_without_probes_is_ready_when_it_runs() {
    let fields = restarted(0, running(5), json!({}));
    let late = conditions(90_000, 90_000);
    assert_eq!(
        total(&mut made(Value::Null), fields.clone(), &late),
        Some(5)
    );
    let slow = conditions(30, 30);
    assert_eq!(total(&mut made(Value::Null), fields, &slow), Some(30));
}

#[test]
fn a_restart_hides_the_first_readiness() {
    let fields = restarted(1, running(5_000), ended(5, 4_990, 1));
    let took = total(&mut made(json!({})), fields, &conditions(5_010, 5_010));
    assert_eq!(took, None);
    // Too quick for the kubelet to call it not ready.
    let fields = restarted(1, running(5_000), ended(5, 4_999, 1));
    let took = total(&mut made(json!({})), fields, &conditions(12, 12));
    assert_eq!(took, Some(12));
    let mut twice = made(json!({}));
    let fields = restarted(2, running(5_000), ended(4_000, 4_990, 1));
    let pod = twice.status(
        fields,
        &[
            "PodScheduled=True@1",
            "PodReadyToStartContainers=True@3",
            "Ready=True@5010",
        ],
    );
    let record = reconstruct(&pod);
    assert!(record.is_unseen() && !record.is_complete());
    assert_eq!(record.total(), Some(Duration::from_secs(3)));
    assert_eq!(
        record.cause(),
        "it became ready before it was observed, at an unknown time; \
         sandbox, network and volumes took 2 s of 3 s"
    );
    assert_eq!(record.readiness_lost(at(6_000)), None, "it is ready");
}

#[test]
fn lost_readiness_is_explained() {
    let mut made = made(json!({}));
    let mut fields = restarted(4, waiting("CrashLoopBackOff"), ended(4_000, 4_990, 137));
    fields["containerStatuses"][0]["ready"] = false.into();
    let pod = made.status(
        fields,
        &[
            "PodScheduled=True@1",
            "PodReadyToStartContainers=True@3",
            "Ready=False@4990",
        ],
    );
    let record = reconstruct(&pod);
    assert_eq!(
        record.readiness_lost(at(5_170)).as_deref(),
        Some(
            "was ready before, not ready for 3 min 0 s: container app keeps crashing \
             (Error, exit code 137)"
        )
    );
}

/// The mirror of a static pod is created when the API server is there, which may be long after the
/// pod runs.
#[test]
fn a_mirror_made_late_is_no_sign_of_wrong_clocks() {
    let mut made = made(Value::Null);
    made.created_at(500);
    let fields = restarted(0, running(5), json!({}));
    let conditions = conditions(9, 9);
    let conditions: Vec<&str> = conditions.iter().map(String::as_str).collect();
    assert!(reconstruct(&made.status(fields.clone(), &conditions)).is_skewed());
    made.annotate(
        "kubernetes.io/config.mirror",
        "0a1b2c3d4e5f60718293a4b5c6d7e8f9",
    );
    let record = reconstruct(&made.status(fields, &conditions));
    assert!(!record.is_skewed());
    assert_eq!(record.total(), None, "unknown is left out");
}

#[test]
fn failures_after_the_start_are_no_cause_of_it() {
    let mut made = made(json!({}));
    let fields = restarted(0, running(5), json!({}));
    let conditions = conditions(20, 20);
    let conditions: Vec<&str> = conditions.iter().map(String::as_str).collect();
    let pod = made.status(fields, &conditions);
    let failed = |second| {
        let message = "Readiness probe failed: HTTP probe failed with statuscode: 500";
        let path = "spec.containers{app}";
        made.event("e", "Unhealthy", path, message, (second, second), 1)
    };
    let later = PodRecord::reconstruct(&pod, &[failed(9_000)], at(9_001));
    assert!(!later.cause().contains("500"), "{}", later.cause());
    let before = PodRecord::reconstruct(&pod, &[failed(9)], at(9_001));
    assert!(before.cause().contains("500"), "{}", before.cause());
}

/// A pod that is read once: created at 0, sandbox at 3, all ready at `ready`.
fn read_once(spec: Value, fields: Value, ready: u32, events: &[Event]) -> PodRecord {
    let mut made = PodBuilder::new(spec);
    let mut fields = fields;
    fields["phase"] = "Running".into();
    fields["startTime"] = stamp(1).into();
    let conditions = conditions(ready, ready);
    let conditions: Vec<&str> = conditions.iter().map(String::as_str).collect();
    PodRecord::reconstruct(&made.status(fields, &conditions), events, at(90_000))
}

fn failed_probe(name: &str, container: &str, probe: &str, from: u32, to: u32) -> Event {
    let path = if container == "proxy" {
        format!("spec.initContainers{{{container}}}")
    } else {
        format!("spec.containers{{{container}}}")
    };
    let message = format!("{probe} probe failed: refused");
    let made = PodBuilder::new(json!({}));
    made.event(name, "Unhealthy", &path, &message, (from, to), to - from)
}

/// The segments from the first start of a container on, as `phase container seconds`.
fn after_start(record: &PodRecord) -> Vec<String> {
    let path = record.critical_path().into_iter();
    path.filter(|segment| segment.container.is_some())
        .map(|segment| {
            let container = segment.container.as_deref().unwrap();
            let seconds = segment.took().as_secs();
            format!("{} {container} {seconds}", segment.phase.as_str())
        })
        .collect()
}

/// It was reported as readiness without a container.
#[test]
fn a_startup_probe_that_has_passed_has_its_share() {
    let app = |probes: &[&str]| {
        let mut app = json!({"name": "app", "image": "web:2"});
        for probe in probes {
            app[*probe] = json!({});
        }
        json!({"nodeName": "n1", "containers": [app]})
    };
    let fields = || json!({"containerStatuses": [status("app", running(5), true, true)]});
    let startup = failed_probe("s", "app", "Startup", 6, 40);
    let only = read_once(
        app(&["startupProbe"]),
        fields(),
        45,
        std::slice::from_ref(&startup),
    );
    assert_eq!(
        after_start(&only),
        ["container_start app 2", "startup_probe app 40"]
    );
    assert_eq!(
        only.cause(),
        "container app took 40 s of 45 s to pass its startup probe (failed 34 times): refused"
    );
    // With a readiness probe behind it, the share is certain up to the last failure.
    let both = app(&["startupProbe", "readinessProbe"]);
    let record = read_once(both.clone(), fields(), 60, &[startup]);
    assert_eq!(
        after_start(&record),
        [
            "container_start app 2",
            "startup_probe app 35",
            "readiness app 20"
        ]
    );
    // Events have expired: the container is known, the share is not.
    let record = read_once(both, fields(), 60, &[]);
    assert_eq!(
        record.cause(),
        "container app ran for 55 s of 60 s before it was ready, its startup probe included"
    );
    let record = read_once(app(&["startupProbe"]), fields(), 600, &[]);
    assert_eq!(
        record.cause(),
        "container app took at most 595 s of 600 s to pass its startup probe"
            .replace("595 s", "9 min 55 s")
            .replace("600 s", "10 min 0 s")
    );
}

#[test]
fn of_two_containers_the_one_whose_startup_probe_failed_is_named() {
    let container = |name: &str| json!({"name": name, "image": "web:2", "startupProbe": {}});
    let spec = json!({"nodeName": "n1", "containers": [container("app"), container("agent")]});
    let fields = json!({"containerStatuses": [
        status("app", running(4), true, true),
        status("agent", running(5), true, true),
    ]});
    let events = [failed_probe("s", "agent", "Startup", 6, 40)];
    let record = read_once(spec, fields, 41, &events);
    assert_eq!(
        after_start(&record),
        [
            "container_start app 1",
            "container_start agent 1",
            "startup_probe agent 36"
        ]
    );
}

/// It was reported as the start of the container after it.
#[test]
fn a_sidecar_whose_startup_probe_was_slow_is_named() {
    let spec = json!({
        "nodeName": "n1",
        "initContainers": [{"name": "proxy", "image": "p:1", "restartPolicy": "Always", "startupProbe": {}}],
        "containers": [{"name": "app", "image": "web:2"}],
    });
    let fields = json!({
        "initContainerStatuses": [status("proxy", running(5), true, true)],
        "containerStatuses": [status("app", running(46), true, true)],
    });
    let events = [failed_probe("s", "proxy", "Startup", 6, 44)];
    let record = read_once(spec, fields, 47, &events);
    assert_eq!(
        after_start(&record),
        [
            "container_start proxy 2",
            "startup_probe proxy 39",
            "container_start app 2"
        ]
    );
    assert!(
        record.cause().contains("container proxy took 39 s"),
        "{}",
        record.cause()
    );
}
