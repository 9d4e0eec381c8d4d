//! The recording of a real cluster, and the lifecycle of each of its pods as read from it by hand.

use std::time::Duration;

use kubevitals_model::PodPhase;
use kubevitals_transitions::{
    BlockerKind, ContainerRole, End, HumanDuration, Output, Phase, PodRecord,
};

use crate::support::{api, container, lifecycle, lifecycles, observed, recorded};

/// The milestones of a pod, by the API's clock.
#[derive(Debug, PartialEq, Eq, Default)]
struct Passed<'t> {
    created: &'t str,
    scheduled: &'t str,
    accepted: &'t str,
    sandbox: &'t str,
    initialized: &'t str,
    ready: &'t str,
    deletion: &'t str,
    stopped: &'t str,
    gone: &'t str,
}

fn outputs() -> Vec<Output> {
    let (pods, events) = recorded();
    lifecycles(pods.iter().chain(&events))
}

fn check_passed(record: &PodRecord, expected: &Passed<'_>) {
    let reached = &record.milestones;
    let texts = [
        Some(reached.created),
        reached.scheduled,
        reached.accepted,
        reached.sandbox,
        reached.initialized,
        reached.ready,
        reached.deletion,
        reached.stopped,
        reached.gone,
    ]
    .map(|moment| api(moment).unwrap_or_default());
    let [
        created,
        scheduled,
        accepted,
        sandbox,
        initialized,
        ready,
        deletion,
        stopped,
        gone,
    ] = texts.each_ref().map(String::as_str);
    let found = Passed {
        created,
        scheduled,
        accepted,
        sandbox,
        initialized,
        ready,
        deletion,
        stopped,
        gone,
    };
    assert_eq!(&found, expected, "{}", record.pod.summary.identity);
    assert_eq!(reached.containers_ready, reached.ready);
    assert_eq!((reached.gated, reached.ungated), (None, None));
    assert!(!record.is_skewed());
    assert!(record.resize.is_none() && record.disruption.is_none());
}

/// Name, role, running, started, ready, finished, restarts, exit code: by the API's clock.
type Ran<'t> = (
    &'t str,
    ContainerRole,
    &'t str,
    &'t str,
    &'t str,
    &'t str,
    i32,
    Option<i32>,
);

fn check_ran(record: &PodRecord, expected: &[Ran<'_>]) {
    let times: Vec<[String; 4]> = record
        .containers
        .iter()
        .map(|one| {
            [one.running, one.started, one.ready, one.finished]
                .map(|moment| api(moment).unwrap_or_default())
        })
        .collect();
    let found: Vec<Ran<'_>> = record
        .containers
        .iter()
        .zip(&times)
        .map(|(one, [running, started, ready, finished])| {
            let exit = one.last_exit.as_ref().map(|exit| exit.code);
            (
                &*one.name,
                one.role,
                running.as_str(),
                started.as_str(),
                ready.as_str(),
                finished.as_str(),
                one.restarts,
                exit,
            )
        })
        .collect();
    assert_eq!(found, expected, "{}", record.pod.summary.identity);
}

/// Phase, container and seconds of each segment.
fn critical_path(record: &PodRecord) -> Vec<(Phase, String, u64)> {
    let pieces = record.critical_path();
    let total: Duration = pieces
        .iter()
        .map(kubevitals_transitions::Segment::took)
        .sum();
    assert_eq!(
        Some(total),
        record.total(),
        "the pieces add up to the whole"
    );
    pieces
        .iter()
        .map(|piece| {
            let container = piece.container.as_deref().unwrap_or_default();
            (piece.phase, container.to_owned(), piece.took().as_secs())
        })
        .collect()
}

fn is_present(record: &PodRecord) {
    for container in &record.containers {
        let pull = &record.facts_of(container).unwrap().pull;
        assert!(
            pull.done.as_ref().unwrap().already_present,
            "{}",
            container.name
        );
        assert_eq!((pull.attempts(), pull.took()), (0, Some(Duration::ZERO)));
    }
}

#[test]
fn every_pod_is_emitted_once() {
    let outputs = outputs();
    let mut starts: Vec<_> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::Startup(record) => Some(record.pod.summary.identity.uid.clone()),
            _ => None,
        })
        .collect();
    let mut lifecycles: Vec<_> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::Lifecycle(record) => Some(record.pod.summary.identity.uid.clone()),
            _ => None,
        })
        .collect();
    starts.sort();
    lifecycles.sort();
    assert_eq!(starts.len(), 15);
    assert_eq!(starts, lifecycles);
    starts.dedup();
    assert_eq!(starts.len(), 15);
}

