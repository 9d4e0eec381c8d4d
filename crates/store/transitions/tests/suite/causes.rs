//! Causes of slow starts: the sentence names what really took the time.

use std::sync::Arc;

use kubevitals_transitions::{BlockerKind, Phase, PodRecord};
use serde_json::{Value, json};

use crate::support::{Harness, PodBuilder, ended, running, status, waiting};

const START: &str = "2026-11-15T20:12:00Z";

fn phases(record: &PodRecord) -> Vec<(Phase, Option<&str>, u64)> {
    let segments = record.critical_path();
    segments
        .into_iter()
        .map(|segment| {
            let container = segment
                .container
                .and_then(|name| record.containers.iter().find(|one| one.name == name))
                .map(|container| &*container.name);
            (
                segment.phase,
                container,
                segment.to.since(segment.from).unwrap().as_secs(),
            )
        })
        .collect()
}

fn pod(containers: &[&str]) -> PodBuilder {
    let containers: Vec<Value> = containers
        .iter()
        .map(|name| json!({"name": name, "image": format!("{name}:2")}))
        .collect();
    PodBuilder::new(json!({"nodeName": "n1", "containers": containers}))
}

fn path(container: &str) -> String {
    format!("spec.containers{{{container}}}")
}

fn pulled(watcher: &mut Harness, made: &PodBuilder, container: &str, from: u32, to: u32) {
    let path = path(container);
    let took = to - from;
    let message = format!(
        "Successfully pulled image \"{container}:2\" in {took}s ({took}s including waiting). Image size: 1200000000 bytes."
    );
    let pulling = format!("Pulling image \"{container}:2\"");
    watcher.event(&made.event(
        &format!("{container}.pulling"),
        "Pulling",
        &path,
        &pulling,
        (from, from),
        1,
    ));
    watcher.event(&made.event(
        &format!("{container}.pulled"),
        "Pulled",
        &path,
        &message,
        (to, to),
        1,
    ));
}

/// A container that was restarted: its state, and how it last ended.
fn restarted(name: &str, restarts: u32, state: Value, last: Value, ready: bool) -> Value {
    let is_running = state.get("running").is_some();
    let mut status = status(name, state, ready, is_running);
    status["restartCount"] = restarts.into();
    status["lastState"] = last;
    status
}

fn started(statuses: &[Value]) -> Value {
    json!({"phase": "Running", "startTime": START, "containerStatuses": statuses})
}

/// Kubelets up to 1.35 set `PodReadyToStartContainers` after the pull, so that the whole pull
/// counted as sandbox, network and volumes.
#[test]
fn a_pull_counts_as_a_pull_where_the_sandbox_condition_comes_after_it() {
    let mut made = pod(&["web"]);
    let mut watcher = Harness::new();
    watcher.observe(0, &made.status(json!({}), &[]));
    pulled(&mut watcher, &made, "web", 3, 44);
    let statuses = started(&[status("web", running(45), true, true)]);
    let conditions = [
        "PodScheduled=True@1",
        "Initialized=True@1",
        "PodReadyToStartContainers=True@46",
        "ContainersReady=True@47",
        "Ready=True@47",
    ];
    watcher.observe(47, &made.status(statuses, &conditions));
    let record = watcher.finish();
    assert_eq!(
        phases(&record),
        [
            (Phase::Scheduling, None, 1),
            (Phase::Sandbox, None, 2),
            (Phase::ImagePull, Some("web"), 41),
            (Phase::ContainerStart, Some("web"), 1),
            (Phase::Readiness, None, 2),
        ]
    );
    assert_eq!(
        record.cause(),
        "pulling image web:2 took 41 s of 47 s, 1.2 GB to node n1"
    );
}

