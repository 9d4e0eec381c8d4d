//! Leader election between replicas: the leader emits, the others are ready to.
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
        let (observed, leading, stop) = (
            watch::Sender::new(initial),
            watch::Sender::new(false),
            watch::Sender::new(false),
        );
        let (observed_by_loop, leading_by_loop) = (observed.subscribe(), leading.subscribe());
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
        let task = tokio::spawn(run_candidate(elector, leading, stop.subscribe()));
        Ok(Some(Self {
            leading: leading_by_loop,
            observed: observed_by_loop,
            own,
            pending: None,
            stop,
            task,
        }))
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

    /// Releases the Lease with the last checkpoint.
    pub(crate) async fn release(self, checkpoint: Option<Checkpoint>) {
        if *self.leading.borrow() && checkpoint.is_some() {
            *self.own.lock() = checkpoint;
        }
        self.stop.send_replace(true);
        // The task cannot panic and is never aborted.
        let _ = self.task.await;
    }
}

/// Acquires the Lease, holds it, and releases it on stop.
async fn run_candidate(
    mut elector: Elector,
    leading: watch::Sender<bool>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        tokio::select! {
            () = elector.acquire() => {}
            _ = stop.wait_for(|stop| *stop) => return,
        }
        leading.send_replace(true);
        let is_stopped = tokio::select! {
            () = elector.hold() => false,
            _ = stop.wait_for(|stop| *stop) => true,
        };
        if is_stopped {
            elector.release().await;
            return;
        }
        leading.send_replace(false);
    }
}

/// Reads the checkpoint before this replica becomes a candidate: it decides which pods of the first
/// list are emitted.
async fn read_lease(api: &Api<Lease>, election: &Election) -> Option<Checkpoint> {
    let mut is_logged = false;
    loop {
        let error = match timeout(REQUEST_TIMEOUT, api.get_opt(&election.name)).await {
            Ok(Ok(None)) => return None,
            // A leader without a checkpoint yet: it may not have emitted what changes from now on.
            Ok(Ok(Some(lease))) => {
                let since_now = || Checkpoint {
                    version: 0,
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
