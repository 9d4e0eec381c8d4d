//! The same watches over kube's client and real sockets, against the simulated cluster.
//!
//! Nothing here sleeps: tests wait for requests and updates, with a deadline that only a hang
//! reaches.

mod caches;
mod half_open;
mod outages;
mod rights;
mod selections;
mod subscribers;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kubevitals_model::{Clock, SteppedClock, Timestamp, Uid};
use kubevitals_sim::api::{SimApi, SimApiConfig, SimApiHandle};
use kubevitals_sim::cluster::{SimCluster, SimClusterConfig};
use kubevitals_sim::objects::Resource as Stored;
use kubevitals_sim::workload::{ChurnRate, WorkloadConfig};
use kubevitals_watch::{
    Change, Kind, KubeTransport, Mirror, ObjectEvent, Reflector, ResponseFuture, RestartReason,
    Subscription, Transport, TypedKind, WatchClient, WatchOptions, WatchSpec,
};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

/// Longer than anything here takes.
const DEADLINE: Duration = Duration::from_mins(1);

/// kube's client, and its requests.
#[derive(Debug)]
struct Spy {
    client: KubeTransport,
    requests: watch::Sender<Vec<String>>,
}

/// The requests that a [`Spy`] has seen.
struct Requests(watch::Receiver<Vec<String>>);

/// A cluster whose clock only tests advance.
struct Harness {
    cluster: SimCluster,
    clock: SteppedClock,
}

/// A subscriber that checks each change against its state.
struct Follower<K: Kind> {
    updates: Subscription<K>,
    mirror: Mirror<K>,
    /// The objects that the changes alone add up to.
    known: BTreeMap<String, Uid>,
    changes: Vec<Change<K>>,
}

impl Transport for Spy {
    fn get(&self, request: Request<()>) -> ResponseFuture<'_> {
        self.requests
            .send_modify(|requests| requests.push(request.uri().to_string()));
        self.client.get(request)
    }
}

impl Requests {
    fn all(&self) -> Vec<String> {
        self.0.borrow().clone()
    }

    /// Waits until something holds, checking whenever a request is sent. By then the watch has
    /// counted how the connection before it ended.
    async fn until(&mut self, what: &str, is_so: impl Fn() -> bool) {
        let waited = timeout(DEADLINE, self.0.wait_for(|_| is_so()));
        let is_in_time = waited.await.is_ok();
        assert!(is_in_time, "not in time: {what}; sent: {:?}", self.all());
    }
}

impl Harness {
    async fn start() -> Self {
        let clock = SteppedClock::new(Clock::system().now());
        let config = SimClusterConfig {
            workload: WorkloadConfig {
                pods_per_node: 4,
                churn: ChurnRate::per_second(5),
                ..WorkloadConfig::default()
            },
            clock: clock.clock(),
            ..SimClusterConfig::default()
        };
        let cluster = SimCluster::start(config, drop).await.unwrap();
        Self { cluster, clock }
    }

    /// Lets so much happen as does in so many seconds.
    fn churn(&self, seconds: u64) {
        let now = self.clock.advance(Duration::from_secs(seconds));
        let writer = self.api().writer();
        let workload = self.cluster.workload();
        workload.with(|workload| workload.step(now, &*writer));
    }

    fn api(&self) -> &SimApiHandle {
        self.cluster.api()
    }
}

impl<K: Kind> Follower<K> {
    fn new(reflector: &Reflector<K>) -> Self {
        Self {
            updates: reflector.subscribe(),
            mirror: Mirror::new(),
            known: BTreeMap::new(),
            changes: Vec::new(),
        }
    }

    /// Takes updates until something holds.
    async fn until(&mut self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let follow = async {
            while !is_so(self) {
                let update = self.updates.next().await.expect("the watch runs");
                for change in self.mirror.apply(update, Timestamp::from_unix_millis(0)) {
                    self.take(change);
                }
            }
        };
        let waited = timeout(DEADLINE, follow).await;
        assert!(waited.is_ok(), "not in time: {what}");
    }

    /// Takes updates until it knows just these states.
    async fn learn(&mut self, truth: &BTreeMap<String, String>) {
        self.until("the subscriber knows the truth", |own| {
            own.mirror.len() == truth.len() && states(&own.mirror.objects()) == *truth
        })
        .await;
    }

