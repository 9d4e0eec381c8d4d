//! Streams of pods and nodes, followed over an API server in memory.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use kubevitals_usage::{follow_nodes, follow_pods};
use kubevitals_watch::{Answer, BoxBody, Node, PodBrief, Server, StreamSpec, Transport, TypedKind};
use tokio::sync::mpsc;

use crate::world::{CORE_SECOND, World, at, row, row_of};

/// Answers each list with one text and each watch with a channel.
#[derive(Debug, Clone)]
struct Fake {
    list: &'static str,
    watch: Arc<Mutex<Option<mpsc::Receiver<Bytes>>>>,
}

struct Once(Option<Bytes>);
struct Channel(mpsc::Receiver<Bytes>);

type Data = Poll<Option<Result<Frame<Bytes>, Box<dyn std::error::Error + Send + Sync>>>>;

impl Body for Once {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Data {
        Poll::Ready(self.0.take().map(|data| Ok(Frame::data(data))))
    }
}

impl Body for Channel {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Data {
        let data = self.0.poll_recv(context);
        data.map(|data| data.map(|data| Ok(Frame::data(data))))
    }
}

impl Transport for Fake {
    fn get(&self, request: Request<()>) -> Answer<'_> {
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=");
        Box::pin(async move {
            let body: BoxBody = if is_watch {
                let channel = self.watch.lock().unwrap().take();
                match channel {
                    Some(channel) => Box::pin(Channel(channel)),
                    // A second watch says nothing.
                    None => std::future::pending().await,
                }
            } else {
                Box::pin(Once(Some(Bytes::from_static(self.list.as_bytes()))))
            };
            Ok(Response::new(body))
        })
    }
}

/// A stream that begins with a list, and where its events are sent.
fn stream<K: TypedKind>(
    name: &'static str,
    list: &'static str,
) -> (kubevitals_watch::Stream<K>, mpsc::Sender<Bytes>) {
    let (events, channel) = mpsc::channel(16);
    let watch = Arc::new(Mutex::new(Some(channel)));
    let mut spec = StreamSpec::new(name);
    spec.options.streaming_lists = false;
    (Server::new(Fake { list, watch }).watch(spec), events)
}

/// Lets the tasks of this runtime run until something is so; all of them wait for nothing but each
/// other.
async fn until(is_so: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if is_so() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("it never came to be");
}

#[tokio::test]
async fn pods_come_change_and_go() {
    let world = Arc::new(World::new());
    let (pods, events) = stream::<PodBrief>(
        "pods",
        r#"{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[
            {"metadata":{"name":"web-0","namespace":"default","uid":"u0","resourceVersion":"3"},
             "spec":{"nodeName":"n1"},"status":{"phase":"Running"}},
            {"metadata":{"name":"job","namespace":"default","uid":"u9","resourceVersion":"4"},
             "spec":{"nodeName":"n1"},"status":{"phase":"Failed"}}]}"#,
    );
    let followed = Arc::clone(&world);
    let follower = tokio::spawn(async move {
        follow_pods(pods.subscribe(), &followed.store, || at(17_000)).await;
    });
    until(|| world.store.readiness(at(0)).pods_known == 1).await;
    for (now, total) in [(0, 10), (15_000, 25)] {
        let other = row_of("default/web-1", "app", now, total * CORE_SECOND);
        world.scrape(now + 1, &[row("app", now, total * CORE_SECOND), other]);
    }
    assert_eq!(world.pods(), ["default/web-0"]);

    let added = r#"{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-1",
        "namespace":"default","uid":"u1","resourceVersion":"6"},
        "spec":{"nodeName":"n1"},"status":{"phase":"Running"}}}"#;
    events.send(one_line(added)).await.unwrap();
    until(|| world.pods() == ["default/web-0", "default/web-1"]).await;

    // To the store a pod that has ended for good is gone, whether it was deleted or not.
    let ended = r#"{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-1",
        "namespace":"default","uid":"u1","resourceVersion":"7"},
        "spec":{"nodeName":"n1"},"status":{"phase":"Succeeded"}}}"#;
    events.send(one_line(ended)).await.unwrap();
    until(|| world.pods() == ["default/web-0"]).await;

    let deleted = r#"{"type":"DELETED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web-0",
        "namespace":"default","uid":"u0","resourceVersion":"8"},
        "spec":{"nodeName":"n1"},"status":{"phase":"Running"}}}"#;
    events.send(one_line(deleted)).await.unwrap();
    until(|| world.pods().is_empty()).await;
    follower.abort();
}

#[tokio::test]
async fn nodes_come_change_and_go() {
    let world = Arc::new(World::new());
    let (nodes, events) = stream::<Node>(
        "nodes",
        r#"{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[
            {"metadata":{"name":"n2","uid":"u2","resourceVersion":"3"}}]}"#,
    );
    let followed = Arc::clone(&world);
    let follower = tokio::spawn(async move {
        follow_nodes(nodes.subscribe(), &followed.store, || at(0)).await;
    });
    // `n1` is not in the list.
    until(|| world.recorder.node("n1").is_none() && world.recorder.node("n2").is_some()).await;

    let changed = r#"{"type":"MODIFIED","object":{"kind":"Node","apiVersion":"v1",
        "metadata":{"name":"n2","uid":"u2","resourceVersion":"6","labels":{"zone":"a"}}}}"#;
    events.send(one_line(changed)).await.unwrap();
    let zone = || world.recorder.node("n2").map(|seen| seen.labels.len());
    until(|| zone() == Some(1)).await;

    let deleted = r#"{"type":"DELETED","object":{"kind":"Node","apiVersion":"v1",
        "metadata":{"name":"n2","uid":"u2","resourceVersion":"7"}}}"#;
    events.send(one_line(deleted)).await.unwrap();
    until(|| zone().is_none()).await;
    follower.abort();
}

fn one_line(text: &str) -> Bytes {
    let mut line: String = text.lines().map(str::trim).collect();
    line.push('\n');
    Bytes::from(line)
}
