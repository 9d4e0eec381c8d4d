//! Where the stages meet: scrapes go into the store, the store explains what the API cannot answer.

use std::sync::Arc;

use kubevitals_metrics_api::{Absence as Unanswered, Explain};
use kubevitals_model::{NodeBatch, NodeName, PodKeyRef, Timestamp};
use kubevitals_scrape::{Answer, Failure, Receive, WallClock};
use kubevitals_usage::{Absence, UsageStore};

/// Scrapes → store.
pub(super) struct IntoStore {
    pub(super) store: Arc<UsageStore>,
    pub(super) clock: WallClock,
}

/// Store → messages of the API.
pub(super) struct FromStore {
    pub(super) store: Arc<std::sync::OnceLock<Arc<UsageStore>>>,
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

impl Explain for FromStore {
    fn pod(&self, namespace: &str, name: &str) -> Unanswered {
        let Some(store) = self.store.get() else {
            return Unanswered::Unknown;
        };
        let key = PodKeyRef { namespace, name };
        match store.explain_pod(key, self.clock.now()) {
            Absence::PodUnknown => Unanswered::Unknown,
            why => Unanswered::Unmeasured(why.to_string()),
        }
    }

    fn node(&self, name: &str) -> Unanswered {
        let Some(store) = self.store.get() else {
            return Unanswered::Unknown;
        };
        match store.explain_node(name, self.clock.now()) {
            Absence::NodeUnknown(_) => Unanswered::Unknown,
            why => Unanswered::Unmeasured(why.to_string()),
        }
    }
}
