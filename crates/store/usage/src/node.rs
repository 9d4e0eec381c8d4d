//! One node: its samples, its pods and their containers, and what was last published.
//!
//! All of it is behind the node's own lock. Nothing here knows of another node. A scrape passes
//! through `ingest`, `series` and `publication`, in this order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{ContainerKey, Interner, Labels, NodeName, PodPhase, PodSummary, Uid};

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
pub(crate) mod ingest;
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
    /// The monotonic time of the last scrape that succeeded.
    scraped_at: Option<Duration>,
    /// Whether it has had usage, or a scrape has failed: its part of a warm-up is over.
    is_settled: bool,
    /// Its part in the sums of the store.
    accounted: Accounted,
    published: Published,
    /// Whether it is served although its last scrape failed.
    is_cached: bool,
    /// The time until which nothing can expire.
    unexpired_until: Tick,
}

/// The reason why the store holds a node.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Registration {
    /// Its Node object exists.
    Registered,
    /// Its Node object exists and is excluded from scraping, for this reason.
    Excluded(Arc<str>),
    /// Only pods that are bound to it exist.
    PodsOnly,
    /// It was removed from the store: a caller that still holds it must look it up again.
    Removed,
}

#[derive(Debug, Clone)]
struct ScrapeFailure {
    reason: Arc<str>,
    /// The monotonic time of the first of the failures in a row.
    since: Duration,
    next_attempt: Option<Duration>,
}

/// The part of a node in the sums of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Accounted {
    pub(crate) nodes: u32,
    pub(crate) excluded: u32,
    pub(crate) settled: u32,
    pub(crate) running_pods: u32,
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
            is_settled: false,
            accounted: Accounted::default(),
            published: Published::default(),
            is_cached: false,
            unexpired_until: Tick::NEVER,
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
        if self.registration == Registration::PodsOnly && self.pods.is_empty() {
            self.registration = Registration::Removed;
        }
        self.is_removed()
    }

    /// Whether its Node object exists with this UID and is not excluded. A scrape of an earlier
    /// machine of the same name has another.
    fn is_registered_as(&self, uid: &Uid) -> bool {
        self.is_registered() && self.has_uid(uid)
    }

    /// Whether its Node object has this UID.
    pub(crate) fn has_uid(&self, uid: &Uid) -> bool {
        self.uid.as_ref() == Some(uid)
    }

    /// Applies a new or changed Node object; returns whether there is something to publish.
    pub(crate) fn register(&mut self, labels: &Labels, uid: &Uid) -> bool {
        if self.uid.as_ref().is_some_and(|known| known != uid) {
            // Another machine of the same name: the counters of the old one do not continue.
            self.clear_samples();
            self.is_dirty = true;
        }
        self.is_dirty |= !self.is_registered() || self.labels != *labels;
        self.registration = Registration::Registered;
        self.labels = labels.clone();
        self.uid = Some(uid.clone());
        self.is_dirty
    }

    /// Excludes the node from scraping, and withdraws it.
    pub(crate) fn exclude(&mut self, uid: &Uid, reason: Arc<str>, cx: &Context<'_>) {
        self.unregister(cx);
        self.uid = Some(uid.clone());
        self.registration = Registration::Excluded(reason);
    }

    /// Withdraws the node after its Node object was deleted. Pods that are bound to it stay until
    /// they are deleted too.
    pub(crate) fn unregister(&mut self, cx: &Context<'_>) {
        if self.is_removed() {
            return;
        }
        let was_registered = self.is_registered();
        self.registration = Registration::PodsOnly;
        self.is_dirty = false;
        self.uid = None;
        self.labels = Labels::default();
        self.clear_samples();
        if was_registered {
            self.withdraw(cx.metrics, cx.publishers);
        }
    }

    /// Updates the sums of the store. To be called after every change, under the lock.
    pub(crate) fn account(&mut self, metrics: &UsageMetrics) {
        let is_registered = self.is_registered();
        let now = Accounted {
            nodes: is_registered.into(),
            excluded: matches!(self.registration, Registration::Excluded(_)).into(),
            settled: (is_registered && self.is_settled).into(),
            running_pods: if is_registered {
                self.pods.running()
            } else {
                0
            },
        };
        if now != self.accounted {
            metrics.account(self.accounted, now);
            self.accounted = now;
        }
    }

    fn clear_samples(&mut self) {
        self.usage = Series::default();
        self.pods.clear_containers();
        self.held = BTreeMap::new();
        self.failure = None;
        self.scraped_at = None;
        self.is_settled = false;
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