    fn take(&mut self, change: Change<K>) {
        match &change.event {
            ObjectEvent::Added(object) => {
                let id = object.identity();
                let known = self.known.insert(id.to_string(), id.uid.clone());
                assert_eq!(known, None, "{id} was added twice");
            }
            ObjectEvent::Modified { before, now } => {
                let id = now.identity();
                assert!(before.identity().is_same_object(id), "{id}");
                assert_eq!(self.known.get(&id.to_string()), Some(&id.uid), "{id}");
            }
            ObjectEvent::Deleted(object) => {
                let id = object.identity();
                let known = self.known.remove(&id.to_string());
                assert_eq!(known.as_ref(), Some(&id.uid), "{id}");
            }
        }
        self.changes.push(change);
    }

    /// The names of deleted objects.
    fn deleted(&self) -> Vec<String> {
        let mut names: Vec<String> = self
            .changes
            .iter()
            .filter_map(|change| match &change.event {
                ObjectEvent::Deleted(last) => Some(last.identity().to_string()),
                _ => None,
            })
            .collect();
        names.sort();
        names
    }
}

async fn start() -> SimApiHandle {
    SimApi::start(SimApiConfig::default()).await.unwrap()
}

/// The server behind a kubeconfig, and what is asked of it.
async fn connect(kubeconfig: &str) -> (WatchClient, Requests) {
    let kubeconfig = Kubeconfig::from_yaml(kubeconfig).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
        .await
        .unwrap();
    let (requests, seen) = watch::channel(Vec::new());
    let client = KubeTransport::new(config).unwrap();
    (WatchClient::new(Spy { client, requests }), Requests(seen))
}

/// A watch with short back-off, so that tests do not wait.
fn spec<K: TypedKind>(name: &'static str) -> WatchSpec<K> {
    WatchSpec::new(name).options(quick())
}

fn quick() -> WatchOptions {
    WatchOptions {
        min_backoff: Duration::from_millis(5),
        max_backoff: Duration::from_millis(50),
        seed: Some(1),
        ..WatchOptions::default()
    }
}

async fn synced<K: Kind>(reflector: &Reflector<K>) {
    let synced = timeout(DEADLINE, reflector.synced()).await;
    assert_eq!(synced, Ok(true), "{:?}", reflector.state());
}

fn count<K: Kind>(reflector: &Reflector<K>, reason: RestartReason) -> u64 {
    reflector
        .state()
        .restarts
        .get(&reason)
        .copied()
        .unwrap_or(0)
}

/// The UIDs and versions of the objects of a watch, by name.
fn states<K: Kind>(objects: &[Arc<K>]) -> BTreeMap<String, String> {
    objects
        .iter()
        .map(|object| {
            let id = object.identity();
            (
                id.to_string(),
                format!("{} at {}", id.uid, id.resource_version),
            )
        })
        .collect()
}

/// The UIDs and versions of the stored objects, by name.
fn stored(sim: &SimApiHandle, resource: Stored) -> BTreeMap<String, String> {
    sim.objects(resource)
        .iter()
        .map(|object| {
            let text = |member: &str| object["metadata"][member].as_str().unwrap_or_default();
            let state = format!("{} at {}", text("uid"), text("resourceVersion"));
            (key(object), state)
        })
        .collect()
}

/// As an [`Identity`](kubevitals_model::Identity) is displayed.
fn key(object: &Value) -> String {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap();
    match metadata["namespace"].as_str() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

fn pod(name: &str, node: &str, phase: &str, app: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": phase},
    })
}

fn create(sim: &SimApiHandle, pod: Value) {
    sim.writer().create(Stored::Pods, pod).unwrap();
}

fn replace(sim: &SimApiHandle, mut pod: Value) {
    let name = pod["metadata"]["name"].as_str().unwrap().to_owned();
    let before = sim.object(Stored::Pods, Some("default"), &name).unwrap();
    pod["metadata"]["uid"] = before["metadata"]["uid"].clone();
    sim.writer().replace(Stored::Pods, pod).unwrap();
}

fn delete(sim: &SimApiHandle, name: &str) {
    sim.writer()
        .delete(Stored::Pods, Some("default"), name)
        .unwrap();
}
