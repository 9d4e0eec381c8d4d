//! Test harness: a store, its last publications, and short constructors of samples and objects.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kubevitals_model::{
    Bytes, BytesSample, ContainerKeyRef, ContainerSample, CoreNanos, CpuSample, CpuUsage, Identity,
    Labels, Moment, NodeBatch, NodeName, NodeSample, PodKeyRef, PodPhase, PodSummary,
    ResourceVersion, Timestamp, Uid, Usage,
};
use kubevitals_usage::{
    ExtraResources, Ingested, NodeUsage, PodUsage, UsageConfig, UsagePublisher, UsageStore,
};

/// The origin of [`at`], far from the epoch.
const BEGIN: i64 = 1_700_000_000_000;

/// The origin of monotonic time, which is another.
const MONOTONIC_BEGIN: i64 = 50_000_000;

/// One second of one core in nanoseconds.
pub(crate) const CORE_SECOND: u64 = 1_000_000_000;

/// The last publication of a node.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Publication {
    pub(crate) labels: Labels,
    pub(crate) usage: Option<Usage>,
    pub(crate) pods: Vec<PodUsage>,
    pub(crate) published: Timestamp,
}

/// Records the last publication of each node.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    nodes: Mutex<BTreeMap<String, Publication>>,
    publications: Mutex<u32>,
}

pub(crate) struct Harness {
    pub(crate) store: UsageStore,
    pub(crate) recorder: Arc<Recorder>,
}

/// A container in a scrape.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pod: String,
    container: String,
    pub(crate) sample: ContainerSample,
}

/// Usage in short: millicores, window in milliseconds, timestamp.
pub(crate) type Served = (u64, u64, i64);

impl UsagePublisher for Recorder {
    fn publish(&self, usage: &NodeUsage<'_>) {
        let is_sorted = usage.pods.is_sorted_by(|one, two| one.key < two.key);
        assert!(is_sorted, "pods are sorted by namespace and name");
        for pod in usage.pods {
            assert!(!pod.containers.is_empty(), "{} has no container", pod.key);
            assert!(pod.containers.is_sorted_by(|one, two| one.name < two.name));
        }
        *self.publications.lock().unwrap() += 1;
        let publication = Publication {
            labels: usage.labels.clone(),
            usage: usage.usage.copied(),
            pods: usage.pods.to_vec(),
            published: usage.published,
        };
        let mut nodes = self.nodes.lock().unwrap();
        nodes.insert(usage.node.as_str().to_owned(), publication);
    }

    fn withdraw(&self, node: &NodeName) {
        let known = self.nodes.lock().unwrap().remove(node.as_str());
        assert!(known.is_some(), "{node} was never published");
    }
}

impl Recorder {
    pub(crate) fn node(&self, name: &str) -> Option<Publication> {
        self.nodes.lock().unwrap().get(name).cloned()
    }

    pub(crate) fn publications(&self) -> u32 {
        *self.publications.lock().unwrap()
    }
}

impl Harness {
    /// A store with a resolution of 15 s and the node `n1` without pods.
    pub(crate) fn new() -> Self {
        Self::with_resolution(Duration::from_secs(15))
    }

    pub(crate) fn with_resolution(resolution: Duration) -> Self {
        let mut config = UsageConfig::new(resolution);
        config.extra = ExtraResources {
            swap: true,
            ephemeral_storage: true,
        };
        let recorder = Arc::new(Recorder::default());
        let mut store = UsageStore::new(config);
        store.add_publisher(Arc::<Recorder>::clone(&recorder));
        let harness = Self { store, recorder };
        harness.node("n1");
        harness
    }

    /// As [`Harness::new`], with the pod `default/web-0` running on `n1`.
    pub(crate) fn with_pod() -> Self {
        let harness = Self::new();
        harness.pod("n1", "default/web-0");
        harness
    }

    pub(crate) fn node(&self, name: &str) {
        self.store
            .node_applied(&NodeName::new(name), &Labels::default(), &uid(name));
        self.store.flush(moment(0));
    }

    pub(crate) fn pod(&self, node: &str, key: &str) -> Arc<PodSummary> {
        let pod = Arc::new(pod(node, key));
        self.store.pod_applied(&pod);
        self.store.flush(moment(0));
        pod
    }

    /// Ingests a scrape of `n1`.
    pub(crate) fn scrape(&self, now: i64, rows: &[Row]) -> Ingested {
        self.store
            .ingest("n1", &uid("n1"), &batch(rows), moment(now))
    }

    pub(crate) fn fail(&self, now: i64, reason: &str) {
        let retry_in = Some(Duration::from_secs(15));
        self.store
            .scrape_failed("n1", &uid("n1"), reason.into(), retry_in, moment(now));
    }

    /// Returns the usage of a container of `default/web-0` on `n1`.
    pub(crate) fn served(&self, container: &str) -> Option<Served> {
        self.served_of("default/web-0", container)
    }

