//! Forwards scrapes to the usage store.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Clock, NodeBatch};
use kubevitals_scrape::{BatchInfo, Coverage, ScrapeError, ScrapeSink, ScrapedNode};
use kubevitals_usage::UsageStore;

pub(super) struct UsageSink {
    pub(super) store: Arc<UsageStore>,
    pub(super) clock: Clock,
}

impl ScrapeSink for UsageSink {
    fn on_batch(&self, node: &ScrapedNode, batch: &NodeBatch, info: &BatchInfo) -> Coverage {
        let (name, uid, now) = (node.name.as_str(), &node.uid, self.clock.moment());
        let ingested = if info.is_slot {
            self.store.ingest(name, uid, batch, now)
        } else {
            self.store.ingest_missing(name, uid, batch, now)
        };
        if !ingested.known_node {
            // Another thread follows the nodes, and may be behind.
            Coverage::UnknownNode
        } else if ingested.awaiting > 0 {
            Coverage::AwaitsSamples
        } else {
            Coverage::Complete
        }
    }

    fn on_error(&self, node: &ScrapedNode, error: &ScrapeError, retry_in: Duration) {
        self.store.scrape_failed(
            node.name.as_str(),
            &node.uid,
            error.to_string().into(),
            Some(retry_in),
            self.clock.moment(),
        );
    }
}
