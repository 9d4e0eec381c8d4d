//! What a record says was in the way of a pod.

use std::sync::Arc;

use kubevitals_model::Pod;
use kubevitals_transitions::{Hindrance, HindranceKind, PodRecord};
use serde_json::{Value, json};

use crate::support::{Made, Watcher, ended, running, status, waiting};

#[test]
fn what_is_in_the_way_is_named_in_the_order_of_a_start() {
    let kind = |fields: Value, conditions: &[&str]| {
        let mut made = Made::new(json!({"nodeName": "n1", "containers": [
            {"name": "app", "image": "i", "startupProbe": {}, "readinessProbe": {}}]}));
        let mut watcher = Watcher::new();
        watcher.sees(1, &made.status(fields, conditions));
        watcher.ends().hindrance.clone().unwrap().kind
    };
    let with = |state: Value, started: bool| json!({"startTime": "2026-11-15T20:12:00Z", "containerStatuses": [status("app", state, false, started)]});
    assert_eq!(
        kind(json!({}), &["PodScheduled=True@0"]),
        HindranceKind::NotAccepted
    );
    assert_eq!(
        kind(
            with(waiting("ContainerCreating"), false),
            &["PodReadyToStartContainers=False@0"]
        ),
        HindranceKind::Sandbox
    );
    for (state, started, expected) in [
        (
            waiting("ContainerCreating"),
            false,
            HindranceKind::ContainerCreation,
        ),
        (
            waiting("CreateContainerConfigError"),
            false,
            HindranceKind::ContainerCreation,
        ),
        (
            waiting("ErrImageNeverPull"),
            false,
            HindranceKind::ImagePull,
        ),
        (waiting("CrashLoopBackOff"), false, HindranceKind::CrashLoop),
        (ended(1, 2, 1), false, HindranceKind::CrashLoop),
        (running(1), false, HindranceKind::StartupProbe),
        (running(1), true, HindranceKind::ReadinessProbe),
    ] {
        assert_eq!(
            kind(with(state, started), &["PodReadyToStartContainers=True@0"]),
            expected
        );
    }
}

#[test]
fn a_pod_that_is_refused_by_its_node_says_so() {
    let mut made =
        Made::new(json!({"nodeName": "n1", "containers": [{"name": "app", "image": "i"}]}));
    let mut watcher = Watcher::new();
    watcher.sees(0, &made.status(json!({}), &["PodScheduled=True@0"]));
    let refused = json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"});
    watcher.sees(1, &made.status(refused, &["PodScheduled=True@0"]));
    let record = watcher.ends();
    let hindrance = record.hindrance.as_ref().unwrap();
    assert_eq!(
        (hindrance.kind, hindrance.reason.as_deref()),
        (HindranceKind::Ended, Some("OutOfcpu"))
    );
    assert!(record.cause().contains("it ended first (OutOfcpu)"));
}

/// A pod whose only container has a probe of a kind.
fn probed(probe: &str) -> Made {
    let mut container = json!({"name": "app", "image": "i"});
    container[probe] = json!({});
    Made::new(json!({"nodeName": "n1", "containers": [container]}))
}

/// A state in which the container was restarted before.
fn again(made: &mut Made, restarts: u32, state: Value, last: Value) -> Arc<Pod> {
    let is_running = state.get("running").is_some();
    let mut status = status("app", state, false, is_running);
    status["restartCount"] = restarts.into();
    status["lastState"] = last;
    let fields = json!({"phase": "Running", "startTime": "2026-11-15T20:12:00Z", "containerStatuses": [status]});
    made.status(fields, &["PodReadyToStartContainers=True@0"])
}

fn hindrance(record: &PodRecord) -> &Hindrance {
    record.hindrance.as_ref().unwrap()
}

