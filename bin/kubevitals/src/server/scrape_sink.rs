//! Forwards scrapes to the usage store.

use std::sync::Arc;

use kubevitals_model::{Clock, NodeBatch, NodeName, Timestamp};
use kubevitals_scrape::{BatchInfo, ScrapeError, ScrapeSink};
use kubevitals_usage::UsageStore;

pub(super) struct UsageSink {
    pub(super) store: Arc<UsageStore>,
    pub(super) clock: Clock,
}

impl ScrapeSink for UsageSink {
    fn on_batch(&self, node: &NodeName, batch: &NodeBatch, _info: &BatchInfo) {
        self.store.ingest(node.as_str(), batch, self.clock.now());
    }

    fn on_error(&self, node: &NodeName, error: &ScrapeError, retry_at: Timestamp) {
        let reason: Arc<str> = error.to_string().into();
        let now = self.clock.now();
        self.store
            .scrape_failed(node.as_str(), reason, Some(retry_at), now);
    }

    fn on_removed(&self, node: &NodeName) {
        self.store.node_deleted(node.as_str());
    }
}
