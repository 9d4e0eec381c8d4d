//! A candidate for a Lease.
//!
//! The times written in a Lease are never compared with the local clock: a lease is valid from the
//! moment at which its last change was observed here.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use kube_client_metrics::{Hooks, LeaderStatus};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use crate::{Election, LeaseError};

const NOT_RENEWED: &str = "failed to renew the lease before the deadline";
const NOT_RELEASED: &str = "failed to release the lease, it will expire";

/// A candidate for a [`Lease`], or its holder.
///
/// The futures of [`acquire`](Self::acquire), [`hold`](Self::hold) and [`release`](Self::release)
/// may be dropped at any time: the next request discovers the result of one that was not awaited.
#[derive(Debug)]
pub struct Elector {
    api: Api<Lease>,
    election: Election,
    /// The lease duration as it is written.
    lease_seconds: i32,
    status: LeaderStatus,
    /// The source of the times in the Lease, which are for people to read.
    clock: fn() -> Timestamp,
    observed: Option<Observed>,
    /// The start of the last successful renewal; `None` if this process does not lead.
    renewed_at: Option<Instant>,
    callbacks: Callbacks,
}

/// The annotations that the leader writes, and the reader of the Lease.
#[derive(Default)]
struct Callbacks {
    annotations: Option<Box<Annotations>>,
    reader: Option<Box<Reader>>,
}

type Annotations = dyn Fn() -> BTreeMap<String, String> + Send + Sync;
type Reader = dyn Fn(&Lease) + Send + Sync;

/// The Lease as last observed, and the time of its last change.
#[derive(Debug)]
struct Observed {
    lease: Lease,
    since: Instant,
}

/// The result of one attempt to acquire or renew.
enum Attempt {
    Held,
    /// Another candidate holds the lease.
    Taken,
    Failed(kube::Error),
}

impl Elector {
    /// Creates a candidate, which sends no request until [`acquire`](Self::acquire).
    pub fn new(client: Client, election: Election, hooks: &Hooks) -> Result<Self, LeaseError> {
        Ok(Self {
            lease_seconds: election.lease_seconds()?,
            api: Api::namespaced(client, &election.namespace),
            status: LeaderStatus::new(&election.name, hooks),
            election,
            clock: Timestamp::now,
            observed: None,
            renewed_at: None,
            callbacks: Callbacks::default(),
        })
    }

    /// Sets the clock for the times that are written into the Lease. No decision depends on it.
    #[must_use]
    pub fn with_clock(mut self, clock: fn() -> Timestamp) -> Self {
        self.clock = clock;
        self
    }

    /// Sets these annotations of the Lease with each renewal and with the release, such as a
    /// checkpoint for the next leader. Other annotations are kept, and all are kept when the lease
    /// is acquired from another holder.
    #[must_use]
    pub fn with_annotations(
        mut self,
        annotations: impl Fn() -> BTreeMap<String, String> + Send + Sync + 'static,
    ) -> Self {
        self.callbacks.annotations = Some(Box::new(annotations));
        self
    }

    /// Calls `reader` with the Lease whenever it was read or written: for a candidate with every
    /// attempt, and before [`acquire`](Self::acquire) returns with the state that the former leader
    /// left.
    #[must_use]
    pub fn with_reader(mut self, reader: impl Fn(&Lease) + Send + Sync + 'static) -> Self {
        self.callbacks.reader = Some(Box::new(reader));
        self
    }

    /// Returns whether this process leads: true between [`acquire`](Self::acquire) and the end of
    /// [`hold`](Self::hold).
    pub fn is_leader(&self) -> bool {
        self.renewed_at.is_some()
    }

    /// Returns the identity of the last observed holder.
    pub fn holder(&self) -> Option<&str> {
        self.observed.as_ref().and_then(Observed::holder)
    }

