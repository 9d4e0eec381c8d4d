//! The two ends of the API: the publisher that the store writes to, and the group of resources that
//! requests read.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use arc_swap::ArcSwap;
use kubevitals_apiserver::{ApiGroup, ApiResource, StatusError};
use kubevitals_model::NodeName;
use kubevitals_telemetry::Metrics;
use kubevitals_usage::{NodeUsage, UsagePublisher, UsageStore};
use tokio::sync::watch;

use crate::catalog::{Catalog, Groups};
use crate::config::Config;
use crate::metrics::{Counts, MetricsOfApi};
use crate::publish::Writer;
use crate::render::Kind;
use crate::resource::Resource;

/// How long somebody who was turned away should wait: about as long as a list takes to write.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The reading end: the resource metrics API.
pub struct MetricsApi {
    state: Arc<State>,
}

/// The writing end: encodes the usage of each node as it is published.
pub struct MetricsApiPublisher {
    state: Arc<State>,
}

/// What publications and requests share.
pub(crate) struct State {
    pub(crate) config: Config,
    /// What is served now: readers take it without waiting for anybody.
    pub(crate) catalog: ArcSwap<Catalog>,
    /// Changes with pods that come and go. While it is held for reading, `catalog` agrees with it.
    pub(crate) groups: RwLock<Groups>,
    /// One publication at a time takes effect; rendering is done before.
    pub(crate) writer: Mutex<Writer>,
    /// The version, for those who wait for the next one.
    pub(crate) versions: watch::Sender<u64>,
    /// Bytes of everything rendered that somebody still holds.
    pub(crate) alive: Arc<AtomicUsize>,
    /// Bytes of what is served now.
    pub(crate) current: AtomicUsize,
    pub(crate) counts: Counts,
}

impl MetricsApi {
    /// Creates an API that serves nothing yet, and the publisher that fills it.
    pub fn pair(config: Config) -> (MetricsApiPublisher, Self) {
        // Microseconds since the epoch: a later process begins beyond every version that an earlier
        // one gave out, as long as less than a million objects change per second.
        let started = config.clock.now().unix_millis().max(1);
        let version = u64::try_from(started).unwrap_or(1).saturating_mul(1000);
        let catalog = Catalog {
            version,
            ..Catalog::default()
        };
        let state = Arc::new(State {
            writer: Mutex::new(Writer::new(version, config.limits.deletions)),
            catalog: ArcSwap::from_pointee(catalog),
            groups: RwLock::default(),
            versions: watch::Sender::new(version),
            alive: Arc::default(),
            current: AtomicUsize::new(0),
            counts: Counts::default(),
            config,
        });
        let publisher = MetricsApiPublisher {
            state: Arc::clone(&state),
        };
        (publisher, Self { state })
    }

    /// Returns the group `metrics.k8s.io` with its resources. They ask `store` for the reason why a
    /// pod or node has no metrics.
    pub fn group(&self, store: &Arc<UsageStore>) -> ApiGroup {
        let resource = |kind| -> Arc<dyn ApiResource> {
            let (state, store) = (Arc::clone(&self.state), Arc::clone(store));
            Arc::new(Resource::new(kind, state, store))
        };
        ApiGroup {
            name: "metrics.k8s.io",
            versions: &["v1", "v1beta1"],
            resources: vec![resource(Kind::Node), resource(Kind::Pod)],
        }
    }

    /// Registers what the API counts: `metrics_server_api_metric_freshness_seconds`, and our own
    /// families under `kubevitals_metrics_api`.
    pub fn register(&self, metrics: &mut Metrics) {
        MetricsOfApi::register(&self.state, metrics);
    }
}

impl UsagePublisher for MetricsApiPublisher {
    fn publish(&self, usage: &NodeUsage<'_>) {
        self.state.publish(usage);
    }

    fn withdraw(&self, node: &NodeName) {
        self.state.withdraw(node);
    }
}

impl State {
    /// Bytes that are no longer served, but held by readers that have not finished.
    pub(crate) fn outdated(&self) -> usize {
        let alive = self.alive.load(Ordering::Relaxed);
        alive.saturating_sub(self.current.load(Ordering::Relaxed))
    }

    /// Refuses further readers while the others hold too much that is outdated.
    pub(crate) fn admit(&self) -> Result<(), StatusError> {
        if self.outdated() <= self.config.limits.outdated_bytes {
            return Ok(());
        }
        self.counts.refused.fetch_add(1, Ordering::Relaxed);
        Err(StatusError::TooManyRequests {
            message: "too many slow readers hold outdated answers, please try again later"
                .to_owned(),
            retry_after_seconds: RETRY_AFTER_SECONDS,
        })
    }

    pub(crate) fn writer(&self) -> std::sync::MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
