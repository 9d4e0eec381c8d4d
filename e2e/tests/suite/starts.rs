//! Starts whose cause is known beforehand: live records and explanations name it, whatever the
//! version of the kubelet.

mod workloads;

use std::time::Duration;

use k8s_openapi::api::core::v1::{ContainerStatus, Node, Pod};
use kube::Api;
use kubevitals_e2e::{
    Cluster, Delivery, RecordReader, Recorder, Registry, RuntimePull, StaticPod, TestNamespace,
    is_ready, phase_is, runtime_pulls,
};
use kubevitals_model::Timestamp;
use serde_json::Value;

use crate::transitions::{explain, records, waits_for};

/// The time of slow pulls.
const SLOW: Delivery = Delivery::Over(Duration::from_secs(8));

const QUICK: Delivery = Delivery::Over(Duration::from_millis(200));

/// The kubelet measures a pull around the call of the runtime, to the millisecond.
const MAX_DIFFERENCE: f64 = 0.5;

/// Events and conditions have whole seconds, and events are written after what they report.
const MAX_ROUNDING: f64 = 2.0;

/// The cause of a start, as it is known beforehand.
struct Cause {
    pod: &'static str,
    /// `ready`, or the kind of its blocker.
    outcome: &'static str,
    /// The phase that takes longest, and its container.
    phase: &'static str,
    container: Option<&'static str>,
    /// Words of the sentence.
    words: &'static [&'static str],
}

const CAUSES: [Cause; 23] = [
    pulled("slow-pull", "app"),
    pulled("queued-pull", "app"),
    pulled("slow-first", "app"),
    pulled("slow-second", "agent"),
    pulled("init-pull", "prepare"),
    pulled("static", "app"),
    pulled("pulling", "app"),
    ready(
        "rate-limited",
        "image_pull_failed",
        "app",
        &["could not be pulled for", "429"],
    ),
    ready(
        "two-crashes",
        "crash_loop",
        "app",
        &["restarted 2 times", "exit code 3"],
    ),
    ready(
        "failing-init",
        "init",
        "migrate",
        &["init container migrate took", "restarted 2 times"],
    ),
    ready(
        "slow-startup",
        "startup_probe",
        "app",
        &["took", "to pass its startup probe"],
    ),
    ready(
        "slow-readiness",
        "readiness",
        "app",
        &["container app ran for", "failed"],
    ),
    ready(
        "slow-sidecar",
        "readiness",
        "proxy",
        &["container proxy ran for", "failed"],
    ),
    ready(
        "slow-init",
        "init",
        "prepare",
        &["init container prepare took"],
    ),
    Cause {
        container: None,
        ..ready("late-volume", "volumes", "", &["volumes took", "settings"])
    },
    blocked(
        "missing-image",
        "image_pull_failed",
        "image_pull_failed",
        "app",
        &["cannot be pulled", "not found"],
    ),
    blocked(
        "oom-killed",
        "crash_loop",
        "crash_loop",
        "app",
        &["OOMKilled", "exit code 137"],
    ),
    blocked(
        "startup-exits-0",
        "startup_probe",
        "startup_probe",
        "app",
        &["fails its startup probe"],
    ),
    blocked(
        "startup-killed",
        "startup_probe",
        "startup_probe",
        "app",
        &["fails its startup probe"],
    ),
    blocked(
        "not-alive",
        "crash_loop",
        "crash_loop",
        "app",
        &["kills it for its liveness probe"],
    ),
    Cause {
        container: None,
        ..blocked(
            "no-room",
            "unschedulable",
            "scheduling",
            "",
            &["no node fits", "Insufficient cpu"],
        )
    },
    Cause {
        container: None,
        phase: "",
        ..blocked("refused", "failed", "", "", &["OutOfcpu"])
    },
    Cause {
        container: None,
        phase: "",
        ..blocked("helper-completes-", "succeeded", "", "", &["completed"])
    },
];

const fn ready(
    pod: &'static str,
    phase: &'static str,
    container: &'static str,
    words: &'static [&'static str],
) -> Cause {
    Cause {
        pod,
        outcome: "ready",
        phase,
        container: Some(container),
        words,
    }
}

