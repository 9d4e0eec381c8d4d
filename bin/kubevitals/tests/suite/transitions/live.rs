//! Pods that are created, become ready and are deleted.

use std::time::{Duration, SystemTime};

use kubevitals_model::Timestamp;
use kubevitals_sim::objects::Resource;
use serde_json::{Value, json};

use super::{Cluster, RoleHarness};

const NO_AGE: Duration = Duration::ZERO;

#[tokio::test]
async fn a_created_pod_has_its_lines_once_it_is_ready() {
    let cluster = Cluster::start().await;
    cluster.create("before");
    cluster.make_ready("before");
    let mut role = RoleHarness::ready(&cluster, &["--lifecycle"]).await;
    cluster.create("web");
    cluster.event("web", "Pulling", "Pulling image \"web:2\"", NO_AGE);
    let pulled = "Successfully pulled image \"web:2\" in 1.5s (2.25s including waiting). Image size: 7 bytes.";
    cluster.event("web", "Pulled", pulled, NO_AGE);
    role.until_metric(
        "image_pull_watch_events_total{event_type=\"ADDED\"}",
        |count| count >= 2,
    )
    .await;
    cluster.make_ready("web");
    let lines = role.until_lines(|lines| lines.len() >= 4).await;
    let kinds: Vec<&str> = lines
        .iter()
        .map(|line| line["kube_transition_metrics"]["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["image_pull", "pod", "container", "lifecycle"]);
    let names = lines
        .iter()
        .map(|line| &line["kube_transition_metrics"]["pod_name"]);
    assert!(names.into_iter().all(|name| name == "web"), "{lines:#?}");
    let pull = &lines[0]["kube_transition_metrics"]["image_pull"];
    assert_eq!(pull["duration_seconds"], json!(2.25));

    cluster.delete("web");
    cluster.delete("before");
    let lines = role.until_lines(|lines| lines.len() >= 6).await;
    let last: Vec<&str> = lines[4..]
        .iter()
        .map(|line| {
            line["kube_transition_metrics"]["lifecycle"]["end"]
                .as_str()
                .unwrap()
        })
        .collect();
    assert_eq!(last, ["deleted", "deleted"]);
    let of = |kind| format!("pod_watch_events_total{{event_type=\"{kind}\"}}");
    role.until_metric(&of("ADDED"), |count| count == 1).await;
    role.until_metric(&of("DELETED"), |count| count == 2).await;
    assert_eq!(role.stop().await.len(), 6);
}

#[tokio::test]
async fn two_watches_are_open_however_many_pods_there_are() {
    let cluster = Cluster::start().await;
    let mut role = RoleHarness::ready(&cluster, &[]).await;
    for number in 0..300 {
        cluster.create(&format!("pod-{number}"));
    }
    assert_eq!(cluster.api.open_watches(), 2);
    for number in 0..300 {
        cluster.make_ready(&format!("pod-{number}"));
    }
    let counts = role.until_pods(300).await;
    assert!(counts.values().all(|times| *times == 1), "{counts:?}");
    assert_eq!(cluster.api.open_watches(), 2);
    assert_eq!(role.metric("image_pull_collector_routines").await, Some(1));
    role.until_metric("pod_statistics_tracked", |count| count == 300)
        .await;
    role.until_metric("image_pull_statistics_tracked", |count| count == 0)
        .await;
    role.stop().await;

    let without = RoleHarness::ready(&cluster, &["--image-pull-events=false"]).await;
    assert_eq!(cluster.api.open_watches(), 1);
    assert_eq!(
        without.metric("image_pull_collector_routines").await,
        Some(0)
    );
    without.stop().await;
}

#[tokio::test]
async fn only_selected_pods_are_tracked() {
    let cluster = Cluster::start().await;
    let mut by_namespace = RoleHarness::ready(&cluster, &["--namespace=shop"]).await;
    let mut by_label = RoleHarness::ready(&cluster, &["--selector=app=b"]).await;
    let mut by_field = RoleHarness::ready(&cluster, &["--field-selector=metadata.name!=a"]).await;
    for (namespace, name) in [("default", "a"), ("default", "b"), ("shop", "c")] {
        cluster.create_in(namespace, name);
        cluster.make_ready_in(namespace, name);
    }
    let names =
        |counts: std::collections::BTreeMap<String, usize>| counts.into_keys().collect::<Vec<_>>();
    assert_eq!(names(by_namespace.until_pods(1).await), ["c"]);
    assert_eq!(names(by_label.until_pods(1).await), ["b"]);
    assert_eq!(names(by_field.until_pods(2).await), ["b", "c"]);
    for role in [by_namespace, by_label, by_field] {
        role.stop().await;
    }
}

#[tokio::test]
async fn every_pod_is_in_one_of_four_shards() {
    let cluster = Cluster::start().await;
    let mut parts = Vec::new();
    for part in ["--shard=0/4", "--shard=1/4", "--shard=2/4", "--shard=3/4"] {
        parts.push(RoleHarness::ready(&cluster, &[part]).await);
    }
    let names: Vec<String> = (0..40).map(|number| format!("pod-{number}")).collect();
    for name in &names {
        cluster.create(name);
        let message = "Container image \"web:2\" already present on machine";
        cluster.event(name, "Pulled", message, NO_AGE);
    }
    for part in &parts {
        let events = "image_pull_watch_events_total{event_type=\"ADDED\"}";
        part.until_metric(events, |count| count == 40).await;
    }
    for name in &names {
        cluster.make_ready(name);
    }
    for part in &parts {
        let changes = "pod_watch_events_total{event_type=\"MODIFIED\"}";
        part.until_metric(changes, |count| count == 40).await;
    }
    let mut all = std::collections::BTreeMap::new();
    let mut pulls = 0;
    for part in parts {
        let lines = part.stop().await;
        let counts = super::harness::count(&lines, "pod");
        assert!(!counts.is_empty() && counts.len() < 40);
        pulls += super::harness::count(&lines, "image_pull").len();
        for (name, times) in counts {
            *all.entry(name).or_insert(0) += times;
        }
    }
    assert_eq!(all.len(), 40);
    assert!(all.values().all(|times| *times == 1), "{all:?}");
    assert_eq!(pulls, 40);
}

#[tokio::test]
async fn shutdown_emits_settled_pods_and_leaves_the_others() {
    let cluster = Cluster::start().await;
    let role = RoleHarness::ready(&cluster, &["--image-pull-cancel-delay=3600"]).await;
    cluster.create("ready");
    cluster.make_ready("ready");
    cluster.create("starting");
    role.until_metric("pod_statistics_tracked", |count| count == 2)
        .await;
    assert!(role.lines().is_empty(), "late events have an hour");
    let lines = role.stop().await;
    let counts = super::harness::count(&lines, "pod");
    assert_eq!(Vec::from_iter(counts), [("ready".to_owned(), 1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_pods_is_tracked_completely() {
    const PRESENT: usize = 500;
    const NEW: usize = 1_000;
    let cluster = Cluster::start().await;
    for number in 0..PRESENT {
        let name = format!("old-{number}");
        cluster.create(&name);
        cluster.make_ready(&name);
    }
    // The queue is much too short: the role resynchronizes and continues.
    let mut roomy = RoleHarness::ready(&cluster, &[]).await;
    let mut narrow = RoleHarness::ready(&cluster, &["--statistic-event-queue-length=8"]).await;
    for number in 0..NEW {
        let name = format!("new-{number}");
        cluster.create(&name);
        cluster.event(&name, "Pulling", "Pulling image \"web:2\"", NO_AGE);
        cluster.make_ready(&name);
        if number % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    for role in [&mut roomy, &mut narrow] {
        let counts = role.until_pods(NEW).await;
        assert_eq!(counts.len(), NEW, "existing pods are not emitted");
        assert!(counts.values().all(|times| *times == 1));
    }
    assert_eq!(cluster.api.open_watches(), 4);
    for role in [roomy, narrow] {
        let tracked = u64::try_from(PRESENT + NEW).unwrap();
        role.until_metric("pod_statistics_tracked", |count| count == tracked)
            .await;
        role.stop().await;
    }
}

/// The event watch excluded Karpenter's `FailedScheduling` together with the scheduler's.
#[tokio::test]
async fn a_node_that_is_added_is_not_a_lack_of_room() {
    let cluster = Cluster::start().await;
    let role = RoleHarness::ready(&cluster, &["--metric-labels=namespace"]).await;
    cluster.create("web");
    let mut pod = cluster
        .api
        .object(Resource::Pods, Some("default"), "web")
        .unwrap();
    pod["spec"].as_object_mut().unwrap().remove("nodeName");
    let full = "0/3 nodes are available: 3 Insufficient cpu.";
    pod["status"]["conditions"] = json!([{"type": "PodScheduled", "status": "False",
        "reason": "Unschedulable", "message": full, "lastTransitionTime": "2026-11-15T20:12:01Z"}]);
    pod["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    cluster.api.writer().replace(Resource::Pods, pod).unwrap();
    let waiting_for = |blocker: &str| {
        format!("kubevitals_pods_starting{{namespace=\"default\",waiting_for=\"{blocker}\"}}")
    };
    let until_waiting = async |blocker: &str| {
        role.until_metric(&waiting_for(blocker), |pods| pods == 1)
            .await;
    };
    let now = SystemTime::now();
    let failed = "FailedScheduling";
    cluster.event_by("default-scheduler", now, ("web", failed, full));
    until_waiting("unschedulable").await;
    let nominated = "Pod should schedule on: nodeclaim/default-tn8fg";
    cluster.event_by("karpenter", now, ("web", "Nominated", nominated));
    until_waiting("provisioning").await;
    let refused = "Failed to schedule pod, all available instance types exceed limits for nodepool";
    let later = now + Duration::from_secs(20);
    cluster.event_by("eks-auto-mode", later, ("web", failed, refused));
    until_waiting("unschedulable").await;
    // That of the scheduler was not even sent.
    let events = "image_pull_watch_events_total{event_type=\"ADDED\"}";
    assert_eq!(role.metric(events).await, Some(2));
    role.stop().await;
}

/// The role knew new nodes by events alone.
#[tokio::test]
async fn a_node_younger_than_its_pod_was_waited_for() {
    let cluster = Cluster::start().await;
    let now = SystemTime::now();
    let ago = |seconds| {
        let time = Timestamp::from_system_time(now - Duration::from_secs(seconds));
        time.rfc3339_seconds().to_string()
    };
    let node = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "creationTimestamp": ago(30)}});
    cluster.api.writer().create(Resource::Nodes, node).unwrap();
    let flags = ["--lifecycle", "--metric-labels=namespace,node_pool"];
    let mut role = RoleHarness::ready(&cluster, &flags).await;
    cluster.create_at("web", &ago(60), &json!({"phase": "Pending"}));
    cluster.make_ready("web");
    let is_lifecycle = |line: &&Value| line["kube_transition_metrics"]["type"] == "lifecycle";
    let lines = role
        .until_lines(|lines| lines.iter().any(|line| is_lifecycle(&line)))
        .await;
    let lifecycle = lines.iter().find(is_lifecycle).unwrap();
    let cause = &lifecycle["kube_transition_metrics"]["lifecycle"]["cause"];
    let cause = cause.as_str().unwrap();
    assert!(
        cause.starts_with("waited for a new node for") && cause.contains("n1 joined after 30 s"),
        "{cause}"
    );
    let text = role.ask("/metrics").await;
    assert!(text.contains("phase=\"provisioning\""), "{text}");
    role.stop().await;
}
