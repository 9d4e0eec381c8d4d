//! The store: all nodes, each behind its own lock.

use std::sync::Arc;

use kubevitals_model::{Labels, NodeBatch, NodeName, PodKeyRef, Timestamp};
use kubevitals_watch::{PodLike, Uid};

use crate::absence::Absence;
use crate::config::UsageConfig;
use crate::readiness::Readiness;
use crate::view::Publish;

/// What became of one answer of a kubelet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ingested {
    /// Whether anything in it was newer than what was known: the kubelet's clock of samples has moved.
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
    /// Containers dropped because too many are held.
    pub overflowed: u32,
    /// Containers dropped because their pod is bound to another node, or has ended.
    pub foreign: u32,
}

/// Samples of kubelets in, usage out.
pub struct UsageStore {
    config: UsageConfig,
    publish: Arc<dyn Publish>,
}

#[expect(unused_variables, reason = "signatures first")]
impl UsageStore {
    /// An empty store that tells `publish` of every change.
    pub fn new(config: UsageConfig, publish: Arc<dyn Publish>) -> Self {
        Self { config, publish }
    }

    /// Takes in an answer of a kubelet.
    pub fn ingest(&self, node: &str, batch: &NodeBatch, now: Timestamp) -> Ingested {
        Ingested::default()
    }

    /// A kubelet did not answer, or not as it should.
    pub fn scrape_failed(
        &self,
        node: &str,
        why: Arc<str>,
        next_attempt: Option<Timestamp>,
        now: Timestamp,
    ) {
    }

    /// A pod is new or has changed. [`UsageStore::flush`] publishes it.
    pub fn pod_applied<P: PodLike>(&self, pod: &Arc<P>) {}

    /// A pod is gone. [`UsageStore::flush`] publishes it.
    pub fn pod_deleted<P: PodLike>(&self, pod: &P) {}

    /// These are all pods there are.
    pub fn pods_replaced<P: PodLike>(&self, pods: &[Arc<P>]) {}

    /// A node is new or has changed.
    pub fn node_applied(&self, name: &NodeName, labels: &Labels, uid: &Uid) {}

    /// A node is gone; it is withdrawn at once.
    pub fn node_deleted(&self, name: &str) {}

    /// Publishes the nodes that changes of pods and nodes have touched.
    pub fn flush(&self, now: Timestamp) {}

    /// Drops what is too old, and publishes the nodes concerned.
    pub fn expire(&self, now: Timestamp) {}

    /// Why a pod is not served.
    pub fn explain_pod(&self, pod: PodKeyRef<'_>, now: Timestamp) -> Absence {
        Absence::PodUnknown
    }

    /// Why a node is not served.
    pub fn explain_node(&self, node: &str, now: Timestamp) -> Absence {
        Absence::NodeUnknown(NodeName::new(node))
    }

    /// What is served of what there is.
    pub fn readiness(&self, now: Timestamp) -> Readiness {
        Readiness::default()
    }
}