#[test]
fn jobs_that_finish_at_once_are_complete() {
    let outputs = outputs();
    for name in ["quick-97wrd", "quick-c75kb", "quick-x5mvg"] {
        let record = lifecycle(&outputs, name);
        check_passed(
            &record,
            &Passed {
                created: "20:12:10",
                scheduled: "20:12:10",
                accepted: "20:12:10",
                sandbox: "20:12:11",
                initialized: "20:12:10",
                ready: "20:12:12",
                deletion: "20:13:26",
                stopped: "20:12:12",
                gone: "20:13:26",
            },
        );
        let (ran, code) = ("20:12:12", Some(0));
        check_ran(
            &record,
            &[("j", ContainerRole::Main, ran, ran, ran, ran, 0, code)],
        );
        is_present(&record);
        assert_eq!(
            (record.phase(), record.end, record.reconstructed),
            (PodPhase::Succeeded, End::Deleted, false)
        );
        assert_eq!(
            critical_path(&record),
            [
                (Phase::Sandbox, String::new(), 1),
                (Phase::ContainerStart, "j".to_owned(), 1)
            ]
        );
    }
}

#[test]
fn a_deployment_with_an_init_container_and_a_sidecar() {
    let outputs = outputs();
    for name in [
        "web-fbb586dc9-x888m",
        "web-fbb586dc9-jng2b",
        "web-fbb586dc9-sjvjp",
    ] {
        let record = lifecycle(&outputs, name);
        // The recording ends while it is being deleted.
        check_passed(
            &record,
            &Passed {
                created: "20:12:10",
                scheduled: "20:12:10",
                accepted: "20:12:10",
                sandbox: "20:12:11",
                initialized: "20:12:14",
                ready: "20:12:19",
                deletion: "20:13:26",
                ..Passed::default()
            },
        );
        check_ran(
            &record,
            &[
                (
                    "fast-init",
                    ContainerRole::Init,
                    "20:12:12",
                    "20:12:12",
                    "20:12:12",
                    "20:12:12",
                    0,
                    Some(0),
                ),
                // The API has no time for its startup probe.
                (
                    "proxy",
                    ContainerRole::Sidecar,
                    "20:12:13",
                    "",
                    "",
                    "",
                    0,
                    None,
                ),
                (
                    "app",
                    ContainerRole::Main,
                    "20:12:14",
                    "20:12:14",
                    "20:12:19",
                    "",
                    0,
                    None,
                ),
            ],
        );
        let proxy = container(&record, "proxy");
        assert_eq!(observed(proxy.started).as_deref(), Some("20:12:13"));
        assert_eq!(observed(proxy.ready).as_deref(), Some("20:12:13"));
        is_present(&record);
        assert_eq!((record.phase(), record.end), (PodPhase::Running, End::Open));
        assert!(record.is_complete() && record.blocker().is_none());
        assert_eq!(
            critical_path(&record),
            [
                (Phase::Sandbox, String::new(), 1),
                (Phase::ContainerStart, "fast-init".to_owned(), 1),
                (Phase::ContainerStart, "proxy".to_owned(), 1),
                (Phase::ContainerStart, "app".to_owned(), 1),
                (Phase::Readiness, "app".to_owned(), 5),
            ]
        );
        assert_eq!(
            record.cause(),
            "container app ran for 5 s of 9 s before it was ready (failed 6 times): \
             cat: can't open '/tmp/ok': No such file or directory"
        );
    }
}

