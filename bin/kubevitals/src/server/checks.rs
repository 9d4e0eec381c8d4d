//! What `/livez` and `/readyz` say: the checks of metrics-server under their names, each with its
//! reason.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_apiserver::TrustStatus;
use kubevitals_cli::RunError;
use kubevitals_scrape::WallClock;
use kubevitals_telemetry::{Health, Probe, Status};
use kubevitals_usage::UsageStore;
use kubevitals_watch::PodLike;

use super::Streams;

/// For so long after a connection to the API server was lost, what is known of nodes and pods is as
/// good as new.
const PATIENCE: Duration = Duration::from_mins(5);

/// The checks that metrics-server inherits. Ours has no such hooks: it answers as soon as it
/// listens.
///
/// Checks are shown in the order in which they are registered, which is metrics-server's.
pub(super) fn register_inherited(health: &Health) -> Result<(), RunError> {
    for inherited in [
        "log",
        "poststarthook/max-in-flight-filter",
        "poststarthook/storage-object-count-tracker-hook",
    ] {
        health
            .check(inherited, Probe::ALL, || Status::Ok)
            .map_err(RunError::runtime)?;
    }
    Ok(())
}

/// The checks of the role itself.
pub(super) fn register_own<P: PodLike>(
    health: &Health,
    streams: &Streams<P>,
    store: &Arc<UsageStore>,
    clock: &WallClock,
    trust: TrustStatus,
) -> Result<(), RunError> {
    let (store, clock) = (Arc::downgrade(store), clock.clone());
    let storage = health.check("metric-storage-ready", Probe::READINESS, move || {
        let Some(store) = store.upgrade() else {
            return Status::failing("the store has ended");
        };
        let readiness = store.readiness(clock.now());
        if readiness.is_ready() {
            Status::Ok
        } else {
            Status::warming_up(readiness.to_string())
        }
    });
    storage.map_err(RunError::runtime)?;
    let nodes = streams.nodes.checked(PATIENCE);
    let pods = streams.pods.checked(PATIENCE);
    let known = move || match (nodes(), trust.status()) {
        (Status::Ok, trusted) => trusted,
        (trouble, _) => trouble,
    };
    health
        .check("metric-informer-sync", Probe::READINESS, known)
        .map_err(RunError::runtime)?;
    health
        .check("metadata-informer-sync", Probe::ALL, pods)
        .map_err(RunError::runtime)
}
