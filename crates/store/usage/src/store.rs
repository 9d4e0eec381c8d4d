//! The store: all nodes, each behind its own lock.
//!
//! The map of nodes is locked to look up a node, and not while a node is used. Lock order: map,
//! node, shard of the directory; only the removal of a node holds the first two at once.

use std::fmt;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use kubevitals_model::{
    AsPodSummary, Interner, Labels, NodeBatch, NodeName, PodKeyRef, PodPhase, Timestamp, Uid,
};
use parking_lot::{Mutex, RwLock};

use crate::absence::Absence;
use crate::config::UsageConfig;
use crate::directory::Directory;
use crate::evaluation::TickOrigin;
use crate::metrics::{Dropped, UsageMetrics};
use crate::node::pod_table::key_of;
use crate::node::{Context, NodeState};
use crate::publisher::UsagePublisher;
use crate::readiness::{Readiness, Reasons};

/// The outcome of one scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ingested {
    /// Whether it contained a new sample: the kubelet has sampled since the last scrape.
    pub new_sample: bool,
    /// Whether the node is registered; if not, everything was dropped.
    pub known_node: bool,
    /// Containers with a new sample.
    pub new: u32,
    /// Containers with the same sample as before.
    pub repeated: u32,
    /// Containers with an older sample, which is ignored.
    pub older: u32,
    /// Containers of pods that the API has not reported yet, held for a while.
    pub held: u32,
    /// Containers dropped because no pod on the node has the UID of theirs.
    pub unknown: u32,
    /// Containers dropped because too many are held, or their pod has too many.
    pub overflowed: u32,
    /// Containers dropped because their pod is bound to another node, or has terminated.
    pub foreign: u32,
}

/// Computes usage from the samples of kubelets, and publishes it. All methods can be called
/// concurrently.
pub struct UsageStore {
    config: UsageConfig,
    publishers: Vec<Arc<dyn UsagePublisher>>,
    metrics: UsageMetrics,
    origin: TickOrigin,
    /// Names of containers, of which a cluster has few distinct ones.
    names: Interner,
    directory: Directory,
    nodes: RwLock<HashMap<NodeName, NodeLock>>,
    /// Nodes to publish at the next flush.
    dirty: Mutex<HashSet<NodeName>>,
}

type NodeLock = Arc<Mutex<NodeState>>;

impl UsageStore {
    /// An empty store without publishers.
    pub fn new(config: UsageConfig) -> Self {
        Self {
            config,
            publishers: Vec::new(),
            metrics: UsageMetrics::new(),
            origin: TickOrigin::default(),
            names: Interner::new(),
            directory: Directory::default(),
            nodes: RwLock::default(),
            dirty: Mutex::default(),
        }
    }

    /// Adds a publisher, which receives every change from now on. All publishers receive the same
    /// changes in the same order.
    pub fn add_publisher(&mut self, publisher: Arc<dyn UsagePublisher>) {
        self.publishers.push(publisher);
    }

    pub fn metrics(&self) -> &UsageMetrics {
        &self.metrics
    }

    pub fn config(&self) -> &UsageConfig {
        &self.config
    }

    /// Ingests the samples of a scrape, and publishes the node if any is new.
    ///
    /// The node must have been applied before: samples of other nodes are dropped, so that a scrape
    /// in flight does not bring back a deleted node.
    pub fn ingest(&self, node: &str, batch: &NodeBatch, now: Timestamp) -> Ingested {
        let Some(node) = self.node(node) else {
            self.metrics.dropped(Dropped::UnknownNode, batch.len());
            return Ingested::default();
        };
        node.lock().ingest(batch, &self.context(now))
    }

    /// Records a failed scrape. The usage of the node is served up to the staleness limit.
    pub fn scrape_failed(
        &self,
        node: &str,
        reason: Arc<str>,
        next_attempt: Option<Timestamp>,
        now: Timestamp,
    ) {
        if let Some(node) = self.node(node) {
            node.lock()
                .scrape_failed(reason, next_attempt, now, &self.metrics);
        }
    }

    /// Applies a new or changed pod. [`UsageStore::flush`] publishes its node.
    pub fn pod_applied<P: AsPodSummary>(&self, pod: &Arc<P>) {
        let pod: Arc<dyn AsPodSummary> = Arc::<P>::clone(pod);
        let summary = pod.summary();
        if let Some(before) = self.directory.put(&pod)
            && before.summary().node != summary.node
        {
            self.unbind(&*before);
        }
        if let Some(node) = &summary.node {
            let node = NodeName::new(Arc::clone(node));
            self.with_node(&node, |state| state.pod_applied(&pod));
        }
    }

    /// Removes a pod. [`UsageStore::flush`] publishes its node.
    pub fn pod_deleted<P: AsPodSummary>(&self, pod: &P) {
        self.directory.remove(pod);
        self.unbind(pod);
    }

    /// Replaces all pods: those that are not given are removed.
    pub fn pods_replaced<P: AsPodSummary>(&self, pods: &[Arc<P>]) {
        if !self.directory.is_empty() {
            let names: HashSet<PodKeyRef<'_>> =
                pods.iter().map(|pod| key_of(pod.summary())).collect();
            for gone in self.directory.missing_from(&names) {
                self.directory.remove(&*gone);
                self.unbind(&*gone);
            }
        }
        for pod in pods {
            self.pod_applied(pod);
        }
    }

    /// Applies a new or changed node. [`UsageStore::flush`] publishes it.
    pub fn node_applied(&self, name: &NodeName, labels: &Labels, uid: &Uid) {
        self.with_node(name, |state| state.register(labels, uid, &self.metrics));
    }

