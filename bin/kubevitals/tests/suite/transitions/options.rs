//! Flags of the role, as it runs.

use std::time::Duration;

use serde_json::{Value, json};

use super::harness::count;
use super::{Cluster, RoleHarness};

const NO_AGE: Duration = Duration::ZERO;
const PRESENT: &str = "Container image \"web:2\" already present on machine";

/// The sum over the series of a family with all these labels.
fn sum(text: &str, family: &str, labels: &[&str]) -> u64 {
    let lines = text.lines().filter(|line| {
        let is_of = line
            .strip_prefix(family)
            .is_some_and(|rest| rest.starts_with('{'));
        is_of && labels.iter().all(|label| line.contains(label))
    });
    lines
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum()
}

fn kinds(lines: &[Value]) -> Vec<&str> {
    let lines = lines.iter();
    lines
        .map(|line| line["kube_transition_metrics"]["type"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn without_output_lines_only_metrics_are_served() {
    let cluster = Cluster::start().await;
    let role = RoleHarness::ready(&cluster, &["--output-lines=false"]).await;
    cluster.create("web");
    cluster.make_ready("web");
    role.until_metric(
        "kubevitals_pod_startups_total{namespace=\"default\",result=\"ready\",workload=\"\",workload_kind=\"Pod\"}",
        |count| count == 1,
    )
    .await;
    assert!(role.stop().await.is_empty());
}

#[tokio::test]
async fn label_sets_beyond_the_limit_share_series() {
    let cluster = Cluster::start().await;
    let flags = [
        "--metric-labels=namespace",
        "--metric-series-limit=1",
        "--label-keys=app",
    ];
    let mut role = RoleHarness::ready(&cluster, &flags).await;
    for (namespace, name) in [("shop", "a"), ("bank", "b")] {
        cluster.create_in(namespace, name);
        cluster.make_ready_in(namespace, name);
        role.until_pods(if name == "a" { 1 } else { 2 }).await;
    }
    let startups = |labels| format!("kubevitals_pod_startups_total{{{labels},result=\"ready\"}}");
    let own = startups("label_app=\"a\",namespace=\"shop\"");
    let other = startups("label_app=\"_other\",namespace=\"_other\"");
    for series in [own, other] {
        role.until("/metrics", |text| text.contains(&series)).await;
    }
    role.until_metric("kubevitals_pod_metrics_overflow_total", |count| count == 1)
        .await;
    let lines = role.stop().await;
    for line in lines {
        let metrics = &line["kube_transition_metrics"];
        assert_eq!(metrics["label_app"], metrics["pod_name"]);
    }
}

#[tokio::test]
async fn native_histograms_are_exposed_as_protobuf() {
    let cluster = Cluster::start().await;
    let mut sizes = Vec::new();
    for flag in ["--native-histograms=false", "--native-histograms"] {
        let mut role = RoleHarness::ready(&cluster, &[flag]).await;
        let name = if sizes.is_empty() { "pod-a" } else { "pod-b" };
        cluster.create(name);
        cluster.make_ready(name);
        role.until_pods(1).await;
        let accept = "Accept: application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited\r\n";
        let body = role.bytes("/metrics", accept).await;
        let family = b"kubevitals_pod_startup_duration_seconds";
        let mut places = (0..body.len()).filter(|at| body[*at..].starts_with(family));
        let from = places.next().expect("the family is in the response");
        let next = body[from + 1..]
            .windows(11)
            .position(|some| some == b"kubevitals_");
        sizes.push(next.unwrap());
        role.stop().await;
    }
    assert!(sizes[1] > sizes[0], "{sizes:?}");
}

#[tokio::test]
async fn partial_lines_come_before_the_last_ones() {
    let cluster = Cluster::start().await;
    let mut role = RoleHarness::ready(&cluster, &["--emit-partial"]).await;
    cluster.create("web");
    let lines = role.until_lines(|lines| lines.len() >= 2).await;
    assert_eq!(kinds(&lines), ["pod", "container"]);
    cluster.event("web", "Pulling", "Pulling image \"web:2\"", NO_AGE);
    let lines = role.until_lines(|lines| lines.len() >= 5).await;
    assert_eq!(kinds(&lines[2..]), ["pod", "container", "image_pull"]);
    let is_partial = |line: &Value| line["kube_transition_metrics"]["partial"] == json!(true);
    assert!(lines.iter().all(is_partial), "{lines:#?}");
    cluster.make_ready("web");
    let lines = role
        .until_lines(|lines| {
            let mut pods = lines
                .iter()
                .filter(|line| line["kube_transition_metrics"]["type"] == "pod");
            pods.any(|line| !is_partial(line))
        })
        .await;
    let last = lines.iter().rposition(|line| !is_partial(line));
    assert!(last.is_some());
    role.stop().await;
}

#[tokio::test]
async fn lists_have_pages_and_watches_a_timeout() {
    let cluster = Cluster::start().await;
    cluster.api.reject_streaming_lists(true);
    for number in 0..12 {
        cluster.create(&format!("pod-{number}"));
    }
    let flags = ["--kube-watch-max-events=5", "--kube-watch-timeout=1"];
    let role = RoleHarness::ready(&cluster, &flags).await;
    let of_pods = ["verb=\"list\"", "resource=\"pods\"", "code=\"200\""];
    role.until("/metrics", |text| {
        sum(text, "kube_client_requests_total", &of_pods) == 3
    })
    .await;
    // Both watches end after one to two seconds, and are opened again.
    for restarts in [
        "pod_collector_restarts_total",
        "image_pull_collector_restarts_total",
    ] {
        role.until_metric(restarts, |count| count >= 2).await;
    }
    role.stop().await;
}

#[tokio::test]
async fn a_list_of_events_is_read_up_to_its_limit_and_misses_no_namespace() {
    let cluster = Cluster::start().await;
    cluster.create("ready");
    cluster.make_ready("ready");
    for _ in 0..30 {
        cluster.event("ready", "Pulled", PRESENT, NO_AGE);
    }
    let flags = [
        "--kube-watch-max-events=5",
        "--event-list-limit=10",
        "--lifecycle",
    ];
    let role = RoleHarness::ready(&cluster, &flags).await;
    let listed = "kubevitals_transitions_listed_objects_total{stream=\"events\"}";
    role.until_metric(listed, |count| count >= 10).await;
    // What follows comes from the watch.
    cluster.event("ready", "Pulled", PRESENT, NO_AGE);
    let live = "image_pull_watch_events_total{event_type=\"ADDED\"}";
    role.until_metric(live, |count| count == 1).await;
    assert_eq!(role.metric(listed).await, Some(10));
    role.stop().await;

    // Events of a namespace in which a pod is starting are read though it is the last one.
    cluster.create_in("zoo", "late");
    cluster.event_in("zoo", "late", "Pulled", PRESENT, NO_AGE);
    let mut role = RoleHarness::ready(&cluster, &flags).await;
    role.until_metric(listed, |count| count == 11).await;
    cluster.make_ready_in("zoo", "late");
    role.until_pods(1).await;
    let lines = role.stop().await;
    let lifecycle = lines
        .iter()
        .map(|line| &line["kube_transition_metrics"]["lifecycle"])
        .find(|lifecycle| lifecycle.is_object());
    let pull = &lifecycle.unwrap()["containers"][0]["image_pull"];
    assert_eq!(pull["already_present"], json!(true));
}

#[tokio::test]
async fn a_pull_has_its_line_when_it_ends_and_only_then() {
    let cluster = Cluster::start().await;
    let mut role = RoleHarness::ready(&cluster, &[]).await;
    cluster.create("hangs");
    cluster.event("hangs", "Pulled", PRESENT, NO_AGE);
    let lines = role.until_lines(|lines| !lines.is_empty()).await;
    assert_eq!(kinds(&lines), ["image_pull"]);
    let first = role.stop().await;
    // The next process follows the same pod and does not repeat the pull.
    let mut role = RoleHarness::ready(&cluster, &[]).await;
    let listed = "kubevitals_transitions_listed_objects_total{stream=\"events\"}";
    role.until_metric(listed, |count| count == 1).await;
    cluster.make_ready("hangs");
    role.until_pods(1).await;
    let second = role.stop().await;
    assert_eq!(
        (kinds(&first), kinds(&second)),
        (vec!["image_pull"], vec!["pod", "container"])
    );
    assert_eq!(count(&second, "image_pull").len(), 0);
}

#[tokio::test]
async fn a_pod_that_leaves_the_selection_is_not_deleted() {
    let cluster = Cluster::start().await;
    let mut role = RoleHarness::ready(&cluster, &["--selector=app=web", "--lifecycle"]).await;
    cluster.create("web");
    cluster.make_ready("web");
    role.until_lines(|lines| lines.len() >= 3).await;
    cluster.set("web", &json!({"labels": {"app": "other"}}), &json!({}));
    let lines = role.until_lines(|lines| lines.len() >= 4).await;
    let last = &lines[3]["kube_transition_metrics"]["lifecycle"];
    assert_eq!(last["end"], json!("unselected"));
    role.stop().await;
}
