//! Lifecycles that the recording does not have.

use std::time::Duration;

use kubevitals_transitions::{Arrival, BlockerKind, End, Moment, Output, Phase, PodRecord};
use serde_json::json;

use crate::support::{
    Harness, PodBuilder, api, at, container, ended, observed, patient, running, status, waiting,
};

fn clock(second: u32) -> Option<String> {
    api(Some(Moment {
        api: Some(at(second)),
        observed: None,
    }))
}

fn phases(record: &PodRecord) -> Vec<(Phase, u64)> {
    let pieces = record.critical_path();
    pieces
        .iter()
        .map(|piece| (piece.phase, piece.took().as_secs()))
        .collect()
}

#[test]
fn gates_delay_scheduling_and_readiness() {
    let mut made = PodBuilder::new(json!({
        "containers": [{"name": "app", "image": "web:2"}],
        "schedulingGates": [{"name": "example.com/quota"}],
        "readinessGates": [{"conditionType": "example.com/lb"}],
    }));
    let mut watcher = Harness::new();
    watcher.observe(
        0,
        &made.status(json!({}), &["PodScheduled=False@0/SchedulingGated"]),
    );
    let waits = watcher.tracker.records().next().unwrap();
    let blocker = waits.blocker().unwrap();
    assert_eq!(blocker.kind, BlockerKind::Gated);
    assert_eq!(blocker.reason.as_deref(), Some("example.com/quota"));
    assert!(waits.unschedulable.is_none());

    made.spec("schedulingGates", json!([]));
    watcher.observe(
        4,
        &made.status(json!({}), &["PodScheduled=False@0/Unschedulable"]),
    );
    // The condition keeps the time of the creation.
    let waits = watcher.tracker.records().next().unwrap();
    let since = waits.unschedulable.as_ref().unwrap().since;
    assert_eq!(
        (since.api, since.observed),
        (None, at(4).checked_add(Duration::from_millis(500)))
    );
    made.spec("nodeName", json!("n1"));
    watcher.observe(6, &made.status(json!({}), &["PodScheduled=True@6"]));
    let started = json!({
        "phase": "Running", "startTime": "2026-11-15T20:12:06Z",
        "containerStatuses": [status("app", running(8), true, true)],
    });
    let conditions = [
        "PodScheduled=True@6",
        "PodReadyToStartContainers=True@7",
        "Initialized=True@6",
    ];
    let with = |more: &[&'static str]| [&conditions[..], more].concat();
    watcher.observe(
        8,
        &made.status(
            started,
            &with(&[
                "ContainersReady=True@8",
                "Ready=False@6/ReadinessGatesNotReady",
            ]),
        ),
    );
    let waits = watcher.tracker.records().next().unwrap();
    assert_eq!(waits.blocker().unwrap().kind, BlockerKind::ReadinessGate);
    watcher.observe(
        20,
        &made.status(
            json!({}),
            &with(&[
                "ContainersReady=True@8",
                "Ready=True@20",
                "example.com/lb=True@19",
            ]),
        ),
    );

    let record = watcher.finish();
    let reached = &record.milestones;
    assert_eq!((api(reached.gated), api(reached.ungated)), (clock(0), None));
    assert_eq!(observed(reached.ungated), clock(4));
    assert_eq!(api(record.gates[0]), clock(19));
    assert_eq!(
        record.unschedulable.as_ref().unwrap().message.as_deref(),
        Some("because of Unschedulable")
    );
    assert!(record.is_complete() && !record.reconstructed);
    assert_eq!(
        phases(&record),
        [
            (Phase::Gated, 4),
            (Phase::Scheduling, 1),
            (Phase::Sandbox, 1),
            (Phase::ContainerStart, 1),
            (Phase::ReadinessGates, 12)
        ]
    );
    assert_eq!(record.cause(), "readiness gates took 12 s of 20 s");
}

#[test]
fn a_pull_is_measured_from_the_kubelet_message() {
    let mut made = PodBuilder::new(
        json!({"nodeName": "n1", "containers": [{"name": "app", "image": "web:2"}]}),
    );
    let path = "spec.containers{app}";
    let mut watcher = Harness::new();
    // Events may come before the pod itself.
    watcher.event(&made.event("b", "Pulled", path,
        "Successfully pulled image \"web:2\" in 40.5s (41.25s including waiting). Image size: 1234567890 bytes.", (46, 46), 1));
    watcher.event(&made.event("a", "Pulling", path, "Pulling image \"web:2\"", (5, 5), 1));
    watcher.event(&made.event(
        "c",
        "Pulled",
        path,
        "Container image \"web:2\" already present on machine",
        (90, 90),
        1,
    ));
    watcher.observe(0, &made.status(json!({}), &[]));
    let statuses = json!({"phase": "Running", "startTime": "2026-11-15T20:12:01Z",
        "containerStatuses": [status("app", running(47), true, true)]});
    watcher.observe(
        52,
        &made.status(
            statuses,
            &[
                "PodScheduled=True@1",
                "Initialized=True@1",
                "PodReadyToStartContainers=True@3",
                "ContainersReady=True@47",
                "Ready=True@52",
            ],
        ),
    );
    let record = watcher.finish();
    let pull = &record.facts.of("app").unwrap().pull;
    assert_eq!(pull.took(), Some(Duration::from_millis(41_250)));
    assert_eq!(pull.done.as_ref().unwrap().bytes, Some(1_234_567_890));
    assert_eq!(
        phases(&record),
        [
            (Phase::Scheduling, 1),
            (Phase::Sandbox, 2),
            (Phase::ContainerStart, 2),
            (Phase::ImagePull, 41),
            (Phase::ContainerStart, 1),
            (Phase::Readiness, 5)
        ]
    );
    assert_eq!(
        record.cause(),
        "pulling image web:2 took 41 s of 52 s, 1.2 GB to node n1"
    );
}

#[test]
fn an_init_container_never_seen_running_has_its_times() {
    let mut made = PodBuilder::new(json!({
        "nodeName": "n1",
        "initContainers": [{"name": "one", "image": "i"}, {"name": "two", "image": "i"}],
        "containers": [{"name": "app", "image": "i"}],
    }));
    let mut watcher = Harness::new();
    watcher.observe(0, &made.status(json!({}), &[]));
    let statuses = json!({"startTime": "2026-11-15T20:12:00Z",
        "initContainerStatuses": [status("one", ended(1, 1, 0), true, false), status("two", running(2), false, true)],
        "containerStatuses": [status("app", waiting("PodInitializing"), false, false)]});
    watcher.observe(
        3,
        &made.status(statuses, &["PodScheduled=True@0", "Initialized=False@0"]),
    );
    let record = watcher.finish();
    let one = container(&record, "one");
    assert_eq!(
        [one.running, one.started, one.ready].map(api),
        [clock(1), clock(1), clock(1)]
    );
    let blocker = record.blocker().unwrap();
    assert_eq!(
        (blocker.kind, blocker.container.as_deref()),
        (BlockerKind::Init, Some("two"))
    );
}

#[test]
fn the_first_run_is_known_while_the_status_has_it() {
    let restarted = |count: u32, state: serde_json::Value, last: serde_json::Value| {
        let mut made = PodBuilder::new(
            json!({"nodeName": "n1", "containers": [{"name": "app", "image": "i"}]}),
        );
        let mut one = status("app", state, false, false);
        one["restartCount"] = count.into();
        one["lastState"] = last;
        let statuses = json!({"startTime": "2026-11-15T20:12:00Z", "containerStatuses": [one]});
        let mut watcher = Harness::new();
        watcher.observe(60, &made.status(statuses, &[]));
        watcher.finish()
    };
    let none = json!({});
    for (record, expected) in [
        (restarted(0, running(3), none.clone()), clock(3)),
        (restarted(0, ended(3, 4, 1), none), clock(3)),
        (
            restarted(0, waiting("CrashLoopBackOff"), ended(3, 4, 1)),
            clock(3),
        ),
        (restarted(1, running(9), ended(3, 4, 1)), clock(3)),
        (
            restarted(1, waiting("CrashLoopBackOff"), ended(9, 10, 1)),
            None,
        ),
        (restarted(2, running(30), ended(9, 10, 1)), None),
    ] {
        let app = container(&record, "app");
        assert!(app.running.is_some() && record.reconstructed);
        assert_eq!(api(app.running), expected);
    }
}

#[test]
fn resizes_and_disruptions_are_recorded() {
    let mut made =
        PodBuilder::new(json!({"nodeName": "n1", "containers": [{"name": "app", "image": "i"}]}));
    let mut watcher = Harness::new();
    let ready = ["Ready=True@3", "ContainersReady=True@3"];
    let with = |more: &[&'static str]| [&ready[..], more].concat();
    watcher.observe(3, &made.status(json!({}), &with(&[])));
    watcher.observe(
        10,
        &made.status(json!({}), &with(&["PodResizePending=True@10/Deferred"])),
    );
    watcher.observe(
        20,
        &made.status(json!({}), &with(&["PodResizeInProgress=True@20"])),
    );
    watcher.observe(21, &made.status(json!({}), &with(&[])));
    watcher.observe(
        30,
        &made.status(json!({}), &with(&["PodResizeInProgress=True@30"])),
    );
    watcher.observe(
        31,
        &made.status(
            json!({}),
            &with(&["DisruptionTarget=True@31/EvictionByEvictionAPI"]),
        ),
    );
    made.deleting(70, 30);
    watcher.observe(40, &made.status(json!({}), &ready));
    let record = watcher.finish();
    let resize = record.resize.as_ref().unwrap();
    assert_eq!((resize.count, api(Some(resize.began))), (2, clock(30)));
    assert_eq!(observed(resize.over), clock(31));
    let disruption = record.disruption.as_ref().unwrap();
    assert_eq!(disruption.reason.as_deref(), Some("EvictionByEvictionAPI"));
    assert_eq!(api(record.milestones.deletion), clock(40));
}

#[test]
fn skewed_clocks_are_reported_and_durations_stay_positive() {
    let mut made =
        PodBuilder::new(json!({"nodeName": "n1", "containers": [{"name": "app", "image": "i"}]}));
    let mut watcher = Harness::new();
    watcher.observe(10, &made.status(json!({}), &[]));
    let statuses = json!({"phase": "Running", "startTime": "2026-11-15T20:11:50Z",
        "containerStatuses": [status("app", json!({"running": {"startedAt": "2026-11-15T20:11:52Z"}}), true, true)]});
    // The node's clock is behind that of the API server.
    watcher.observe(20, &made.status(statuses, &["PodScheduled=True@9"]));
    let conditions = [
        "PodScheduled=True@9",
        "ContainersReady=True@5",
        "Ready=True@5",
    ];
    watcher.observe(21, &made.status(json!({}), &conditions));
    let record = watcher.finish();
    assert!(record.is_skewed());
    let reached = &record.milestones;
    // By the observer's clock it can be outputs.
    assert_eq!(
        reached.ready.unwrap().since(reached.scheduled.unwrap()),
        Some(Duration::from_secs(1))
    );
    let total: Duration = record
        .critical_path()
        .iter()
        .map(kubevitals_transitions::Segment::took)
        .sum();
    assert_eq!(Some(total), record.total());
}

#[test]
fn a_pod_that_is_missing_after_a_gap_has_vanished() {
    let mut made =
        PodBuilder::new(json!({"nodeName": "n1", "containers": [{"name": "app", "image": "i"}]}));
    let mut tracker = patient();
    let pod = made.status(json!({}), &["PodScheduled=True@0"]);
    let mut outputs = Vec::new();
    let mut out = |output| outputs.push(output);
    tracker.pod(&pod, Arrival::Live, Some(at(0)), &mut out);
    tracker.deleted(&pod, Arrival::Relisted, Some(at(50)), &mut out);
    tracker.finish(&mut out);
    let Some(Output::Lifecycle(record)) = outputs.last() else {
        panic!("{outputs:?}");
    };
    assert_eq!(record.end, End::Vanished);
    assert_eq!(
        (
            api(record.milestones.gone),
            observed(record.milestones.gone)
        ),
        (None, clock(50))
    );
}

#[test]
fn a_pod_recreated_under_its_name_has_a_record_of_its_own() {
    let spec = json!({"nodeName": "n1", "containers": [{"name": "app", "image": "i"}]});
    let (mut first, mut second) = (
        PodBuilder::new(spec.clone()).named(1),
        PodBuilder::new(spec).named(2),
    );
    second.created_at(30);
    let mut tracker = patient();
    let mut outputs = Vec::new();
    let mut out = |output| outputs.push(output);
    let pulling = |made: &PodBuilder, second| {
        let path = "spec.containers{app}";
        made.event(
            "e",
            "Pulling",
            path,
            "Pulling image \"i\"",
            (second, second),
            1,
        )
    };
    tracker.pod(
        &first.status(json!({}), &[]),
        Arrival::Live,
        Some(at(0)),
        &mut out,
    );
    tracker.event(&pulling(&first, 3), &mut out);
    first.deleting(20, 0);
    tracker.deleted(&first.pod(), Arrival::Live, Some(at(20)), &mut out);
    tracker.pod(
        &second.status(json!({}), &[]),
        Arrival::Live,
        Some(at(30)),
        &mut out,
    );
    // A late event of the first.
    tracker.event(&pulling(&first, 4), &mut out);
    tracker.finish(&mut out);
    let lifecycles: Vec<_> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::Lifecycle(record) => Some(record),
            _ => None,
        })
        .map(|record| {
            let pull = record.facts.of("app").map(|facts| facts.pull.attempts());
            (record.milestones.created.api, record.end, pull)
        })
        .collect();
    assert_eq!(
        lifecycles,
        [
            (Some(at(0)), End::Deleted, Some(1)),
            (Some(at(30)), End::Open, None)
        ]
    );
}

