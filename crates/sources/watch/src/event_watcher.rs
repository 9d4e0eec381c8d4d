//! A watch without a cache.
//!
//! A cluster that creates a thousand pods a second writes millions of events an hour. A cache of
//! them would be as large as everything else together, and no event is read twice. An event watcher
//! passes each object to its one reader and keeps nothing. Its queue is bounded: while it is full
//! the connection is not read, and the server waits.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::Timestamp;
use kubevitals_telemetry::Status;
use parking_lot::Mutex;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::broadcaster::Origin;
use crate::client::ClientInner;
use crate::decode::{EventType, WatchEvent};
use crate::engine::Engine;
use crate::kind::{Decoder, Kind};
use crate::metrics::Observed;
use crate::reflector::{WatchTask, health_check};
use crate::sink::{Item, Sink};
use crate::spec::WatchSpec;
use crate::state::{SinkStats, WatchState, WatchStats};

/// A list and watch whose objects are passed on and not kept. It ends when it is dropped.
///
/// After a gap everything is listed and passed on again: the reader must tolerate repetition.
pub struct EventWatcher<K: Kind> {
    name: &'static str,
    queue: mpsc::Receiver<WatchedObject<K>>,
    status: Arc<WatcherStatus<K>>,
    task: WatchTask,
}

/// An object of an [`EventWatcher`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchedObject<K> {
    /// [`EventType::Added`] for all listed objects.
    pub event: EventType,
    pub object: K,
    /// A listed object may be old, and may have been passed on before.
    pub origin: Origin,
    /// When this process received it.
    pub received: Timestamp,
}

#[derive(Debug)]
struct WatcherStatus<K> {
    stats: Mutex<WatchStats>,
    is_synced: watch::Sender<bool>,
    queue: mpsc::WeakSender<WatchedObject<K>>,
}

/// The sending end of the queue: when the engine drops it, the reader sees the end.
#[derive(Debug)]
struct QueueSink<K> {
    status: Arc<WatcherStatus<K>>,
    queue: mpsc::Sender<WatchedObject<K>>,
    max_listed: usize,
}

impl<K: Kind> EventWatcher<K> {
    pub(crate) fn start(client: Arc<ClientInner>, spec: WatchSpec<K>, decoder: Decoder) -> Self {
        let (name, options) = (spec.name, &spec.options);
        let (sender, queue) = mpsc::channel(options.queue.max(1));
        let status = Arc::new(WatcherStatus {
            stats: Mutex::new(WatchStats::new(Instant::now(), options.healthy_after)),
            is_synced: watch::Sender::new(false),
            queue: sender.downgrade(),
        });
        let sink = QueueSink {
            status: Arc::clone(&status),
            queue: sender,
            max_listed: options.max_listed.unwrap_or(usize::MAX),
        };
        let task = WatchTask::spawn(Engine::new(sink, client, spec, decoder), || {});
        Self {
            name,
            queue,
            status,
            task,
        }
    }

    /// The name in logs and metrics.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Waits for the next object; `None` after the shutdown, once the queue is empty. Cancel safe.
    pub async fn next(&mut self) -> Option<WatchedObject<K>> {
        self.queue.recv().await
    }

    /// Returns the next object if one is queued.
    pub fn try_next(&mut self) -> Option<WatchedObject<K>> {
        self.queue.try_recv().ok()
    }

    /// Waits until the first list is complete; false once the watch has ended. Another task
    /// must read the queue unless the list fits in it.
    pub async fn synced(&self) -> bool {
        self.task.synced(self.status.is_synced.subscribe()).await
    }

    pub fn state(&self) -> WatchState {
        self.status.state()
    }

    /// Returns a function that reads [`EventWatcher::state`] without keeping the watch running;
    /// `None` once it has ended.
    pub fn observer(&self) -> impl Fn() -> Option<WatchState> + Send + Sync + use<K> {
        let status = Arc::downgrade(&self.status);
        let is_running = self.task.is_running();
        move || {
            let status = status.upgrade().filter(|_| is_running())?;
            Some(status.state())
        }
    }

