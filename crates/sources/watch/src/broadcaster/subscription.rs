//! The subscriber's end of a reflector.

use std::sync::Arc;

use tokio::sync::Notify;

use super::{Broadcaster, Popped, Update};
use crate::kind::Kind;
use crate::reflector::WatchTask;

/// The updates of one subscriber: first all objects, then each change.
///
/// A subscription keeps its reflector running.
#[derive(Debug)]
pub struct Subscription<K: Kind> {
    broadcaster: Arc<Broadcaster<K>>,
    id: u64,
    wake: Arc<Notify>,
    _task: Arc<WatchTask>,
}

impl<K: Kind> Subscription<K> {
    pub(crate) fn new(
        broadcaster: Arc<Broadcaster<K>>,
        capacity: usize,
        task: Arc<WatchTask>,
    ) -> Self {
        let (id, wake) = broadcaster.subscribe(capacity);
        Self {
            broadcaster,
            id,
            wake,
            _task: task,
        }
    }

    /// Waits for the next update; `None` after the reflector was shut down. Cancel safe.
    pub async fn next(&mut self) -> Option<Update<K>> {
        loop {
            match self.broadcaster.pop(self.id) {
                Popped::Update(update) => return Some(update),
                Popped::Closed => return None,
                // `Notify` stores a wake-up that comes before the wait.
                Popped::Empty => self.wake.notified().await,
            }
        }
    }

    /// Returns the next update if one is queued.
    pub fn try_next(&mut self) -> Option<Update<K>> {
        match self.broadcaster.pop(self.id) {
            Popped::Update(update) => Some(update),
            Popped::Empty | Popped::Closed => None,
        }
    }
}

impl<K: Kind> Drop for Subscription<K> {
    fn drop(&mut self) {
        self.broadcaster.unsubscribe(self.id);
    }
}
