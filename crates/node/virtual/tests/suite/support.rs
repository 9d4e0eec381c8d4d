//! A node with a runtime in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{NodeAddress, NodeSystemInfo, Pod, PodStatus, Taint};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube_client_metrics::{Hooks, Registry};
use kubevitals_model::{Clock, PodKey, Uid};
use kubevitals_sim::api::{SimApi, SimApiConfig, SimApiHandle};
use kubevitals_sim::objects::Resource;
use kubevitals_telemetry::exposition::Format;
use kubevitals_telemetry::{Health, Metrics, SharedRegistry};
use kubevitals_virtual_node::runtime::{
    PodEvent, PodId, PodRuntime, RuntimeChange, RuntimeChanges, RuntimeError, RuntimeFuture,
    RuntimePod,
};
use kubevitals_virtual_node::{
    ApiPods, NodeError, NodeMetrics, NodeSettings, Parts, Settings, Timing, VirtualNode,
};
use kubevitals_watch::{KubeTransport, WatchClient};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Far longer than anything here takes.
pub(crate) const DEADLINE: Duration = Duration::from_mins(1);

pub(crate) const NODE: &str = "edge-1";

/// A runtime that does what a test says.
#[derive(Clone)]
pub(crate) struct TestRuntime {
    pub(crate) state: Arc<Mutex<RuntimeState>>,
    changes: RuntimeChanges,
}

#[derive(Default)]
pub(crate) struct RuntimeState {
    pub(crate) pods: HashMap<Uid, RuntimePod>,
    /// Calls, in order: `sync web`, `terminate web 30`, `remove web`.
    pub(crate) calls: Vec<String>,
    /// Names of pods that are rejected.
    pub(crate) rejected: Vec<String>,
    /// The number of syncs that fail.
    pub(crate) failures: usize,
    /// Whether a pod that is terminated stays until [`TestRuntime::finish`].
    pub(crate) holds: bool,
    pub(crate) is_sick: bool,
}

/// A running node.
pub(crate) struct RunningNode {
    pub(crate) runtime: TestRuntime,
    pub(crate) health: Health,
    pub(crate) metrics: SharedRegistry,
    pub(crate) registry: Registry,
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), NodeError>>,
}

pub(crate) async fn sim() -> SimApiHandle {
    kubevitals_tls::install_crypto_provider();
    let config = SimApiConfig {
        graceful_pod_deletion: true,
        ..SimApiConfig::default()
    };
    SimApi::start(config).await.unwrap()
}

pub(crate) async fn config(sim: &SimApiHandle) -> kube::Config {
    let config = Kubeconfig::from_yaml(&sim.kubeconfig()).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(config, &options);
    config.await.unwrap()
}

pub(crate) fn settings() -> Settings {
    let fast = Duration::from_millis(50);
    Settings {
        node: NodeSettings {
            name: NODE.to_owned(),
            provider: "test".to_owned(),
            labels: BTreeMap::from([("zone".to_owned(), "attic".to_owned())]),
            taints: vec![Taint {
                key: "kubevitals.io/provider".to_owned(),
                value: Some("test".to_owned()),
                effect: "NoSchedule".to_owned(),
                time_added: None,
            }],
            addresses: vec![NodeAddress {
                type_: "InternalIP".to_owned(),
                address: "10.1.2.3".to_owned(),
            }],
            port: 10250,
            capacity: BTreeMap::new(),
            allocatable: BTreeMap::new(),
            info: NodeSystemInfo {
                kubelet_version: "v1.37.0-kubevitals".to_owned(),
                operating_system: "linux".to_owned(),
                architecture: "amd64".to_owned(),
                ..NodeSystemInfo::default()
            },
            declared_features: vec!["ExtendWebSocketsToKubelet".to_owned()],
        },
        max_pods: 110,
        workers: 4,
        timing: Timing {
            lease_interval: fast,
            status_check: fast,
            ping_interval: fast,
            relist: Duration::from_millis(200),
            ..Timing::default()
        },
        clock: Clock::system(),
    }
}

