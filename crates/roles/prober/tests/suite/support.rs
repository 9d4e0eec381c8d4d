//! An API server whose objects a test controls, and a provider that a test can ask.

use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube_client_metrics::Hooks;
use kube_lease::Election;
use kubevitals_cli::{RunError, ShutdownTrigger, shutdown_channel};
use kubevitals_inventory::AddonRules;
use kubevitals_model::{Clock, DaemonSet, Deployment, Node, Pod};
use kubevitals_prober::{
    ClusterSettings, ClusterWatches, Deps, LeaseClient, Mode, NodeSettings, NodeWatches,
    ProbeBoard, PrometheusProvider, Provider, Providers, Registered, run,
};
use kubevitals_sim::api::{SimApi, SimApiConfig, SimApiHandle};
use kubevitals_sim::objects::Resource;
use kubevitals_telemetry::exposition::Format;
use kubevitals_telemetry::{Health, Metrics, Probe, SharedRegistry};
use kubevitals_watch::{KubeTransport, TypedKind, WatchClient, WatchOptions, WatchSpec};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::own_provider::Lines;

/// Longer than anything here takes.
const DEADLINE: Duration = Duration::from_mins(1);

/// Short enough that tests do not wait.
const INTERVAL: Duration = Duration::from_millis(20);

/// The API server.
pub(crate) struct Cluster {
    pub(crate) api: SimApiHandle,
}

/// A role that runs, with two providers: our Prometheus and the example.
pub(crate) struct Role {
    registry: SharedRegistry,
    pub(crate) health: Health,
    lines: watch::Receiver<String>,
    trigger: ShutdownTrigger,
    task: JoinHandle<Result<(), RunError>>,
}

/// Collects what the example writes.
struct Collected(watch::Sender<String>);

impl Write for Collected {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0
            .send_modify(|text| text.push_str(&String::from_utf8_lossy(bytes)));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.send_modify(|text| text.push_str("flushed\n"));
        Ok(())
    }
}

impl Cluster {
    pub(crate) async fn start() -> Self {
        kubevitals_tls::install_crypto_provider();
        let api = SimApi::start(SimApiConfig::default()).await.unwrap();
        Self { api }
    }

    pub(crate) fn create(&self, resource: Resource, object: Value) {
        self.api.writer().create(resource, object).unwrap();
    }

    /// Merges members into an object.
    pub(crate) fn set(&self, resource: Resource, name: &str, part: &str, members: Value) {
        let namespace = (resource != Resource::Nodes).then_some("kube-system");
        let mut object = self.api.object(resource, namespace, name).unwrap();
        let Value::Object(members) = members else {
            panic!("members of an object")
        };
        for (key, value) in members {
            object[part][key] = value;
        }
        let metadata = object["metadata"].as_object_mut().unwrap();
        metadata.remove("resourceVersion");
        self.api.writer().replace(resource, object).unwrap();
    }

    async fn config(&self) -> kube::Config {
        let kubeconfig = Kubeconfig::from_yaml(&self.api.kubeconfig()).unwrap();
        let options = KubeConfigOptions::default();
        kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .unwrap()
    }

    async fn watches(&self) -> WatchClient {
        WatchClient::new(KubeTransport::new(self.config().await).unwrap())
    }

    /// Cluster mode; with a name it takes part in leader election.
    pub(crate) async fn cluster_role(&self, candidate: Option<&str>) -> Role {
        let watches = self.watches().await;
        let leases = match candidate {
            Some(name) => {
                let client = kube::Client::try_from(self.config().await).unwrap();
                Some(Box::new(LeaseClient {
                    client,
                    hooks: Hooks::default(),
                    election: Election {
                        retry_period: Duration::from_millis(50),
                        ..Election::new("kube-system", "kubevitals-prober", name)
                    },
                }))
            }
            None => None,
        };
        let probers = spec::<Pod>("probers")
            .namespace("kube-system")
            .labels("app=prober");
        let mode = Mode::Cluster {
            settings: ClusterSettings {
                rules: AddonRules::default(),
                warm_up: Duration::from_mins(5),
                silence: Duration::ZERO,
                mesh: None,
            },
            watches: ClusterWatches {
                nodes: watches.reflector(spec::<Node>("nodes")),
                daemon_sets: watches.reflector(spec::<DaemonSet>("daemonsets")),
                deployments: watches.reflector(spec::<Deployment>("deployments")),
                probers: Some(watches.reflector(probers)),
            },
            leases,
        };
        Role::start(mode)
    }

    pub(crate) async fn node_role(&self, name: &str) -> Role {
        let watches = self.watches().await;
        let node = spec::<Node>("nodes").fields(format!("metadata.name={name}"));
        let pods = spec::<Pod>("pods")
            .namespace("kube-system")
            .fields(format!("spec.nodeName={name}"))
            .keep_annotations(AddonRules::ANNOTATIONS);
        let mode = Mode::Node {
            settings: NodeSettings {
                name: name.to_owned(),
                rules: AddonRules::default(),
                warm_up: Duration::from_mins(5),
            },
            watches: NodeWatches {
                node: watches.reflector(node),
                pods: watches.reflector(pods),
            },
        };
        Role::start(mode)
    }
}

