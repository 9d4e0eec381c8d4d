//! The interface between scraping and storing.

use std::time::Duration;

use kubevitals_model::{NodeBatch, NodeName, Timestamp, Uid};

use crate::error::ScrapeError;

/// Receives the results of scrapes. Calls for one node come one after the other, from that node's
/// task; those for different nodes may be concurrent. They run on the runtime's threads: they may
/// compute, and must not block.
///
/// A sink learns from its own watch which nodes exist. A result may come after its node was
/// deleted, and after another node of the same name was created: the UID tells them apart.
pub trait ScrapeSink: Send + Sync {
    /// Handles the samples of one response. The memory of the batch is reused by the next scrape.
    /// The result decides how soon the next scrape comes.
    fn on_batch(&self, node: &ScrapedNode, batch: &NodeBatch, info: &BatchInfo) -> Coverage;

    /// Handles a scrape that failed, entirely or ([`ScrapeError::Truncated`]) after
    /// [`ScrapeSink::on_batch`] received the first part. Earlier samples of the node stay valid
    /// until they are too old. `retry_in` is the time until the next scrape.
    fn on_error(&self, node: &ScrapedNode, error: &ScrapeError, retry_in: Duration);
}

/// The Node object whose kubelet is scraped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScrapedNode {
    pub name: NodeName,
    pub uid: Uid,
}

/// Details of a batch beside its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchInfo {
    /// The time just before the request. Samples without a timestamp carry this one.
    pub requested_at: Timestamp,
    /// Whether the response is complete. If not, missing containers may still exist.
    pub is_complete: bool,
    /// Whether any sample is newer than all earlier ones of this node.
    pub is_new: bool,
    /// Whether it is the first response since the node's slot in the resolution. All replicas
    /// scrape a node at its slot, and serve the same samples if they ignore other responses where
    /// they serve something already.
    pub is_slot: bool,
    /// The time of the next regular scrape by the wall clock. One may come before.
    pub next_slot: Timestamp,
}

/// What the sink has of a node after a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// All usage that can be computed.
    Complete,
    /// The usage of some containers depends on second samples.
    AwaitsSamples,
    /// The sink has not heard of the node yet, and dropped the samples.
    UnknownNode,
}

/// A sink that ignores everything.
#[cfg(test)]
pub(crate) struct NoopSink;

#[cfg(test)]
impl ScrapeSink for NoopSink {
    fn on_batch(&self, _: &ScrapedNode, _: &NodeBatch, _: &BatchInfo) -> Coverage {
        Coverage::Complete
    }
    fn on_error(&self, _: &ScrapedNode, _: &ScrapeError, _: Duration) {}
}
