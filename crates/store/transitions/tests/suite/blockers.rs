//! Blockers of records.

use std::sync::Arc;

use kubevitals_model::Pod;
use kubevitals_transitions::{Blocker, BlockerKind, PodRecord};
use serde_json::{Value, json};

use crate::support::{Harness, PodBuilder, ended, running, status, waiting};

#[test]
fn the_first_blocker_in_the_order_of_a_start_is_named() {
    let kind = |fields: Value, conditions: &[&str]| {
        let mut made = PodBuilder::new(json!({"nodeName": "n1", "containers": [
            {"name": "app", "image": "i", "startupProbe": {}, "readinessProbe": {}}]}));
        let mut watcher = Harness::new();
        watcher.observe(1, &made.status(fields, conditions));
        watcher.finish().blocker().unwrap().kind
    };
    let with = |state: Value, started: bool| json!({"startTime": "2026-11-15T20:12:00Z", "containerStatuses": [status("app", state, false, started)]});
    assert_eq!(
        kind(json!({}), &["PodScheduled=True@0"]),
        BlockerKind::NotAccepted
    );
    assert_eq!(
        kind(
            with(waiting("ContainerCreating"), false),
            &["PodReadyToStartContainers=False@0"]
        ),
        BlockerKind::Sandbox
    );
    for (state, started, expected) in [
        (
            waiting("ContainerCreating"),
            false,
            BlockerKind::ContainerCreation,
        ),
        (
            waiting("CreateContainerConfigError"),
            false,
            BlockerKind::ContainerCreation,
        ),
        (
            waiting("ErrImageNeverPull"),
            false,
            BlockerKind::ImagePullFailed,
        ),
        (waiting("CrashLoopBackOff"), false, BlockerKind::CrashLoop),
        (ended(1, 2, 1), false, BlockerKind::CrashLoop),
        (running(1), false, BlockerKind::StartupProbe),
        (running(1), true, BlockerKind::ReadinessProbe),
    ] {
        assert_eq!(
            kind(with(state, started), &["PodReadyToStartContainers=True@0"]),
            expected
        );
    }
}

#[test]
fn a_pod_rejected_by_its_node_has_the_reason() {
    let mut made =
        PodBuilder::new(json!({"nodeName": "n1", "containers": [{"name": "app", "image": "i"}]}));
    let mut watcher = Harness::new();
    watcher.observe(0, &made.status(json!({}), &["PodScheduled=True@0"]));
    let refused = json!({"phase": "Failed", "reason": "OutOfcpu", "message": "Node didn't have enough resource: cpu"});
    watcher.observe(1, &made.status(refused, &["PodScheduled=True@0"]));
    let record = watcher.finish();
    let blocker = record.blocker().unwrap();
    assert_eq!(
        (blocker.kind, blocker.reason.as_deref()),
        (BlockerKind::Failed, Some("OutOfcpu"))
    );
    assert!(record.cause().contains("the pod failed (OutOfcpu)"));
}

/// A pod whose only container has a probe of a kind.
fn probed(probe: &str) -> PodBuilder {
    let mut container = json!({"name": "app", "image": "i"});
    container[probe] = json!({});
    PodBuilder::new(json!({"nodeName": "n1", "containers": [container]}))
}

/// A state in which the container was restarted before.
fn again(made: &mut PodBuilder, restarts: u32, state: Value, last: Value) -> Arc<Pod> {
    let is_running = state.get("running").is_some();
    let mut status = status("app", state, false, is_running);
    status["restartCount"] = restarts.into();
    status["lastState"] = last;
    let fields = json!({"phase": "Running", "startTime": "2026-11-15T20:12:00Z", "containerStatuses": [status]});
    made.status(fields, &["PodReadyToStartContainers=True@0"])
}

fn blocker(record: &PodRecord) -> Blocker {
    record.blocker().unwrap()
}

