//! The metrics of pods on `/metrics` of a running role.

use std::time::{Duration, SystemTime};

use kubevitals_model::Timestamp;
use kubevitals_transition_metrics::{FAMILIES, FamilyKind};
use serde_json::{Value, json};

use super::{Cluster, RoleHarness};

const NO_AGE: Duration = Duration::ZERO;

/// The metrics of kube-transition-metrics.
const PEERS: [&str; 12] = [
    "pod_collector_errors_total",
    "pod_collector_restarts_total",
    "pod_watch_events_total",
    "image_pull_collector_errors_total",
    "image_pull_collector_restarts_total",
    "image_pull_watch_events_total",
    "image_pull_collector_routines",
    "pod_statistics_tracked",
    "image_pull_statistics_tracked",
    "statistic_event_queue_depth",
    "statistic_event_publish_seconds_count",
    "statistic_event_processing_seconds_count",
];

fn ago(age: Duration) -> String {
    let time = Timestamp::from_system_time(SystemTime::now() - age);
    time.rfc3339_seconds().to_string()
}

fn waiting(reason: &str) -> Value {
    json!({"phase": "Pending", "startTime": ago(NO_AGE),
        "containerStatuses": [{"name": "app", "ready": false, "restartCount": 0, "image": "", "imageID": "",
            "state": {"waiting": {"reason": reason, "message": "Back-off"}}}]})
}

/// A status with a run that failed before the current one.
fn crashed(is_ready: bool) -> Value {
    let condition = |kind| {
        let status = if is_ready { "True" } else { "False" };
        json!({"type": kind, "status": status, "lastTransitionTime": ago(NO_AGE)})
    };
    let before = json!({"exitCode": 1, "reason": "Error",
        "startedAt": ago(Duration::from_secs(9)), "finishedAt": ago(Duration::from_secs(8))});
    let conditions = ["ContainersReady", "Ready"].map(condition);
    json!({"phase": "Running", "startTime": ago(NO_AGE), "conditions": conditions,
        "containerStatuses": [{"name": "app", "ready": is_ready, "started": true, "restartCount": 1,
            "image": "", "imageID": "", "lastState": {"terminated": before},
            "state": {"running": {"startedAt": ago(Duration::from_secs(5))}}}]})
}

/// Whether a family has a sample.
fn has_sample(text: &str, name: &str) -> bool {
    text.lines().any(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with([' ', '{']))
    })
}

#[tokio::test]
async fn every_family_of_pods_and_of_the_peer_is_exposed() {
    let cluster = Cluster::start().await;
    // It crashed before the role was started, so that its times are unknown.
    cluster.create("before");
    cluster.set("before", &json!({}), &crashed(false));
    let mut role = RoleHarness::ready(&cluster, &[]).await;
    cluster.set("before", &json!({}), &crashed(true));
    cluster.create("web");
    let failed = "Failed to pull image \"web:2\": 429 Too Many Requests";
    let pulled = "Successfully pulled image \"web:2\" in 1.5s (2.25s including waiting). Image size: 7 bytes.";
    for (reason, message) in [
        ("Pulling", "Pulling image \"web:2\""),
        ("Failed", failed),
        ("BackOff", "Back-off pulling image \"web:2\""),
        ("Pulled", pulled),
    ] {
        cluster.event("web", reason, message, NO_AGE);
    }
    let events = "image_pull_watch_events_total{event_type=\"ADDED\"}";
    role.until_metric(events, |count| count == 4).await;
    cluster.make_ready("web");
    role.until_pods(2).await;
    cluster.set("web", &json!({}), &crashed(true));
    let deleting = json!({"deletionTimestamp": ago(NO_AGE), "deletionGracePeriodSeconds": 30});
    cluster.set("web", &deleting, &json!({}));
    cluster.delete("web");
    cluster.create("hangs");
    cluster.set("hangs", &json!({}), &waiting("ImagePullBackOff"));
    let is_complete = |text: &str| {
        has_sample(text, "kubevitals_pods_starting")
            && has_sample(text, "kubevitals_pod_lifecycles_total")
    };
    let text = role.until("/metrics", is_complete).await;
    for family in FAMILIES {
        let sample = match family.kind {
            FamilyKind::Histogram(_) => format!("{}_count", family.name),
            FamilyKind::Counter | FamilyKind::Gauge => family.name.to_owned(),
        };
        assert!(has_sample(&text, &sample), "{sample} is missing:\n{text}");
    }
    for name in PEERS {
        assert!(has_sample(&text, name), "{name} is missing:\n{text}");
    }
    role.stop().await;
}

#[tokio::test]
async fn a_pod_that_hangs_is_visible_before_it_is_deleted() {
    let cluster = Cluster::start().await;
    let flags = [
        "--leader-elect",
        "--leader-elect-lease-duration=2s",
        "--leader-elect-renew-deadline=1500ms",
        "--leader-elect-retry-period=100ms",
        "--leader-elect-resource-namespace=default",
    ];
    let leader = RoleHarness::ready(&cluster, &flags).await;
    leader
        .until_metric("kubevitals_transitions_leader", |is| is == 1)
        .await;
    let standby = RoleHarness::ready(&cluster, &flags).await;
    let created = ago(Duration::from_hours(2));
    cluster.create_at("hangs", &created, &waiting("ImagePullBackOff"));
    let labels = "{namespace=\"default\",waiting_for=\"image_pull_failed\",workload=\"\",workload_kind=\"Pod\"}";
    let pods = format!("kubevitals_pods_starting{labels}");
    leader.until_metric(&pods, |pods| pods == 1).await;
    // The expression of the alert PodsHangWhileStarting: older than 15 minutes.
    let age = format!("kubevitals_pods_starting_oldest_age_seconds{labels} ");
    let text = leader.ask("/metrics").await;
    let line = text.lines().find_map(|line| line.strip_prefix(&age));
    let age: f64 = line.unwrap().parse().unwrap();
    assert!((7_200.0..8_000.0).contains(&age), "{age}");
    assert_eq!(leader.metric("kubevitals_pod_startups_total").await, None);
    let text = standby.ask("/metrics").await;
    assert!(!has_sample(&text, "kubevitals_pods_starting"), "{text}");
    cluster.delete("hangs");
    leader
        .until("/metrics", |text| {
            !has_sample(text, "kubevitals_pods_starting")
        })
        .await;
    // Its successor shows what hangs too, though it was created before.
    cluster.create("next");
    cluster.set("next", &json!({}), &waiting("ImagePullBackOff"));
    leader.until_metric(&pods, |pods| pods == 1).await;
    leader.stop().await;
    standby.until_metric(&pods, |pods| pods == 1).await;
    standby.stop().await;
}
