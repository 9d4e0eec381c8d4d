//! Built pods, one for each rule.

use serde_json::{Value, json};

use crate::support::{Harness, PodBuilder, Samples, container, ended, running, stamp};

/// Records pods and returns the scraped samples.
fn found(pods: &mut [PodBuilder]) -> Samples {
    let harness = Harness::bare();
    for pod in pods {
        harness.record(&pod.finish());
    }
    harness.samples()
}

/// The kubelet's message of a pull.
fn pulled(millis: u32, with_waiting: u32, bytes: u64) -> String {
    format!(
        "Successfully pulled image \"i\" in {millis}ms ({with_waiting}ms including waiting). Image size: {bytes} bytes."
    )
}

const SCHEDULED: &str = "PodScheduled=True@1";
const SANDBOX: &str = "PodReadyToStartContainers=True@2";

/// A pod with one container whose image was there: scheduled at 1, running at 4, ready at 6,
/// observed 100 ms later each.
fn plain(spec: Value) -> PodBuilder {
    let mut pod = PodBuilder::new(spec);
    pod.observe(Some(100));
    pod.conditions(&[SCHEDULED]).observe(Some(1_100));
    pod.present("main");
    pod.status["startTime"] = stamp(1).into();
    pod.status["phase"] = "Running".into();
    pod.status["containerStatuses"] = json!([running("main", 4)]);
    pod.conditions(&[SCHEDULED, SANDBOX, "Initialized=True@1"])
        .observe(Some(4_600));
    pod.conditions(&[
        SCHEDULED,
        SANDBOX,
        "Initialized=True@1",
        "ContainersReady=True@6",
        "Ready=True@6",
    ])
    .observe(Some(6_100));
    pod
}

fn one_container() -> Value {
    json!({"containers": [container("main")]})
}

#[test]
fn phases_are_between_milestones() {
    let found = found(&mut [plain(one_container())]);
    for (phase, seconds) in [
        ("scheduling", 1.0),
        ("sandbox", 1.0),
        ("container_start", 2.0),
        ("readiness", 2.0),
    ] {
        let name = format!("startup_phase_duration_seconds_sum{{phase={phase}}}");
        assert_eq!(found.get(&name), seconds, "{phase}");
    }
    let name = "startup_phase_duration_seconds_count";
    assert_eq!(found.sum(name), 4.0, "{found:?}");
    assert_eq!(found.get("startup_duration_seconds_sum"), 6.0);
    assert_eq!(found.get("startups_total{result=ready}"), 1.0);
}

/// The seconds of the phases that a pod has.
fn phases_of(mut pod: PodBuilder) -> Vec<(String, f64)> {
    let found = found(std::slice::from_mut(&mut pod));
    let prefix = "kubevitals_pod_startup_phase_duration_seconds_sum{phase=";
    let named = found.0.iter().filter_map(|(series, seconds)| {
        let phase = series.strip_prefix(prefix)?.strip_suffix('}')?;
        Some((phase.to_owned(), *seconds))
    });
    let mut phases: Vec<(String, f64)> = named.collect();
    phases.sort_by(|one, two| one.0.cmp(&two.0));
    phases
}

fn expected(phases: &[(&str, f64)]) -> Vec<(String, f64)> {
    let each = phases.iter();
    each.map(|(phase, seconds)| ((*phase).to_owned(), *seconds))
        .collect()
}

/// A pod with these events: scheduled at 60, sandbox at 90, running at 92, ready at 94.
fn prepared(events: &[(&str, &str, i64)]) -> PodBuilder {
    let mut pod = PodBuilder::new(one_container());
    pod.observe(Some(100));
    for (reason, message, second) in events {
        pod.event("", reason, message, *second);
    }
    pod.status = json!({"phase": "Running", "startTime": stamp(60), "containerStatuses": [running("main", 92)]});
    pod.conditions(&[
        "PodScheduled=True@60",
        "PodReadyToStartContainers=True@90",
        "Initialized=True@60",
        "ContainersReady=True@94",
        "Ready=True@94",
    ])
    .observe(Some(94_100));
    pod
}

