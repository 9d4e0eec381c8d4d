//! The buffers that answers are read into: as many as answers arrive at once, not as many as there
//! are nodes.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::session::Workspace;

/// So many are kept for the next answers. Where bodies arrive in one piece no more are in use at
/// once than threads run; the first answers after a start come all at once, and what they needed
/// would stay for ever.
const MAX_IDLE: usize = 8;

/// Workspaces to lend. The one that came back last goes out first, so that few are ever made.
#[derive(Clone)]
pub(crate) struct Workspaces(Arc<Shelf>);

struct Shelf {
    permits: Arc<Semaphore>,
    idle: Mutex<Idle>,
}

/// Boxed, since what is lent is held by the task of a node, which a pointer keeps small.
type Idle = Vec<Box<Workspace>>;

/// A workspace that goes back when dropped.
pub(crate) struct Lent {
    work: Option<Box<Workspace>>,
    shelf: Arc<Shelf>,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Workspaces {
    pub(crate) fn new(most: usize) -> Self {
        Self(Arc::new(Shelf {
            permits: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            idle: Mutex::new(Vec::new()),
        }))
    }

    /// Waits for one.
    pub(crate) async fn lend(&self) -> Lent {
        // It is never closed.
        let permit = Arc::clone(&self.0.permits).acquire_owned().await.ok();
        let work = self.0.lock().pop().unwrap_or_default();
        Lent {
            work: Some(work),
            shelf: Arc::clone(&self.0),
            _permit: permit,
        }
    }
}

impl Shelf {
    fn lock(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Deref for Lent {
    type Target = Workspace;

    fn deref(&self) -> &Workspace {
        self.work.as_ref().expect("it is there until it is dropped")
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut Workspace {
        self.work.as_mut().expect("it is there until it is dropped")
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(mut work) = self.work.take() {
            work.buffers.trim();
            let mut idle = self.shelf.lock();
            if idle.len() < MAX_IDLE {
                idle.push(work);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_many_answers_at_once_needed_does_not_stay() {
        let workspaces = Workspaces::new(64);
        let mut lent = Vec::new();
        for _ in 0..64 {
            lent.push(workspaces.lend().await);
        }
        assert!(workspaces.0.lock().is_empty());
        drop(lent);
        assert_eq!(workspaces.0.lock().len(), MAX_IDLE);
        let _again = workspaces.lend().await;
        assert_eq!(workspaces.0.lock().len(), MAX_IDLE - 1);
    }
}