#[test]
fn a_stateful_set() {
    let outputs = outputs();
    for (name, before, after) in [
        ("db-0", "20:12:11", "20:12:12"),
        ("db-1", "20:12:12", "20:12:13"),
    ] {
        let record = lifecycle(&outputs, name);
        check_passed(
            &record,
            &Passed {
                created: before,
                scheduled: before,
                accepted: before,
                sandbox: after,
                initialized: before,
                ready: after,
                deletion: "20:13:26",
                stopped: "20:13:28",
                gone: "20:13:29",
            },
        );
        check_ran(
            &record,
            &[(
                "db",
                ContainerRole::Main,
                after,
                after,
                after,
                "20:13:28",
                0,
                Some(137),
            )],
        );
        is_present(&record);
        assert_eq!(
            (record.phase(), record.end),
            (PodPhase::Failed, End::Deleted)
        );
        assert_eq!(critical_path(&record), [(Phase::Sandbox, String::new(), 1)]);
    }
}

#[test]
fn a_crash_loop_keeps_its_first_start_and_counts_its_restarts() {
    let record = lifecycle(&outputs(), "crashy");
    check_passed(
        &record,
        &Passed {
            created: "20:12:10",
            scheduled: "20:12:10",
            accepted: "20:12:10",
            sandbox: "20:12:11",
            initialized: "20:12:10",
            ready: "20:12:12",
            deletion: "20:13:26",
            stopped: "20:13:28",
            gone: "20:13:28",
        },
    );
    let ran = "20:12:12";
    check_ran(
        &record,
        &[
            (
                "bad",
                ContainerRole::Main,
                ran,
                ran,
                ran,
                "20:12:58",
                3,
                Some(3),
            ),
            (
                "good",
                ContainerRole::Main,
                ran,
                ran,
                ran,
                "20:13:28",
                0,
                Some(137),
            ),
        ],
    );
    // From 13 to 14, from 15 to 29 and from 30 to 57.
    let bad = container(&record, "bad");
    assert_eq!((bad.down, bad.downs), (Duration::from_secs(1 + 14 + 27), 3));
    assert_eq!(HumanDuration(bad.down).to_string(), "42 s");
    assert!(record.is_complete());
}

#[test]
fn a_pod_that_never_became_ready_has_a_blocker() {
    let record = lifecycle(&outputs(), "never-ready");
    check_passed(
        &record,
        &Passed {
            created: "20:12:10",
            scheduled: "20:12:10",
            accepted: "20:12:10",
            sandbox: "20:12:11",
            initialized: "20:12:10",
            deletion: "20:13:26",
            stopped: "20:13:28",
            gone: "20:13:29",
            ..Passed::default()
        },
    );
    check_ran(
        &record,
        &[(
            "m",
            ContainerRole::Main,
            "20:12:12",
            "20:12:12",
            "",
            "20:13:28",
            0,
            Some(137),
        )],
    );
    let blocker = record.blocker().unwrap();
    assert_eq!(blocker.kind, BlockerKind::ReadinessProbe);
    assert_eq!(blocker.container.as_deref(), Some("m"));
    let facts = record.facts.of("m").unwrap();
    assert_eq!(facts.readiness_probe.times(), 23);
    assert_eq!(
        critical_path(&record),
        [
            (Phase::Sandbox, String::new(), 1),
            (Phase::ContainerStart, "m".to_owned(), 1),
            (Phase::Readiness, "m".to_owned(), 74),
        ]
    );
    assert_eq!(
        record.cause(),
        "never seen ready: container m is not ready, for 74 s of 76 s (failed 23 times)"
    );
}

