//! Starts as traces, at a receiver on a real socket.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use kubevitals_sim::objects::Resource;
use kubevitals_sim::otlp::{OtlpReceiver, Received, Reply};
use tokio::time::timeout;

use super::{Cluster, RoleHarness};
use crate::DEADLINE;
use crate::{kubevitals, output};

const SENT: &str = "kubevitals_transitions_spans_exported_total";

async fn receiver() -> OtlpReceiver {
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    OtlpReceiver::start(address, None).await.unwrap()
}

async fn until(receiver: &OtlpReceiver, is_wanted: impl Fn(&Received) -> bool) -> Received {
    timeout(DEADLINE, receiver.until(is_wanted)).await.unwrap()
}

fn endpoint(receiver: &OtlpReceiver) -> String {
    format!("--otlp-endpoint=http://{}", receiver.address)
}

fn roots(received: &Received) -> BTreeSet<&str> {
    let roots = received
        .spans
        .iter()
        .filter(|span| span.parent_span_id.is_empty());
    roots.map(|span| span.trace_id.as_str()).collect()
}

#[tokio::test]
async fn a_start_is_one_trace_of_the_pod() {
    let cluster = Cluster::start().await;
    for protocol in ["--otlp-protocol=http/protobuf", "--otlp-protocol=grpc"] {
        let receiver = receiver().await;
        let role = RoleHarness::ready(&cluster, &[&endpoint(&receiver), protocol]).await;
        cluster.create("web");
        let pulled = "Successfully pulled image \"web:2\" in 1.5s (2.25s including waiting). Image size: 7 bytes.";
        cluster.event("web", "Pulled", pulled, Duration::ZERO);
        role.until_metric(
            "image_pull_watch_events_total{event_type=\"ADDED\"}",
            |count| count > 0,
        )
        .await;
        cluster.make_ready("web");
        let received = until(&receiver, |received| !received.spans.is_empty()).await;
        let known = cluster.api.object(Resource::Pods, Some("default"), "web");
        let uid = known.unwrap()["metadata"]["uid"]
            .as_str()
            .unwrap()
            .to_owned();
        let root = &received.spans[0];
        assert_eq!(
            (root.name.as_str(), root.parent_span_id.as_str()),
            ("pod start", "")
        );
        assert_eq!(root.trace_id, uid.replace('-', ""));
        for (key, value) in [
            ("k8s.namespace.name", "default"),
            ("k8s.pod.name", "web"),
            ("k8s.pod.uid", uid.as_str()),
            ("k8s.node.name", "n1"),
            ("kubevitals.result", "ready"),
        ] {
            assert_eq!(root.attributes[key], value, "{key}");
        }
        assert_eq!(root.resource["service.name"], "kubevitals");
        assert_eq!(root.resource["service.version"], env!("CARGO_PKG_VERSION"));
        assert!(root.resource.contains_key("service.instance.id"));
        assert!(
            received
                .spans
                .iter()
                .all(|span| span.trace_id == root.trace_id)
        );
        let sent = received.spans.len() as u64;
        role.until_metric(SENT, |count| count == sent).await;
        cluster.delete("web");
        role.stop().await;
        assert_eq!(
            receiver.received().spans.len() as u64,
            sent,
            "a deletion is no start"
        );
    }
}

#[tokio::test]
async fn spans_that_are_queued_are_sent_at_shutdown() {
    let cluster = Cluster::start().await;
    let receiver = receiver().await;
    let mut role = RoleHarness::ready(&cluster, &[&endpoint(&receiver)]).await;
    for number in 0..20 {
        cluster.create(&format!("pod-{number}"));
        cluster.make_ready(&format!("pod-{number}"));
    }
    role.until_pods(20).await;
    role.stop().await;
    assert_eq!(roots(&receiver.received()).len(), 20);
}

/// A receiver that is away costs its spans, and nothing else.
#[tokio::test]
async fn a_receiver_that_is_away_delays_neither_lines_nor_shutdown() {
    let cluster = Cluster::start().await;
    let receiver = receiver().await;
    receiver.always(Reply::Hang);
    let more = [&*endpoint(&receiver), "--shutdown-grace-period=3s"];
    let mut role = RoleHarness::ready(&cluster, &more).await;
    cluster.create("web");
    cluster.make_ready("web");
    role.until_pods(1).await;
    until(&receiver, |received| !received.requests.is_empty()).await;
    assert_eq!(role.metric(SENT).await, Some(0));
    let stopped = timeout(DEADLINE / 2, role.stop()).await;
    assert_eq!(stopped.unwrap().len(), 2);
}

#[tokio::test]
async fn of_two_replicas_the_leader_sends_and_the_next_one_continues() {
    let cluster = Cluster::start().await;
    let receiver = receiver().await;
    let endpoint = endpoint(&receiver);
    let flags = [
        "--leader-elect",
        "--leader-elect-lease-duration=2s",
        "--leader-elect-renew-deadline=1500ms",
        "--leader-elect-retry-period=100ms",
        "--leader-elect-resource-namespace=default",
        &endpoint,
    ];
    let leader = "kubevitals_transitions_leader";
    let mut first = RoleHarness::ready(&cluster, &flags).await;
    first.until_metric(leader, |value| value == 1).await;
    let second = RoleHarness::ready(&cluster, &flags).await;
    let start = |names: std::ops::Range<u32>| {
        for number in names {
            cluster.create(&format!("pod-{number}"));
            cluster.make_ready(&format!("pod-{number}"));
        }
    };
    start(0..10);
    first.until_pods(10).await;
    assert_eq!(
        second.metric(SENT).await,
        Some(0),
        "a standby sends nothing"
    );
    first.stop().await;
    second.until_metric(leader, |value| value == 1).await;
    start(10..20);
    let received = until(&receiver, |received| roots(received).len() == 20).await;
    second.stop().await;
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for span in &received.spans {
        *seen.entry(&span.span_id).or_default() += 1;
    }
    assert!(seen.values().all(|times| *times == 1), "{seen:?}");
}

#[test]
fn bad_settings_of_traces_are_named_at_startup() {
    let rejected = |flags: &[&str], variable: (&str, &str)| {
        let mut words = vec!["transitions"];
        words.extend(flags);
        let (code, _, stderr) = output(kubevitals(&words).env(variable.0, variable.1));
        assert_eq!(code, 64, "{stderr}");
        stderr
    };
    let none = ("OTEL_EXPORTER_OTLP_HEADERS", "");
    let text = rejected(&["--otlp-endpoint=collector:4318"], none);
    assert!(
        text.contains("collector:4318") && text.contains("http://HOST:4318"),
        "{text}"
    );
    let text = rejected(&["--otlp-endpoint=http://user:s3cret@collector"], none);
    assert!(
        text.contains("header") && !text.contains("s3cret"),
        "{text}"
    );
    let headers = ("OTEL_EXPORTER_OTLP_HEADERS", "s3cret");
    let text = rejected(&["--otlp-endpoint=http://collector:4318"], headers);
    assert!(
        text.contains("OTEL_EXPORTER_OTLP_HEADERS") && !text.contains("s3cret"),
        "{text}"
    );
    let text = rejected(&["--otlp-protocol=http/json"], none);
    assert!(text.contains("http/json"), "{text}");
}
