//! The interface between scraping and storing.

use kubevitals_model::{NodeBatch, NodeName, Timestamp};

use crate::error::ScrapeError;

/// Receives the results of scrapes. Calls for one node come one after the other, from that node's
/// task; those for different nodes may be concurrent. They run on the runtime's threads: they may
/// compute, and must not block.
pub trait ScrapeSink: Send + Sync {
    /// Handles the samples of one response. The memory of the batch is reused by the next scrape.
    fn on_batch(&self, node: &NodeName, batch: &NodeBatch, info: &BatchInfo);

    /// Handles a scrape that failed, entirely or ([`ScrapeError::Truncated`]) after
    /// [`ScrapeSink::on_batch`] received the first part. Earlier samples of the node stay valid
    /// until they are too old. `retry_at` is the time of the next scrape.
    fn on_error(&self, node: &NodeName, error: &ScrapeError, retry_at: Timestamp);

    /// Handles a node that is no longer scraped. It may be added again later.
    fn on_removed(&self, node: &NodeName);
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
    /// The time of the next scrape.
    pub next_scrape: Timestamp,
}

/// A sink that ignores everything.
#[cfg(test)]
pub(crate) struct NoopSink;

#[cfg(test)]
impl ScrapeSink for NoopSink {
    fn on_batch(&self, _: &NodeName, _: &NodeBatch, _: &BatchInfo) {}
    fn on_error(&self, _: &NodeName, _: &ScrapeError, _: Timestamp) {}
    fn on_removed(&self, _: &NodeName) {}
}