    /// Removes a node and all its samples, and withdraws it at once.
    pub fn node_deleted(&self, name: &str) {
        if let Some(node) = self.node(name) {
            node.lock().unregister(&self.metrics, &self.publishers);
            self.remove_if_unused(name);
        }
    }

    /// Replaces all nodes: those that are not given are removed.
    pub fn nodes_replaced<'n>(
        &self,
        nodes: impl IntoIterator<Item = (&'n Arc<str>, &'n Labels, &'n Uid)>,
    ) {
        let mut names = HashSet::new();
        for (name, labels, uid) in nodes {
            let name = NodeName::new(Arc::clone(name));
            self.node_applied(&name, labels, uid);
            names.insert(name);
        }
        for node in self.all_nodes() {
            let name = node.lock().name().clone();
            if !names.contains(&name) {
                self.node_deleted(name.as_str());
            }
        }
    }

    /// Publishes the nodes that changes of pods and nodes have affected since the last flush.
    pub fn flush(&self, now: Timestamp) {
        let dirty = std::mem::take(&mut *self.dirty.lock());
        for name in dirty {
            if let Some(node) = self.node(name.as_str()) {
                node.lock().flush(&self.context(now));
            }
        }
    }

    /// Drops stale usage, and publishes the nodes concerned. To be called about every second.
    pub fn expire(&self, now: Timestamp) {
        for node in self.all_nodes() {
            node.lock().expire(&self.context(now));
        }
    }

    /// Returns the reason why a pod has no usage.
    pub fn explain_pod(&self, pod: PodKeyRef<'_>, now: Timestamp) -> Absence {
        let Some(pod) = self.directory.get(pod) else {
            return Absence::PodUnknown;
        };
        let pod = pod.summary();
        match (&pod.node, pod.phase) {
            (None, PodPhase::Pending) => Absence::PodNotScheduled,
            (Some(node), PodPhase::Running) => match self.node(node) {
                Some(node) => node.lock().explain_pod(pod, &self.context(now).eval),
                None => Absence::NodeUnknown(NodeName::new(Arc::clone(node))),
            },
            (_, phase) => Absence::PodNotRunning(phase),
        }
    }

    /// Returns the reason why a node has no usage.
    pub fn explain_node(&self, node: &str, now: Timestamp) -> Absence {
        match self.node(node) {
            Some(node) => node.lock().explain(&self.context(now).eval),
            None => Absence::NodeUnknown(NodeName::new(node)),
        }
    }

    /// Returns the numbers of nodes and pods with usage.
    pub fn readiness(&self, now: Timestamp) -> Readiness {
        let cx = self.context(now);
        let mut readiness = Readiness::default();
        let mut reasons = Reasons::default();
        for node in self.all_nodes() {
            let state = node.lock();
            if !state.is_registered() {
                continue;
            }
            let published = state.published();
            readiness.nodes += 1;
            readiness.nodes_served += published.nodes as usize;
            readiness.running_pods += state.running_pods();
            readiness.pods_served += published.pods as usize;
            if published.nodes == 0 {
                reasons.add(state.name(), state.explain(&cx.eval));
            }
        }
        readiness.reasons = reasons.most_frequent();
        readiness
    }

    /// Removes a pod from the node it was bound to.
    fn unbind(&self, pod: &dyn AsPodSummary) {
        let Some(name) = &pod.summary().node else {
            return;
        };
        let Some(node) = self.node(name) else {
            return;
        };
        let mut state = node.lock();
        let is_dirty = state.pod_deleted(pod.summary());
        let may_be_unused = !state.is_registered();
        let node_name = state.name().clone();
        drop(state);
        if is_dirty {
            self.dirty.lock().insert(node_name);
        }
        if may_be_unused {
            self.remove_if_unused(name);
        }
    }

    fn node(&self, name: &str) -> Option<NodeLock> {
        let nodes = self.nodes.read();
        nodes.get(name).map(Arc::clone)
    }

    fn all_nodes(&self) -> Vec<NodeLock> {
        let nodes = self.nodes.read();
        nodes.values().map(Arc::clone).collect()
    }

    /// Changes a node, which is created if it does not exist, and marks it if there is something to
    /// publish.
    fn with_node(&self, name: &NodeName, change: impl Fn(&mut NodeState) -> bool) {
        loop {
            let node = self.node(name.as_str()).unwrap_or_else(|| self.add(name));
            let mut state = node.lock();
            if state.is_removed() {
                continue;
            }
            let is_dirty = change(&mut state) && state.is_registered();
            drop(state);
            if is_dirty {
                self.dirty.lock().insert(name.clone());
            }
            return;
        }
    }

    fn add(&self, name: &NodeName) -> NodeLock {
        let mut nodes = self.nodes.write();
        let new = || Arc::new(Mutex::new(NodeState::new(name.clone())));
        Arc::clone(nodes.entry(name.clone()).or_insert_with(new))
    }

    /// Removes a node from the map if neither a Node object nor a pod refers to it. A caller that
    /// looked it up just before sees that it is removed and retries.
    fn remove_if_unused(&self, name: &str) {
        let mut nodes = self.nodes.write();
        if nodes
            .get(name)
            .is_some_and(|node| node.lock().remove_if_unused())
        {
            nodes.remove(name);
        }
        if nodes.len() * 4 < nodes.capacity() {
            nodes.shrink_to_fit();
        }
    }

    fn context(&self, now: Timestamp) -> Context<'_> {
        Context {
            eval: self.origin.evaluate(&self.config, now),
            directory: &self.directory,
            names: &self.names,
            metrics: &self.metrics,
            publishers: &self.publishers,
        }
    }
}

impl fmt::Debug for UsageStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsageStore")
            .field("config", &self.config)
            .field("nodes", &self.all_nodes().len())
            .finish_non_exhaustive()
    }
}