#[test]
fn an_image_that_cannot_be_pulled() {
    let record = lifecycle(&outputs(), "no-image");
    check_passed(
        &record,
        &Passed {
            created: "20:12:10",
            scheduled: "20:12:11",
            accepted: "20:12:11",
            sandbox: "20:12:11",
            initialized: "20:12:11",
            deletion: "20:13:26",
            gone: "20:13:27",
            ..Passed::default()
        },
    );
    // It is said to have ended at its deletion, but it never began.
    check_ran(
        &record,
        &[("m", ContainerRole::Main, "", "", "", "", 0, None)],
    );
    assert_eq!(
        observed(record.milestones.stopped).as_deref(),
        Some("20:13:27")
    );
    let blocker = record.blocker().unwrap();
    assert_eq!(blocker.kind, BlockerKind::ImagePullFailed);
    assert_eq!(blocker.reason.as_deref(), Some("ImagePullBackOff"));
    let pull = &record.facts.of("m").unwrap().pull;
    assert_eq!(
        (
            pull.attempts(),
            pull.failed.times(),
            pull.backed_off.times()
        ),
        (3, 3, 2)
    );
    assert!(pull.done.is_none() && pull.took().is_none());
    assert_eq!(
        pull.started().map(crate::support::clock).as_deref(),
        Some("20:12:11")
    );
    assert_eq!(
        critical_path(&record),
        [
            (Phase::Scheduling, String::new(), 1),
            (Phase::ImagePullFailed, "m".to_owned(), 75),
        ]
    );
    let cause = record.cause();
    assert!(cause.starts_with(
        "never seen ready: the image of container m cannot be pulled (ImagePullBackOff), for 75 s of 76 s (failed 3 times): …"
    ), "{cause}");
    assert!(cause.ends_with("i/o timeout"), "{cause}");
}

#[test]
fn an_unschedulable_pod() {
    let record = lifecycle(&outputs(), "unschedulable");
    check_passed(
        &record,
        &Passed {
            created: "20:12:11",
            deletion: "20:13:26",
            gone: "20:13:26",
            ..Passed::default()
        },
    );
    let found = record.unschedulable.as_ref().unwrap();
    assert_eq!(api(Some(found.since)).as_deref(), Some("20:12:11"));
    assert!(
        found
            .message
            .as_deref()
            .unwrap()
            .starts_with("0/1 nodes are available")
    );
    assert_eq!(record.blocker().unwrap().kind, BlockerKind::Unschedulable);
    assert_eq!(
        critical_path(&record),
        [(Phase::Scheduling, String::new(), 75)]
    );
}

#[test]
fn pods_that_finished_before_the_recording_are_reconstructed() {
    let outputs = outputs();
    for name in [
        "web-fbb586dc9-2phdx",
        "web-fbb586dc9-gmf2c",
        "web-fbb586dc9-x5pkq",
    ] {
        let record = lifecycle(&outputs, name);
        assert!(record.reconstructed && !record.is_complete());
        // Its conditions no longer say when it was ready, nor when its sandbox was.
        check_passed(
            &record,
            &Passed {
                created: "20:10:12",
                scheduled: "20:10:12",
                accepted: "20:10:12",
                initialized: "20:10:16",
                deletion: "20:11:39",
                stopped: "20:12:11",
                gone: "20:12:13",
                ..Passed::default()
            },
        );
        check_ran(
            &record,
            &[
                (
                    "fast-init",
                    ContainerRole::Init,
                    "20:10:14",
                    "20:10:14",
                    "20:10:14",
                    "20:10:14",
                    0,
                    Some(0),
                ),
                (
                    "proxy",
                    ContainerRole::Sidecar,
                    "20:10:15",
                    "",
                    "",
                    "20:12:11",
                    0,
                    Some(137),
                ),
                (
                    "app",
                    ContainerRole::Main,
                    "20:10:16",
                    "20:10:16",
                    "",
                    "20:12:09",
                    0,
                    Some(137),
                ),
            ],
        );
        assert_eq!(record.blocker().unwrap().kind, BlockerKind::Unseen);
        let start = |name: &str, took| (Phase::ContainerStart, name.to_owned(), took);
        assert_eq!(
            critical_path(&record),
            [start("fast-init", 2), start("proxy", 1), start("app", 1)]
        );
        assert_eq!(
            (record.phase(), record.end),
            (PodPhase::Failed, End::Deleted)
        );
    }
}
