//! The checks of `/livez` and `/readyz`: those of metrics-server under their names, each with its
//! reason.
//!
//! Liveness does not depend on the API server. A restart brings no API server back, and would lose
//! the samples of all replicas at once. Readiness alone shows an outage.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kubevitals_apiserver::{CaBundleStatus, TrustStatus};
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

/// The wait of a new replica until it serves the same samples as the others. Its first scrapes come
/// at once, and their samples are newer than those of the last slots: a client that reads it, and
/// then another replica, would see older samples than before.
struct PeerWait<F> {
    /// Whether others serve the API.
    is_served: F,
    is_over: AtomicBool,
}

impl<F: Fn() -> bool> PeerWait<F> {
    fn new(is_served: F) -> Self {
        Self {
            is_served,
            is_over: AtomicBool::new(false),
        }
    }

    /// The wait is over once it is not needed: later the API is served by this replica.
    fn status(&self, until_slots: Duration) -> Status {
        if !self.is_over.load(Ordering::Relaxed) && !until_slots.is_zero() && (self.is_served)() {
            let seconds = until_slots.as_secs_f64().ceil();
            return Status::warming_up(format!(
                "scraping all nodes at their slots for {seconds} s, as the replicas that serve do"
            ));
        }
        self.is_over.store(true, Ordering::Relaxed);
        Status::Ok
    }
}

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
        bundle: Option<CaBundleStatus>,
    ) -> Result<(), RunError> {
        let (store, clock) = (Arc::downgrade(store), clock.clone());
        let peers = PeerWait::new(move || bundle.as_ref().is_some_and(CaBundleStatus::is_served));
        let storage = health.check("metric-storage-ready", Probe::READINESS, move || {
            let Some(store) = store.upgrade() else {
                return Status::failing("the store is closed");
            };
            let readiness = store.readiness(clock.moment());
            if readiness.is_ready() {
                peers.status(readiness.until_slots)
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

    #[test]
    fn a_new_replica_waits_for_the_slots_only_while_others_serve() {
        let seconds = Duration::from_secs;
        let peers = PeerWait::new(|| true);
        for left in [17, 1] {
            let waiting = peers.status(seconds(left));
            assert!(matches!(waiting, Status::WarmingUp(_)), "{waiting:?}");
        }
        assert_eq!(peers.status(seconds(0)), Status::Ok);

        let is_served = AtomicBool::new(true);
        let peers = PeerWait::new(|| is_served.load(Ordering::Relaxed));
        assert_ne!(peers.status(seconds(17)), Status::Ok);
        is_served.store(false, Ordering::Relaxed);
        assert_eq!(peers.status(seconds(16)), Status::Ok);
        // This replica itself serves now.
        is_served.store(true, Ordering::Relaxed);
        assert_eq!(peers.status(seconds(15)), Status::Ok);
    }

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