impl Role {
    fn start(mode: Mode) -> Self {
        let clock = Clock::system();
        let mut metrics = Metrics::new();
        let registered = Registered::new(&mut metrics, "test", clock.clone(), INTERVAL);
        let prometheus = PrometheusProvider::register(&mut metrics);
        let health = Health::new();
        registered.add_checks(&health, &mode).unwrap();
        let (collected, lines) = watch::channel(String::new());
        let own: Arc<dyn Provider> = Arc::new(Lines::new(Collected(collected)));
        let providers = Providers::new(vec![Arc::new(prometheus), own]);
        assert_eq!(providers.names(), ["prometheus", "lines"]);
        let (trigger, shutdown) = shutdown_channel();
        let deps = Deps {
            shutdown,
            clock,
            board: Arc::new(ProbeBoard::new(&providers)),
            providers,
            scheduler: None,
            registered,
            interval: INTERVAL,
            grace: Duration::from_secs(30),
        };
        Self {
            registry: metrics.freeze(),
            health,
            lines,
            trigger,
            task: tokio::spawn(run(mode, deps)),
        }
    }

    /// The series of one family, without its prefix.
    pub(crate) fn series(&self, family: &str) -> Vec<String> {
        let text = self.registry.encode(Format::Prometheus).unwrap();
        let text = String::from_utf8(text).unwrap();
        let prefix = format!("kubevitals_prober_{family}{{");
        let series = text.lines().filter_map(|line| line.strip_prefix(&prefix));
        let mut series: Vec<_> = series.map(|rest| format!("{{{rest}")).collect();
        series.sort();
        series
    }

    /// Waits until something holds, checking after whatever is recorded.
    pub(crate) async fn until(&mut self, what: &str, is_so: impl Fn(&Self, &str) -> bool) {
        let waited = timeout(DEADLINE, async {
            loop {
                let lines = self.lines.borrow_and_update().clone();
                if is_so(self, &lines) {
                    return;
                }
                // Standbys and unsynced roles record nothing, but tick.
                let changed = self.lines.changed();
                let _ = timeout(INTERVAL, changed).await;
            }
        });
        let is_in_time = waited.await.is_ok();
        let text = self.registry.encode(Format::Prometheus).unwrap();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert!(is_in_time, "not in time: {what}\n{text}");
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.health.report(Probe::Readyz, &[]).passed()
    }

    /// Shuts down, and returns all lines of the example.
    pub(crate) async fn stop(self) -> String {
        self.trigger.trigger();
        timeout(DEADLINE, self.task)
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        self.lines.borrow().clone()
    }
}

/// Series with their labels in the order of the exposition, so that tests can write them in
/// another.
pub(crate) fn sorted<S: AsRef<str>>(series: impl IntoIterator<Item = S>) -> Vec<String> {
    let series = series.into_iter().map(|series| {
        let (labels, value) = series.as_ref().split_once("} ").unwrap();
        let mut labels: Vec<&str> = labels.trim_start_matches('{').split(',').collect();
        labels.sort_unstable();
        format!("{{{}}} {value}", labels.join(","))
    });
    let mut series: Vec<_> = series.collect();
    series.sort();
    series
}

fn spec<K: TypedKind>(name: &'static str) -> WatchSpec<K> {
    WatchSpec::new(name).options(WatchOptions {
        min_backoff: Duration::from_millis(5),
        max_backoff: Duration::from_millis(50),
        ..WatchOptions::default()
    })
}

pub(crate) fn node(name: &str, ready: &str) -> Value {
    json!({
        "metadata": {
            "name": name, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"cloud.google.com/gke-nodepool": "pool-1", "topology.kubernetes.io/zone": "z-a"},
        },
        "spec": {},
        "status": {"conditions": [
            {"type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z"},
            {"type": "DiskPressure", "status": "False"},
        ]},
    })
}

pub(crate) fn workload(name: &str, replicas: i32, status: Value) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "kube-system"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"k8s-app": name}},
            "template": {
                "metadata": {"labels": {"k8s-app": name}},
                "spec": {"containers": [{"name": "main", "image": format!("example.com/{name}:v1")}]},
            },
        },
        "status": status,
    })
}

/// A pod of an addon of the same name, ready or not, after some restarts.
pub(crate) fn pod(addon: &str, on: &str, ready: bool, restarts: i32) -> Value {
    let last_state = if restarts > 0 {
        json!({"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-02T00:00:00Z"}})
    } else {
        json!({})
    };
    json!({
        "metadata": {
            "name": format!("{addon}-{on}"), "namespace": "kube-system",
            "labels": {"k8s-app": addon},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": addon, "uid": "1", "controller": true}],
        },
        "spec": {"nodeName": on, "containers": [{"name": "main", "image": format!("example.com/{addon}:v1")}]},
        "status": {
            "phase": "Running", "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": if ready {"True"} else {"False"}}],
            "containerStatuses": [{
                "name": "main", "ready": ready, "restartCount": restarts, "image": "", "imageID": "",
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}, "lastState": last_state,
            }],
        },
    })
}