    /// Waits until this process leads.
    pub async fn acquire(&mut self) {
        let mut is_reported = false;
        loop {
            // An attempt that hangs must not delay the next one once the server responds again.
            let started = Instant::now();
            match timeout(self.election.renew_deadline, self.attempt(started)).await {
                Ok(Attempt::Held) => {
                    self.renewed_at = Some(started);
                    self.status.acquired();
                    tracing::info!(lease = self.election.name, "acquired lease");
                    return;
                }
                Ok(Attempt::Taken) => is_reported = false,
                Ok(Attempt::Failed(error)) => {
                    // Once per outage, not every few seconds.
                    if !is_reported {
                        tracing::warn!(lease = self.election.name, %error, "failed to acquire lease, retrying");
                    }
                    is_reported = true;
                }
                Err(_) => {
                    if !is_reported {
                        tracing::warn!(
                            lease = self.election.name,
                            "timed out acquiring lease, retrying"
                        );
                    }
                    is_reported = true;
                }
            }
            sleep(self.election.jittered_retry(random())).await;
        }
    }

    /// Renews the lease; returns when this process must no longer lead.
    pub async fn hold(&mut self) {
        while let Some(renewed_at) = self.renewed_at {
            let deadline = renewed_at + self.election.renew_deadline;
            let next = Instant::now().max(renewed_at) + self.election.retry_period;
            if next >= deadline {
                sleep_until(deadline).await;
                self.lose(NOT_RENEWED);
                return;
            }
            sleep_until(next).await;
            let started = Instant::now();
            match timeout_at(deadline, self.attempt(started)).await {
                Ok(Attempt::Held) => self.renewed_at = Some(started),
                Ok(Attempt::Taken) => return self.lose("another candidate holds the lease"),
                Ok(Attempt::Failed(error)) => {
                    tracing::debug!(lease = self.election.name, %error, "failed to renew lease, retrying");
                }
                Err(_) => return self.lose(NOT_RENEWED),
            }
        }
    }

    /// Releases the lease, so that another candidate need not wait until it expires. Call it when
    /// the work has ended.
    pub async fn release(&mut self) {
        if self.renewed_at.is_none() {
            return;
        }
        let released = timeout(self.election.renew_deadline, self.try_release()).await;
        match released {
            Ok(Ok(())) => self.lose("released"),
            Ok(Err(error)) => {
                tracing::debug!(lease = self.election.name, %error, "failed to release lease");
                self.lose(NOT_RELEASED);
            }
            Err(_) => self.lose(NOT_RELEASED),
        }
    }

    fn lose(&mut self, reason: &str) {
        self.renewed_at = None;
        self.status.lost();
        tracing::info!(lease = self.election.name, reason, "stopped leading");
    }

    async fn attempt(&mut self, now: Instant) -> Attempt {
        match self.acquire_or_renew(now).await {
            Ok(true) => Attempt::Held,
            Ok(false) => Attempt::Taken,
            Err(error) => Attempt::Failed(error),
        }
    }