/// While a kubelet pulls, it reports `ContainerCreating`: only its event says what it does.
#[test]
fn a_pull_in_progress_is_the_blocker() {
    // The condition is true before the pull since 1.36, and not before the pull ended up to 1.35.
    for sandbox in [
        "PodReadyToStartContainers=True@3",
        "PodReadyToStartContainers=False@1",
    ] {
        let mut made = pod(&["web"]);
        let mut watcher = Harness::new();
        watcher.observe(0, &made.status(json!({}), &[]));
        let pulling = made.event("a", "Pulling", &path("web"), "Pulling image", (3, 3), 1);
        watcher.event(&pulling);
        let mut fields = started(&[status("web", waiting("ContainerCreating"), false, false)]);
        fields["phase"] = json!("Pending");
        let conditions = ["PodScheduled=True@1", sandbox];
        watcher.observe(3, &made.status(fields, &conditions));
        watcher.observe(600, &made.status(json!({}), &conditions));
        let record = watcher.finish();
        let blocker = record.blocker().unwrap();
        assert_eq!(
            (blocker.kind, blocker.container.as_deref()),
            (BlockerKind::ImagePull, Some("web"))
        );
        assert_eq!(
            phases(&record),
            [
                (Phase::Scheduling, None, 1),
                (Phase::Sandbox, None, 2),
                (Phase::ImagePull, Some("web"), 597),
            ]
        );
        assert_eq!(
            record.cause(),
            "not ready yet: image web:2 of container web is being pulled, for 9 min 57 s of 10 min 0 s"
        );
    }
}

/// Only the last container was on the path, so that the pull of the first counted as the start of
/// the last.
#[test]
fn containers_start_one_after_another() {
    let mut made = pod(&["app", "agent"]);
    let mut watcher = Harness::new();
    watcher.observe(0, &made.status(json!({}), &[]));
    pulled(&mut watcher, &made, "app", 2, 61);
    let statuses = started(&[
        status("app", running(61), true, true),
        status("agent", running(62), true, true),
    ]);
    let conditions = [
        "PodScheduled=True@1",
        "Initialized=True@1",
        "PodReadyToStartContainers=True@2",
        "ContainersReady=True@63",
        "Ready=True@63",
    ];
    watcher.observe(63, &made.status(statuses, &conditions));
    let record = watcher.finish();
    assert_eq!(
        phases(&record),
        [
            (Phase::Scheduling, None, 1),
            (Phase::Sandbox, None, 1),
            (Phase::ImagePull, Some("app"), 59),
            (Phase::ContainerStart, Some("agent"), 1),
            (Phase::Readiness, None, 1),
        ]
    );
    assert!(
        record
            .cause()
            .starts_with("pulling image app:2 took 59 s of 63 s")
    );
}

/// Failed attempts and back-offs counted as one long pull.
#[test]
fn failed_pulls_are_separate_from_the_pull_that_succeeds() {
    let mut made = pod(&["web"]);
    let mut watcher = Harness::new();
    watcher.observe(0, &made.status(json!({}), &[]));
    let path = path("web");
    watcher.event(&made.event(
        "a",
        "Pulling",
        &path,
        "Pulling image \"web:2\"",
        (3, 101),
        5,
    ));
    let refused = "Failed to pull image \"web:2\": 429 Too Many Requests";
    watcher.event(&made.event("b", "Failed", &path, refused, (4, 60), 4));
    watcher.event(&made.event(
        "c",
        "BackOff",
        &path,
        "Back-off pulling image \"web:2\"",
        (5, 90),
        6,
    ));
    let done = "Successfully pulled image \"web:2\" in 9s (9s including waiting). Image size: 1200000000 bytes.";
    watcher.event(&made.event("d", "Pulled", &path, done, (110, 110), 1));
    let statuses = started(&[status("web", running(111), true, true)]);
    let conditions = [
        "PodScheduled=True@1",
        "Initialized=True@1",
        "PodReadyToStartContainers=True@3",
        "ContainersReady=True@111",
        "Ready=True@111",
    ];
    watcher.observe(111, &made.status(statuses, &conditions));
    let record = watcher.finish();
    assert_eq!(
        phases(&record),
        [
            (Phase::Scheduling, None, 1),
            (Phase::Sandbox, None, 2),
            (Phase::ImagePullFailed, Some("web"), 98),
            (Phase::ImagePull, Some("web"), 9),
            (Phase::ContainerStart, Some("web"), 1),
        ]
    );
    assert_eq!(
        record.cause(),
        "image web:2 could not be pulled for 98 s of 111 s (failed 4 times): Failed to pull image \"web:2\": 429 Too Many Requests"
    );
}

