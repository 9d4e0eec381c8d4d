//! New nodes, volumes, network and sandbox are told apart by events.

use std::sync::Arc;

use kubevitals_transitions::{BlockerKind, Phase, PodRecord};
use serde_json::{Value, json};

use crate::support::{Harness, PodBuilder, at, running, status, waiting};

const SCALE_UP: &str = "pod triggered scale-up: [{pool-b 1->2 (max: 10)}]";
const MOUNT: &str = "MountVolume.SetUp failed for volume \"config\" : configmap \"web\" not found";
const ATTACHED: &str = "AttachVolume.Attach succeeded for volume \"pvc-1\"";
const NETWORK: &str = "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to \
    setup network for sandbox \"1a\": plugin type=\"calico\" failed (add): no addresses left";
const NO_IMAGE: &str = "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to \
    get sandbox image \"registry.k8s.io/pause:3.10\": network is unreachable";

/// An event: its reason, its message, its first and last second, its count.
type Written<'w> = (&'w str, &'w str, (u32, u32), u32);

fn web() -> PodBuilder {
    PodBuilder::new(json!({"nodeName": "n1", "containers": [{"name": "app", "image": "web:2"}]}))
}

fn learn(watcher: &mut Harness, made: &PodBuilder, events: &[Written<'_>]) {
    for (number, (reason, message, seconds, count)) in events.iter().enumerate() {
        let name = format!("event-{number}");
        watcher.event(&made.event(&name, reason, "", message, *seconds, *count));
    }
}

/// A pod that was scheduled at one second, had its sandbox at another, and was ready two seconds
/// later.
fn ready(scheduled: u32, sandbox: u32, events: &[Written<'_>]) -> Arc<PodRecord> {
    let mut made = web();
    let mut watcher = Harness::new();
    watcher.observe(0, &made.status(json!({}), &[]));
    learn(&mut watcher, &made, events);
    let fields = json!({"phase": "Running", "startTime": at(scheduled).rfc3339_seconds().to_string(),
        "containerStatuses": [status("app", running(sandbox + 1), true, true)]});
    let conditions = [
        format!("PodScheduled=True@{scheduled}"),
        format!("PodReadyToStartContainers=True@{sandbox}"),
        format!("ContainersReady=True@{}", sandbox + 2),
        format!("Ready=True@{}", sandbox + 2),
    ];
    let conditions: Vec<&str> = conditions.iter().map(String::as_str).collect();
    watcher.observe(sandbox + 2, &made.status(fields, &conditions));
    watcher.finish()
}

/// A pod that has a node and no sandbox after 40 seconds.
fn preparing(statuses: &Value, conditions: &[&str], events: &[Written<'_>]) -> Arc<PodRecord> {
    let mut made = web();
    let mut watcher = Harness::new();
    watcher.observe(0, &made.status(json!({}), &[]));
    learn(&mut watcher, &made, events);
    let fields = json!({"phase": "Pending", "startTime": at(1).rfc3339_seconds().to_string(),
        "containerStatuses": statuses});
    watcher.observe(40, &made.status(fields, conditions));
    watcher.finish()
}

fn unscheduled(events: &[Written<'_>]) -> Arc<PodRecord> {
    let mut made = PodBuilder::new(json!({"containers": [{"name": "app", "image": "web:2"}]}));
    let mut watcher = Harness::new();
    learn(&mut watcher, &made, events);
    let state = made.status(json!({}), &["PodScheduled=False@0/Unschedulable"]);
    watcher.observe(0, &state);
    let state = made.status(json!({}), &["PodScheduled=False@0/Unschedulable"]);
    watcher.observe(60, &state);
    watcher.finish()
}

fn phases(record: &PodRecord) -> Vec<(Phase, u64)> {
    let segments = record.critical_path();
    let phases: Vec<_> = segments
        .iter()
        .map(|segment| (segment.phase, segment.took().as_secs()))
        .collect();
    let sum: u64 = phases.iter().map(|(_, took)| took).sum();
    assert_eq!(sum, record.total().unwrap().as_secs(), "{phases:?}");
    phases
}

#[test]
fn a_wait_for_a_new_node_is_not_a_wait_for_room() {
    let record = ready(80, 82, &[("TriggeredScaleUp", SCALE_UP, (10, 10), 1)]);
    assert_eq!(
        phases(&record)[..2],
        [(Phase::Scheduling, 10), (Phase::Provisioning, 70)]
    );
    assert_eq!(
        record.cause(),
        format!("waited for a new node for 70 s of 84 s: {SCALE_UP}")
    );
    let nominated = "Pod should schedule on: nodeclaim/default-tn8fg";
    let record = ready(80, 82, &[("Nominated", nominated, (3, 3), 1)]);
    assert_eq!(phases(&record)[1], (Phase::Provisioning, 77));
    assert!(record.cause().ends_with(nominated), "{}", record.cause());
}

#[test]
fn a_node_younger_than_the_pod_was_waited_for() {
    let with_node = |second: u32, events: &[Written<'_>]| {
        let mut record = Arc::unwrap_or_clone(ready(80, 82, events));
        record.node_created = Some(at(second));
        record
    };
    let record = with_node(62, &[]);
    assert_eq!(phases(&record)[0], (Phase::Provisioning, 80));
    assert_eq!(
        record.cause(),
        "waited for a new node for 80 s of 84 s, n1 joined after 62 s"
    );
    // Room on a node that was there before.
    let mut older = with_node(62, &[("TriggeredScaleUp", SCALE_UP, (10, 10), 1)]);
    older.node_created = older
        .milestones
        .created
        .api
        .and_then(|created| created.checked_sub(std::time::Duration::from_hours(1)));
    assert_eq!(phases(&older)[0], (Phase::Scheduling, 80));
    // A Node object that was created again later.
    assert_eq!(phases(&with_node(81, &[]))[0], (Phase::Scheduling, 80));
}

#[test]
fn a_pod_without_a_node_waits_for_the_one_that_is_added() {
    let waits = unscheduled(&[
        (
            "NotTriggerScaleUp",
            "pod didn't trigger scale-up: 1 in backoff",
            (5, 5),
            1,
        ),
        ("TriggeredScaleUp", SCALE_UP, (10, 10), 1),
    ]);
    let blocker = waits.blocker().unwrap();
    assert_eq!(blocker.kind, BlockerKind::Provisioning);
    assert_eq!(
        phases(&waits),
        [(Phase::Scheduling, 10), (Phase::Provisioning, 50)]
    );
    assert_eq!(
        waits.cause(),
        format!("not ready yet: a new node is being added, for 50 s of 60 s: {SCALE_UP}")
    );
}

#[test]
fn the_reason_why_no_node_is_added_is_named() {
    let incompatible = "Failed to schedule pod, incompatible requirements, key zone";
    for (reason, message, expected) in [
        (
            "NotTriggerScaleUp",
            "pod didn't trigger scale-up: 2 max node group size reached",
            "; no node is added: 2 max node group size reached",
        ),
        (
            "FailedScheduling",
            incompatible,
            "; no node is added: incompatible requirements, key zone",
        ),
        ("NotTriggerScaleUp", "pod didn't trigger scale-up:", ""),
        // The scheduler's own.
        (
            "FailedScheduling",
            "0/3 nodes are available: 3 Insufficient cpu.",
            "",
        ),
    ] {
        let record = unscheduled(&[(reason, message, (20, 30), 4)]);
        assert_eq!(record.blocker().unwrap().kind, BlockerKind::Unschedulable);
        assert_eq!(phases(&record), [(Phase::Scheduling, 60)]);
        assert_eq!(
            record.cause(),
            format!("not ready yet: no node fits, for 60 s: because of Unschedulable{expected}")
        );
    }
}

#[test]
fn volumes_are_told_apart_from_network_and_sandbox() {
    let attached = ready(1, 31, &[("SuccessfulAttachVolume", ATTACHED, (24, 24), 1)]);
    assert_eq!(
        phases(&attached)[..3],
        [
            (Phase::Scheduling, 1),
            (Phase::Volumes, 23),
            (Phase::Sandbox, 7)
        ]
    );
    assert_eq!(attached.cause(), "attaching volumes took 23 s of 33 s");
    // The kubelet retries until volumes are mounted, with longer and longer pauses.
    let failed = ready(1, 31, &[("FailedMount", MOUNT, (2, 18), 6)]);
    assert_eq!(phases(&failed)[1], (Phase::Volumes, 30));
    assert_eq!(
        failed.cause(),
        format!("volumes took 30 s of 33 s (failed 6 times): {MOUNT}")
    );
    let unknown = ready(1, 31, &[]);
    assert_eq!(phases(&unknown)[1], (Phase::Sandbox, 30));
    assert_eq!(
        unknown.cause(),
        "sandbox, network and volumes took 30 s of 33 s"
    );
}

#[test]
fn network_is_told_apart_from_the_sandbox() {
    let network = ready(1, 31, &[("FailedCreatePodSandBox", NETWORK, (3, 20), 5)]);
    assert_eq!(
        phases(&network)[1..3],
        [(Phase::Sandbox, 2), (Phase::Network, 28)]
    );
    assert!(
        network
            .cause()
            .starts_with("setting up the network took 28 s of 33 s (failed 5 times): Failed"),
        "{}",
        network.cause()
    );
    let image = ready(1, 31, &[("FailedCreatePodSandBox", NO_IMAGE, (3, 20), 5)]);
    assert_eq!(phases(&image)[1], (Phase::Sandbox, 30));
    assert!(
        image
            .cause()
            .starts_with("creating the sandbox took 30 s of 33 s (failed 5 times)"),
        "{}",
        image.cause()
    );
    let message = "network is not ready: container runtime network not ready";
    let node = ready(
        1,
        31,
        &[
            ("NetworkNotReady", message, (2, 20), 9),
            ("FailedMount", MOUNT, (21, 25), 3),
            ("FailedCreatePodSandBox", NETWORK, (28, 29), 2),
        ],
    );
    assert_eq!(
        phases(&node)[1..4],
        [
            (Phase::Network, 19),
            (Phase::Volumes, 8),
            (Phase::Network, 3)
        ]
    );
}

#[test]
fn what_fails_now_is_the_blocker() {
    let creating = || json!([status("app", waiting("ContainerCreating"), false, false)]);
    let conditions = ["PodScheduled=True@1", "PodReadyToStartContainers=False@1"];
    for (events, kind, cause) in [
        (
            &[("FailedMount", MOUNT, (2, 18), 6)][..],
            BlockerKind::Volumes,
            "not ready yet: volumes cannot be mounted, for 39 s of 40 s (failed 6 times)",
        ),
        (
            &[
                ("FailedMount", MOUNT, (2, 3), 2),
                ("FailedCreatePodSandBox", NETWORK, (5, 30), 7),
            ],
            BlockerKind::Network,
            "not ready yet: the network cannot be set up, for 35 s of 40 s (failed 7 times)",
        ),
        (
            &[("FailedCreatePodSandBox", NO_IMAGE, (5, 30), 7)],
            BlockerKind::Sandbox,
            "not ready yet: the sandbox cannot be created, for 39 s of 40 s (failed 7 times)",
        ),
        (
            &[],
            BlockerKind::Sandbox,
            "not ready yet: sandbox, network or volumes are not ready, for 39 s of 40 s",
        ),
    ] {
        // Kubelets before 1.29 have no condition for the sandbox.
        for conditions in [&conditions[..], &conditions[..1]] {
            let record = preparing(&creating(), conditions, events);
            if conditions.len() == 1 && events.is_empty() {
                let kind = record.blocker().unwrap().kind;
                assert_eq!(kind, BlockerKind::ContainerCreation);
                continue;
            }
            assert_eq!(record.blocker().unwrap().kind, kind, "{events:?}");
            assert!(record.cause().starts_with(cause), "{}", record.cause());
            phases(&record);
        }
    }
}

/// A mount of a running pod fails when a volume is refreshed.
#[test]
fn failures_after_the_start_are_no_part_of_it() {
    let record = ready(1, 3, &[("FailedMount", MOUNT, (900, 1_200), 20)]);
    assert_eq!(phases(&record)[1], (Phase::Sandbox, 2));
}
