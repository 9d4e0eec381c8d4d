//! Leader election: of several replicas of the cluster mode one reports.

use kube_client_metrics::Hooks;
use kube_lease::{Election, Elector};
use kubevitals_cli::RunError;
use kubevitals_telemetry::panic_message;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Access to the Lease of an election.
pub struct LeaseClient {
    pub client: kube::Client,
    pub hooks: Hooks,
    pub election: Election,
}

/// The election as the loop sees it.
pub(crate) struct Leadership {
    leading: watch::Receiver<bool>,
    /// Ends the candidate.
    stop: watch::Sender<bool>,
    task: Option<JoinHandle<()>>,
}

/// Dropping it, which a panic of the candidate does, resigns.
struct Leading(watch::Sender<bool>);

impl Leadership {
    /// The only replica there is.
    pub(crate) fn alone() -> Self {
        let (_, leading) = watch::channel(true);
        let (stop, _) = watch::channel(false);
        Self {
            leading,
            stop,
            task: None,
        }
    }

    /// Becomes a candidate.
    pub(crate) fn start(leases: LeaseClient) -> Result<Self, RunError> {
        let LeaseClient {
            client,
            hooks,
            election,
        } = leases;
        let elector = Elector::new(client, election, &hooks).map_err(RunError::runtime)?;
        Ok(Self::with_candidate(|leading, stop| {
            run_candidate(elector, leading, stop)
        }))
    }

    fn with_candidate<F: Future<Output = ()> + Send + 'static>(
        candidate: impl FnOnce(Leading, watch::Receiver<bool>) -> F,
    ) -> Self {
        let (leading, leading_rx) = watch::channel(false);
        let (stop, stop_rx) = watch::channel(false);
        Self {
            leading: leading_rx,
            stop,
            task: Some(tokio::spawn(candidate(Leading(leading), stop_rx))),
        }
    }

    pub(crate) fn is_leader(&self) -> bool {
        *self.leading.borrow()
    }

    /// Waits for a change of leadership. Fails once the candidate has ended.
    pub(crate) async fn changed(&mut self) -> Result<(), RunError> {
        if self.task.is_none() {
            return std::future::pending().await;
        }
        let changed = self.leading.changed().await;
        changed.map_err(|_| RunError::runtime("leader election ended unexpectedly"))
    }

    /// Releases the Lease, so that another replica need not wait until it expires.
    pub(crate) async fn release(self) -> Result<(), RunError> {
        self.stop.send_replace(true);
        let Some(task) = self.task else {
            return Ok(());
        };
        task.await.map_err(|error| {
            RunError::runtime(match error.try_into_panic() {
                Ok(panic) => format!("leader election panicked: {}", panic_message(&*panic)),
                Err(error) => format!("leader election ended: {error}"),
            })
        })
    }
}

impl Leading {
    fn set(&self, is_leader: bool) {
        self.0.send_replace(is_leader);
    }
}

impl Drop for Leading {
    fn drop(&mut self) {
        self.set(false);
    }
}

/// Acquires the Lease, holds it, and releases it on stop.
async fn run_candidate(mut elector: Elector, leading: Leading, mut stop: watch::Receiver<bool>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_candidate_that_panics_resigns_and_fails_the_role() {
        let mut leader = Leadership::with_candidate(|leading, mut stop| async move {
            leading.set(true);
            let _ = stop.changed().await;
            panic!("lost the clock");
        });
        leader.changed().await.unwrap();
        assert!(leader.is_leader());
        leader.stop.send_replace(true);
        leader.changed().await.unwrap();
        assert!(!leader.is_leader());
        assert!(leader.changed().await.is_err());
        let error = leader.release().await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "leader election panicked: lost the clock"
        );
    }
}