/// A runtime names the image at every step and the reason last, where the quote was cut.
#[test]
fn a_long_pull_failure_is_quoted_from_its_end() {
    let mut made = pod(&["web"]);
    let mut watcher = Harness::new();
    let reference = "registry.example:5000/team/shop/web:2";
    let message = format!(
        "Failed to pull image \"{reference}\": failed to pull and unpack image \"{reference}\": \
         failed to resolve reference \"{reference}\": unexpected status from HEAD request to \
         https://registry.example:5000/v2/team/shop/web/manifests/2: 429 Too Many Requests"
    );
    watcher.event(&made.event("a", "Failed", &path("web"), &message, (4, 4), 1));
    let mut fields = started(&[status("web", waiting("ErrImagePull"), false, false)]);
    fields["phase"] = json!("Pending");
    watcher.observe(9, &made.status(fields, &["PodScheduled=True@1"]));
    let cause = watcher.finish().cause();
    assert!(cause.contains("(failed once): …"), "{cause}");
    assert!(
        cause.ends_with("manifests/2: 429 Too Many Requests"),
        "{cause}"
    );
}

/// Crashes before the first readiness counted as readiness.
#[test]
fn crashes_before_the_first_readiness_are_the_cause() {
    for probe in [false, true] {
        let mut made = pod(&["app"]);
        if probe {
            made.spec(
                "containers",
                json!([{"name": "app", "image": "app:2", "readinessProbe": {}}]),
            );
        }
        let mut watcher = Harness::new();
        watcher.observe(0, &made.status(json!({}), &[]));
        let conditions = [
            "PodScheduled=True@1",
            "Initialized=True@1",
            "PodReadyToStartContainers=True@2",
            "ContainersReady=False@1",
            "Ready=False@1",
        ];
        let first = restarted("app", 0, ended(3, 4, 1), json!({}), false);
        watcher.observe(4, &made.status(started(&[first]), &conditions));
        let waits = restarted(
            "app",
            2,
            waiting("CrashLoopBackOff"),
            ended(15, 16, 1),
            false,
        );
        watcher.observe(17, &made.status(started(&[waits]), &conditions));
        let last = restarted("app", 3, running(36), ended(15, 16, 1), true);
        let ready = [
            "PodScheduled=True@1",
            "Initialized=True@1",
            "PodReadyToStartContainers=True@2",
            "ContainersReady=True@40",
            "Ready=True@40",
        ];
        watcher.observe(40, &made.status(started(&[last]), &ready));
        let record = watcher.finish();
        assert_eq!(
            phases(&record),
            [
                (Phase::Scheduling, None, 1),
                (Phase::Sandbox, None, 1),
                (Phase::ContainerStart, Some("app"), 1),
                (Phase::CrashLoop, Some("app"), 33),
                (Phase::Readiness, Some("app").filter(|_| probe), 4),
            ]
        );
        assert_eq!(
            record.cause(),
            "container app crashed for 33 s of 40 s before it stayed up (restarted 3 times, last exit: Error, exit code 1)"
        );
        let app = &record.containers[0];
        let ready = app.ready.unwrap().since(app.running.unwrap());
        assert_eq!(ready.unwrap().as_secs(), if probe { 37 } else { 33 });
    }
}

