use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, Full, StreamBody};
use k8s_openapi::api::core::v1::Pod;
use kubevitals_host_provider::{HostPods, host_provider, pod_watch};
use kubevitals_kubelet_api::ProviderError;
use kubevitals_model::{PodKey, Timestamp};
use kubevitals_watch::{BoxBody, ResponseFuture, Transport, WatchClient, WatchOptions};
use serde_json::json;
use tokio::sync::mpsc;

use crate::{DEADLINE, ID, TestNode, UID, pod, running};

#[tokio::test]
async fn one_sample_feeds_statistics_and_running_pods() {
    let pods = HostPods::default();
    pods.insert(Arc::new(pod(running(), json!({}), 0)));
    let node = TestNode::start(Some(&pods));
    let provider = host_provider(&node.stats, Some(&pods), node.root());
    let stats = provider.stats.as_ref().unwrap();
    let first = stats.stats(false).await.unwrap();
    let second = stats.stats(true).await.unwrap();
    assert!(Arc::ptr_eq(&first, &second));
    let sampled = &first.pods[0];
    assert_eq!(sampled.key, PodKey::new("default", "web"));
    let started = Timestamp::from_unix_millis(1_767_225_601_000);
    assert_eq!(sampled.containers[0].started, Some(started));
    assert_eq!(sampled.containers[0].image, "app:1");
    let listed = provider.pods.as_ref().unwrap().pods().await.unwrap();
    assert_eq!(listed.len(), 1);
    let running = provider
        .running_pods
        .as_ref()
        .unwrap()
        .pods()
        .await
        .unwrap();
    let status = running[0].status.as_ref().unwrap();
    let container = &status.container_statuses.as_ref().unwrap()[0];
    assert_eq!(container.container_id.as_deref(), Some(ID));
    // A new sample once this one is old.
    node.clock.advance(Duration::from_secs(6));
    assert!(!Arc::ptr_eq(&first, &stats.stats(false).await.unwrap()));
}

#[tokio::test]
async fn without_an_api_server_there_are_statistics_and_no_pods() {
    let node = TestNode::start(None);
    let provider = host_provider(&node.stats, None, node.root());
    assert!(provider.pods.is_none());
    let stats = provider.stats.as_ref().unwrap().stats(false).await.unwrap();
    assert_eq!(stats.pods[0].containers[0].name, "app");
}

#[tokio::test]
async fn a_sampler_that_stopped_is_unavailable() {
    let node = TestNode::start(None);
    let stats = node.stats.clone();
    let provider = host_provider(&stats, None, node.root());
    let clock = node.clock.clone();
    provider.stats.as_ref().unwrap().stats(false).await.unwrap();
    node.stop().await;
    clock.advance(Duration::from_secs(6));
    let error = provider.stats.as_ref().unwrap().stats(false).await;
    assert!(
        matches!(error, Err(ProviderError::Unavailable(_))),
        "{error:?}"
    );
}

#[test]
fn a_static_pod_is_known_by_the_hash_of_its_manifest() {
    let hash = "e1a2b3c4d5e6f708192a3b4c5d6e7f80";
    let pods = HostPods::default();
    let mut mirror = pod(running(), json!({}), 0);
    mirror.metadata.annotations = Some(BTreeMap::from([(
        "kubernetes.io/config.hash".to_owned(),
        hash.to_owned(),
    )]));
    pods.insert(Arc::new(mirror.clone()));
    let table = pods.table();
    assert_eq!(table.get(UID), None);
    assert_eq!(table.get(hash).unwrap().container(ID).unwrap().name, "app");
    // A new mirror of a changed manifest replaces it.
    let mut changed = mirror.clone();
    changed.metadata.uid = Some("other".to_owned());
    changed.metadata.annotations = None;
    pods.insert(Arc::new(changed.clone()));
    assert_eq!(table.get(hash), None);
    assert!(table.get("other").is_some());
    // The deletion of the old one does not remove the new one.
    pods.remove(&mirror);
    assert!(table.get("other").is_some());
    pods.remove(&changed);
    assert_eq!(table.get("other"), None);
}

/// An API server with one list and one watch.
#[derive(Debug)]
struct FakeServer {
    queries: Mutex<Vec<String>>,
    events: Mutex<Option<mpsc::Receiver<String>>>,
}

impl Transport for FakeServer {
    fn get(&self, request: Request<()>) -> ResponseFuture<'_> {
        let uri = request.uri().to_string();
        self.queries.lock().unwrap().push(uri.clone());
        let body: BoxBody = if uri.contains("watch=") {
            let events = self.events.lock().unwrap().take();
            let frames = futures_util::stream::unfold(events, |events| async {
                let mut events = events?;
                let line = events.recv().await?;
                let frame = http_body::Frame::data(bytes::Bytes::from(line));
                Some((
                    Ok::<_, Box<dyn std::error::Error + Send + Sync>>(frame),
                    Some(events),
                ))
            });
            Box::pin(StreamBody::new(frames))
        } else {
            let list = json!({
                "kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "10"},
                "items": [with_version(pod(running(), json!({}), 0), 9)],
            });
            let body = Full::new(bytes::Bytes::from(list.to_string()));
            Box::pin(body.map_err(|never| match never {}))
        };
        Box::pin(async { Ok(Response::new(body)) })
    }
}

/// The server, also held by the test.
#[derive(Debug)]
struct Shared(Arc<FakeServer>);

impl Transport for Shared {
    fn get(&self, request: Request<()>) -> ResponseFuture<'_> {
        self.0.get(request)
    }
}

fn with_version(mut pod: Pod, version: u32) -> serde_json::Value {
    pod.metadata.resource_version = Some(version.to_string());
    let mut value = serde_json::to_value(pod).unwrap();
    let fields = value.as_object_mut().unwrap();
    fields.insert("apiVersion".to_owned(), json!("v1"));
    fields.insert("kind".to_owned(), json!("Pod"));
    value
}

#[tokio::test]
async fn pods_of_the_node_are_watched() {
    let (events, receiver) = mpsc::channel(4);
    let server = Arc::new(FakeServer {
        queries: Mutex::new(Vec::new()),
        events: Mutex::new(Some(receiver)),
    });
    let client = WatchClient::new(Shared(Arc::clone(&server)));
    let options = WatchOptions {
        streaming_lists: false,
        ..WatchOptions::default()
    };
    let reflector = client.reflector(pod_watch("node-1").options(options));
    let pods = HostPods::default();
    let mut changes = pods.changes();
    let follower = {
        let (pods, reflector) = (pods.clone(), reflector.clone());
        tokio::spawn(async move { pods.follow(&reflector, std::future::pending()).await })
    };
    let key = PodKey::new("default", "web");
    let wait = changes.wait_for(|_| pods.get(&key).is_some());
    tokio::time::timeout(DEADLINE, wait).await.unwrap().unwrap();
    let listed = pods.get(&key).unwrap();
    assert_eq!(listed.metadata.managed_fields, None);
    assert!(pods.table().get(UID).is_some());
    let event =
        json!({"type": "DELETED", "object": with_version(pod(running(), json!({}), 0), 11)});
    events.send(format!("{event}\n")).await.unwrap();
    let wait = changes.wait_for(|_| pods.get(&key).is_none());
    tokio::time::timeout(DEADLINE, wait).await.unwrap().unwrap();
    assert_eq!(pods.table().get(UID), None);
    let queries = server.queries.lock().unwrap();
    assert!(queries[0].contains("spec.nodeName%3Dnode-1"), "{queries:?}");
    follower.abort();
}
