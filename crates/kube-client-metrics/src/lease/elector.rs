//! A candidate for a Lease.
//!
//! No clock but this process's own is believed: a lease counts from when its last change was seen
//! here, not from the times written in it. So clocks may differ by any amount; they only must run
//! about equally fast, within the ratio of lease duration to renew deadline. As in client-go, there
//! is no fencing: a process that is stopped for longer than its lease and then goes on may act for
//! a moment before it notices.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::{Election, LeaseError, Standing};
use crate::hooks::Hooks;

/// A candidate for a [`Lease`], or its holder.
///
/// [`acquire`](Self::acquire), [`hold`](Self::hold) and [`release`](Self::release) may be dropped
/// at any time: what the server made of a request that was not waited for is found out by the next
/// one.
#[derive(Debug)]
pub struct Elector {
    api: Api<Lease>,
    election: Election,
    /// The lease duration as it is written.
    seconds: i32,
    standing: Standing,
    /// The times that are written into the lease, for people to read.
    clock: fn() -> Timestamp,
    observed: Option<Observed>,
    /// When the last renewal that succeeded was begun; none if this process does not lead.
    renewed: Option<Instant>,
    word: Word,
}

/// What is left in the lease for other candidates, and who reads it.
#[derive(Default)]
struct Word {
    annotations: Option<Box<Annotations>>,
    reader: Option<Box<Reader>>,
}

type Annotations = dyn Fn() -> BTreeMap<String, String> + Send + Sync;
type Reader = dyn Fn(&Lease) + Send + Sync;

/// The lease as last seen, and since when it has been so.
#[derive(Debug)]
struct Observed {
    lease: Lease,
    since: Instant,
}

/// What came of one attempt.
enum Attempt {
    /// The lease is ours.
    Held,
    /// It is another's.
    Taken,
    /// That could not be found out or written.
    Failed(kube::Error),
}

impl Elector {
    /// A candidate; it does nothing yet.
    pub fn new(client: Client, election: Election, hooks: &Hooks) -> Result<Self, LeaseError> {
        Ok(Self {
            seconds: election.seconds()?,
            api: Api::namespaced(client, &election.namespace),
            standing: Standing::new(&election.name, hooks),
            election,
            clock: Timestamp::now,
            observed: None,
            renewed: None,
            word: Word::default(),
        })
    }

    /// With another clock for the times that are written into the lease. Nothing is decided by
    /// them.
    #[must_use]
    pub fn with_clock(mut self, clock: fn() -> Timestamp) -> Self {
        self.clock = clock;
        self
    }

    /// Sets these annotations of the lease whenever this process renews it, and when it gives it
    /// back: how far a leader has come, for who leads next. Others stay as they are, and so do all
    /// when the lease is taken from another.
    #[must_use]
    pub fn with_annotations(
        mut self,
        annotations: impl Fn() -> BTreeMap<String, String> + Send + Sync + 'static,
    ) -> Self {
        self.word.annotations = Some(Box::new(annotations));
        self
    }

    /// Shows the lease to `reader` whenever it was read or written: to a candidate with every
    /// attempt, and before [`acquire`](Self::acquire) ends as the former leader left it.
    #[must_use]
    pub fn with_reader(mut self, reader: impl Fn(&Lease) + Send + Sync + 'static) -> Self {
        self.word.reader = Some(Box::new(reader));
        self
    }

    /// Whether this process leads, as far as it knows: true between [`acquire`](Self::acquire) and
    /// the end of [`hold`](Self::hold).
    pub fn is_leader(&self) -> bool {
        self.renewed.is_some()
    }

    /// Who was last seen to hold the lease.
    pub fn holder(&self) -> Option<&str> {
        self.observed.as_ref().and_then(Observed::holder)
    }

    /// Waits until this process leads.
    pub async fn acquire(&mut self) {
        let mut is_told = false;
        loop {
            // An attempt that hangs must not keep the next one from a server that answers again.
            let begun = Instant::now();
            match timeout(self.election.renew_deadline, self.attempt(begun)).await {
                Ok(Attempt::Held) => {
                    self.renewed = Some(begun);
                    self.standing.won();
                    tracing::info!(lease = self.election.name, "leading");
                    return;
                }
                Ok(Attempt::Taken) => is_told = false,
                Ok(Attempt::Failed(error)) => {
                    // Once, not every few seconds for as long as it lasts.
                    if !is_told {
                        tracing::warn!(lease = self.election.name, %error, "cannot stand for the lease");
                    }
                    is_told = true;
                }
                Err(_) => {
                    if !is_told {
                        tracing::warn!(lease = self.election.name, "no answer about the lease");
                    }
                    is_told = true;
                }
            }
            sleep(self.election.jittered_retry(chance())).await;
        }
    }

    /// Keeps the lease for as long as that is possible; ends when this process must no longer lead.
    pub async fn hold(&mut self) {
        while let Some(renewed) = self.renewed {
            let deadline = renewed + self.election.renew_deadline;
            let next = Instant::now().max(renewed) + self.election.retry_period;
            if next >= deadline {
                sleep_until(deadline).await;
                self.lose("the lease was not renewed in time");
                return;
            }
            sleep_until(next).await;
            let begun = Instant::now();
            match timeout_at(deadline, self.attempt(begun)).await {
                Ok(Attempt::Held) => self.renewed = Some(begun),
                Ok(Attempt::Taken) => return self.lose("another holds the lease"),
                Ok(Attempt::Failed(error)) => {
                    tracing::debug!(lease = self.election.name, %error, "lease not renewed");
                }
                Err(_) => return self.lose("the lease was not renewed in time"),
            }
        }
    }

