//! A virtual node: a Node object and its lease, pods from the API server to a [`PodRuntime`], and
//! status and events back.
//!
//! [`VirtualNode::new`] wires it, [`VirtualNode::run`] runs it until shutdown. What runs the pods,
//! and the endpoints of the kubelet, are elsewhere.
//!
//! | part | does |
//! |---|---|
//! | `node` | registers the Node, applies its status every 5 minutes or when it changes |
//! | `lease` | renews the lease every 10 s while the runtime passes its pings |
//! | `pods` | syncs pods, writes their status, deletes those that have ended |
//! | `events` | sends events by the rules of client-go |
//! | [`ApiInputs`] | reads ConfigMaps, Secrets, Services and tokens for containers |
//!
//! At shutdown pods keep running: the next process adopts them.

mod api_error;
mod certificate;
mod error;
mod events;
mod inputs;
mod lease;
mod lru;
mod metrics;
mod node;
mod ping;
mod pods;
mod queue;
pub mod runtime;
mod settings;
mod status;
mod time;
mod watched;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube_client_metrics::Hooks;
use kubevitals_model::Clock;
use kubevitals_telemetry::{Health, Probe, Status, TelemetryError};
use kubevitals_watch::{Reflector, WatchClient, WatchSpec};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

pub use self::certificate::{CertificateError, CertificateKeeper};
pub use self::error::NodeError;
pub use self::inputs::ApiInputs;
pub use self::metrics::NodeMetrics;
pub use self::runtime::{PodRuntime, RuntimeError};
pub use self::settings::{NodeSettings, PROVIDER_LABEL, Settings, Timing};
pub use self::watched::WatchedPod;
use crate::events::EventSender;
use crate::lease::LeaseKeeper;
use crate::node::NodeKeeper;
use crate::ping::RuntimeHealth;
use crate::pods::PodSync;
use crate::queue::WorkQueue;
use crate::runtime::RuntimeChange;

/// The manager of what the node applies.
const FIELD_MANAGER: &str = "kubevitals-node";

/// The name of the queue in `workqueue_*`.
const QUEUE: &str = "node_pods";

/// How often unfinished work is reported, as in client-go.
const UNFINISHED_INTERVAL: Duration = Duration::from_millis(500);

/// The time for the last events at shutdown.
const FLUSH: Duration = Duration::from_secs(2);

/// How long the watch of pods may be disconnected before the node is not ready.
pub const WATCH_TIMEOUT: Duration = Duration::from_mins(1);

/// What a virtual node is made of.
pub struct Parts {
    /// A client for requests other than watches.
    pub client: kube::Client,
    /// The watch of the node's pods.
    pub pods: ApiPods,
    pub runtime: Arc<dyn PodRuntime>,
    /// The changes of that runtime.
    pub changes: mpsc::Receiver<RuntimeChange>,
    pub metrics: NodeMetrics,
    /// For the metrics of the work queue.
    pub hooks: Hooks,
}

/// A virtual node that is wired and does nothing yet.
pub struct VirtualNode {
    settings: Settings,
    parts: Parts,
    health: watch::Sender<RuntimeHealth>,
    renewed: watch::Sender<Option<Duration>>,
}

/// The pods of a node as the API server has them. Clones share them.
#[derive(Clone)]
pub struct ApiPods(Reflector<WatchedPod>);

impl ApiPods {
    /// Starts the watch of the pods of a node.
    pub fn watch(watches: &WatchClient, node: &str) -> Self {
        let spec =
            WatchSpec::<WatchedPod>::new("node-pods").fields(format!("spec.nodeName={node}"));
        Self(watches.reflector(spec))
    }

    /// Returns all pods, sorted by name; empty until the first list is complete.
    pub fn all(&self) -> Vec<Arc<Pod>> {
        let mut pods: Vec<Arc<Pod>> = self
            .0
            .objects()
            .into_iter()
            .map(|watched| Arc::clone(&watched.pod))
            .collect();
        let key = |pod: &Arc<Pod>| (pod.metadata.namespace.clone(), pod.metadata.name.clone());
        pods.sort_by_cached_key(key);
        pods
    }

    /// Returns a pod by its names.
    pub fn get(&self, namespace: &str, name: &str) -> Option<Arc<Pod>> {
        let watched = self.0.get(namespace, name)?;
        Some(Arc::clone(&watched.pod))
    }

    /// The reflector behind it.
    pub fn reflector(&self) -> &Reflector<WatchedPod> {
        &self.0
    }
}