/// The failures of an init container were not mentioned.
#[test]
fn failures_of_an_init_container_are_in_the_cause() {
    let mut made = PodBuilder::new(json!({"nodeName": "n1",
        "initContainers": [{"name": "mig", "image": "i"}],
        "containers": [{"name": "app", "image": "i"}]}));
    let mut watcher = Harness::new();
    watcher.observe(0, &made.status(json!({}), &[]));
    let init = restarted("mig", 2, ended(20, 26, 0), ended(8, 9, 3), true);
    let mut fields = started(&[status("app", running(27), true, true)]);
    fields["initContainerStatuses"] = json!([init]);
    let first = restarted("mig", 0, running(2), json!({}), false);
    let mut before = started(&[status("app", waiting("PodInitializing"), false, false)]);
    before["phase"] = json!("Pending");
    before["initContainerStatuses"] = json!([first]);
    watcher.observe(
        2,
        &made.status(
            before,
            &["PodScheduled=True@1", "PodReadyToStartContainers=True@2"],
        ),
    );
    let conditions = [
        "PodScheduled=True@1",
        "PodReadyToStartContainers=True@2",
        "Initialized=True@26",
        "ContainersReady=True@27",
        "Ready=True@27",
    ];
    watcher.observe(27, &made.status(fields, &conditions));
    let record = watcher.finish();
    assert_eq!(
        record.cause(),
        "init container mig took 24 s of 27 s (restarted 2 times after Error)"
    );
}

fn blocked(record: &PodRecord) -> (BlockerKind, Option<String>, Option<String>) {
    let blocker = record.blocker().unwrap();
    (
        blocker.kind,
        blocker.container.as_deref().map(str::to_owned),
        blocker.reason.as_deref().map(str::to_owned),
    )
}

fn crashing(made: &mut PodBuilder, state: Value, last: Value) -> Arc<kubevitals_model::Pod> {
    let one = restarted("app", 4, state, last, false);
    made.status(
        started(&[one]),
        &["PodScheduled=True@1", "PodReadyToStartContainers=True@2"],
    )
}

/// Whether the reason was that of the back-off or of the exit was chance.
#[test]
fn a_crash_loop_has_the_reason_of_its_last_exit() {
    let mut starved = ended(10, 20, 137);
    starved["terminated"]["reason"] = json!("OOMKilled");
    for (state, last) in [
        (waiting("CrashLoopBackOff"), starved.clone()),
        (running(21), starved.clone()),
        (starved.clone(), json!({})),
    ] {
        let mut made = pod(&["app"]);
        let mut watcher = Harness::new();
        watcher.observe(22, &crashing(&mut made, state, last));
        let record = watcher.finish();
        assert_eq!(
            blocked(&record),
            (
                BlockerKind::CrashLoop,
                Some("app".into()),
                Some("OOMKilled".into())
            )
        );
        assert!(
            record
                .cause()
                .contains("container app keeps crashing (OOMKilled, exit code 137"),
            "{}",
            record.cause()
        );
    }
}

/// A container that its liveness probe kills was `Error` alone.
#[test]
fn a_crash_loop_by_the_liveness_probe_names_the_probe() {
    let mut made = pod(&["app"]);
    let mut watcher = Harness::new();
    let message = "Liveness probe failed: HTTP probe failed with statuscode: 500";
    watcher.event(&made.event("u", "Unhealthy", &path("app"), message, (5, 30), 9));
    let killed = "Container app failed liveness probe, will be restarted";
    watcher.event(&made.event("k", "Killing", &path("app"), killed, (12, 30), 3));
    let pod = crashing(&mut made, waiting("CrashLoopBackOff"), ended(10, 30, 137));
    watcher.observe(31, &pod);
    let record = watcher.finish();
    assert_eq!(blocked(&record).0, BlockerKind::CrashLoop);
    assert!(
        record
            .cause()
            .contains("the kubelet kills it for its liveness probe, for")
            && record
                .cause()
                .ends_with("(failed 9 times): HTTP probe failed with statuscode: 500"),
        "{}",
        record.cause()
    );
}