const fn pulled(pod: &'static str, container: &'static str) -> Cause {
    ready(pod, "image_pull", container, &["pulling image 127.0.0.1:"])
}

const fn blocked(
    pod: &'static str,
    outcome: &'static str,
    phase: &'static str,
    container: &'static str,
    words: &'static [&'static str],
) -> Cause {
    Cause {
        outcome,
        ..ready(pod, phase, container, words)
    }
}

impl Cause {
    /// Returns what the record of a lifecycle says otherwise.
    fn compare(&self, lifecycle: &Value, is_explained: bool) -> Vec<String> {
        let pod = self.pod;
        let sentence = lifecycle["cause"].as_str().unwrap();
        let by = if is_explained { "explained" } else { "live" };
        println!("{pod}, {by}: {sentence}");
        let mut wrong = Vec::new();
        let mut expect = |what: &str, expected: &str, found: &str| {
            if expected != found {
                wrong.push(format!(
                    "{pod}, {by}: {what} is {found:?}, not {expected:?}"
                ));
            }
        };
        let outcome = match lifecycle["complete"].as_bool() {
            Some(true) => "ready",
            _ => lifecycle["incomplete"]["kind"].as_str().unwrap_or("?"),
        };
        expect("outcome", self.outcome, outcome);
        let longest = |field: &str| lifecycle["longest"][field].as_str().unwrap_or_default();
        if !self.phase.is_empty() {
            expect("longest phase", self.phase, longest("phase"));
            let container = self.container.unwrap_or_default();
            expect("its container", container, longest("container"));
        }
        let path = lifecycle["critical_path"].as_array().unwrap();
        let seconds = path
            .iter()
            .filter_map(|segment| segment["seconds"].as_f64());
        let total = lifecycle["total_seconds"].as_f64().unwrap();
        let sum = format!("{:.2}", seconds.fold(0.0, |sum, one| sum + one));
        expect("sum of the path", &format!("{total:.2}"), &sum);
        expect("clock skew", "false", &lifecycle["clock_skew"].to_string());
        for word in self.words {
            if !sentence.contains(word) {
                wrong.push(format!("{pod}, {by}: no {word:?} in {sentence:?}"));
            }
        }
        if !wrong.is_empty() {
            wrong.push(format!("{lifecycle:#}"));
        }
        wrong
    }
}

fn statuses(pod: Option<&Pod>) -> impl Iterator<Item = &ContainerStatus> {
    let status = pod.and_then(|pod| pod.status.as_ref());
    status
        .into_iter()
        .flat_map(|status| status.container_statuses.iter().flatten())
}

fn was_restarted(pod: Option<&Pod>) -> bool {
    statuses(pod).any(|status| status.restart_count > 0)
}

fn was_oom_killed(pod: Option<&Pod>) -> bool {
    statuses(pod).any(|status| {
        let last = status.last_state.as_ref();
        let ended = last.and_then(|state| state.terminated.as_ref());
        ended.and_then(|ended| ended.reason.as_deref()) == Some("OOMKilled")
    })
}

/// Returns `1.35` of `v1.35.4`.
async fn kubelet_version(cluster: &Cluster) -> anyhow::Result<String> {
    let node = Api::<Node>::all(cluster.client())
        .get(cluster.node_name())
        .await?;
    let info = node.status.and_then(|status| status.node_info);
    let version = info.map(|info| info.kubelet_version).unwrap_or_default();
    let mut parts = version.trim_start_matches('v').split('.');
    Ok(format!(
        "{}.{}",
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default()
    ))
}

/// Returns the record of a pod in an explanation.
async fn explained(namespace: &TestNamespace, pod: &str) -> Value {
    let pod = format!("{}/{pod}", namespace.name());
    let lines = explain(namespace, &["pod", &pod, "-o", "json"]).await;
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let found = records(&lines, "lifecycle").into_values().next();
    found.unwrap()[0]["lifecycle"].clone()
}

