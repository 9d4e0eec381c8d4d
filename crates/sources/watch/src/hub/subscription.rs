//! One subscriber's end of a stream.

use std::sync::Arc;

use tokio::sync::Notify;

use super::{Hub, Popped, Update};
use crate::kind::Kind;
use crate::stream::Running;

/// What one subscriber is told of a stream: first everything there is, then each change.
///
/// A subscription keeps its stream running. Dropping it costs the stream nothing.
#[derive(Debug)]
pub struct Subscription<K: Kind> {
    hub: Arc<Hub<K>>,
    id: u64,
    wake: Arc<Notify>,
    _running: Arc<Running>,
}

impl<K: Kind> Subscription<K> {
    pub(crate) fn new(hub: Arc<Hub<K>>, capacity: usize, running: Arc<Running>) -> Self {
        let (id, wake) = hub.subscribe(capacity);
        Self {
            hub,
            id,
            wake,
            _running: running,
        }
    }

    /// The next update, once there is one; `None` after the stream was shut down. Nothing is lost
    /// if the future is dropped.
    pub async fn next(&mut self) -> Option<Update<K>> {
        loop {
            match self.hub.pop(self.id) {
                Popped::Update(update) => return Some(update),
                Popped::Closed => return None,
                // A wake-up between the look and the wait is kept by `Notify`.
                Popped::Nothing => self.wake.notified().await,
            }
        }
    }

    /// The next update, if there is one now.
    pub fn try_next(&mut self) -> Option<Update<K>> {
        match self.hub.pop(self.id) {
            Popped::Update(update) => Some(update),
            Popped::Nothing | Popped::Closed => None,
        }
    }
}

impl<K: Kind> Drop for Subscription<K> {
    fn drop(&mut self) {
        self.hub.unsubscribe(self.id);
    }
}