/// An application that exits with 0 when it is terminated was in a crash loop.
#[test]
fn a_container_killed_for_its_startup_probe_may_exit_with_0() {
    for state in [waiting("CrashLoopBackOff"), running(41), ended(30, 40, 0)] {
        let mut made = pod(&["app"]);
        made.spec(
            "containers",
            json!([{"name": "app", "image": "i", "startupProbe": {}}]),
        );
        let mut watcher = Harness::new();
        let killed = "Container app failed startup probe, will be restarted";
        watcher.event(&made.event("k", "Killing", &path("app"), killed, (20, 40), 2));
        let message = "Startup probe failed: dial tcp 10.0.0.7:80: connection refused";
        watcher.event(&made.event("u", "Unhealthy", &path("app"), message, (5, 40), 6));
        let mut one = restarted("app", 2, state, ended(30, 40, 0), false);
        one["started"] = json!(false);
        let pod = made.status(
            started(&[one]),
            &["PodScheduled=True@1", "PodReadyToStartContainers=True@2"],
        );
        watcher.observe(42, &pod);
        let record = watcher.finish();
        assert_eq!(blocked(&record).0, BlockerKind::StartupProbe);
        assert!(
            record
                .cause()
                .contains("container app fails its startup probe"),
            "{}",
            record.cause()
        );
        assert!(
            record.cause().contains("(failed 6 times): dial tcp"),
            "{}",
            record.cause()
        );
    }
}

/// A helper of a Job that has completed was in a crash loop.
#[test]
fn a_container_that_completed_is_done_unless_it_is_restarted() {
    for (policy, expected) in [
        ("Never", BlockerKind::ReadinessProbe),
        ("OnFailure", BlockerKind::ReadinessProbe),
        ("Always", BlockerKind::CrashLoop),
    ] {
        let mut made = PodBuilder::new(
            json!({"nodeName": "n1", "restartPolicy": policy, "containers": [
            {"name": "work", "image": "i", "readinessProbe": {}}, {"name": "helper", "image": "i"}]}),
        );
        let mut watcher = Harness::new();
        let statuses = started(&[
            status("work", running(3), false, true),
            status("helper", ended(3, 5, 0), false, false),
        ]);
        watcher.observe(
            9,
            &made.status(
                statuses,
                &["PodScheduled=True@1", "PodReadyToStartContainers=True@2"],
            ),
        );
        assert_eq!(blocked(&watcher.finish()).0, expected, "{policy}");
    }
}

/// Everything that ended before it was ready was `ended`.
#[test]
fn success_and_failure_before_readiness_are_distinguished() {
    let end = |fields: Value| {
        let mut made = pod(&["app"]);
        let mut watcher = Harness::new();
        watcher.observe(0, &made.status(json!({}), &["PodScheduled=True@0"]));
        watcher.observe(9, &made.status(fields, &["PodScheduled=True@0"]));
        let record = watcher.finish();
        (blocked(&record).0, record.cause())
    };
    let done = json!({"phase": "Succeeded", "containerStatuses": [status("app", ended(1, 8, 0), false, false)]});
    let (kind, cause) = end(done);
    assert_eq!(kind, BlockerKind::Succeeded);
    assert!(
        cause.starts_with("never seen ready: it completed first"),
        "{cause}"
    );
    let failed = json!({"phase": "Failed", "containerStatuses": [status("app", ended(1, 8, 3), false, false)]});
    let (kind, cause) = end(failed);
    assert_eq!(kind, BlockerKind::Failed);
    assert!(
        cause.starts_with("never seen ready: container app failed (Error, exit code 3)"),
        "{cause}"
    );
    let evicted = json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory."});
    let (kind, cause) = end(evicted);
    assert_eq!(kind, BlockerKind::Failed);
    assert!(
        cause.starts_with("never seen ready: the pod failed (Evicted)")
            && cause.ends_with(": The node was low on resource: memory."),
        "{cause}"
    );
}

