//! The store: all nodes, each behind its own lock.
//!
//! The map of nodes is locked to look up a node, and not while a node is used. Lock order: map,
//! node, shard of the directory; only the removal of a node holds the first two at once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::{HashMap, HashSet};
use kubevitals_model::{
    AsPodSummary, Interner, Labels, Moment, NoRate, NodeBatch, NodeName, PodKeyRef, PodPhase, Uid,
};
use parking_lot::{Mutex, RwLock};

use crate::absence::Absence;
use crate::config::UsageConfig;
use crate::directory::Directory;
use crate::evaluation::Evaluation;
use crate::metrics::{Dropped, UsageMetrics};
use crate::node::ingest::Scope;
use crate::node::pod_table::key_of;
use crate::node::{Context, NodeState};
use crate::publisher::UsagePublisher;
use crate::readiness::{Readiness, Reason, Reasons, WarmUp};
use crate::series::RateState;

/// A node awaits second samples while more than one in this many of its containers has only one.
const AWAITING_PART: u32 = 20;

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
    /// Containers whose samples were recorded, and the node itself.
    pub recorded: u32,
    /// Those of them with a first sample, whose usage needs a second one.
    pub awaiting: u32,
}

/// Computes usage from the samples of kubelets, and publishes it. All methods can be called
/// concurrently.
pub struct UsageStore {
    config: UsageConfig,
    publishers: Vec<Arc<dyn UsagePublisher>>,
    metrics: UsageMetrics,
    warm_up: WarmUp,
    /// The most frequent reasons why nodes have no usage, as of the last expiry.
    reasons: Mutex<Arc<[Reason]>>,
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
            warm_up: WarmUp::default(),
            reasons: Mutex::new(Arc::new([])),
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
    /// The node must have been applied before, with this UID: samples of other nodes are dropped,
    /// so that a scrape in flight neither brings back a deleted node nor counts for its successor.
    pub fn ingest(&self, node: &str, uid: &Uid, batch: &NodeBatch, now: Moment) -> Ingested {
        self.ingest_scope(node, uid, batch, Scope::All, now)
    }

    /// Ingests the samples of containers that have no usage, as [`UsageStore::ingest`] does. What
    /// is served stays until the next scrape at which other replicas replace it too.
    pub fn ingest_missing(
        &self,
        node: &str,
        uid: &Uid,
        batch: &NodeBatch,
        now: Moment,
    ) -> Ingested {
        self.ingest_scope(node, uid, batch, Scope::Missing, now)
    }

    fn ingest_scope(
        &self,
        node: &str,
        uid: &Uid,
        batch: &NodeBatch,
        scope: Scope,
        now: Moment,
    ) -> Ingested {
        let Some(node) = self.node(node) else {
            self.metrics.dropped(Dropped::UnknownNode, batch.len());
            return Ingested::default();
        };
        node.lock().ingest(uid, batch, scope, &self.context(now))
    }