impl VirtualNode {
    /// Wires a node. Nothing is registered yet.
    pub fn new(settings: Settings, parts: Parts) -> Self {
        Self {
            health: watch::Sender::new(RuntimeHealth::Unknown),
            renewed: watch::Sender::new(None),
            settings,
            parts,
        }
    }

    /// Registers readiness checks: the lease, the watch of pods and the runtime.
    pub fn add_checks(&self, health: &Health) -> Result<(), TelemetryError> {
        let clock = self.settings.clock.clone();
        let timing = self.settings.timing.clone();
        let renewed = self.renewed.subscribe();
        health.check("node-lease", Probe::READINESS, move || {
            let now = clock.moment().monotonic;
            match *renewed.borrow() {
                None => Status::WarmingUp("the lease is not renewed yet".into()),
                Some(at) if now.saturating_sub(at) <= timing.lease_duration => Status::Ok,
                Some(at) => Status::failing(format!(
                    "the lease was renewed {} s ago",
                    now.saturating_sub(at).as_secs()
                )),
            }
        })?;
        let watch = self.parts.pods.0.health_check(WATCH_TIMEOUT);
        health.check("node-pods", Probe::READINESS, watch)?;
        let clock: Clock = self.settings.clock.clone();
        let timing = self.settings.timing.clone();
        let pinged = self.health.subscribe();
        health.check("node-runtime", Probe::READINESS, move || {
            let now = clock.moment().monotonic;
            let health = pinged.borrow();
            match &*health {
                health if health.is_healthy(now, &timing) => Status::Ok,
                RuntimeHealth::Unknown => {
                    Status::WarmingUp("the runtime was not pinged yet".into())
                }
                health => Status::failing(health.reason().to_owned()),
            }
        })
    }

    /// Runs the node until `shutdown` completes, or a part of it fails. Pods keep running.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), NodeError> {
        let Self {
            settings,
            parts,
            health,
            renewed,
        } = self;
        let Parts {
            client,
            pods,
            runtime,
            changes,
            metrics,
            hooks,
        } = parts;
        let clock = settings.clock.clone();
        let timing = settings.timing.clone();
        let (recorder, sender) = events::recorder(
            client.clone(),
            &settings.node.name,
            clock.clone(),
            metrics.clone(),
        );
        let node_uid = watch::Sender::new(None);
        let lease = LeaseKeeper {
            client: client.clone(),
            node: settings.node.name.clone(),
            timing: timing.clone(),
            clock: clock.clone(),
            metrics: metrics.clone(),
            node_uid: node_uid.subscribe(),
            health: health.subscribe(),
            renewed,
        };
        let node = NodeKeeper {
            client: client.clone(),
            settings: settings.node.clone(),
            timing: timing.clone(),
            clock: clock.clone(),
            metrics: metrics.clone(),
            recorder: recorder.clone(),
            health: health.subscribe(),
            uid: node_uid,
        };
        let queue = WorkQueue::new(hooks.workqueues.queue(QUEUE));
        let sync = PodSync::new(
            client,
            Arc::clone(&runtime),
            recorder,
            metrics.clone(),
            settings,
            queue.clone(),
        );
        let subscription = pods.0.subscribe();
        let mut tasks: JoinSet<NodeError> = JoinSet::new();
        tasks.spawn(async move {
            ping::run(runtime, timing, clock, metrics, health).await;
            NodeError::TaskEnded("ping")
        });
        tasks.spawn(node.run());
        tasks.spawn(async move {
            lease.run().await;
            NodeError::TaskEnded("lease")
        });
        tasks.spawn(async move {
            sync.run(subscription, changes).await;
            NodeError::TaskEnded("pods")
        });
        let unfinished = queue.clone();
        tasks.spawn(async move {
            loop {
                sleep(UNFINISHED_INTERVAL).await;
                unfinished.report_unfinished();
            }
        });
        let mut events = tokio::spawn(EventSender::run(sender));
        let result = tokio::select! {
            () = shutdown => Ok(()),
            ended = tasks.join_next() => match ended {
                Some(Ok(error)) => Err(error),
                Some(Err(_)) => Err(NodeError::TaskEnded("panicked")),
                None => Err(NodeError::TaskEnded("all")),
            },
        };
        queue.close();
        tasks.shutdown().await;
        // All recorders are gone with the tasks: the sender ends after the last event.
        if timeout(FLUSH, &mut events).await.is_err() {
            events.abort();
            let _aborted = events.await;
        }
        pods.0.shutdown().await;
        result
    }
}

impl fmt::Debug for VirtualNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VirtualNode")
            .field("node", &self.settings.node.name)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for ApiPods {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ApiPods").field(&self.0.name()).finish()
    }
}