/// Preemption, eviction and drains appeared in no cause.
#[test]
fn a_disruption_before_readiness_is_in_the_cause() {
    let mut made = pod(&["app"]);
    let mut watcher = Harness::new();
    let statuses = started(&[status("app", waiting("ContainerCreating"), false, false)]);
    watcher.observe(
        3,
        &made.status(
            statuses,
            &["PodScheduled=True@1", "PodReadyToStartContainers=True@2"],
        ),
    );
    made.deleting(9, 0);
    let conditions = [
        "PodScheduled=True@1",
        "PodReadyToStartContainers=True@2",
        "DisruptionTarget=True@9/PreemptionByScheduler",
    ];
    watcher.observe(9, &made.status(json!({}), &conditions));
    let cause = watcher.finish().cause();
    assert!(
        cause.ends_with(
            "; it was preempted (PreemptionByScheduler): because of PreemptionByScheduler"
        ),
        "{cause}"
    );
}

/// After ten different messages the client writes one event for all of them.
#[test]
fn combined_events_count() {
    let made = pod(&["app"]);
    let mut facts = Harness::new();
    for (name, message, count) in [
        ("a", "Readiness probe failed: one", 9),
        (
            "b",
            "(combined from similar events): Readiness probe failed: two",
            50,
        ),
        (
            "c",
            "(combined from similar events): Failed to pull image \"app:2\": 429",
            3,
        ),
    ] {
        let reason = if message.contains("pull") {
            "Failed"
        } else {
            "Unhealthy"
        };
        facts.event(&made.event(name, reason, &path("app"), message, (5, 30 + count), count));
    }
    let mut made = made;
    facts.observe(90, &crashing(&mut made, running(3), json!({})));
    let record = facts.finish();
    let app = record.facts.of("app").unwrap();
    assert_eq!(app.readiness_probe.times(), 59);
    assert_eq!(app.readiness_probe.message.as_deref(), Some("two"));
    assert_eq!(app.pull.failed.times(), 3);
}

/// A slow sidecar was an unnamed delay of readiness.
#[test]
fn a_slow_sidecar_is_named() {
    let mut made = PodBuilder::new(json!({"nodeName": "n1",
        "initContainers": [{"name": "proxy", "image": "i", "restartPolicy": "Always", "readinessProbe": {}}],
        "containers": [{"name": "app", "image": "i"}]}));
    let mut watcher = Harness::new();
    watcher.observe(0, &made.status(json!({}), &[]));
    let message = "Readiness probe failed: not yet";
    let probe = made.event(
        "u",
        "Unhealthy",
        "spec.initContainers{proxy}",
        message,
        (5, 40),
        20,
    );
    watcher.event(&probe);
    let mut fields = started(&[status("app", running(3), true, true)]);
    fields["initContainerStatuses"] = json!([status("proxy", running(2), false, true)]);
    let conditions = [
        "PodScheduled=True@1",
        "PodReadyToStartContainers=True@2",
        "Initialized=True@2",
    ];
    watcher.observe(4, &made.status(fields.clone(), &conditions));
    fields["initContainerStatuses"] = json!([status("proxy", running(2), true, true)]);
    let ready = [
        &conditions[..],
        &["ContainersReady=True@43", "Ready=True@43"],
    ]
    .concat();
    watcher.observe(43, &made.status(fields, &ready));
    let record = watcher.finish();
    assert_eq!(
        record.cause(),
        "container proxy ran for 40 s of 43 s before it was ready (failed 20 times): not yet"
    );
}

/// Kubelets write the UID of the manifest into the events of static pods.
#[test]
fn events_of_a_static_pod_belong_to_its_mirror() {
    for event_first in [true, false] {
        let mut made = pod(&["etcd"]);
        made.annotate(
            "kubernetes.io/config.mirror",
            "0a1b2c3d4e5f60718293a4b5c6d7e8f9",
        );
        let mut manifest = made.clone();
        manifest.uid = "0a1b2c3d4e5f60718293a4b5c6d7e8f9".to_owned();
        let pulling = manifest.event("p", "Pulling", &path("etcd"), "Pulling image", (3, 3), 1);
        let mut watcher = Harness::new();
        if event_first {
            watcher.event(&pulling);
        }
        watcher.observe(0, &made.status(json!({}), &[]));
        if !event_first {
            watcher.event(&pulling);
        }
        let record = watcher.finish();
        assert!(record.facts.of("etcd").unwrap().pull.is_pending());
    }
}
