//! The checks of `/livez` and `/readyz`: those of metrics-server under their names, each with its
//! reason.
//!
//! Liveness does not depend on the API server. A restart brings no API server back, and would lose
//! the samples of all replicas at once. Readiness alone shows an outage.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_apiserver::TrustStatus;
use kubevitals_cli::RunError;
use kubevitals_model::{Clock, Node};
use kubevitals_telemetry::{Health, Probe, Status};
use kubevitals_usage::UsageStore;
use kubevitals_watch::{PodKind, Reflector};

/// Maximum time without the connection of a watch before its check fails.
const DISCONNECT_TIMEOUT: Duration = Duration::from_mins(5);

/// The checks that metrics-server inherits from k8s.io/apiserver. This server has no such hooks: it
/// serves as soon as it listens.
///
/// Checks are shown in the order of their registration, which is metrics-server's.
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

type Check = Box<dyn Fn() -> Status + Send + Sync>;

/// The checks of the role's watches.
pub(super) struct Sources {
    nodes: Check,
    pods: Check,
}

impl Sources {
    pub(super) fn new<P: PodKind>(nodes: &Reflector<Node>, pods: &Reflector<P>) -> Self {
        Self {
            nodes: Box::new(nodes.health_check(DISCONNECT_TIMEOUT)),
            pods: Box::new(pods.health_check(DISCONNECT_TIMEOUT)),
        }
    }

    /// Registers the checks of the role itself.
    pub(super) fn register(
        self,
        health: &Health,
        store: &Arc<UsageStore>,
        clock: &Clock,
        trust: TrustStatus,
    ) -> Result<(), RunError> {
        let (store, clock) = (Arc::downgrade(store), clock.clone());
        let storage = health.check("metric-storage-ready", Probe::READINESS, move || {
            let Some(store) = store.upgrade() else {
                return Status::failing("the store is closed");
            };
            let readiness = store.readiness(clock.moment());
            if readiness.is_ready() {
                Status::Ok
            } else {
                Status::warming_up(readiness.to_string())
            }
        });
        storage.map_err(RunError::runtime)?;
        let Self { nodes, pods } = self;
        let nodes_and_trust = move || match nodes() {
            Status::Ok => trust.status(),
            failing => failing,
        };
        health
            .check("metric-informer-sync", Probe::READINESS, nodes_and_trust)
            .map_err(RunError::runtime)?;
        register_pods(health, pods)
    }
}

/// Registers the check of the pod watch. metrics-server has it in `/livez` and `/healthz` too,
/// where it never fails after the first list; here it passes always.
fn register_pods(health: &Health, pods: Check) -> Result<(), RunError> {
    const NAME: &str = "metadata-informer-sync";
    health
        .check(NAME, Probe::LIVENESS, || Status::Ok)
        .map_err(RunError::runtime)?;
    health
        .check(NAME, Probe::READINESS, pods)
        .map_err(RunError::runtime)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// After five minutes without the API server `/livez` failed, on all replicas within the same
    /// seconds, and kubelets restarted them.
    #[test]
    fn a_lost_pod_watch_fails_readiness_and_never_liveness() {
        let health = Health::new();
        let lost = || Status::failing("no data for 360 s: connection refused");
        register_pods(&health, Box::new(lost)).unwrap();
        for probe in [Probe::Livez, Probe::Healthz] {
            let report = health.report(probe, &[]);
            assert!(report.passed(), "{}", report.body(true));
            assert!(report.body(true).contains("[+]metadata-informer-sync ok"));
        }
        let report = health.report(Probe::Readyz, &[]);
        assert!(
            report.reasons().contains("no data for 360 s"),
            "{}",
            report.body(true)
        );
    }
}