#[test]
fn new_nodes_volumes_and_network_are_phases_of_their_own() {
    let usual = [("container_start", 2.0), ("readiness", 2.0)];
    let with = |more: &[(&str, f64)]| {
        let mut all = expected(&usual);
        all.extend(expected(more));
        all.sort_by(|one, two| one.0.cmp(&two.0));
        all
    };
    assert_eq!(
        phases_of(prepared(&[])),
        with(&[("sandbox", 30.0), ("scheduling", 60.0)])
    );
    let scale_up = "pod triggered scale-up: [{pool-b 1->2 (max: 10)}]";
    assert_eq!(
        phases_of(prepared(&[("TriggeredScaleUp", scale_up, 10)])),
        with(&[
            ("provisioning", 50.0),
            ("sandbox", 30.0),
            ("scheduling", 10.0)
        ])
    );
    let mount = "MountVolume.SetUp failed for volume \"c\" : configmap \"web\" not found";
    assert_eq!(
        phases_of(prepared(&[("FailedMount", mount, 61)])),
        with(&[("sandbox", 0.0), ("scheduling", 60.0), ("volumes", 30.0)])
    );
    let network = "Failed to create pod sandbox: plugin type=\"calico\" failed (add): no addresses";
    assert_eq!(
        phases_of(prepared(&[("FailedCreatePodSandBox", network, 65)])),
        with(&[("network", 25.0), ("sandbox", 5.0), ("scheduling", 60.0)])
    );
}

/// A phase that has begun is not one that has completed.
#[test]
fn a_node_that_never_came_is_no_phase() {
    let mut pod = PodBuilder::new(one_container());
    pod.observe(Some(100));
    pod.event("", "Nominated", "Pod should schedule on: nodeclaim/a", 3);
    pod.conditions(&["PodScheduled=False@1"])
        .observe(Some(1_100));
    pod.delete(Some(90_000));
    assert_eq!(phases_of(pod), []);
}

#[test]
fn failed_pulls_and_crashes_are_phases_of_their_own() {
    let mut pod = PodBuilder::new(one_container());
    pod.observe(Some(100));
    for second in [3, 10] {
        pod.event("main", "Pulling", "Pulling image \"i\"", second);
        pod.event(
            "main",
            "Failed",
            "Failed to pull image \"i\": 429",
            second + 1,
        );
    }
    pod.event("main", "Pulled", &pulled(4_000, 4_000, 1_000), 30);
    let mut first = running("main", 31);
    first["ready"] = false.into();
    pod.status = json!({"phase": "Running", "startTime": stamp(1), "containerStatuses": [first]});
    let before = [SCHEDULED, SANDBOX, "Initialized=True@1"];
    pod.conditions(&before).observe(Some(31_100));
    let mut second = running("main", 51);
    second["restartCount"] = 1.into();
    second["lastState"] = json!({"terminated": {"exitCode": 3, "reason": "Error",
        "startedAt": stamp(31), "finishedAt": stamp(40)}});
    pod.status["containerStatuses"] = json!([second]);
    let conditions = [&before[..], &["ContainersReady=True@53", "Ready=True@53"]].concat();
    pod.conditions(&conditions).observe(Some(53_100));
    assert_eq!(
        phases_of(pod),
        expected(&[
            ("container_start", 29.0),
            ("crash_loop", 20.0),
            ("image_pull", 4.0),
            ("image_pull_failed", 23.0),
            ("readiness", 2.0),
            ("sandbox", 1.0),
            ("scheduling", 1.0),
        ])
    );
}

#[test]
fn the_indicator_uses_observed_times() {
    let found = found(&mut [plain(one_container())]);
    // From 0.1 to 4.6 by the observer, where the API says 0 and 4.
    assert_eq!(found.get("start_sli_duration_seconds_sum"), 4.5);
    assert_eq!(found.get("start_sli_duration_seconds_bucket{le=5}"), 1.0);
    assert_eq!(found.get("start_sli_duration_seconds_bucket{le=4}"), 0.0);
}

