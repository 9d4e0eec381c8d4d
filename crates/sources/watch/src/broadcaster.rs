//! The cache of a reflector and the queues of its subscribers.
//!
//! One lock guards the cache and all queues, so that what subscribers receive and what the cache
//! holds never diverge. It is held for single changes, for the batch of one chunk, and for copying
//! the pointers of a snapshot; never across an await, and never while anything is decoded. A full
//! queue is emptied and its subscriber gets a snapshot at its next read: neither the reflector nor
//! other subscribers wait for it.

use std::collections::VecDeque;
use std::sync::Arc;

use kubevitals_model::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use self::cache::Cache;
use crate::decode::{EventType, WatchEvent};
use crate::error::DecodeError;
use crate::kind::Kind;
use crate::metrics::Observed;
use crate::sink::{Item, Sink};
use crate::state::{SinkStats, WatchState, WatchStats};

pub(crate) mod cache;
pub(crate) mod mirror;
pub(crate) mod subscription;

/// An update for a subscriber.
#[derive(Debug)]
pub enum Update<K> {
    /// All objects; replaces everything received before. Always the first update.
    Resync(Resync<K>),
    Change(Change<K>),
}

/// All objects at one moment.
#[derive(Debug)]
pub struct Resync<K> {
    pub cause: ResyncCause,
    /// Unordered.
    pub objects: Vec<Arc<K>>,
}

/// The cause of a resync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResyncCause {
    /// The subscription is new.
    Subscribed,
    /// The queue of the subscriber was full.
    Lagged {
        /// The number of changes that were dropped.
        missed: u64,
    },
}

/// A change of one object.
#[derive(Debug)]
pub struct Change<K> {
    pub event: ObjectEvent<K>,
    pub origin: Origin,
    /// When this process received it.
    pub received: Timestamp,
}

/// An object was added, modified or deleted.
#[derive(Debug)]
pub enum ObjectEvent<K> {
    Added(Arc<K>),
    Modified {
        before: Arc<K>,
        now: Arc<K>,
    },
    /// With the last known state.
    Deleted(Arc<K>),
}

/// How a change became known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// An event of the watch: no state in between was missed.
    Live,
    /// A list that differed from the cache: states in between may have been missed.
    Relist,
}

#[derive(Debug)]
pub(crate) struct Broadcaster<K> {
    inner: Mutex<Inner<K>>,
    is_synced: watch::Sender<bool>,
}

#[derive(Debug)]
pub(crate) struct Inner<K> {
    pub(crate) cache: Cache<K>,
    pub(crate) stats: WatchStats,
    queues: Vec<Queue<K>>,
    next_queue: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct Queue<K> {
    id: u64,
    capacity: usize,
    changes: VecDeque<Change<K>>,
    /// Set while the subscriber must get a snapshot before anything else.
    resync: Option<ResyncCause>,
    wake: Arc<Notify>,
}

/// The result of reading a queue.
pub(crate) enum Popped<K> {
    Update(Update<K>),
    Empty,
    Closed,
}

impl<K> Clone for ObjectEvent<K> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(now) => Self::Added(Arc::clone(now)),
            Self::Modified { before, now } => Self::Modified {
                before: Arc::clone(before),
                now: Arc::clone(now),
            },
            Self::Deleted(last) => Self::Deleted(Arc::clone(last)),
        }
    }
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        Self {
            event: self.event.clone(),
            origin: self.origin,
            received: self.received,
        }
    }
}

