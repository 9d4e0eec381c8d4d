//! Permits that nodes share.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of permits, of which nodes that are suspect hold at most half: however many nodes hang
/// or respond slowly, the others need not wait for their timeouts.
pub(crate) struct Permits {
    all: Arc<Semaphore>,
    suspect: Arc<Semaphore>,
}

/// A permit, returned when dropped.
pub(crate) struct Permit {
    _permits: [Option<OwnedSemaphorePermit>; 2],
}

/// Whether a node is expected to respond.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its last scrape succeeded, or it is ready and was not scraped yet.
    Good,
    /// Its last scrape failed, or it is not ready.
    Suspect,
}

impl Permits {
    pub(crate) fn new(count: usize) -> Self {
        let semaphore = |count: usize| Semaphore::new(count.clamp(1, Semaphore::MAX_PERMITS));
        Self {
            all: Arc::new(semaphore(count)),
            suspect: Arc::new(semaphore(count / 2)),
        }
    }

    /// Waits for a permit, in the order of the calls.
    pub(crate) async fn acquire(&self, standing: Standing) -> Permit {
        // Semaphores are never closed. Whoever waits for the second holds only the first, which
        // holders of both do not wait for.
        let suspect = match standing {
            Standing::Good => None,
            Standing::Suspect => Arc::clone(&self.suspect).acquire_owned().await.ok(),
        };
        let any = Arc::clone(&self.all).acquire_owned().await.ok();
        Permit {
            _permits: [suspect, any],
        }
    }
}

#[cfg(test)]
impl Permits {
    pub(crate) fn available(&self) -> usize {
        self.all.available_permits()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn suspect_nodes_hold_at_most_half_of_the_permits() {
        let permits = Permits::new(4);
        let now = |standing| permits.acquire(standing).now_or_never();
        let held = [now(Standing::Suspect), now(Standing::Suspect)];
        assert!(held.iter().all(Option::is_some));
        assert!(now(Standing::Suspect).is_none());
        let good = [now(Standing::Good), now(Standing::Good)];
        assert!(good.iter().all(Option::is_some));
        assert!(now(Standing::Good).is_none());
        drop(held);
        assert!(now(Standing::Suspect).is_some());
    }

    #[tokio::test]
    async fn a_single_permit_is_for_all() {
        let permits = Permits::new(1);
        drop(permits.acquire(Standing::Suspect).await);
        drop(permits.acquire(Standing::Good).await);
    }
}
