//! Replicas that share the work: one tells, the others are ready to.
//!
//! All watch and track. Who holds the Lease tells, and writes into it, as it renews it, up to where
//! everything is told and written. The others drop what that covers and keep the rest back. Who
//! takes over tells what it has kept. A leader that ends in good order tells all that has settled,
//! writes how far that is, and gives the lease back: the next goes on from there, with neither a
//! hole nor a duplicate. After a crash, what was told since the last renewal is told again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use kube_client_metrics::Hooks;
use kube_client_metrics::lease::{Election, Elector};
use kubevitals_cli::{RunError, Shutdown};
use kubevitals_jsonl::LineCounts;
use kubevitals_transitions::Checkpoint;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

/// The annotation that holds a [`Checkpoint`].
const TOLD_UNTIL: &str = "kubevitals.io/told-until";

/// Longer than a healthy server takes to answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the event loop knows of the election.
pub(super) struct Standby {
    /// Whether this process is to tell.
    pub(super) leading: watch::Receiver<bool>,
    /// Up to where the lease says that everything was told.
    pub(super) seen: watch::Receiver<Option<Checkpoint>>,
    /// Up to where this process has told, for the lease; none while it does not lead.
    mine: Arc<Mutex<Option<Checkpoint>>>,
    /// What will be told up to there once so many lines are done with.
    pending: Option<(Checkpoint, u64)>,
    /// Ends the candidate.
    end: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Standby {
    /// Reads the lease, waiting for it as long as it takes, and stands for it. None if the end is
    /// asked for first.
    pub(super) async fn begin(
        client: Client,
        election: Election,
        hooks: &Hooks,
        shutdown: &mut Shutdown,
    ) -> Result<Option<Self>, RunError> {
        let api: Api<Lease> = Api::namespaced(client.clone(), &election.namespace);
        let known = tokio::select! {
            known = first_look(&api, &election) => known,
            () = shutdown.requested() => return Ok(None),
        };
        let mine: Arc<Mutex<Option<Checkpoint>>> = Arc::default();
        let (seen, leading, end) = (
            watch::Sender::new(known),
            watch::Sender::new(false),
            watch::Sender::new(false),
        );
        let (seen_by_loop, leading_by_loop) = (seen.subscribe(), leading.subscribe());
        let written = Arc::clone(&mine);
        let elector = Elector::new(client, election, hooks)
            .map_err(RunError::runtime)?
            .with_annotations(move || {
                let until = *written.lock().unwrap_or_else(PoisonError::into_inner);
                let entry = until.map(|until| (TOLD_UNTIL.to_owned(), until.to_string()));
                BTreeMap::from_iter(entry)
            })
            .with_reader(move |lease| {
                let read = checkpoint_in(lease);
                seen.send_if_modified(|known| {
                    let is_news = read.is_some() && *known != read;
                    *known = read.or(*known);
                    is_news
                });
            });
        let task = tokio::spawn(stand(elector, leading, end.subscribe()));
        Ok(Some(Self {
            leading: leading_by_loop,
            seen: seen_by_loop,
            mine,
            pending: None,
            end,
            task,
        }))
    }

    /// Up to where the lease says that everything was told.
    pub(super) fn known(&mut self) -> Option<Checkpoint> {
        *self.seen.borrow_and_update()
    }

    /// Everything up to there was told; it is said so in the lease once the lines of it are
    /// written.
    pub(super) fn has_told(&mut self, until: Option<Checkpoint>, lines: LineCounts) {
        let done = lines.written + lines.dropped;
        if self.pending.is_none() {
            self.pending = until.map(|until| (until, done + lines.waiting));
        }
        if let Some((until, _)) = self.pending.take_if(|(_, lines)| done >= *lines) {
            self.write(Some(until));
        }
    }

    /// This process does not lead: what it has told is no longer its to say.
    pub(super) fn has_lost(&mut self) {
        self.pending = None;
        self.write(None);
    }

    /// Gives the lease back, with the last word.
    pub(super) async fn end(self, until: Option<Checkpoint>) {
        if *self.leading.borrow() && until.is_some() {
            self.write(until);
        }
        self.end.send_replace(true);
        // It cannot panic and nobody aborts it.
        let _ = self.task.await;
    }

    fn write(&self, until: Option<Checkpoint>) {
        *self.mine.lock().unwrap_or_else(PoisonError::into_inner) = until;
    }
}

/// Stands for the lease, holds it, and gives it back at the end.
async fn stand(mut elector: Elector, leading: watch::Sender<bool>, mut end: watch::Receiver<bool>) {
    loop {
        tokio::select! {
            () = elector.acquire() => {}
            _ = end.wait_for(|end| *end) => return,
        }
        leading.send_replace(true);
        let is_over = tokio::select! {
            () = elector.hold() => false,
            _ = end.wait_for(|end| *end) => true,
        };
        if is_over {
            elector.release().await;
            return;
        }
        leading.send_replace(false);
    }
}

/// What the lease says before anybody stands for it: what a list shows is judged by it.
async fn first_look(api: &Api<Lease>, election: &Election) -> Option<Checkpoint> {
    let mut is_told = false;
    loop {
        let error = match timeout(PATIENCE, api.get_opt(&election.name)).await {
            Ok(Ok(None)) => return None,
            // Somebody has begun to lead and has not said yet how far it is: what is new from now
            // on may be untold.
            Ok(Ok(Some(lease))) => return checkpoint_in(&lease).or(Some(from_now_on())),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "no answer".to_owned(),
        };
        // Once, not every few seconds for as long as it lasts.
        if !is_told {
            tracing::warn!(lease = election.name, error, "cannot read the lease");
        }
        is_told = true;
        sleep(election.retry_period).await;
    }
}

fn from_now_on() -> Checkpoint {
    Checkpoint {
        version: 0,
        time: super::now(),
    }
}

fn checkpoint_in(lease: &Lease) -> Option<Checkpoint> {
    let annotations = lease.metadata.annotations.as_ref()?;
    annotations.get(TOLD_UNTIL)?.parse().ok()
}