    pub(crate) fn served_of(&self, pod: &str, container: &str) -> Option<Served> {
        self.usage(pod, container).map(as_served)
    }

    pub(crate) fn usage(&self, pod: &str, container: &str) -> Option<Usage> {
        let last = self.recorder.node("n1").unwrap();
        let pod = last.pods.iter().find(|own| own.key.to_string() == pod)?;
        let mut containers = pod.containers.iter();
        let found = containers.find(|own| *own.name == *container)?;
        Some(found.usage)
    }

    /// Returns the usage of `n1` itself.
    pub(crate) fn served_node(&self) -> Option<Served> {
        self.recorder.node("n1").unwrap().usage.map(as_served)
    }

    /// Returns the pods with usage on `n1`.
    pub(crate) fn pods(&self) -> Vec<String> {
        let last = self.recorder.node("n1").unwrap();
        last.pods.iter().map(|pod| pod.key.to_string()).collect()
    }

    pub(crate) fn explain(&self, now: i64) -> String {
        let pod = PodKeyRef {
            namespace: "default",
            name: "web-0",
        };
        self.store.explain_pod(pod, moment(now)).to_string()
    }
}

/// Returns a time in milliseconds after the origin.
pub(crate) fn at(millis: i64) -> Timestamp {
    Timestamp::from_unix_millis(BEGIN + millis)
}

/// Returns a reading of our clock in milliseconds after the origin.
pub(crate) fn moment(millis: i64) -> Moment {
    let uptime = (MONOTONIC_BEGIN + millis).unsigned_abs();
    Moment {
        wall: at(millis),
        monotonic: Duration::from_millis(uptime),
    }
}

pub(crate) fn uid(text: &str) -> Uid {
    Uid::from(text)
}

/// A running pod, named as `namespace/name`.
pub(crate) fn pod(node: &str, key: &str) -> PodSummary {
    let (namespace, name) = key.split_once('/').unwrap();
    PodSummary {
        identity: Identity {
            namespace: namespace.into(),
            name: name.into(),
            uid: uid(key),
            resource_version: ResourceVersion::from("1"),
        },
        labels: Labels::default(),
        node: (!node.is_empty()).then(|| node.into()),
        phase: PodPhase::Running,
    }
}

/// A container of `default/web-0` with 1 MiB of memory and a CPU counter of `total`.
pub(crate) fn row(container: &str, millis: i64, total: u64) -> Row {
    row_of("default/web-0", container, millis, total)
}

pub(crate) fn row_of(pod: &str, container: &str, millis: i64, total: u64) -> Row {
    let sample = ContainerSample {
        cpu: cpu(millis, total),
        memory: bytes(millis, 1 << 20),
        ..ContainerSample::default()
    };
    Row {
        pod: pod.to_owned(),
        container: container.to_owned(),
        sample,
    }
}

impl Row {
    pub(crate) fn started(mut self, millis: i64) -> Self {
        self.sample.started = Some(at(millis));
        self
    }

    pub(crate) fn with(mut self, change: impl FnOnce(&mut ContainerSample)) -> Self {
        change(&mut self.sample);
        self
    }
}

#[expect(clippy::unnecessary_wraps, reason = "parts of samples are optional")]
pub(crate) fn cpu(millis: i64, total: u64) -> Option<CpuSample> {
    Some(CpuSample {
        at: at(millis),
        total: CoreNanos::new(total),
    })
}

#[expect(clippy::unnecessary_wraps, reason = "parts of samples are optional")]
pub(crate) fn bytes(millis: i64, count: u64) -> Option<BytesSample> {
    Some(BytesSample {
        at: at(millis),
        bytes: Bytes::new(count),
    })
}

pub(crate) fn millicores(millicores: u64) -> CpuUsage {
    CpuUsage::from_nanocores(millicores * 1_000_000)
}

pub(crate) fn batch(rows: &[Row]) -> NodeBatch {
    let mut batch = NodeBatch::default();
    for row in rows {
        let (namespace, name) = row.pod.split_once('/').unwrap();
        let pod = PodKeyRef { namespace, name };
        let container = &row.container;
        batch.push(ContainerKeyRef { pod, container }, row.sample);
    }
    batch
}

/// A scrape of a node with 1 GiB of memory and a CPU counter of `total`.
pub(crate) fn of_node(millis: i64, total: u64) -> NodeBatch {
    let mut batch = NodeBatch::default();
    batch.node = NodeSample {
        cpu: cpu(millis, total),
        memory: bytes(millis, 1 << 30),
        ..NodeSample::default()
    };
    batch
}

fn as_served(usage: Usage) -> Served {
    (
        usage.cpu.nanocores() / 1_000_000,
        u64::try_from(usage.window.as_millis()).unwrap(),
        usage.timestamp.unix_millis() - BEGIN,
    )
}
