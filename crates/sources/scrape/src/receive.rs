//! Who is told what kubelets say.

use kubevitals_model::{NodeBatch, NodeName, Timestamp};

use crate::failure::Failure;

/// Who is told what kubelets say. Calls for one node come one after the other, from that node's own
/// task; those for two nodes may come at once. They are made on the runtime's threads: they may
/// compute, and must not block.
pub trait Receive: Send + Sync {
    /// A kubelet answered. The batch is lent: its memory serves the next scrape.
    fn received(&self, node: &NodeName, batch: &NodeBatch, answer: &Answer);

    /// A scrape failed, in whole or ([`Failure::Partial`]) after [`Receive::received`] was told of
    /// the first part. What was known of the node stays true until it is too old. `next` is when it
    /// is tried again.
    fn failed(&self, node: &NodeName, failure: &Failure, next: Timestamp);

    /// The node is gone, or selected no more: nothing will come of it. It may come back later.
    fn left(&self, node: &NodeName);
}

/// What is to be known of an answer beside its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// The time just before the request. Samples without a time of their own were given this one.
    pub asked: Timestamp,
    /// Whether this is all that the kubelet has to say. If not, containers that are missing may
    /// well still be there.
    pub is_complete: bool,
    /// Whether any sample is newer than all that this node sent before.
    pub is_new: bool,
    /// When the node is asked next.
    pub next: Timestamp,
}