impl<K: Kind> Broadcaster<K> {
    pub(crate) fn new(stats: WatchStats) -> Self {
        Self {
            inner: Mutex::new(Inner {
                cache: Cache::default(),
                stats,
                queues: Vec::new(),
                next_queue: 0,
                is_closed: false,
            }),
            is_synced: watch::Sender::new(false),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner<K>> {
        self.inner.lock()
    }

    pub(crate) fn watch_synced(&self) -> watch::Receiver<bool> {
        self.is_synced.subscribe()
    }

    /// Applies the items of one chunk, except bookmarks and errors.
    pub(crate) fn apply(&self, items: impl Iterator<Item = Item<K>>, received: Timestamp) {
        let mut inner = self.lock();
        for item in items {
            let changes = match item {
                Item::Event(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    inner.cache.put(Arc::new(object))
                }
                Item::Event(WatchEvent::Deleted(object)) => inner.cache.remove(Arc::new(object)),
                // The last state cannot be decoded, but the name can.
                Item::Unreadable(DecodeError::Object {
                    event: Some(EventType::Deleted),
                    namespace,
                    name,
                    ..
                }) => match inner.cache.get(&namespace, &name) {
                    Some(known) => {
                        let last = Arc::clone(known);
                        inner.cache.remove(last)
                    }
                    None => continue,
                },
                Item::Event(WatchEvent::Bookmark(_) | WatchEvent::Error(_))
                | Item::Unreadable(_) => continue,
            };
            for event in changes {
                inner.publish(&Change {
                    event,
                    origin: Origin::Live,
                    received,
                });
            }
        }
        inner.wake();
    }

    /// Adds to an incomplete list; returns whether a bookmark has completed it. An object in a
    /// state that is cached already is taken from the cache, so that it is not stored twice; so is
    /// one that can no longer be decoded, which would otherwise look deleted.
    pub(crate) fn stage(
        &self,
        list: &mut Cache<K>,
        items: &mut impl Iterator<Item = Item<K>>,
    ) -> bool {
        let inner = self.lock();
        for item in items {
            match item {
                Item::Event(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    let known = inner.cache.known(&object);
                    list.put(known.unwrap_or_else(|| Arc::new(object)))
                        .for_each(drop);
                }
                Item::Event(WatchEvent::Deleted(object)) => {
                    list.remove(Arc::new(object)).for_each(drop);
                }
                Item::Event(WatchEvent::Bookmark(mark)) if mark.ends_initial_events => return true,
                Item::Unreadable(DecodeError::Object {
                    event,
                    namespace,
                    name,
                    ..
                }) if event != Some(EventType::Deleted) => {
                    if let Some(known) = inner.cache.get(&namespace, &name) {
                        list.put(Arc::clone(known)).for_each(drop);
                    }
                }
                Item::Event(WatchEvent::Bookmark(_) | WatchEvent::Error(_))
                | Item::Unreadable(_) => {}
            }
        }
        false
    }

    /// Replaces the cache by a complete list: differences become changes, missing objects become
    /// deletions.
    pub(crate) fn replace(&self, list: Cache<K>, received: Timestamp, now: Instant) {
        let mut inner = self.lock();
        for event in inner.cache.replace(list) {
            inner.publish(&Change {
                event,
                origin: Origin::Relist,
                received,
            });
        }
        inner.stats.synced(now);
        inner.wake();
        drop(inner);
        self.is_synced.send_replace(true);
    }

    pub(crate) fn subscribe(&self, capacity: usize) -> (u64, Arc<Notify>) {
        let mut inner = self.lock();
        let id = inner.next_queue;
        inner.next_queue += 1;
        let wake = Arc::new(Notify::new());
        inner.queues.push(Queue {
            id,
            capacity: capacity.max(1),
            changes: VecDeque::new(),
            resync: Some(ResyncCause::Subscribed),
            wake: Arc::clone(&wake),
        });
        (id, wake)
    }

    pub(crate) fn unsubscribe(&self, id: u64) {
        self.lock().queues.retain(|queue| queue.id != id);
    }

    pub(crate) fn pop(&self, id: u64) -> Popped<K> {
        let mut inner = self.lock();
        let Inner {
            cache,
            stats,
            queues,
            is_closed,
            ..
        } = &mut *inner;
        let Some(queue) = queues.iter_mut().find(|queue| queue.id == id) else {
            return Popped::Closed;
        };
        if let Some(cause) = queue.resync
            && stats.is_synced()
        {
            queue.resync = None;
            return Popped::Update(Update::Resync(Resync {
                cause,
                objects: cache.objects(),
            }));
        }
        match queue.changes.pop_front() {
            Some(change) => Popped::Update(Update::Change(change)),
            None if *is_closed => Popped::Closed,
            None => Popped::Empty,
        }
    }

    /// Ends all subscriptions once their queues are empty.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.is_closed = true;
        inner.wake();
    }
}

/// A list replaces the cache only when it is complete, so that a lost connection leaves the cache
/// as it was. No call waits for a subscriber.
impl<K: Kind> Sink<K> for Arc<Broadcaster<K>> {
    type List = Cache<K>;

    fn record<T>(&self, update: impl FnOnce(&mut WatchStats) -> T) -> T {
        update(&mut self.lock().stats)
    }

    async fn stage(
        &self,
        list: &mut Cache<K>,
        items: &mut (impl Iterator<Item = Item<K>> + Send),
        _received: Timestamp,
    ) -> bool {
        Broadcaster::stage(self, list, items)
    }

    fn complete(&self, list: Cache<K>, received: Timestamp, now: Instant) -> usize {
        let objects = list.len();
        self.replace(list, received, now);
        objects
    }

    async fn apply(&self, items: impl Iterator<Item = Item<K>> + Send, received: Timestamp) {
        Broadcaster::apply(self, items, received);
    }
}

impl<K: Kind> Observed for Broadcaster<K> {
    fn state(&self) -> WatchState {
        let inner = self.lock();
        let lags = |queue: &&Queue<K>| matches!(queue.resync, Some(ResyncCause::Lagged { .. }));
        let lagging = inner.queues.iter().filter(lags).count();
        let queue_depth = inner.queues.iter().map(|queue| queue.changes.len()).max();
        let sink = SinkStats {
            objects: inner.cache.len(),
            subscribers: inner.queues.len(),
            lagging,
            queue_depth: queue_depth.unwrap_or(0),
        };
        inner.stats.state(Instant::now(), sink)
    }
}

impl<K: Kind> Inner<K> {
    fn publish(&mut self, change: &Change<K>) {
        self.stats.sent(1);
        for queue in &mut self.queues {
            match &mut queue.resync {
                // The pending snapshot has this change.
                Some(ResyncCause::Subscribed) => {}
                Some(ResyncCause::Lagged { missed }) => *missed += 1,
                None if queue.changes.len() >= queue.capacity => {
                    let missed = queue.changes.len() as u64 + 1;
                    queue.resync = Some(ResyncCause::Lagged { missed });
                    queue.changes = VecDeque::new();
                    self.stats.lagged();
                }
                None => queue.changes.push_back(change.clone()),
            }
        }
    }

    fn wake(&self) {
        for queue in &self.queues {
            queue.wake.notify_one();
        }
    }
}