/// Starts the pods that pull images. A kubelet pulls one image after another unless it is
/// configured otherwise, so they start in turn, except for one that waits for another.
async fn pull_in_turn(namespace: &TestNamespace, registry: &Registry) -> anyhow::Result<StaticPod> {
    let slow = registry.add("slow", SLOW)?;
    let quick = registry.add("quick", QUICK)?;
    namespace
        .apply(&workloads::pulled("slow-pull", &slow))
        .await?;
    registry.written("slow", 1).await;
    namespace
        .apply(&workloads::pulled("queued-pull", &quick))
        .await?;
    for name in ["slow-pull", "queued-pull"] {
        namespace.wait_for::<Pod>(name, is_ready).await?;
    }
    // A kubelet waits longer and longer before it tries again.
    namespace.apply(&workloads::late_volume()).await?;
    for (name, app, agent) in [("slow-first", SLOW, QUICK), ("slow-second", QUICK, SLOW)] {
        let app = registry.add(&format!("{name}-app"), app)?;
        let agent = registry.add(&format!("{name}-agent"), agent)?;
        namespace
            .apply(&workloads::two_pulled(name, &app, &agent))
            .await?;
        namespace.wait_for::<Pod>(name, is_ready).await?;
    }
    let image = registry.add("init-pull", SLOW)?;
    namespace
        .apply(&workloads::init_pulled("init-pull", &image))
        .await?;
    namespace.wait_for::<Pod>("init-pull", is_ready).await?;

    let image = registry.add("static", SLOW)?;
    let static_pod = StaticPod::start(namespace, &workloads::pulled("static", &image))?;
    namespace
        .wait_for::<Pod>(&static_pod.mirror, is_ready)
        .await?;

    let image = registry.add("rate-limited", Delivery::TooManyRequests)?;
    namespace
        .apply(&workloads::pulled("rate-limited", &image))
        .await?;
    namespace
        .wait_for::<Pod>("rate-limited", |pod| waits_for(pod, "ImagePullBackOff"))
        .await?;
    registry.deliver("rate-limited", QUICK);

    let image = registry.add("pulling", SLOW)?;
    namespace
        .apply(&workloads::pulled("pulling", &image))
        .await?;
    registry.written("pulling", 50).await;
    let said = explained(namespace, "pulling").await;
    assert_eq!(said["incomplete"]["kind"], "image_pull", "{said:#}");
    let sentence = said["cause"].as_str().unwrap();
    let start = format!("not ready yet: image {image} of container app is being pulled, for ");
    assert!(sentence.starts_with(&start), "{sentence}");
    for name in ["pulling", "rate-limited"] {
        namespace.wait_for::<Pod>(name, is_ready).await?;
    }
    Ok(static_pod)
}

/// Compares the pulls of a record with what the runtime logged of them.
fn check_pulls(pod: &str, lifecycle: &Value, by_runtime: &[RuntimePull]) -> usize {
    let mut compared = 0;
    for container in lifecycle["containers"].as_array().unwrap() {
        let pull = &container["image_pull"];
        let truth: Vec<&RuntimePull> = by_runtime
            .iter()
            .filter(|one| container["image"] == one.image.as_str())
            .collect();
        let Some(succeeded) = truth.iter().find(|one| one.succeeded) else {
            continue;
        };
        let said = format!("{pod}: {pull:#} and {truth:#?}");
        let time = |field: &str| pull[field].as_str().unwrap().parse::<Timestamp>().unwrap();
        let apart = |field: &str, of: Timestamp| {
            let (said, true_time) = (time(field).unix_millis(), of.unix_millis());
            Duration::from_millis(said.abs_diff(true_time)).as_secs_f64()
        };
        let seconds = |field: &str| pull[field].as_f64().unwrap_or_default();
        assert!(
            apart("finished_timestamp", succeeded.finished) <= MAX_ROUNDING,
            "{said}"
        );
        let failures = truth.iter().filter(|one| !one.succeeded).count();
        assert_eq!(pull["failures"], failures, "{said}");
        if failures == 0 {
            let difference =
                seconds("seconds") - seconds("queued_seconds") - succeeded.took().as_secs_f64();
            assert!(difference.abs() <= MAX_DIFFERENCE, "{difference}: {said}");
        }
        if pull["queued_seconds"].as_f64().unwrap_or_default() < 1.0 {
            let first = truth.iter().map(|one| one.started).min().unwrap();
            assert!(apart("started_timestamp", first) <= MAX_ROUNDING, "{said}");
        }
        let segments = lifecycle["critical_path"].as_array().unwrap().iter();
        let on_path: f64 = segments
            .filter(|one| one["phase"] == "image_pull" && one["container"] == container["name"])
            .filter_map(|one| one["seconds"].as_f64())
            .sum();
        let waited = if failures == 0 {
            seconds("queued_seconds")
        } else {
            0.0
        };
        let difference = on_path - waited - succeeded.took().as_secs_f64();
        assert!(difference.abs() <= MAX_ROUNDING, "{difference}: {said}");
        println!(
            "{pod}/{}: {on_path} s on the path, {:.3} s by the kubelet, {:.3} s by the runtime",
            container["name"],
            seconds("seconds") - seconds("queued_seconds"),
            succeeded.took().as_secs_f64(),
        );
        compared += 1;
    }
    compared
}