/// The API server keeps events for an hour.
#[test]
fn without_its_events_a_pull_is_part_of_the_start_of_its_container() {
    let mut made =
        PodBuilder::new(json!({"nodeName": "n1", "containers": [{"name": "app", "image": "i"}]}));
    let mut watcher = Harness::new();
    watcher.observe(0, &made.status(json!({}), &[]));
    let fields = json!({"phase": "Running", "startTime": at(1).rfc3339_seconds().to_string(),
        "containerStatuses": [status("app", running(43), true, true)]});
    let conditions = [
        "PodScheduled=True@1",
        "PodReadyToStartContainers=True@2",
        "ContainersReady=True@44",
        "Ready=True@44",
    ];
    watcher.observe(44, &made.status(fields, &conditions));
    let record = watcher.finish();
    let path = [
        (Phase::Scheduling, 1),
        (Phase::Sandbox, 1),
        (Phase::ContainerStart, 41),
        (Phase::Readiness, 1),
    ];
    assert_eq!(phases(&record), path);
    assert!(
        !record.cause().contains("image"),
        "{}: nothing is known of a pull",
        record.cause()
    );
}

#[test]
fn a_pod_deleted_while_an_init_container_runs_keeps_its_blocker() {
    let spec = json!({
        "nodeName": "n1",
        "initContainers": [{"name": "mig", "image": "i"}],
        "containers": [{"name": "app", "image": "i"}],
    });
    // With a grace period, and by force.
    for grace in [30, 0] {
        let mut made = PodBuilder::new(spec.clone());
        let mut tracker = patient();
        let mut outputs = Vec::new();
        let mut out = |output| outputs.push(output);
        let fields = json!({"startTime": at(1).rfc3339_seconds().to_string(),
            "initContainerStatuses": [status("mig", running(4), false, true)],
            "containerStatuses": [status("app", waiting("PodInitializing"), false, false)]});
        let conditions = ["PodScheduled=True@1", "PodReadyToStartContainers=True@2"];
        let state = made.status(fields, &conditions);
        tracker.pod(&state, Arrival::Live, Some(at(4)), &mut out);
        made.deleting(20 + grace, grace);
        tracker.pod(&made.pod(), Arrival::Live, Some(at(20)), &mut out);
        made.deleting(20, 0);
        tracker.deleted(&made.pod(), Arrival::Live, Some(at(21)), &mut out);
        tracker.finish(&mut out);
        let Some(Output::Lifecycle(record)) = outputs.last() else {
            panic!("{outputs:?}");
        };
        let blocker = record.blocker().unwrap();
        assert_eq!(blocker.kind, BlockerKind::Init, "{grace}");
        assert_eq!(record.end, End::Deleted);
        assert_eq!(record.total(), Some(Duration::from_secs(20)), "{grace}");
        assert!(
            record
                .cause()
                .starts_with("never seen ready: init container mig has not finished"),
            "{}",
            record.cause()
        );
    }
}

/// The controller that evicts pods of a lost node says so.
#[test]
fn a_pod_of_a_lost_node_names_the_node_as_the_cause() {
    let mut made =
        PodBuilder::new(json!({"nodeName": "n1", "containers": [{"name": "app", "image": "i"}]}));
    let mut watcher = Harness::new();
    let waits = status("app", waiting("ContainerCreating"), false, false);
    let fields =
        json!({"startTime": at(1).rfc3339_seconds().to_string(), "containerStatuses": [waits]});
    let conditions = ["PodScheduled=True@1", "PodReadyToStartContainers=False@1"];
    watcher.observe(3, &made.status(fields, &conditions));
    made.deleting(330, 30);
    let evicted = [
        &conditions[..],
        &["DisruptionTarget=True@300/DeletionByTaintManager"],
    ]
    .concat();
    watcher.observe(300, &made.status(json!({}), &evicted));
    let record = watcher.finish();
    assert_eq!(record.blocker().unwrap().kind, BlockerKind::Sandbox);
    assert!(
        record
            .cause()
            .contains("; it was evicted for a taint of its node (DeletionByTaintManager)"),
        "{}",
        record.cause()
    );
}