#[test]
fn the_indicator_excludes_what_the_kubelet_does() {
    let stateful = json!({"containers": [container("main")],
        "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]});
    let stateless = json!({"containers": [container("main")], "volumes": [
        {"name": "a", "secret": {}}, {"name": "b", "configMap": {}}, {"name": "c", "emptyDir": {}},
        {"name": "d", "downwardAPI": {}}, {"name": "e", "projected": {}}]});
    let mut unschedulable = PodBuilder::new(one_container());
    unschedulable.observe(Some(50));
    unschedulable
        .conditions(&["PodScheduled=False@0"])
        .observe(Some(60));
    let mut late = plain(one_container());
    late.meta = json!({});
    let mut gated = PodBuilder::new(
        json!({"containers": [container("main")], "schedulingGates": [{"name": "g"}]}),
    );
    gated.observe(Some(50));
    // A pod that the kubelet had when it was first seen.
    let mut reconstructed = PodBuilder::new(one_container());
    reconstructed.status = json!({"phase": "Running", "startTime": stamp(1), "containerStatuses": [running("main", 4)]});
    reconstructed.present("main");
    reconstructed
        .conditions(&[SCHEDULED, SANDBOX, "ContainersReady=True@6", "Ready=True@6"])
        .observe(Some(9_000));
    // A Job that had ended when it was first seen to have begun.
    let mut quick = PodBuilder::new(one_container());
    quick.observe(Some(100));
    quick.present("main");
    quick.status = json!({"phase": "Succeeded", "startTime": stamp(1), "containerStatuses": [ended("main", 3, 4, 0)]});
    quick.conditions(&[SCHEDULED, SANDBOX]).observe(Some(4_100));
    let found = found(&mut [
        plain(stateful),
        plain(stateless),
        unschedulable,
        late,
        gated,
        reconstructed,
        quick,
    ]);
    for (reason, pods) in [
        ("stateful", 1.0),
        ("unschedulable", 2.0),
        ("reconstructed", 1.0),
        ("not_started", 1.0),
        ("pulls_unknown", 0.0),
        ("time_unknown", 0.0),
    ] {
        let name = format!("start_sli_excluded_total{{reason={reason}}}");
        assert!(
            (found.get(&name) - pods).abs() < 1e-9,
            "{reason}: {found:?}"
        );
    }
    assert_eq!(found.get("start_sli_duration_seconds_count"), 2.0);
}

#[test]
fn without_events_the_indicator_is_unknown() {
    let mut pod = PodBuilder::new(one_container());
    pod.observe(Some(100));
    pod.status = json!({"phase": "Running", "startTime": stamp(1), "containerStatuses": [running("main", 4)]});
    pod.conditions(&[SCHEDULED, SANDBOX, "Ready=True@6"])
        .observe(Some(6_100));
    let found = found(&mut [pod]);
    assert_eq!(
        found.get("start_sli_excluded_total{reason=pulls_unknown}"),
        1.0
    );
    assert_eq!(found.get("startup_duration_seconds_count"), 1.0);
}

#[test]
fn parallel_pulls_count_once_and_init_containers_do_not_count() {
    let spec = json!({
        "initContainers": [container("init"), {"name": "proxy", "image": "i", "restartPolicy": "Always"}],
        "containers": [container("a"), container("b")],
    });
    let mut pod = PodBuilder::new(spec);
    pod.observe(Some(0));
    pod.present("init");
    pod.present("proxy");
    // From 10 to 20, and from 15 to 25: fifteen seconds.
    pod.event("a", "Pulling", "Pulling image \"i\"", 10);
    pod.event("b", "Pulling", "Pulling image \"i\"", 15);
    pod.event("a", "Pulled", &pulled(9_000, 10_000, 20_000_000), 20);
    pod.event("b", "Pulled", &pulled(2_000, 10_000, 2_000_000_000), 25);
    pod.status = json!({"phase": "Running", "startTime": stamp(1),
        "initContainerStatuses": [ended("init", 3, 8, 0), running("proxy", 9)],
        "containerStatuses": [running("a", 21), running("b", 26)]});
    pod.conditions(&[
        SCHEDULED,
        SANDBOX,
        "Initialized=True@9",
        "ContainersReady=True@27",
        "Ready=True@27",
    ])
    .observe(Some(27_500));
    let found = found(&mut [pod]);
    // 27.5 s, without 15 of pulls and 5 of an init container; the sidecar runs on and does not
    // count.
    assert_eq!(found.get("start_sli_duration_seconds_sum"), 7.5);
    let phase = |name: &str| {
        found.get(&format!(
            "startup_phase_duration_seconds_sum{{phase={name}}}"
        ))
    };
    assert_eq!(phase("image_pull"), 15.0);
    assert_eq!(phase("init"), 7.0);
    assert_eq!(phase("container_start"), 17.0);
    for (series, value) in [
        ("image_pulls_total{result=pulled}", 2.0),
        ("image_pulls_total{result=already_present}", 2.0),
        ("image_pull_bytes_total", 2_020_000_000.0),
        ("image_pull_wait_duration_seconds_sum", 9.0),
        (
            "image_pull_duration_seconds_count{image_size_in_bytes=10MB-100MB}",
            1.0,
        ),
        (
            "image_pull_duration_seconds_count{image_size_in_bytes=1GB-5GB}",
            1.0,
        ),
        (
            "image_pull_duration_seconds_sum{image_size_in_bytes=1GB-5GB}",
            10.0,
        ),
    ] {
        assert!(
            (found.get(series) - value).abs() < 1e-9,
            "{series}: {found:?}"
        );
    }
}

#[test]
fn a_failed_pull_is_counted_with_its_reason() {
    let mut pod = PodBuilder::new(one_container());
    pod.observe(Some(0));
    pod.conditions(&[SCHEDULED]).observe(Some(1_000));
    for second in [3, 10] {
        pod.event("main", "Pulling", "Pulling image \"i\"", second);
        let message = "Failed to pull image \"i\": failed to resolve reference \"i\": not found";
        pod.event("main", "Failed", message, second + 1);
    }
    pod.event("main", "BackOff", "Back-off pulling image \"i\"", 5);
    pod.status["startTime"] = stamp(1).into();
    pod.status["containerStatuses"] = json!([{"name": "main", "ready": false, "started": false, "restartCount": 0,
        "state": {"waiting": {"reason": "ImagePullBackOff"}}}]);
    pod.conditions(&[SCHEDULED, SANDBOX]).observe(Some(12_000));
    pod.meta = json!({"deletionTimestamp": stamp(60), "deletionGracePeriodSeconds": 30});
    pod.observe(Some(30_200));
    pod.delete(Some(31_700));
    let found = found(&mut [pod]);
    for (series, value) in [
        ("startups_total{result=image_pull_failed}", 1.0),
        ("image_pulls_total{result=failed}", 1.0),
        ("image_pull_failures_total{reason=not_found}", 2.0),
        ("image_pull_back_offs_total", 1.0),
        ("start_sli_excluded_total{reason=not_started}", 1.0),
        ("lifecycles_total{end=deleted}", 1.0),
        // The API has no time for its being gone: both by the observer.
        ("termination_duration_seconds_sum", 1.5),
    ] {
        assert!(
            (found.get(series) - value).abs() < 1e-9,
            "{series}: {found:?}"
        );
    }
    assert_eq!(found.sum("startup_duration_seconds_count"), 0.0);
}

#[test]
fn restarts_are_counted_by_reason_and_downtimes_individually() {
    let mut pod = plain(one_container());
    // From 10 on it is killed every 100 seconds, and down for one second more each time.
    let mut start = 10;
    for restart in 1..=40 {
        let (end, next) = (start + 90, start + 91 + restart);
        let reason = if restart % 2 == 0 {
            "OOMKilled"
        } else {
            "Surprise"
        };
        pod.status["containerStatuses"] = json!([{"name": "main", "ready": true, "started": true, "restartCount": restart,
            "lastState": {"terminated": {"exitCode": 137, "reason": reason, "startedAt": stamp(start), "finishedAt": stamp(end)}},
            "state": {"running": {"startedAt": stamp(next)}}}]);
        pod.observe(Some((next + 1) * 1_000));
        start = next;
    }
    let found = found(&mut [pod]);
    assert_eq!(
        found.get("container_restarts_total{reason=OOMKilled}"),
        20.0
    );
    assert_eq!(found.get("container_restarts_total{reason=Other}"), 20.0);
    assert_eq!(found.get("container_down_duration_seconds_count"), 40.0);
    // 2 + 3 + … + 41; those after the 32nd by their mean.
    assert_eq!(found.get("container_down_duration_seconds_sum"), 860.0);
    assert_eq!(
        found.get("container_down_duration_seconds_bucket{le=30}"),
        29.0
    );
    assert_eq!(
        found.get("container_down_duration_seconds_bucket{le=50}"),
        40.0
    );
}

#[test]
fn starts_hidden_by_a_restart_are_not_measured() {
    // Ready since 500 in a state with two restarts before: not its first start.
    let mut pod = PodBuilder::new(one_container());
    pod.present("main");
    let mut status = running("main", 490);
    status["restartCount"] = 2.into();
    pod.status = json!({"phase": "Running", "startTime": stamp(1), "containerStatuses": [status]});
    pod.conditions(&[
        SCHEDULED,
        SANDBOX,
        "ContainersReady=True@500",
        "Ready=True@500",
    ])
    .observe(Some(600_000));
    let found = found(&mut [pod]);
    assert_eq!(found.get("startups_total{result=ready}"), 1.0);
    assert_eq!(
        found.get("startups_unmeasured_total{reason=reconstructed}"),
        1.0
    );
    assert_eq!(found.sum("startup_duration_seconds_count"), 0.0);
    assert_eq!(found.sum("startup_phase_duration_seconds_count"), 0.0);
}
