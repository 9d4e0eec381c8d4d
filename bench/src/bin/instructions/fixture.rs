//! A cluster that never varies: its pods, responses of its kubelets, and contents of its store.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{
    Bytes, CpuUsage, Identity, Labels, NodeName, PodKey, PodPhase, PodSummary, ResourceVersion,
    Timestamp, Uid, Usage,
};
use kubevitals_promtext::{Encoder, LabelName, MetricName, MetricType};
use kubevitals_usage::{ContainerUsage, PodUsage};

pub(crate) const NODES: usize = 100;
pub(crate) const PODS_OF_NODE: usize = 30;
/// Pods of an application, which share labels.
pub(crate) const REPLICAS: usize = 10;
const NAMESPACES: usize = 10;
const SIDECAR: &str = "istio-proxy";
const BEGIN: i64 = 1_794_773_483_000;
/// Milliseconds between two scrapes of a kubelet.
const RESOLUTION: i64 = 15_000;

/// All nodes with their pods.
pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
}

/// A node with its pods, by namespace and name.
pub(crate) struct Node {
    pub(crate) name: NodeName,
    pub(crate) pods: Vec<Arc<PodSummary>>,
    number: u64,
}

/// A family of a kubelet's response.
struct Family {
    name: MetricName<'static>,
    help: &'static str,
    kind: MetricType,
    /// Number of labels, the last of container, namespace and pod.
    labels: usize,
    is_timed: bool,
    value: Value,
}

/// Values of a family.
#[derive(Clone, Copy)]
enum Value {
    CpuSeconds,
    MemoryBytes,
    StartSeconds,
    Zero,
}

/// The time of a round of scrapes.
pub(crate) fn time(round: u32) -> Timestamp {
    Timestamp::from_unix_millis(BEGIN + i64::from(round) * RESOLUTION)
}

/// The selector of one of the applications.
pub(crate) fn selector(app: usize) -> String {
    format!("app={}", app_name(app % (NODES * PODS_OF_NODE / REPLICAS)))
}

impl Cluster {
    pub(crate) fn new() -> Self {
        let namespaces: Vec<Arc<str>> = (0..NAMESPACES)
            .map(|n| format!("team-{n}").into())
            .collect();
        let mut pods: Vec<Vec<Arc<PodSummary>>> = vec![Vec::new(); NODES];
        let names: Vec<Arc<str>> = (0..NODES).map(|n| format!("node-{n:05}").into()).collect();
        for app in 0..NODES * PODS_OF_NODE / REPLICAS {
            let labels = labels(app);
            for replica in 0..REPLICAS {
                let number = app * REPLICAS + replica;
                let at = number % NODES;
                let pod = PodSummary {
                    identity: Identity {
                        namespace: Arc::clone(&namespaces[app % NAMESPACES]),
                        name: pod_name(app, number).into(),
                        uid: Uid::from(format!("00000000-0000-4000-8000-{number:012}").as_str()),
                        resource_version: ResourceVersion::from("1"),
                    },
                    labels: labels.clone(),
                    node: Some(Arc::clone(&names[at])),
                    phase: PodPhase::Running,
                };
                pods[at].push(Arc::new(pod));
            }
        }
        let nodes = (0_u64..).zip(names.iter().zip(pods));
        let nodes = nodes.map(|(number, (name, mut pods))| {
            pods.sort_by(|a, b| key_of(a).cmp(&key_of(b)));
            Node {
                name: NodeName::new(Arc::clone(name)),
                pods,
                number,
            }
        });
        Self {
            nodes: nodes.collect(),
        }
    }

    pub(crate) fn pods(&self) -> Vec<Arc<PodSummary>> {
        let pods = self.nodes.iter().flat_map(|node| &node.pods);
        pods.map(Arc::clone).collect()
    }
}