    /// Records a failed scrape. The usage of the node is served up to the staleness limit.
    pub fn scrape_failed(
        &self,
        node: &str,
        uid: &Uid,
        reason: Arc<str>,
        retry_in: Option<Duration>,
        now: Moment,
    ) {
        if let Some(node) = self.node(node) {
            node.lock()
                .scrape_failed(uid, reason, retry_in, &self.context(now));
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

    /// Replaces all pods by those of a list: others are removed.
    pub fn pods_replaced<P: AsPodSummary>(&self, pods: &[Arc<P>], now: Moment) {
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
        self.warm_up.pods_listed(now.monotonic);
    }

    /// Applies a new or changed node. [`UsageStore::flush`] publishes it.
    pub fn node_applied(&self, name: &NodeName, labels: &Labels, uid: &Uid) {
        self.with_node(name, |state| state.register(labels, uid));
    }

    /// Applies a node that is excluded from scraping: it has no usage, for this reason.
    pub fn node_excluded(&self, name: &NodeName, uid: &Uid, reason: &Arc<str>, now: Moment) {
        let cx = self.context(now);
        self.with_node(name, |state| {
            state.exclude(uid, Arc::clone(reason), &cx);
            false
        });
    }

    /// Removes a node and all its samples, and withdraws it at once. Another node of the same name,
    /// which has another UID, stays.
    pub fn node_deleted(&self, name: &str, uid: &Uid, now: Moment) {
        self.remove_node(name, now, |state| state.has_uid(uid));
    }

    /// Removes all nodes but these, which are a complete list.
    pub fn retain_nodes<'n>(&self, names: impl IntoIterator<Item = &'n str>, now: Moment) {
        let names: HashSet<&str> = names.into_iter().collect();
        for node in self.all_nodes() {
            let name = node.lock().name().clone();
            if !names.contains(name.as_str()) {
                self.remove_node(name.as_str(), now, |_| true);
            }
        }
        self.warm_up.nodes_listed();
    }

    /// Publishes the nodes that changes of pods and nodes have affected since the last flush.
    pub fn flush(&self, now: Moment) {
        let dirty = std::mem::take(&mut *self.dirty.lock());
        for name in dirty {
            if let Some(node) = self.node(name.as_str()) {
                node.lock().flush(&self.context(now));
            }
        }
    }

    /// Drops stale usage, publishes the nodes concerned, and collects the reasons why nodes have no
    /// usage. To be called about every second.
    pub fn expire(&self, now: Moment) {
        let cx = self.context(now);
        let mut reasons = Reasons::default();
        for node in self.all_nodes() {
            let mut state = node.lock();
            state.expire(&cx);
            if state.is_registered() && !state.is_served() {
                reasons.add(state.name(), state.explain(&cx.eval));
            }
        }
        *self.reasons.lock() = reasons.most_frequent();
    }

    /// Returns the reason why a pod has no usage.
    pub fn explain_pod(&self, pod: PodKeyRef<'_>, now: Moment) -> Absence {
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
    pub fn explain_node(&self, node: &str, now: Moment) -> Absence {
        match self.node(node) {
            Some(node) => node.lock().explain(&self.context(now).eval),
            None => Absence::NodeUnknown(NodeName::new(node)),
        }
    }

    /// Returns whether there is usage to serve. It takes the same time whatever the size of the
    /// cluster, and waits for no node.
    pub fn readiness(&self, now: Moment) -> Readiness {
        let counts = self.metrics.counts();
        Readiness {
            counts,
            phase: self.warm_up.phase(&counts, now.monotonic),
            until_slots: self
                .warm_up
                .until_slots(self.config.resolution, now.monotonic),
            reasons: Arc::clone(&self.reasons.lock()),
        }
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
        state.account(&self.metrics);
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

    fn remove_node(&self, name: &str, now: Moment, is_it: impl Fn(&NodeState) -> bool) {
        let Some(node) = self.node(name) else {
            return;
        };
        let mut state = node.lock();
        if is_it(&state) {
            state.unregister(&self.context(now));
            state.account(&self.metrics);
            drop(state);
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
            state.account(&self.metrics);
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

    fn context(&self, now: Moment) -> Context<'_> {
        Context {
            eval: Evaluation::new(&self.config, now),
            directory: &self.directory,
            names: &self.names,
            metrics: &self.metrics,
            publishers: &self.publishers,
        }
    }
}

impl Ingested {
    /// Whether much of the node's usage depends on second samples that are yet to come. A few
    /// containers may be stuck.
    pub(crate) fn awaits_samples(&self) -> bool {
        self.awaiting.saturating_mul(AWAITING_PART) > self.recorded
    }

    pub(crate) fn count_coverage(&mut self, state: RateState) {
        self.recorded += 1;
        self.awaiting += u32::from(state == RateState::NoRate(NoRate::FirstSample));
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