    /// A readiness check, as [`Reflector::health_check`](crate::Reflector::health_check).
    pub fn health_check(&self, timeout: Duration) -> impl Fn() -> Status + Send + Sync + use<K> {
        health_check(self.observer(), timeout)
    }

    /// Returns a future that completes when the watch has ended, by a shutdown or a panic.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + use<K> {
        self.task.closed()
    }

    /// Ends the watch and waits for its task. Queued objects can still be read.
    pub async fn shutdown(&self) {
        self.task.stop().await;
    }

    pub(crate) fn observed(&self) -> Arc<dyn Observed> {
        Arc::clone(&self.status) as Arc<dyn Observed>
    }
}

impl<K: Kind> QueueSink<K> {
    async fn send(&self, event: EventType, object: K, origin: Origin, received: Timestamp) {
        let watched = WatchedObject {
            event,
            object,
            origin,
            received,
        };
        if let Err(TrySendError::Full(watched)) = self.queue.try_send(watched) {
            let since = Instant::now();
            // An error means that the reader is gone: the task is about to end.
            let _ = self.queue.send(watched).await;
            self.record(|stats| stats.blocked(since.elapsed()));
        }
    }
}

impl<K: Kind> Sink<K> for QueueSink<K> {
    /// The number of objects sent so far.
    type List = usize;

    fn record<T>(&self, update: impl FnOnce(&mut WatchStats) -> T) -> T {
        update(&mut self.status.stats.lock())
    }

    async fn stage(
        &self,
        list: &mut usize,
        items: &mut (impl Iterator<Item = Item<K>> + Send),
        received: Timestamp,
    ) -> bool {
        let before = *list;
        let mut is_complete = false;
        for item in items {
            match item {
                Item::Event(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    self.send(EventType::Added, object, Origin::Relist, received)
                        .await;
                    *list += 1;
                }
                Item::Event(WatchEvent::Bookmark(mark)) if mark.ends_initial_events => {
                    is_complete = true;
                    break;
                }
                Item::Event(_) | Item::Unreadable(_) => {}
            }
        }
        let count = *list - before;
        self.record(|stats| stats.sent(count));
        is_complete
    }

    fn has_enough(&self, list: &usize) -> bool {
        *list >= self.max_listed
    }

    fn complete(&self, list: usize, _received: Timestamp, now: Instant) -> usize {
        self.record(|stats| stats.synced(now));
        self.status.is_synced.send_replace(true);
        list
    }

    async fn apply(&self, items: impl Iterator<Item = Item<K>> + Send, received: Timestamp) {
        let mut count = 0;
        for item in items {
            let (event, object) = match item {
                Item::Event(WatchEvent::Added(object)) => (EventType::Added, object),
                Item::Event(WatchEvent::Modified(object)) => (EventType::Modified, object),
                Item::Event(WatchEvent::Deleted(object)) => (EventType::Deleted, object),
                Item::Event(WatchEvent::Bookmark(_) | WatchEvent::Error(_))
                | Item::Unreadable(_) => continue,
            };
            self.send(event, object, Origin::Live, received).await;
            count += 1;
        }
        self.record(|stats| stats.sent(count));
    }
}

impl<K: Kind> Observed for WatcherStatus<K> {
    fn state(&self) -> WatchState {
        let queue = self.queue.upgrade();
        let queue_depth = queue.map_or(0, |queue| queue.max_capacity() - queue.capacity());
        let sink = SinkStats {
            objects: 0,
            subscribers: 1,
            lagging: 0,
            queue_depth,
        };
        self.stats.lock().state(Instant::now(), sink)
    }
}

impl<K: Kind> fmt::Debug for EventWatcher<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventWatcher")
            .field("name", &self.name)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