#[test]
fn a_crash_loop_deleted_while_its_container_runs_stays_a_crash_loop() {
    let mut made = probed("readinessProbe");
    let mut watcher = Harness::new();
    watcher.observe(1, &again(&mut made, 0, running(1), json!({})));
    let first = watcher.tracker.records().next().unwrap();
    assert_eq!(blocker(first).kind, BlockerKind::ReadinessProbe);
    let waits = again(&mut made, 1, waiting("CrashLoopBackOff"), ended(2, 3, 3));
    watcher.observe(3, &waits);
    watcher.observe(16, &again(&mut made, 2, running(16), ended(2, 3, 3)));
    made.deleting(16, 0);
    watcher.observe(16, &again(&mut made, 2, running(16), ended(2, 3, 3)));
    watcher.observe(17, &again(&mut made, 2, ended(16, 17, 3), json!({})));
    let record = watcher.finish();
    let found = blocker(&record);
    assert_eq!(
        (found.kind, found.reason.as_deref()),
        (BlockerKind::CrashLoop, Some("Error"))
    );
    assert_eq!(
        record.cause(),
        "never seen ready: container app keeps crashing (Error, exit code 3), for 15 s of 16 s"
    );
}

#[test]
fn a_container_that_recovered_is_blocked_by_its_probe() {
    let kind = |deletes: bool, second: u32| {
        let mut made = probed("readinessProbe");
        let mut watcher = Harness::new();
        watcher.observe(5, &again(&mut made, 1, running(5), ended(2, 3, 3)));
        if deletes {
            made.deleting(second, 0);
        }
        let pod = again(&mut made, 1, running(5), ended(2, 3, 3));
        watcher.observe(second, &pod);
        blocker(&watcher.finish()).kind
    };
    for deletes in [false, true] {
        assert_eq!(kind(deletes, 604), BlockerKind::CrashLoop);
        assert_eq!(kind(deletes, 605), BlockerKind::ReadinessProbe);
    }
}

#[test]
fn a_container_killed_for_its_startup_probe_is_not_in_a_crash_loop() {
    let kind = |end: Value| {
        let mut made = probed("startupProbe");
        let mut one = status("app", running(40), false, false);
        one["restartCount"] = 1.into();
        one["lastState"] = end;
        let fields = json!({"startTime": "2026-11-15T20:12:00Z", "containerStatuses": [one]});
        let mut watcher = Harness::new();
        let pod = made.status(fields, &["PodReadyToStartContainers=True@0"]);
        watcher.observe(41, &pod);
        blocker(&watcher.finish()).kind
    };
    assert_eq!(kind(ended(1, 39, 137)), BlockerKind::StartupProbe);
    assert_eq!(kind(ended(1, 39, 143)), BlockerKind::StartupProbe);
    assert_eq!(kind(ended(1, 2, 1)), BlockerKind::CrashLoop);
    let mut starved = ended(1, 2, 137);
    starved["terminated"]["reason"] = json!("OOMKilled");
    assert_eq!(kind(starved), BlockerKind::CrashLoop);
}

#[test]
fn a_failed_init_container_that_runs_again_stays_failed() {
    let kind = |last: Value| {
        let mut made = PodBuilder::new(json!({"nodeName": "n1",
            "initContainers": [{"name": "app", "image": "i"}],
            "containers": [{"name": "main", "image": "i"}]}));
        let mut one = status("app", running(30), false, false);
        one["restartCount"] = u32::from(last.get("terminated").is_some()).into();
        one["lastState"] = last;
        let fields = json!({"startTime": "2026-11-15T20:12:00Z", "initContainerStatuses": [one],
            "containerStatuses": [status("main", waiting("PodInitializing"), false, false)]});
        let mut watcher = Harness::new();
        let pod = made.status(fields, &["PodReadyToStartContainers=True@0"]);
        watcher.observe(31, &pod);
        blocker(&watcher.finish()).kind
    };
    assert_eq!(kind(json!({})), BlockerKind::Init);
    assert_eq!(kind(ended(2, 3, 1)), BlockerKind::InitFailed);
    // Another sandbox makes it run again, well as it ended.
    assert_eq!(kind(ended(2, 3, 0)), BlockerKind::Init);
}
