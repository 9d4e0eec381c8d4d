//! Leader election between replicas: the leader emits, the standbys are ready to take
//! over.
//!
//! All replicas watch and track. The holder of the Lease emits, and annotates the Lease, as it
//! renews it, with the checkpoint up to which all records are emitted and written. The standbys
//! drop what the checkpoint covers and queue the rest. A new leader emits what it has queued. A
//! leader that shuts down emits all that has settled, writes its checkpoint and releases the Lease:
//! the next continues from there, with neither a gap nor a duplicate. After a crash, records
//! emitted since the last renewal are emitted again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube_lease::{Election, Elector};
use kubevitals_cli::{RunError, Shutdown};
use kubevitals_model::Clock;
use kubevitals_sink::SinkCounts;
use kubevitals_transitions::Checkpoint;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::LeaseClient;
use crate::run::task_error;

/// The annotation of the Lease that holds a [`Checkpoint`].
const CHECKPOINT_ANNOTATION: &str = "kubevitals.io/checkpoint";

/// Longer than a healthy API server takes to respond.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);

/// The election as the event loop sees it.
pub(crate) struct LeaderState {
    /// Whether this replica is the leader.
    pub(crate) leading: watch::Receiver<bool>,
    /// The checkpoint last read from the Lease.
    pub(crate) observed: watch::Receiver<Option<Checkpoint>>,
    /// The checkpoint to write into the Lease; `None` while another replica leads.
    own: Arc<Mutex<Option<Checkpoint>>>,
    /// A checkpoint, and the number of lines that must be done before it holds.
    pending: Option<(Checkpoint, u64)>,
    /// Ends the candidate.
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

/// Whether this replica is the leader, as the candidate says. Dropping it, which a panic of the
/// candidate does, resigns: a replica without a candidate must not emit, as another one may acquire
/// the Lease.
pub(crate) struct Leadership(watch::Sender<bool>);

impl LeaderState {
    /// Reads the Lease, retrying until it can be read, and becomes a candidate. Returns `None` if
    /// shutdown is requested first.
    pub(crate) async fn start(
        leases: LeaseClient,
        shutdown: &mut Shutdown,
    ) -> Result<Option<Self>, RunError> {
        let LeaseClient {
            client,
            hooks,
            election,
        } = leases;
        let api: Api<Lease> = Api::namespaced(client.clone(), &election.namespace);
        let initial = tokio::select! {
            initial = read_lease(&api, &election) => initial,
            () = shutdown.requested() => return Ok(None),
        };
        let own: Arc<Mutex<Option<Checkpoint>>> = Arc::default();
        let (observed, observed_rx) = watch::channel(initial);
        let annotated = Arc::clone(&own);
        let elector = Elector::new(client, election, &hooks)
            .map_err(RunError::runtime)?
            .with_annotations(move || {
                let checkpoint = *annotated.lock();
                let entry = checkpoint.map(|at| (CHECKPOINT_ANNOTATION.to_owned(), at.to_string()));
                BTreeMap::from_iter(entry)
            })
            .with_reader(move |lease| {
                let read = checkpoint_in(lease);
                observed.send_if_modified(|current| {
                    let is_new = read.is_some() && *current != read;
                    *current = read.or(*current);
                    is_new
                });
            });
        let candidate = |leading, stop| run_candidate(elector, leading, stop);
        Ok(Some(Self::with_candidate(observed_rx, own, candidate)))
    }

    /// Spawns a candidate, which runs until its second argument is true.
    pub(crate) fn with_candidate<F: Future<Output = ()> + Send + 'static>(
        observed: watch::Receiver<Option<Checkpoint>>,
        own: Arc<Mutex<Option<Checkpoint>>>,
        candidate: impl FnOnce(Leadership, watch::Receiver<bool>) -> F,
    ) -> Self {
        let (leading, leading_rx) = watch::channel(false);
        let (stop, stop_rx) = watch::channel(false);
        let task = tokio::spawn(candidate(Leadership(leading), stop_rx));
        Self {
            leading: leading_rx,
            observed,
            own,
            pending: None,
            stop,
            task,
        }
    }

