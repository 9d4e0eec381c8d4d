//! A stream of which nothing is kept.
//!
//! A cluster that creates a thousand pods a second writes millions of events an hour. A view of
//! them would be as large as everything else together, and nobody asks twice for one. A tail hands
//! each object to its one reader and forgets it. What the reader has not taken yet is bounded:
//! beyond that the connection is not read, and the server waits.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubevitals_model::Timestamp;
use kubevitals_telemetry::Status;
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::decode::{EventType, WatchEvent};
use crate::engine::Engine;
use crate::hub::Seen;
use crate::kind::{Decoder, Kind};
use crate::metrics::Observed;
use crate::server::Shared;
use crate::sink::{Item, Sink};
use crate::spec::StreamSpec;
use crate::state::{OfSink, Record, StreamState};
use crate::stream::Running;

/// One list+watch whose objects are handed over and forgotten. It ends when it is dropped.
///
/// After a gap everything is listed and handed over again: the reader must not mind.
pub struct Tail<K: Kind> {
    name: &'static str,
    queue: mpsc::Receiver<Tailed<K>>,
    shared: Arc<TailShared<K>>,
    running: Running,
}

/// An object that a tail hands over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tailed<K> {
    /// What happened to it. Of a listed one, only that it exists.
    pub event: EventType,
    /// The object.
    pub object: K,
    /// Whether it came as it happened, or in a list: then it may be long past, and have been handed
    /// over before.
    pub seen: Seen,
    /// When this process received it.
    pub received: Timestamp,
}

/// What is known of a tail while it runs.
#[derive(Debug)]
struct TailShared<K> {
    record: Mutex<Record>,
    is_synced: watch::Sender<bool>,
    queue: mpsc::WeakSender<Tailed<K>>,
}

/// The end of the queue that the engine holds: when it goes, the reader learns that nothing more
/// comes.
#[derive(Debug)]
struct IntoTail<K> {
    shared: Arc<TailShared<K>>,
    queue: mpsc::Sender<Tailed<K>>,
    most_listed: usize,
}

impl<K: Kind> Tail<K> {
    pub(crate) fn start(server: Arc<Shared>, spec: StreamSpec<K>, decoder: Decoder) -> Self {
        let (name, options) = (spec.name, &spec.options);
        let (sender, queue) = mpsc::channel(options.queue.max(1));
        let shared = Arc::new(TailShared {
            record: Mutex::new(Record::new(Instant::now(), options.healthy_after)),
            is_synced: watch::Sender::new(false),
            queue: sender.downgrade(),
        });
        let sink = IntoTail {
            shared: Arc::clone(&shared),
            queue: sender,
            most_listed: options.most_listed.unwrap_or(usize::MAX),
        };
        let running = Running::begin(Engine::new(sink, server, spec, decoder), || {});
        Self {
            name,
            queue,
            shared,
            running,
        }
    }

    /// Its name in logs and metrics.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The next object, once there is one; `None` after the tail was shut down and all was taken.
    /// Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<Tailed<K>> {
        self.queue.recv().await
    }

    /// The next object, if there is one now.
    pub fn try_next(&mut self) -> Option<Tailed<K>> {
        self.queue.try_recv().ok()
    }

    /// Waits until the first list is complete; false if the tail was shut down before that.
    /// Somebody else must take what the list brings, unless it fits the queue.
    pub async fn synced(&self) -> bool {
        self.running.synced(self.shared.is_synced.subscribe()).await
    }

    /// How it is.
    pub fn state(&self) -> StreamState {
        self.shared.state()
    }

    /// Looks at [`Tail::state`] from elsewhere, without keeping the tail running; `None` once it
    /// has ended.
    pub fn observer(&self) -> impl Fn() -> Option<StreamState> + Send + Sync + use<K> {
        let tail = Arc::downgrade(&self.shared);
        move || tail.upgrade().map(|tail| tail.state())
    }

    /// A readiness check, as that of a [`Stream`](crate::Stream::checked).
    pub fn checked(&self, patience: Duration) -> impl Fn() -> Status + Send + Sync + use<K> {
        let state = self.observer();
        move || match state() {
            Some(state) => state.health(patience),
            None => Status::failing("stream has ended"),
        }
    }

    /// Ends the tail and waits until its task is gone. What is queued can still be taken.
    pub async fn shutdown(&self) {
        self.running.end().await;
    }

    pub(crate) fn observed(&self) -> Arc<dyn Observed> {
        Arc::clone(&self.shared) as Arc<dyn Observed>
    }
}

impl<K: Kind> IntoTail<K> {
    async fn hand_over(&self, event: EventType, object: K, seen: Seen, received: Timestamp) {
        let tailed = Tailed {
            event,
            object,
            seen,
            received,
        };
        if let Err(TrySendError::Full(tailed)) = self.queue.try_send(tailed) {
            let since = Instant::now();
            // An error means that nobody reads any longer: the task is about to be ended.
            let _ = self.queue.send(tailed).await;
            self.note(|record| record.waited(since.elapsed()));
        }
    }
}

impl<K: Kind> Sink<K> for IntoTail<K> {
    /// How many objects were handed over so far.
    type List = usize;

    /// A poisoned lock is taken as it is: every note is made in one step.
    fn note<T>(&self, note: impl FnOnce(&mut Record) -> T) -> T {
        note(
            &mut self
                .shared
                .record
                .lock()
                .unwrap_or_else(PoisonError::into_inner),
        )
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
                    self.hand_over(EventType::Added, object, Seen::Relist, received)
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
        self.note(|record| record.handed_over(count));
        is_complete
    }

    fn has_enough(&self, list: &usize) -> bool {
        *list >= self.most_listed
    }

    fn complete(&self, list: usize, _received: Timestamp, now: Instant) -> usize {
        self.note(|record| record.synced(now));
        self.shared.is_synced.send_replace(true);
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
            self.hand_over(event, object, Seen::Live, received).await;
            count += 1;
        }
        self.note(|record| record.handed_over(count));
    }
}

impl<K: Kind> Observed for TailShared<K> {
    fn state(&self) -> StreamState {
        let queue = self.queue.upgrade();
        let queued = queue.map_or(0, |queue| queue.max_capacity() - queue.capacity());
        let record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        let of_sink = OfSink {
            objects: 0,
            subscribers: 1,
            lagging: 0,
            queued,
        };
        record.state(Instant::now(), of_sink)
    }
}

impl<K: Kind> fmt::Debug for Tail<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tail")
            .field("name", &self.name)
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}