#[tokio::test]
async fn every_start_has_its_true_cause() -> anyhow::Result<()> {
    let cluster = Cluster::from_env().await?;
    let _guard = cluster.shared().await;
    let namespace = cluster.namespace("causes").await?;
    let registry = Registry::start().await?;
    let mut recorder = Recorder::start(&namespace).await?;
    let mut role = RecordReader::start(&namespace, &["--lifecycle"]).await?;

    for manifest in workloads::crashing() {
        namespace.apply(&manifest).await?;
    }
    namespace
        .apply(&workloads::missing_image(&registry))
        .await?;
    namespace
        .wait_for::<Pod>("missing-image", |pod| waits_for(pod, "ImagePullBackOff"))
        .await?;
    for manifest in workloads::waiting() {
        namespace.apply(&manifest).await?;
    }
    namespace
        .apply(&workloads::refused(cluster.node_name()))
        .await?;
    let static_pod = pull_in_turn(&namespace, &registry).await?;

    for cause in CAUSES
        .iter()
        .filter(|cause| cause.outcome == "ready" && cause.pod != "static")
    {
        namespace.wait_for::<Pod>(cause.pod, is_ready).await?;
    }
    namespace
        .wait_for::<Pod>("oom-killed", was_oom_killed)
        .await?;
    for name in ["startup-exits-0", "startup-killed", "not-alive"] {
        namespace.wait_for::<Pod>(name, was_restarted).await?;
    }
    namespace
        .wait_for::<Pod>("refused", phase_is("Failed"))
        .await?;
    let jobs = |lines: &[Value]| {
        let mut names = records(lines, "pod").into_keys();
        names
            .find(|name| name.starts_with("helper-completes-"))
            .map(str::to_owned)
    };
    role.until("the Job", |lines| jobs(lines).is_some()).await?;

    let job = jobs(role.lines()).unwrap();
    let name_of = |cause: &Cause| match cause.pod {
        "static" => static_pod.mirror.clone(),
        "helper-completes-" => job.clone(),
        pod => pod.to_owned(),
    };
    let mut wrong = Vec::new();
    for cause in &CAUSES {
        let said = explained(&namespace, &name_of(cause)).await;
        wrong.extend(cause.compare(&said, true));
    }

    // What never starts has its record when it is deleted.
    let never: Vec<&str> = CAUSES
        .iter()
        .filter(|cause| !["ready", "succeeded"].contains(&cause.outcome))
        .map(|cause| cause.pod)
        .collect();
    for name in &never {
        namespace.delete::<Pod>(name).await?;
    }
    let has = |lines: &[Value], name: &str| records(lines, "lifecycle").contains_key(name);
    role.until("all records", |lines| {
        CAUSES.iter().all(|cause| has(lines, &name_of(cause)))
    })
    .await?;
    recorder.until_deleted(&never).await;
    recorder.keep(&format!("kubelet-{}", kubelet_version(&cluster).await?))?;
    let by_runtime = runtime_pulls(&cluster)?;
    let lines = role.stop().await?;
    let lifecycles = records(&lines, "lifecycle");
    let mut compared = 0;
    for cause in &CAUSES {
        let name = name_of(cause);
        let record = &lifecycles[name.as_str()].last().unwrap()["lifecycle"];
        wrong.extend(cause.compare(record, false));
        compared += check_pulls(&name, record, &by_runtime);
    }
    // Eight pods, of which two have two images.
    assert_eq!(compared, 10);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    drop(static_pod);
    Ok(namespace.finish().await?)
}
