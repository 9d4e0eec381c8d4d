//! The lease of the node, in `kube-node-lease`.
//!
//! A node lease has one holder for ever, so that no election is needed: it is renewed, or created
//! where it is missing.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::Api;
use kube::api::PostParams;
use kubevitals_model::{Backoff, BackoffPolicy, Clock, Jitter, Rng, Timestamp};
use tokio::sync::watch;
use tokio::time::sleep;

use crate::api_error::status_code;
use crate::metrics::NodeMetrics;
use crate::ping::RuntimeHealth;
use crate::settings::Timing;
use crate::time::micro_time;

const NAMESPACE: &str = "kube-node-lease";

/// Quick attempts before the next interval, as a kubelet makes.
const ATTEMPTS: u32 = 5;

const RETRY: BackoffPolicy = BackoffPolicy {
    first: Duration::from_millis(100),
    second: Duration::from_millis(200),
    max: Duration::from_secs(7),
    jitter: Jitter::Added(0.1),
};

/// Renews the lease.
pub(crate) struct LeaseKeeper {
    pub(crate) client: kube::Client,
    pub(crate) node: String,
    pub(crate) timing: Timing,
    pub(crate) clock: Clock,
    pub(crate) metrics: NodeMetrics,
    /// The UID of the Node, once it is registered.
    pub(crate) node_uid: watch::Receiver<Option<String>>,
    pub(crate) health: watch::Receiver<RuntimeHealth>,
    /// The monotonic time of the last renewal.
    pub(crate) renewed: watch::Sender<Option<Duration>>,
}

impl LeaseKeeper {
    /// Renews the lease for ever, while the runtime is healthy.
    pub(crate) async fn run(mut self) {
        let mut known: Option<Lease> = None;
        let mut is_failing = false;
        loop {
            let Some(uid) = self.registered().await else {
                return;
            };
            let now = self.clock.moment().monotonic;
            if !self
                .health
                .borrow_and_update()
                .is_healthy(now, &self.timing)
            {
                tokio::select! {
                    _ = self.health.changed() => {}
                    () = sleep(self.timing.lease_interval) => {}
                }
                continue;
            }
            let result = self.renew(&mut known, &uid).await;
            match &result {
                Ok(at) => {
                    self.metrics.count_renewal(Some(*at));
                    self.renewed
                        .send_replace(Some(self.clock.moment().monotonic));
                    if is_failing {
                        tracing::info!("lease is renewed again");
                    }
                }
                Err(error) => {
                    self.metrics.count_renewal(None);
                    if !is_failing {
                        let error = error as &dyn std::error::Error;
                        tracing::warn!(error, "cannot renew the lease of the node");
                    }
                }
            }
            is_failing = result.is_err();
            sleep(self.timing.lease_interval).await;
        }
    }

    /// Waits for the UID of the Node; `None` once nobody registers it any more.
    async fn registered(&mut self) -> Option<String> {
        let uid = self.node_uid.wait_for(Option::is_some).await.ok()?;
        uid.clone()
    }

    /// Renews the lease, with a few attempts. Returns the time that was written.
    async fn renew(&self, known: &mut Option<Lease>, uid: &str) -> Result<Timestamp, kube::Error> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), NAMESPACE);
        let mut backoff = Backoff::new(RETRY, Rng::random());
        loop {
            let now = self.clock.now();
            let existing = match known.take() {
                Some(lease) => Some(lease),
                None => leases.get_opt(&self.node).await?,
            };
            let is_new = existing.is_none();
            let mut lease = existing.unwrap_or_default();
            self.fill(&mut lease, uid, now);
            let parameters = PostParams::default();
            let result = if is_new {
                leases.create(&parameters, &lease).await
            } else {
                leases.replace(&self.node, &parameters, &lease).await
            };
            match result {
                Ok(lease) => {
                    *known = Some(lease);
                    return Ok(now);
                }
                Err(error) if backoff.failures() + 1 >= ATTEMPTS => return Err(error),
                // It changed or it is gone: it is read again at once.
                Err(error) if matches!(status_code(&error), Some(404 | 409)) => {
                    backoff.next_wait();
                }
                Err(_) => sleep(backoff.next_wait()).await,
            }
        }
    }

    fn fill(&self, lease: &mut Lease, uid: &str, now: Timestamp) {
        lease.metadata = ObjectMeta {
            name: Some(self.node.clone()),
            namespace: Some(NAMESPACE.to_owned()),
            ..std::mem::take(&mut lease.metadata)
        };
        lease.metadata.managed_fields = None;
        let owner = OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.node.clone(),
            uid: uid.to_owned(),
            ..OwnerReference::default()
        };
        // A Node that was created again has another UID.
        lease.metadata.owner_references = Some(vec![owner]);
        let seconds = self.timing.lease_duration.as_secs();
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(self.node.clone()),
            lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            renew_time: Some(micro_time(now)),
            ..lease.spec.take().unwrap_or_default()
        });
    }
}