    /// Gives the lease back, so that another need not wait until it expires. Call it when the work
    /// has ended.
    pub async fn release(&mut self) {
        if self.renewed.is_none() {
            return;
        }
        let released = timeout(self.election.renew_deadline, self.try_release()).await;
        match released {
            Ok(Ok(())) => self.lose("the lease was given back"),
            Ok(Err(error)) => {
                tracing::debug!(lease = self.election.name, %error, "lease not given back");
                self.lose("the lease is left to expire");
            }
            Err(_) => self.lose("the lease is left to expire"),
        }
    }

    fn lose(&mut self, why: &str) {
        self.renewed = None;
        self.standing.lost();
        tracing::info!(lease = self.election.name, why, "no longer leading");
    }

    async fn attempt(&mut self, now: Instant) -> Attempt {
        match self.acquire_or_renew(now).await {
            Ok(true) => Attempt::Held,
            Ok(false) => Attempt::Taken,
            Err(error) => Attempt::Failed(error),
        }
    }

    /// Gives whether the lease is ours now.
    async fn acquire_or_renew(&mut self, now: Instant) -> Result<bool, kube::Error> {
        // What is remembered is most often still so: one request instead of two.
        if let Some(observed) = &self.observed
            && observed.is_of(&self.election.identity)
            && observed.is_valid(now)
        {
            let renewed = self.renewal_of(&observed.lease, true);
            match self.write(&renewed, now).await {
                Ok(()) => return Ok(true),
                Err(error) => {
                    tracing::debug!(lease = self.election.name, %error, "lease must be read again");
                }
            }
        }
        let Some(lease) = self.api.get_opt(&self.election.name).await? else {
            return self.create(now).await;
        };
        self.see(lease);
        let Some(observed) = &self.observed else {
            return Ok(false);
        };
        let is_ours = observed.is_of(&self.election.identity);
        if !is_ours && observed.holder().is_some() && observed.is_valid(Instant::now()) {
            return Ok(false);
        }
        if is_ours {
            self.standing.took_slow_path();
        }
        let renewed = self.renewal_of(&observed.lease, is_ours);
        match self.write(&renewed, now).await {
            Ok(()) => Ok(true),
            // Another was faster.
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
                self.word.read(&lease);
                self.observed = Some(Observed { lease, since: now });
                Ok(true)
            }
            Err(error) if is_conflict(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Writes a lease that is ours. It counts from before the request: nobody can have seen it
    /// earlier.
    async fn write(&mut self, lease: &Lease, now: Instant) -> Result<(), kube::Error> {
        let params = PostParams::default();
        let lease = self
            .api
            .replace(&self.election.name, &params, lease)
            .await?;
        self.word.read(&lease);
        self.observed = Some(Observed { lease, since: now });
        Ok(())
    }

    /// Takes note of the lease as the server has it. Only a change of what is agreed in it is a
    /// sign of life.
    fn see(&mut self, lease: Lease) {
        self.word.read(&lease);
        match &mut self.observed {
            Some(observed) if observed.lease.spec == lease.spec => observed.lease = lease,
            _ => {
                let since = Instant::now();
                self.observed = Some(Observed { lease, since });
            }
        }
    }

    /// The lease as it would be in our hands, with all that is not ours to change.
    fn renewal_of(&self, lease: &Lease, is_ours: bool) -> Lease {
        let now = Some(MicroTime((self.clock)()));
        let mut renewed = lease.clone();
        let spec = renewed.spec.get_or_insert_default();
        spec.holder_identity = Some(self.election.identity.clone());
        spec.lease_duration_seconds = Some(self.seconds);
        spec.renew_time.clone_from(&now);
        if is_ours {
            self.word.write(&mut renewed);
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
            // Short, for those who look at the duration alone.
            spec.lease_duration_seconds = Some(1);
            spec.renew_time.clone_from(&now);
            spec.acquire_time = now;
            self.word.write(&mut lease);
            match self.write(&lease, Instant::now()).await {
                // A renewal that was not waited for came in between.
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

    /// Nobody writes an empty name for itself.
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
        let lasts = Duration::from_secs(seconds.unwrap_or(0));
        now.saturating_duration_since(self.since) < lasts
    }
}

impl Word {
    fn write(&self, lease: &mut Lease) {
        let Some(annotations) = &self.annotations else {
            return;
        };
        let annotations = annotations();
        if !annotations.is_empty() {
            let all = lease.metadata.annotations.get_or_insert_default();
            all.extend(annotations);
        }
    }

    fn read(&self, lease: &Lease) {
        if let Some(reader) = &self.reader {
            reader(lease);
        }
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Word")
            .field("annotations", &self.annotations.is_some())
            .field("reader", &self.reader.is_some())
            .finish()
    }
}

fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 409)
}

/// From nothing to one. The standard library seeds its hash maps from the system; nothing else is
/// needed here.
fn chance() -> f64 {
    let random = RandomState::new().hash_one(0);
    f64::from(u32::try_from(random >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests;
