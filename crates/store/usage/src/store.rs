//! The store: all nodes, each behind its own lock.
//!
//! The map of nodes is locked to find a node, and never while anything is done with it. Locks are
//! taken in one order: map, node, part of the directory; only burying a node holds the first two at
//! once.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use hashbrown::{HashMap, HashSet};
use kubevitals_model::{
    AsPodSummary, Interner, Labels, NodeBatch, NodeName, PodKeyRef, PodPhase, Timestamp, Uid,
};

use crate::absence::Absence;
use crate::config::UsageConfig;
use crate::directory::Directory;
use crate::metrics::{Dropped, UsageMetrics};
use crate::node::table::key_of;
use crate::node::{NodeState, Surroundings};
use crate::publisher::UsagePublisher;
use crate::readiness::{Readiness, Reasons};
use crate::rules::Origin;

/// What became of one answer of a kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ingested {
    /// Whether anything in it was newer than what was known: the kubelet's clock of samples has
    /// moved.
    pub new_sample: bool,
    /// Whether the node is known; if not, everything was dropped.
    pub known_node: bool,
    /// Containers of which a newer sample was taken.
    pub taken: u32,
    /// Containers whose sample was the one that is known already.
    pub repeated: u32,
    /// Containers whose sample was older than the one that is known.
    pub older: u32,
    /// Containers of pods that are not known yet, held for a while.
    pub held: u32,
    /// Containers dropped because too many are held, or because their pod has too many.
    pub overflowed: u32,
    /// Containers dropped because their pod is bound to another node, or has ended.
    pub foreign: u32,
}

/// Samples of kubelets in, usage out. Every method can be called from many tasks at once.
pub struct UsageStore {
    config: UsageConfig,
    publishers: Vec<Arc<dyn UsagePublisher>>,
    metrics: UsageMetrics,
    origin: Origin,
    /// Names of containers, of which a cluster has few.
    names: Interner,
    directory: Directory,
    nodes: RwLock<HashMap<NodeName, Slot>>,
    /// Nodes that have something to tell at the next flush.
    touched: Mutex<HashSet<NodeName>>,
}

type Slot = Arc<Mutex<NodeState>>;

impl UsageStore {
    /// An empty store without publishers.
    pub fn new(config: UsageConfig) -> Self {
        Self {
            config,
            publishers: Vec::new(),
            metrics: UsageMetrics::new(),
            origin: Origin::default(),
            names: Interner::new(),
            directory: Directory::default(),
            nodes: RwLock::default(),
            touched: Mutex::default(),
        }
    }

    /// Adds a publisher, which receives every change from now on. All publishers receive the same
    /// changes in the same order.
    pub fn add_publisher(&mut self, publisher: Arc<dyn UsagePublisher>) {
        self.publishers.push(publisher);
    }

    /// What the store counts, to be registered.
    pub fn metrics(&self) -> &UsageMetrics {
        &self.metrics
    }

    /// By which rules it goes.
    pub fn config(&self) -> &UsageConfig {
        &self.config
    }

    /// Takes in an answer of a kubelet, and publishes its node if anything in it is new.
    ///
    /// The node must have been applied before: what comes for another is dropped, so that an answer
    /// which was on its way when its node left does not bring it back.
    pub fn ingest(&self, node: &str, batch: &NodeBatch, now: Timestamp) -> Ingested {
        let Some(slot) = self.slot(node) else {
            self.metrics.dropped(Dropped::UnknownNode, batch.len());
            return Ingested::default();
        };
        lock(&slot).ingest(batch, &self.around(now))
    }

    /// A kubelet did not answer, or not as it should. What is known of the node is served on, up to
    /// the staleness bound.
    pub fn scrape_failed(
        &self,
        node: &str,
        why: Arc<str>,
        next_attempt: Option<Timestamp>,
        now: Timestamp,
    ) {
        if let Some(slot) = self.slot(node) {
            lock(&slot).failed(why, next_attempt, now, &self.metrics);
        }
    }