    /// Returns whether this process holds the lease now.
    async fn acquire_or_renew(&mut self, now: Instant) -> Result<bool, kube::Error> {
        // The lease rarely changes in between: one request instead of two.
        if let Some(observed) = &self.observed
            && observed.is_of(&self.election.identity)
            && observed.is_valid(now)
        {
            let renewed = self.renewal_of(&observed.lease, true);
            match self.write(&renewed, now).await {
                Ok(()) => return Ok(true),
                Err(error) => {
                    tracing::debug!(lease = self.election.name, %error, "failed to renew lease from cache, reading it again");
                }
            }
        }
        let Some(lease) = self.api.get_opt(&self.election.name).await? else {
            return self.create(now).await;
        };
        self.observe(lease);
        let Some(observed) = &self.observed else {
            return Ok(false);
        };
        let is_ours = observed.is_of(&self.election.identity);
        if !is_ours && observed.holder().is_some() && observed.is_valid(Instant::now()) {
            return Ok(false);
        }
        if is_ours {
            self.status.slow_path();
        }
        let renewed = self.renewal_of(&observed.lease, is_ours);
        match self.write(&renewed, now).await {
            Ok(()) => Ok(true),
            // Another candidate was faster.
            Err(error) if !is_ours && is_conflict(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn create(&mut self, now: Instant) -> Result<bool, kube::Error> {
        let mut lease = self.renewal_of(&Lease::default(), false);
        lease.metadata = ObjectMeta {
            name: Some(self.election.name.clone()),
            namespace: Some(self.election.namespace.clone()),
            ..ObjectMeta::default()
        };
        if let Some(spec) = &mut lease.spec {
            spec.lease_transitions = Some(0);
        }
        match self.api.create(&PostParams::default(), &lease).await {
            Ok(lease) => {
                self.callbacks.notify(&lease);
                self.observed = Some(Observed { lease, since: now });
                Ok(true)
            }
            Err(error) if is_conflict(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes a lease that this process holds. It is valid from before the request: no candidate
    /// can have observed it earlier.
    async fn write(&mut self, lease: &Lease, now: Instant) -> Result<(), kube::Error> {
        let params = PostParams::default();
        let lease = self
            .api
            .replace(&self.election.name, &params, lease)
            .await?;
        self.callbacks.notify(&lease);
        self.observed = Some(Observed { lease, since: now });
        Ok(())
    }

    /// Records the lease as the server has it. Only a change of its spec counts as a renewal.
    fn observe(&mut self, lease: Lease) {
        self.callbacks.notify(&lease);
        match &mut self.observed {
            Some(observed) if observed.lease.spec == lease.spec => observed.lease = lease,
            _ => {
                let since = Instant::now();
                self.observed = Some(Observed { lease, since });
            }
        }
    }

    /// Returns `lease` as held by this process, with all fields of others kept.
    fn renewal_of(&self, lease: &Lease, is_ours: bool) -> Lease {
        let now = Some(MicroTime((self.clock)()));
        let mut renewed = lease.clone();
        let spec = renewed.spec.get_or_insert_default();
        spec.holder_identity = Some(self.election.identity.clone());
        spec.lease_duration_seconds = Some(self.lease_seconds);
        spec.renew_time.clone_from(&now);
        if is_ours {
            self.callbacks.annotate(&mut renewed);
        } else {
            spec.acquire_time = now;
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        }
        renewed
    }

    async fn try_release(&mut self) -> Result<(), kube::Error> {
        loop {
            let Some(mut lease) = self.api.get_opt(&self.election.name).await? else {
                return Ok(());
            };
            let spec: &mut LeaseSpec = lease.spec.get_or_insert_default();
            if spec.holder_identity.as_deref() != Some(self.election.identity.as_str()) {
                return Ok(());
            }
            let now = Some(MicroTime((self.clock)()));
            spec.holder_identity = None;
            // Short, for candidates that look at the duration alone.
            spec.lease_duration_seconds = Some(1);
            spec.renew_time.clone_from(&now);
            spec.acquire_time = now;
            self.callbacks.annotate(&mut lease);
            match self.write(&lease, Instant::now()).await {
                // A renewal that was not awaited came in between.
                Err(error) if is_conflict(&error) => {}
                other => return other,
            }
        }
    }
}

impl Observed {
    fn spec(&self) -> Option<&LeaseSpec> {
        self.lease.spec.as_ref()
    }

    /// An empty identity is a released lease.
    fn holder(&self) -> Option<&str> {
        let holder = self.spec()?.holder_identity.as_deref();
        holder.filter(|holder| !holder.is_empty())
    }

    fn is_of(&self, identity: &str) -> bool {
        self.holder() == Some(identity)
    }

    fn is_valid(&self, now: Instant) -> bool {
        let seconds = self.spec().and_then(|spec| spec.lease_duration_seconds);
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = Duration::from_secs(seconds.unwrap_or(0));
        now.saturating_duration_since(self.since) < duration
    }
}

impl Callbacks {
    fn annotate(&self, lease: &mut Lease) {
        let Some(annotations) = &self.annotations else {
            return;
        };
        let annotations = annotations();
        if !annotations.is_empty() {
            let all = lease.metadata.annotations.get_or_insert_default();
            all.extend(annotations);
        }
    }

    fn notify(&self, lease: &Lease) {
        if let Some(reader) = &self.reader {
            reader(lease);
        }
    }
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks")
            .field("annotations", &self.annotations.is_some())
            .field("reader", &self.reader.is_some())
            .finish()
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// Returns a random number from 0 to 1. The standard library seeds its hash maps from the system,
/// which is random enough for jitter.
fn random() -> f64 {
    let random = RandomState::new().hash_one(0);
    f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests;
