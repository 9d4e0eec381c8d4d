//! Watching.

use std::time::Duration;

use kubevitals_sim::api::{HistoryLimits, SimApi, SimApiConfig};
use kubevitals_sim::objects::Resource;
use serde_json::json;

use crate::support::{add_pods, admin, pod, sim};

#[expect(
    clippy::unnecessary_wraps,
    reason = "it is compared with the next event, if any"
)]
fn brief(kind: &str, name: &str) -> Option<(String, String)> {
    Some((kind.to_owned(), name.to_owned()))
}

#[tokio::test]
async fn a_watch_continues_from_a_list() {
    let sim = sim().await;
    add_pods(&sim, &["a"]);
    let client = admin(&sim);
    let list = client.json("/api/v1/pods").await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    add_pods(&sim, &["b"]);
    let mut events = client
        .watch(&format!(
            "/api/v1/pods?watch=true&resourceVersion={version}"
        ))
        .await;
    assert_eq!(events.brief().await, brief("ADDED", "b"));
    sim.writer()
        .replace(Resource::Pods, pod("a", "n2"))
        .unwrap();
    assert_eq!(events.brief().await, brief("MODIFIED", "a"));
    let deleted = sim
        .writer()
        .delete(Resource::Pods, Some("default"), "a")
        .unwrap();
    let event = events.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    // A deletion has its own resource version.
    assert_eq!(
        event["object"]["metadata"]["resourceVersion"],
        deleted.to_string()
    );
    assert_eq!(event["object"]["kind"], "Pod");
    sim.shutdown().await;
}

#[tokio::test]
async fn objects_enter_and_leave_a_selection() {
    let sim = sim().await;
    add_pods(&sim, &["a"]);
    let path = "/api/v1/pods?watch=1&fieldSelector=spec.nodeName%3Dn2";
    let mut events = admin(&sim).watch(path).await;
    sim.writer()
        .replace(Resource::Pods, pod("a", "n2"))
        .unwrap();
    assert_eq!(events.brief().await, brief("ADDED", "a"));
    let left = sim
        .writer()
        .replace(Resource::Pods, pod("a", "n3"))
        .unwrap();
    let event = events.next().await.unwrap();
    assert_eq!(
        (&event["type"], &event["object"]["spec"]["nodeName"]),
        (&json!("DELETED"), &json!("n2"))
    );
    assert_eq!(
        event["object"]["metadata"]["resourceVersion"],
        left.to_string()
    );
    sim.shutdown().await;
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let sim = sim().await;
    add_pods(&sim, &["a", "b"]);
    let client = admin(&sim);
    let path = "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = client.watch(path).await;
    assert_eq!(events.brief().await, brief("ADDED", "a"));
    assert_eq!(events.brief().await, brief("ADDED", "b"));
    let bookmark = events.next().await.unwrap();
    assert_eq!(
        bookmark,
        json!({"type": "BOOKMARK", "object": {"kind": "Pod", "apiVersion": "v1", "metadata": {
            "resourceVersion": sim.resource_version().to_string(),
            "annotations": {"k8s.io/initial-events-end": "true"}}}})
    );
    let invalid = client
        .get("/api/v1/pods?watch=1&sendInitialEvents=true")
        .await;
    assert_eq!(invalid.status().0, 422);
    sim.shutdown().await;
}

#[tokio::test]
async fn streaming_lists_can_be_rejected() {
    let sim = sim().await;
    let client = admin(&sim);
    let path = "/api/v1/pods?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    sim.reject_streaming_lists(true);
    let (code, reason, message) = client.get(path).await.status();
    assert_eq!((code, reason.as_str()), (422, "Invalid"));
    assert!(message.contains("WatchList feature gate"), "{message}");
    sim.clear_faults();
    let first = client.watch(path).await.next().await.unwrap();
    assert_eq!(first["type"], "BOOKMARK");
    sim.shutdown().await;
}

#[tokio::test]
async fn bookmarks_come_on_demand_unless_frozen() {
    let sim = sim().await;
    let mut events = admin(&sim)
        .watch("/api/v1/nodes?watch=1&allowWatchBookmarks=true")
        .await;
    add_pods(&sim, &["a"]);
    sim.send_bookmarks();
    let bookmark = events.next().await.unwrap();
    assert_eq!(bookmark["type"], "BOOKMARK");
    // Its version includes writes of other resources.
    assert_eq!(
        bookmark["object"]["metadata"]["resourceVersion"],
        sim.resource_version().to_string()
    );
    sim.freeze_bookmarks(true);
    sim.send_bookmarks();
    sim.writer()
        .create(Resource::Nodes, json!({"metadata": {"name": "n"}}))
        .unwrap();
    assert_eq!(events.brief().await, brief("ADDED", "n"));
    sim.shutdown().await;
}

#[tokio::test]
async fn bookmarks_come_by_themselves() {
    let config = SimApiConfig {
        bookmark_interval: Duration::from_millis(5),
        ..SimApiConfig::default()
    };
    let sim = SimApi::start(config).await.unwrap();
    let mut events = admin(&sim)
        .watch("/api/v1/pods?watch=1&allowWatchBookmarks=true")
        .await;
    for _ in 0..3 {
        assert_eq!(events.next().await.unwrap()["type"], "BOOKMARK");
    }
    sim.shutdown().await;
}

#[tokio::test]
async fn an_expired_version_is_an_error_in_the_stream() {
    let config = SimApiConfig {
        history: HistoryLimits {
            changes: 1,
            ..HistoryLimits::default()
        },
        ..SimApiConfig::default()
    };
    let sim = SimApi::start(config).await.unwrap();
    add_pods(&sim, &["a", "b", "c"]);
    let mut events = admin(&sim)
        .watch("/api/v1/pods?watch=1&resourceVersion=1")
        .await;
    let event = events.next().await.unwrap();
    assert_eq!(event["type"], "ERROR");
    assert_eq!(
        (&event["object"]["code"], &event["object"]["reason"]),
        (&json!(410), &json!("Expired"))
    );
    assert_eq!(events.next().await, None);
    sim.shutdown().await;
}

#[tokio::test]
async fn a_watch_ends_in_time_and_on_command() {
    let sim = sim().await;
    let client = admin(&sim);
    let mut timed = client.watch("/api/v1/pods?watch=1&timeoutSeconds=1").await;
    let mut dropped = client.watch("/api/v1/pods?watch=1").await;
    sim.drop_watches();
    assert_eq!(dropped.next().await, None);
    assert_eq!(timed.next().await, None);
    sim.shutdown().await;
}