impl Node {
    /// Response of its kubelet in a round: series in the order of container, namespace and pod, as
    /// a kubelet sorts them.
    pub(crate) fn body(&self, round: u32) -> Vec<u8> {
        let mut out = Vec::new();
        let mut encoder = Encoder::new(&mut out);
        for family in FAMILIES {
            let mut series: Vec<(Vec<(LabelName<'static>, &str)>, u64)> = match family.labels {
                0 => vec![(Vec::new(), self.number)],
                2 => self.series_of_pods(),
                _ => self.series_of_containers(),
            };
            series.sort_by(|(one, _), (two, _)| one.cmp(two));
            let mut samples = encoder.family(family.name, Some(family.help), Some(family.kind));
            for (labels, seed) in series {
                let at = family.is_timed.then(|| self.sampled(round, seed));
                samples.sample(&labels, family.value.of(seed, round), at);
            }
        }
        out
    }

    /// Usage that the store would publish in a round.
    pub(crate) fn view(&self, round: u32) -> Vec<PodUsage> {
        let pods = self.pods.iter().map(|pod| {
            let identity = &pod.identity;
            let mut containers = [container_of(pod), SIDECAR].map(|name| ContainerUsage {
                name: name.into(),
                usage: self.usage(round, seed_of(pod, name)),
            });
            containers.sort_by(|a, b| a.name.cmp(&b.name));
            PodUsage {
                key: PodKey::new(Arc::clone(&identity.namespace), Arc::clone(&identity.name)),
                labels: pod.labels.clone(),
                containers: containers.into(),
            }
        });
        pods.collect()
    }

    /// Usage of the node or of a container in a round.
    pub(crate) fn usage(&self, round: u32, seed: u64) -> Usage {
        Usage {
            cpu: CpuUsage::from_nanocores(mixed(seed, u64::from(round)) >> 38),
            memory: Bytes::new(memory(seed, round)),
            swap: None,
            ephemeral_storage: None,
            timestamp: Timestamp::from_unix_millis(self.sampled(round, seed)),
            window: Duration::from_millis(14_000 + seed % 2_000),
        }
    }

    /// A kubelet samples containers one by one, in the seconds before the scrape.
    fn sampled(&self, round: u32, seed: u64) -> i64 {
        let before = mixed(seed, self.number) % 5_000;
        time(round).unix_millis() - i64::try_from(before).unwrap_or_default()
    }

    fn series_of_pods(&self) -> Vec<(Vec<(LabelName<'static>, &str)>, u64)> {
        let series = |pod: &'_ Arc<PodSummary>| seed_of(pod, "");
        let pods = self.pods.iter();
        pods.map(|pod| (pod_labels(pod).into(), series(pod)))
            .collect()
    }

    fn series_of_containers(&self) -> Vec<(Vec<(LabelName<'static>, &str)>, u64)> {
        let mut all = Vec::new();
        for pod in &self.pods {
            for container in [container_of(pod), SIDECAR] {
                let mut labels = vec![(CONTAINER, container)];
                labels.extend(pod_labels(pod));
                all.push((labels, seed_of(pod, container)));
            }
        }
        all
    }
}

impl Value {
    #[expect(clippy::cast_precision_loss, reason = "any number will do")]
    fn of(self, seed: u64, round: u32) -> f64 {
        match self {
            // Up to some days of CPU time, to the nanosecond, growing by up to a second in a round.
            Self::CpuSeconds => {
                let grown = u64::from(round) * (mixed(seed, 1) >> 34);
                ((mixed(seed, 2) >> 16 >> (seed % 16)) + grown) as f64 / 1e9
            }
            Self::MemoryBytes => memory(seed, round) as f64,
            Self::StartSeconds => 1_794_700_000.0 + (mixed(seed, 3) >> 40) as f64 / 1e3,
            Self::Zero => 0.0,
        }
    }
}

fn memory(seed: u64, round: u32) -> u64 {
    let pages = mixed(seed, u64::from(round)) >> 42 >> (seed % 8);
    (pages + 1_000) * 4_096
}

fn labels(app: usize) -> Labels {
    let pairs: [(Arc<str>, Arc<str>); 3] = [
        ("app".into(), app_name(app).into()),
        ("pod-template-hash".into(), format!("{app:010x}").into()),
        ("team".into(), format!("team-{}", app % NAMESPACES).into()),
    ];
    Labels::from_sorted(Arc::from(pairs))
}

fn app_name(app: usize) -> String {
    let kinds = [
        "checkout",
        "web-frontend",
        "ingest-worker",
        "db",
        "search-index",
    ];
    format!("{}-{app}", kinds[app % kinds.len()])
}

fn pod_name(app: usize, number: usize) -> String {
    let random = mixed(number as u64, 7);
    format!("{}-{app:09x}-{:05x}", app_name(app), random >> 44)
}

/// The first container of a pod has the name of its application, without its number.
fn container_of(pod: &PodSummary) -> &str {
    let app = pod.labels.get("app").map_or("", |app| &**app);
    app.rsplit_once('-').map_or(app, |(kind, _)| kind)
}

fn key_of(pod: &PodSummary) -> (&str, &str) {
    (&pod.identity.namespace, &pod.identity.name)
}

fn pod_labels(pod: &PodSummary) -> [(LabelName<'static>, &str); 2] {
    let (namespace, name) = key_of(pod);
    [(NAMESPACE, namespace), (POD, name)]
}

fn seed_of(pod: &PodSummary, container: &str) -> u64 {
    let bytes = pod.identity.name.bytes().chain(container.bytes());
    bytes.fold(11, |seed, byte| mixed(seed, byte.into()))
}

/// Hashes two numbers.
fn mixed(one: u64, two: u64) -> u64 {
    let mut x = one.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ two.wrapping_add(0x2545_f491_4f6c_dd1d);
    x ^= x >> 29;
    x = x.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ (x >> 32)
}

const CONTAINER: LabelName<'_> = LabelName::from_static("container");
const NAMESPACE: LabelName<'_> = LabelName::from_static("namespace");
const POD: LabelName<'_> = LabelName::from_static("pod");

const FAMILIES: [Family; 9] = [
    Family {
        name: MetricName::from_static("container_cpu_usage_seconds_total"),
        help: "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        kind: MetricType::Counter,
        labels: 3,
        is_timed: true,
        value: Value::CpuSeconds,
    },
    Family {
        name: MetricName::from_static("container_memory_working_set_bytes"),
        help: "[STABLE] Current working set of the container in bytes",
        kind: MetricType::Gauge,
        labels: 3,
        is_timed: true,
        value: Value::MemoryBytes,
    },
    Family {
        name: MetricName::from_static("container_start_time_seconds"),
        help: "[STABLE] Start time of the container since unix epoch in seconds",
        kind: MetricType::Gauge,
        labels: 3,
        is_timed: false,
        value: Value::StartSeconds,
    },
    Family {
        name: MetricName::from_static("container_swap_usage_bytes"),
        help: "[ALPHA] Current amount of the container swap usage in bytes",
        kind: MetricType::Gauge,
        labels: 3,
        is_timed: true,
        value: Value::Zero,
    },
    Family {
        name: MetricName::from_static("node_cpu_usage_seconds_total"),
        help: "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
        kind: MetricType::Counter,
        labels: 0,
        is_timed: true,
        value: Value::CpuSeconds,
    },
    Family {
        name: MetricName::from_static("node_memory_working_set_bytes"),
        help: "[STABLE] Current working set of the node in bytes",
        kind: MetricType::Gauge,
        labels: 0,
        is_timed: true,
        value: Value::MemoryBytes,
    },
    Family {
        name: MetricName::from_static("pod_cpu_usage_seconds_total"),
        help: "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        kind: MetricType::Counter,
        labels: 2,
        is_timed: true,
        value: Value::CpuSeconds,
    },
    Family {
        name: MetricName::from_static("pod_memory_working_set_bytes"),
        help: "[STABLE] Current working set of the pod in bytes",
        kind: MetricType::Gauge,
        labels: 2,
        is_timed: true,
        value: Value::MemoryBytes,
    },
    Family {
        name: MetricName::from_static("resource_scrape_error"),
        help: "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
        kind: MetricType::Gauge,
        labels: 0,
        is_timed: false,
        value: Value::Zero,
    },
];