#[test]
fn a_crash_loop_that_was_deleted_while_its_container_ran_was_told_as_a_readiness_probe() {
    let mut made = probed("readinessProbe");
    let mut watcher = Watcher::new();
    watcher.sees(1, &again(&mut made, 0, running(1), json!({})));
    let first = watcher.tracker.records().next().unwrap();
    assert_eq!(hindrance(first).kind, HindranceKind::ReadinessProbe);
    let waits = again(&mut made, 1, waiting("CrashLoopBackOff"), ended(2, 3, 3));
    watcher.sees(3, &waits);
    watcher.sees(16, &again(&mut made, 2, running(16), ended(2, 3, 3)));
    made.deleting(16, 0);
    watcher.sees(16, &again(&mut made, 2, running(16), ended(2, 3, 3)));
    watcher.sees(17, &again(&mut made, 2, ended(16, 17, 3), json!({})));
    let record = watcher.ends();
    let found = hindrance(&record);
    assert_eq!(
        (found.kind, found.reason.as_deref()),
        (HindranceKind::CrashLoop, Some("Error"))
    );
    assert_eq!(
        record.cause(),
        "never seen ready: container app does not stay up (Error), for 15 s of 16 s"
    );
}

#[test]
fn what_failed_once_and_then_stayed_up_is_kept_by_its_probe() {
    let kind = |deletes: bool, second: u32| {
        let mut made = probed("readinessProbe");
        let mut watcher = Watcher::new();
        watcher.sees(5, &again(&mut made, 1, running(5), ended(2, 3, 3)));
        if deletes {
            made.deleting(second, 0);
        }
        let pod = again(&mut made, 1, running(5), ended(2, 3, 3));
        watcher.sees(second, &pod);
        hindrance(&watcher.ends()).kind
    };
    for deletes in [false, true] {
        assert_eq!(kind(deletes, 604), HindranceKind::CrashLoop);
        assert_eq!(kind(deletes, 605), HindranceKind::ReadinessProbe);
    }
}

#[test]
fn what_is_killed_for_its_startup_probe_is_no_crash_loop() {
    let kind = |end: Value| {
        let mut made = probed("startupProbe");
        let mut one = status("app", running(40), false, false);
        one["restartCount"] = 1.into();
        one["lastState"] = end;
        let fields = json!({"startTime": "2026-11-15T20:12:00Z", "containerStatuses": [one]});
        let mut watcher = Watcher::new();
        let pod = made.status(fields, &["PodReadyToStartContainers=True@0"]);
        watcher.sees(41, &pod);
        hindrance(&watcher.ends()).kind
    };
    assert_eq!(kind(ended(1, 39, 137)), HindranceKind::StartupProbe);
    assert_eq!(kind(ended(1, 39, 143)), HindranceKind::StartupProbe);
    assert_eq!(kind(ended(1, 2, 1)), HindranceKind::CrashLoop);
    let mut starved = ended(1, 2, 137);
    starved["terminated"]["reason"] = json!("OOMKilled");
    assert_eq!(kind(starved), HindranceKind::CrashLoop);
}

#[test]
fn an_init_container_that_failed_is_not_merely_running() {
    let kind = |last: Value| {
        let mut made = Made::new(json!({"nodeName": "n1",
            "initContainers": [{"name": "app", "image": "i"}],
            "containers": [{"name": "main", "image": "i"}]}));
        let mut one = status("app", running(30), false, false);
        one["restartCount"] = u32::from(last.get("terminated").is_some()).into();
        one["lastState"] = last;
        let fields = json!({"startTime": "2026-11-15T20:12:00Z", "initContainerStatuses": [one],
            "containerStatuses": [status("main", waiting("PodInitializing"), false, false)]});
        let mut watcher = Watcher::new();
        let pod = made.status(fields, &["PodReadyToStartContainers=True@0"]);
        watcher.sees(31, &pod);
        hindrance(&watcher.ends()).kind
    };
    assert_eq!(kind(json!({})), HindranceKind::Init);
    assert_eq!(kind(ended(2, 3, 1)), HindranceKind::InitFailed);
    // Another sandbox makes it run again, well as it ended.
    assert_eq!(kind(ended(2, 3, 0)), HindranceKind::Init);
}