impl TestRuntime {
    pub(crate) fn new() -> (Self, mpsc::Receiver<RuntimeChange>) {
        let (changes, receiver) = mpsc::channel(16);
        let runtime = Self {
            state: Arc::default(),
            changes,
        };
        (runtime, receiver)
    }

    /// Ends all processes of a pod.
    pub(crate) async fn finish(&self, uid: &str, phase: &str) {
        let pod = {
            let mut state = self.state.lock();
            let pod = state.pods.get_mut(&Uid::from(uid)).unwrap();
            pod.is_terminated = true;
            pod.status.phase = Some(phase.to_owned());
            pod.clone()
        };
        self.changes.send(RuntimeChange::Status(pod)).await.unwrap();
    }

    /// Announces something.
    pub(crate) async fn announce(&self, change: RuntimeChange) {
        self.changes.send(change).await.unwrap();
    }

    pub(crate) fn calls(&self, start: &str) -> usize {
        let state = self.state.lock();
        state
            .calls
            .iter()
            .filter(|call| call.starts_with(start))
            .count()
    }
}

impl PodRuntime for TestRuntime {
    fn sync_pod(&self, pod: Arc<Pod>) -> RuntimeFuture<'_, ()> {
        Box::pin(async move {
            let id = id(&pod);
            let pod = {
                let mut state = self.state.lock();
                state.calls.push(format!("sync {}", id.key.name()));
                if state.rejected.iter().any(|name| **name == **id.key.name()) {
                    return Err(RuntimeError::Rejected {
                        reason: "UnsupportedVolume",
                        message: "no such volume".to_owned(),
                    });
                }
                if state.failures > 0 {
                    state.failures -= 1;
                    return Err(RuntimeError::Failed {
                        context: "cannot start".to_owned(),
                        source: "not yet".into(),
                    });
                }
                let known = state
                    .pods
                    .entry(id.uid.clone())
                    .or_insert_with(|| RuntimePod {
                        id: id.clone(),
                        status: running(),
                        is_terminated: false,
                    });
                known.clone()
            };
            self.announce(RuntimeChange::Status(pod)).await;
            let event = PodEvent {
                pod: id,
                field_path: "spec.containers{c}".to_owned(),
                is_warning: false,
                reason: "Started",
                message: "Container started".to_owned(),
            };
            self.announce(RuntimeChange::Event(event)).await;
            Ok(())
        })
    }

    fn terminate_pod(&self, pod: &PodId, grace: Duration) -> RuntimeFuture<'_, ()> {
        let id = pod.clone();
        Box::pin(async move {
            let holds = {
                let mut state = self.state.lock();
                let call = format!("terminate {} {}", id.key.name(), grace.as_secs());
                state.calls.push(call);
                state.holds
            };
            if !holds {
                self.finish(&id.uid.to_string(), "Succeeded").await;
            }
            Ok(())
        })
    }

    fn remove_pod(&self, pod: &PodId) -> RuntimeFuture<'_, ()> {
        let id = pod.clone();
        Box::pin(async move {
            let mut state = self.state.lock();
            state.calls.push(format!("remove {}", id.key.name()));
            match state.pods.remove(&id.uid) {
                Some(_) => Ok(()),
                None => Err(RuntimeError::NotFound(id.key)),
            }
        })
    }

    fn pods(&self) -> RuntimeFuture<'_, Vec<RuntimePod>> {
        Box::pin(async { Ok(self.state.lock().pods.values().cloned().collect()) })
    }

    fn ping(&self) -> RuntimeFuture<'_, ()> {
        Box::pin(async {
            if self.state.lock().is_sick {
                return Err(RuntimeError::Failed {
                    context: "ping".to_owned(),
                    source: "sick".into(),
                });
            }
            Ok(())
        })
    }
}

impl RunningNode {
    pub(crate) async fn start(sim: &SimApiHandle) -> Self {
        Self::start_with(sim, settings(), TestRuntime::new()).await
    }