    /// A pod is new or has changed. [`UsageStore::flush`] publishes its node.
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
            self.with_slot(&node, |state| state.pod_applied(&pod));
        }
    }

    /// A pod is gone. [`UsageStore::flush`] publishes its node.
    pub fn pod_deleted<P: AsPodSummary>(&self, pod: &P) {
        self.directory.remove(pod);
        self.unbind(pod);
    }

    /// These are all pods there are: others are gone.
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

    /// A node is new or has changed. [`UsageStore::flush`] publishes it.
    pub fn node_applied(&self, name: &NodeName, labels: &Labels, uid: &Uid) {
        self.with_slot(name, |state| state.declare(labels, uid, &self.metrics));
    }

    /// A node is gone: it is withdrawn at once, and all its samples are forgotten.
    pub fn node_deleted(&self, name: &str) {
        if let Some(slot) = self.slot(name) {
            lock(&slot).undeclare(&self.metrics, &self.publishers);
            self.bury(name);
        }
    }

    /// These are all nodes there are: others are gone.
    pub fn nodes_replaced<'n>(
        &self,
        nodes: impl IntoIterator<Item = (&'n Arc<str>, &'n Labels, &'n Uid)>,
    ) {
        let mut there = HashSet::new();
        for (name, labels, uid) in nodes {
            let name = NodeName::new(Arc::clone(name));
            self.node_applied(&name, labels, uid);
            there.insert(name);
        }
        for slot in self.slots() {
            let name = lock(&slot).name().clone();
            if !there.contains(&name) {
                self.node_deleted(name.as_str());
            }
        }
    }

    /// Publishes the nodes that changes of pods and nodes have touched since the last time.
    pub fn flush(&self, now: Timestamp) {
        let touched = std::mem::take(&mut *lock(&self.touched));
        for name in touched {
            if let Some(slot) = self.slot(name.as_str()) {
                lock(&slot).flush(&self.around(now));
            }
        }
    }

    /// Drops what is too old, and publishes the nodes concerned. To be called every second or so.
    pub fn expire(&self, now: Timestamp) {
        for slot in self.slots() {
            lock(&slot).expire(&self.around(now));
        }
    }

    /// Why a pod is not served.
    pub fn explain_pod(&self, pod: PodKeyRef<'_>, now: Timestamp) -> Absence {
        let Some(pod) = self.directory.get(pod) else {
            return Absence::PodUnknown;
        };
        let pod = pod.summary();
        match (&pod.node, pod.phase) {
            (None, PodPhase::Pending) => Absence::PodNotScheduled,
            (Some(node), PodPhase::Running) => match self.slot(node) {
                Some(slot) => lock(&slot).explain_pod(pod, &self.around(now).rules),
                None => Absence::NodeUnknown(NodeName::new(Arc::clone(node))),
            },
            (_, phase) => Absence::PodNotRunning(phase),
        }
    }

    /// Why a node is not served.
    pub fn explain_node(&self, node: &str, now: Timestamp) -> Absence {
        match self.slot(node) {
            Some(slot) => lock(&slot).explain(&self.around(now).rules),
            None => Absence::NodeUnknown(NodeName::new(node)),
        }
    }

    /// What is served of what there is.
    pub fn readiness(&self, now: Timestamp) -> Readiness {
        let around = self.around(now);
        let mut readiness = Readiness::default();
        let mut reasons = Reasons::default();
        for slot in self.slots() {
            let state = lock(&slot);
            if !state.is_declared() {
                continue;
            }
            let told = state.told();
            readiness.nodes_known += 1;
            readiness.nodes_served += told.nodes as usize;
            readiness.pods_known += state.running_pods();
            readiness.pods_served += told.pods as usize;
            if told.nodes == 0 {
                reasons.add(state.name(), state.explain(&around.rules));
            }
        }
        readiness.reasons = reasons.most_frequent();
        readiness
    }

    /// Takes a pod away from the node it was bound to.
    fn unbind(&self, pod: &dyn AsPodSummary) {
        let Some(node) = &pod.summary().node else {
            return;
        };
        let Some(slot) = self.slot(node) else {
            return;
        };
        let mut state = lock(&slot);
        let is_touched = state.pod_deleted(pod.summary());
        let may_be_empty = !state.is_declared();
        let name = state.name().clone();
        drop(state);
        if is_touched {
            lock(&self.touched).insert(name);
        }
        if may_be_empty {
            self.bury(node);
        }
    }

    fn slot(&self, node: &str) -> Option<Slot> {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        nodes.get(node).map(Arc::clone)
    }

    fn slots(&self) -> Vec<Slot> {
        let nodes = self.nodes.read().unwrap_or_else(PoisonError::into_inner);
        nodes.values().map(Arc::clone).collect()
    }

    /// Does something with a node, which is made if it is not there, and notes whether that left
    /// something to tell.
    fn with_slot(&self, name: &NodeName, change: impl Fn(&mut NodeState) -> bool) {
        loop {
            let slot = self.slot(name.as_str()).unwrap_or_else(|| self.add(name));
            let mut state = lock(&slot);
            if state.is_dead() {
                continue;
            }
            let is_touched = change(&mut state) && state.is_declared();
            drop(state);
            if is_touched {
                lock(&self.touched).insert(name.clone());
            }
            return;
        }
    }

    fn add(&self, name: &NodeName) -> Slot {
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        let new = || Arc::new(Mutex::new(NodeState::new(name.clone())));
        Arc::clone(nodes.entry(name.clone()).or_insert_with(new))
    }

    /// Takes a node out of the map if neither it nor a pod on it is known any more. Whoever found
    /// it just before sees that it is dead and looks again.
    fn bury(&self, name: &str) {
        let mut nodes = self.nodes.write().unwrap_or_else(PoisonError::into_inner);
        if nodes.get(name).is_some_and(|slot| lock(slot).bury()) {
            nodes.remove(name);
        }
        if nodes.len() * 4 < nodes.capacity() {
            nodes.shrink_to_fit();
        }
    }

    fn around(&self, now: Timestamp) -> Surroundings<'_> {
        Surroundings {
            rules: self.origin.rules(&self.config, now),
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
            .field("nodes", &self.slots().len())
            .finish_non_exhaustive()
    }
}

/// A lock that a panic has poisoned is taken as it is: what is behind it is replaced by the next
/// answer of the node.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