    /// Waits for a change of leadership or of the leader's checkpoint. Fails once the candidate has
    /// ended, after the change of leadership that this implies.
    pub(crate) async fn changed(&mut self) -> Result<(), RunError> {
        let changed = tokio::select! {
            changed = self.leading.changed() => changed,
            Ok(()) = self.observed.changed() => Ok(()),
        };
        changed.map_err(|_| RunError::runtime("leader election ended unexpectedly"))
    }

    /// The checkpoint last read from the Lease.
    pub(crate) fn lease_checkpoint(&mut self) -> Option<Checkpoint> {
        *self.observed.borrow_and_update()
    }

    /// Advances the checkpoint of this replica. It reaches the Lease once all lines queued so far
    /// are written or dropped.
    pub(crate) fn advance(&mut self, checkpoint: Option<Checkpoint>, lines: SinkCounts) {
        let done = lines.exported + lines.dropped;
        if self.pending.is_none() {
            self.pending = checkpoint.map(|checkpoint| (checkpoint, done + lines.queued));
        }
        if let Some((checkpoint, _)) = self.pending.take_if(|(_, lines)| done >= *lines) {
            *self.own.lock() = Some(checkpoint);
        }
    }

    /// Stops writing checkpoints: another replica leads.
    pub(crate) fn clear(&mut self) {
        self.pending = None;
        *self.own.lock() = None;
    }

    /// Releases the Lease with the last checkpoint. Fails if the candidate has panicked.
    pub(crate) async fn release(self, checkpoint: Option<Checkpoint>) -> Result<(), RunError> {
        if *self.leading.borrow() && checkpoint.is_some() {
            *self.own.lock() = checkpoint;
        }
        self.stop.send_replace(true);
        let ended = self.task.await;
        ended.map_err(|error| task_error("leader election", error))
    }
}

impl Leadership {
    pub(crate) fn set(&self, is_leader: bool) {
        self.0.send_replace(is_leader);
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// Acquires the Lease, holds it, and releases it on stop.
async fn run_candidate(mut elector: Elector, leading: Leadership, mut stop: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = elector.acquire() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        leading.set(true);
        let is_stopped = tokio::select! {
            () = elector.hold() => false,
            _ = stop.wait_for(|stop| *stop) => true,
        };
        if is_stopped {
            elector.release().await;
            return;
        }
        leading.set(false);
    }
}

/// Reads the checkpoint before this replica becomes a candidate: it decides which pods of the first
/// list are emitted.
async fn read_lease(api: &Api<Lease>, election: &Election) -> Option<Checkpoint> {
    let mut is_logged = false;
    loop {
        let error = match timeout(REQUEST_TIMEOUT, api.get_opt(&election.name)).await {
            Ok(Ok(None)) => return None,
            // A leader without a checkpoint yet may not emit the changes from now on.
            Ok(Ok(Some(lease))) => {
                let since_now = || Checkpoint {
                    version: 0,
                    event_version: None,
                    time: Clock::system().now(),
                };
                return Some(checkpoint_in(&lease).unwrap_or_else(since_now));
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => "timed out".to_owned(),
        };
        // Logged once, not at every attempt.
        if !is_logged {
            tracing::warn!(
                lease = election.name,
                error,
                "failed to read lease, retrying"
            );
        }
        is_logged = true;
        sleep(election.retry_period).await;
    }
}

fn checkpoint_in(lease: &Lease) -> Option<Checkpoint> {
    let annotations = lease.metadata.annotations.as_ref()?;
    annotations.get(CHECKPOINT_ANNOTATION)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A panic used to leave the replica as a leader that emits forever, beside the next one.
    #[tokio::test]
    async fn a_candidate_that_panics_resigns_and_fails_the_role() {
        let (_observed, observed) = watch::channel(None);
        let mut leader =
            LeaderState::with_candidate(observed, Arc::default(), |leading, mut stop| async move {
                leading.set(true);
                let _ = stop.changed().await;
                panic!("lost the clock");
            });
        leader.changed().await.unwrap();
        assert!(*leader.leading.borrow_and_update());

        leader.stop.send_replace(true);
        leader.changed().await.unwrap();
        assert!(!*leader.leading.borrow_and_update());
        let error = leader.changed().await.unwrap_err();
        assert_eq!(error.to_string(), "leader election ended unexpectedly");
        let error = leader.release(None).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "leader election panicked: lost the clock"
        );
    }
}