    pub(crate) async fn start_with(
        sim: &SimApiHandle,
        settings: Settings,
        (runtime, changes): (TestRuntime, mpsc::Receiver<RuntimeChange>),
    ) -> Self {
        let registry = Registry::new();
        let hooks: Hooks = registry.hooks();
        let config = config(sim).await;
        let transport = KubeTransport::new(config.clone()).unwrap();
        let mut metrics = Metrics::new();
        let parts = Parts {
            client: kubevitals_watch::api_client(config, &hooks).unwrap(),
            pods: ApiPods::watch(&WatchClient::new(transport), &settings.node.name),
            runtime: Arc::new(runtime.clone()),
            changes,
            metrics: NodeMetrics::register(metrics.sub("kubevitals_node")),
            hooks,
        };
        let node = VirtualNode::new(settings, parts);
        let health = Health::new();
        node.add_checks(&health).unwrap();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(node.run(async {
            let _ = stopped.await;
        }));
        Self {
            runtime,
            health,
            metrics: metrics.freeze(),
            registry,
            stop,
            task,
        }
    }

    /// Stops the node, as a restart of the process does.
    pub(crate) async fn stop(self) -> TestRuntime {
        let _ = self.stop.send(());
        tokio::time::timeout(DEADLINE, self.task)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        self.runtime
    }

    /// Waits until the node ends by itself.
    pub(crate) async fn ended(self) -> NodeError {
        let ended = tokio::time::timeout(DEADLINE, self.task).await;
        ended.unwrap().unwrap().unwrap_err()
    }

    pub(crate) fn text(&self) -> String {
        let own = self.metrics.encode(Format::Prometheus).unwrap();
        String::from_utf8(own).unwrap() + &self.registry.encode()
    }
}

/// The status of a pod that runs.
pub(crate) fn running() -> PodStatus {
    serde_json::from_value(json!({
        "phase": "Running",
        "podIP": "10.1.2.3",
        "conditions": [
            {"type": "Initialized", "status": "True"},
            {"type": "Ready", "status": "True"},
            {"type": "ContainersReady", "status": "True"},
        ],
        "containerStatuses": [{
            "name": "c", "image": "i", "imageID": "i", "ready": true, "started": true, "restartCount": 0,
            "state": {"running": {"startedAt": "2026-01-01T00:00:00.5Z"}},
        }],
    }))
    .unwrap()
}

pub(crate) fn id(pod: &Pod) -> PodId {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    PodId {
        uid: text(&pod.metadata.uid).as_str().into(),
        key: PodKey::new(text(&pod.metadata.namespace), text(&pod.metadata.name)),
    }
}

/// Creates a pod that is bound to the node.
pub(crate) fn create_pod(sim: &SimApiHandle, name: &str) -> String {
    let pod = json!({
        "metadata": {"name": name, "namespace": "default", "generation": 1},
        "spec": {"nodeName": NODE, "terminationGracePeriodSeconds": 20,
                 "containers": [{"name": "c", "image": "i"}]},
        "status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "example.com/foreign", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        ]},
    });
    sim.writer().create(Resource::Pods, pod).unwrap();
    pod_object(sim, name).unwrap()["metadata"]["uid"]
        .as_str()
        .unwrap()
        .to_owned()
}

pub(crate) fn pod_object(sim: &SimApiHandle, name: &str) -> Option<Value> {
    sim.object(Resource::Pods, Some("default"), name)
}

pub(crate) fn phase(sim: &SimApiHandle, name: &str) -> String {
    let pod = pod_object(sim, name).unwrap_or_default();
    pod["status"]["phase"]
        .as_str()
        .unwrap_or_default()
        .to_owned()
}

/// A condition of an object.
pub(crate) fn condition(object: &Value, kind: &str) -> Value {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.and_then(|all| all.iter().find(|one| one["type"] == kind));
    found.cloned().unwrap_or_default()
}

pub(crate) async fn until(what: &str, is_so: impl Fn() -> bool) {
    let mut ticks = tokio::time::interval(Duration::from_millis(20));
    let waited = tokio::time::timeout(DEADLINE, async {
        while !is_so() {
            ticks.tick().await;
        }
    });
    assert!(waited.await.is_ok(), "not in time: {what}");
}
