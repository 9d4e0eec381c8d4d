//! Hands scrapes over to the usage store.

use std::sync::Arc;

use kubevitals_model::{NodeBatch, NodeName, Timestamp};
use kubevitals_scrape::{Answer, Failure, Receive, WallClock};
use kubevitals_usage::UsageStore;

pub(super) struct IntoStore {
    pub(super) store: Arc<UsageStore>,
    pub(super) clock: WallClock,
}

impl Receive for IntoStore {
    fn received(&self, node: &NodeName, batch: &NodeBatch, _answer: &Answer) {
        self.store.ingest(node.as_str(), batch, self.clock.now());
    }

    fn failed(&self, node: &NodeName, failure: &Failure, next: Timestamp) {
        let why: Arc<str> = failure.to_string().into();
        let now = self.clock.now();
        self.store
            .scrape_failed(node.as_str(), why, Some(next), now);
    }

    fn left(&self, node: &NodeName) {
        self.store.node_deleted(node.as_str());
    }
}
