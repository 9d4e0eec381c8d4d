//! One node: its samples, its pods and their containers, and what was last published.
//!
//! All of it is behind the node's own lock. Nothing here knows of another node. A scrape passes
//! through `ingest`, `series` and `publication`, in this order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use kubevitals_model::{
    ContainerKey, Interner, Labels, NodeName, PodPhase, PodSummary, Timestamp, Uid,
};

use self::pod_table::PodTable;
pub(crate) use self::publication::Published;
use crate::directory::Directory;
use crate::evaluation::{Evaluation, Tick};
use crate::metrics::UsageMetrics;
use crate::publisher::UsagePublisher;
use crate::series::Series;

mod binding;
mod expiry;
mod explain;
mod ingest;
pub(crate) mod pod_table;
mod publication;
mod scratch;

/// The state of a node.
pub(crate) struct NodeState {
    name: NodeName,
    labels: Labels,
    uid: Option<Uid>,
    registration: Registration,
    /// Whether a change has not been published yet.
    is_dirty: bool,
    usage: Series,
    pods: PodTable,
    /// Samples of pods that the API has not reported yet, so that they do not delay their first
    /// rate.
    held: BTreeMap<ContainerKey, Series>,
    /// The error of the last scrape, if it failed.
    failure: Option<ScrapeFailure>,
    scraped_at: Option<Timestamp>,
    published: Published,
    /// Whether it is served although its last scrape failed.
    is_cached: bool,
    /// The time of the last expiry, and the time until which nothing can expire.
    unexpired: Range<Tick>,
}

/// The reason why the store holds a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Registration {
    /// Its Node object exists.
    Registered,
    /// Only pods that are bound to it exist.
    PodsOnly,
    /// It was removed from the store: a caller that still holds it must look it up again.
    Removed,
}

#[derive(Debug, Clone)]
struct ScrapeFailure {
    reason: Arc<str>,
    since: Timestamp,
    next_attempt: Option<Timestamp>,
}

/// The parts of the store that operations on a node need.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) eval: Evaluation<'a>,
    pub(crate) directory: &'a Directory,
    pub(crate) names: &'a Interner,
    pub(crate) metrics: &'a UsageMetrics,
    pub(crate) publishers: &'a [Arc<dyn UsagePublisher>],
}

impl NodeState {
    pub(crate) fn new(name: NodeName) -> Self {
        Self {
            name,
            labels: Labels::default(),
            uid: None,
            registration: Registration::PodsOnly,
            is_dirty: false,
            usage: Series::default(),
            pods: PodTable::default(),
            held: BTreeMap::new(),
            failure: None,
            scraped_at: None,
            published: Published::default(),
            is_cached: false,
            unexpired: Tick::NEVER..Tick::NEVER,
        }
    }

    pub(crate) fn name(&self) -> &NodeName {
        &self.name
    }

    pub(crate) fn is_registered(&self) -> bool {
        self.registration == Registration::Registered
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.registration == Registration::Removed
    }

    /// Marks the node as removed from the store if neither a Node object nor a pod refers to it.
    pub(crate) fn remove_if_unused(&mut self) -> bool {
        if !self.is_registered() && self.pods.is_empty() {
            self.registration = Registration::Removed;
        }
        self.is_removed()
    }

    /// Applies a new or changed Node object; returns whether there is something to publish.
    pub(crate) fn register(&mut self, labels: &Labels, uid: &Uid, metrics: &UsageMetrics) -> bool {
        if self.uid.as_ref().is_some_and(|known| known != uid) {
            // Another machine of the same name: the counters of the old one do not continue.
            self.clear_samples();
            self.is_dirty = true;
        }
        self.is_dirty |= !self.is_registered() || self.labels != *labels;
        if !self.is_registered() {
            metrics.nodes.inc();
        }
        self.registration = Registration::Registered;
        self.labels = labels.clone();
        self.uid = Some(uid.clone());
        self.is_dirty
    }

    /// Withdraws the node after its Node object was deleted. Pods that are bound to it stay until
    /// they are deleted too.
    pub(crate) fn unregister(
        &mut self,
        metrics: &UsageMetrics,
        publishers: &[Arc<dyn UsagePublisher>],
    ) {
        if !self.is_registered() {
            return;
        }
        self.registration = Registration::PodsOnly;
        self.is_dirty = false;
        self.uid = None;
        self.labels = Labels::default();
        self.clear_samples();
        metrics.nodes.dec();
        self.withdraw(metrics, publishers);
    }

    /// Returns the number of running pods that are bound to the node.
    pub(crate) fn running_pods(&self) -> usize {
        (0..self.pods.len())
            .filter_map(|index| self.pods.pod(index))
            .filter(|pod| is_running(pod))
            .count()
    }

    fn clear_samples(&mut self) {
        self.usage = Series::default();
        self.pods.clear_containers();
        self.held = BTreeMap::new();
        self.failure = None;
        self.scraped_at = None;
    }

    /// Frees the last leaf of an empty map, which is larger than all else that a node without pods
    /// needs.
    fn shrink_held(&mut self) {
        if self.held.is_empty() {
            self.held = BTreeMap::new();
        }
    }
}

/// Only running pods are served, as in metrics-server.
fn is_running(pod: &PodSummary) -> bool {
    pod.phase == PodPhase::Running
}
