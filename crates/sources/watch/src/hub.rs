//! The current view of a stream, and who is told of its changes.
//!
//! One lock guards the view and the queues of all subscribers, so what a subscriber is told and
//! what the view holds can never drift apart. It is held for single changes, for the batch of one
//! chunk, and for copying the pointers of a snapshot; never across an await, and never while
//! anything is decoded. A queue that is full is emptied and its subscriber is given a snapshot when
//! it next asks: the stream and the other subscribers do not wait for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubevitals_model::Timestamp;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use self::view::View;
use crate::decode::{EventType, WatchEvent};
use crate::error::DecodeError;
use crate::kind::Kind;
use crate::metrics::Observed;
use crate::sink::{Item, Sink};
use crate::state::{OfSink, Record, StreamState};

pub(crate) mod mirror;
pub(crate) mod subscription;
pub(crate) mod view;

/// What a subscriber is told.
#[derive(Debug)]
pub enum Update<K> {
    /// All objects there are: forget what was known before. Always the first update.
    Resync(Resync<K>),
    /// One object changed.
    Change(Change<K>),
}

/// All objects at one moment.
#[derive(Debug)]
pub struct Resync<K> {
    /// Why everything is sent.
    pub cause: ResyncCause,
    /// The objects, in no order.
    pub objects: Vec<Arc<K>>,
}

/// Why a subscriber is sent everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResyncCause {
    /// It is new.
    Subscribed,
    /// It was slow, and so many changes were not kept for it.
    Lagged {
        /// How many.
        missed: u64,
    },
}

/// One object changed.
#[derive(Debug)]
pub struct Change<K> {
    /// How.
    pub what: What<K>,
    /// How it became known.
    pub seen: Seen,
    /// When this process received it.
    pub received: Timestamp,
}

/// How an object changed.
#[derive(Debug)]
pub enum What<K> {
    /// It is new.
    Added(Arc<K>),
    /// It is another state of the same object.
    Modified {
        /// The state known before.
        before: Arc<K>,
        /// The state now.
        now: Arc<K>,
    },
    /// It is gone; with the last state known.
    Deleted(Arc<K>),
}

/// How a change became known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Seen {
    /// The server told of it as it happened. States in between were all seen.
    Live,
    /// A list differed from what was known: states in between may have been missed.
    Relist,
}

#[derive(Debug)]
pub(crate) struct Hub<K> {
    inner: Mutex<Inner<K>>,
    is_synced: watch::Sender<bool>,
}

#[derive(Debug)]
pub(crate) struct Inner<K> {
    pub(crate) view: View<K>,
    pub(crate) record: Record,
    queues: Vec<Queue<K>>,
    next_queue: u64,
    is_closed: bool,
}

#[derive(Debug)]
struct Queue<K> {
    id: u64,
    capacity: usize,
    changes: VecDeque<Change<K>>,
    /// Set while the subscriber must be given a snapshot before anything else.
    owed: Option<ResyncCause>,
    wake: Arc<Notify>,
}

/// What a subscriber gets when it looks.
pub(crate) enum Popped<K> {
    Update(Update<K>),
    Nothing,
    Closed,
}

impl<K> Clone for What<K> {
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
            what: self.what.clone(),
            seen: self.seen,
            received: self.received,
        }
    }
}

impl<K: Kind> Hub<K> {
    pub(crate) fn new(record: Record) -> Self {
        Self {
            inner: Mutex::new(Inner {
                view: View::default(),
                record,
                queues: Vec::new(),
                next_queue: 0,
                is_closed: false,
            }),
            is_synced: watch::Sender::new(false),
        }
    }

    /// A poisoned lock is taken as it is: no step inside can panic half way but for want of memory.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner<K>> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn watch_synced(&self) -> watch::Receiver<bool> {
        self.is_synced.subscribe()
    }

    /// Applies what one chunk brought; bookmarks and errors are no business of the view.
    pub(crate) fn apply(&self, items: impl Iterator<Item = Item<K>>, received: Timestamp) {
        let mut inner = self.lock();
        for item in items {
            let changes = match item {
                Item::Event(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    inner.view.put(Arc::new(object))
                }
                Item::Event(WatchEvent::Deleted(object)) => inner.view.remove(Arc::new(object)),
                // What it was when it was deleted cannot be read; that it was deleted can.
                Item::Unreadable(DecodeError::Object {
                    event: Some(EventType::Deleted),
                    namespace,
                    name,
                    ..
                }) => match inner.view.get(&namespace, &name) {
                    Some(known) => {
                        let last = Arc::clone(known);
                        inner.view.remove(last)
                    }
                    None => continue,
                },
                Item::Event(WatchEvent::Bookmark(_) | WatchEvent::Error(_))
                | Item::Unreadable(_) => continue,
            };
            for what in changes {
                inner.publish(&Change {
                    what,
                    seen: Seen::Live,
                    received,
                });
            }
        }
        inner.wake();
    }

    /// Adds to a list that is not complete yet; gives whether a bookmark has now ended it. An
    /// object whose state is known already is taken from the view, so that it is not kept twice; so
    /// is one that cannot be read any more, which would otherwise look deleted.
    pub(crate) fn stage(
        &self,
        list: &mut View<K>,
        items: &mut impl Iterator<Item = Item<K>>,
    ) -> bool {
        let inner = self.lock();
        for item in items {
            match item {
                Item::Event(WatchEvent::Added(object) | WatchEvent::Modified(object)) => {
                    let known = inner.view.known(&object);
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
                    if let Some(known) = inner.view.get(&namespace, &name) {
                        list.put(Arc::clone(known)).for_each(drop);
                    }
                }
                Item::Event(WatchEvent::Bookmark(_) | WatchEvent::Error(_))
                | Item::Unreadable(_) => {}
            }
        }
        false
    }

    /// Takes over a whole list: differences become changes, what is missing from it becomes
    /// deletions.
    pub(crate) fn replace(&self, list: View<K>, received: Timestamp, now: Instant) {
        let mut inner = self.lock();
        for what in inner.view.replace(list) {
            inner.publish(&Change {
                what,
                seen: Seen::Relist,
                received,
            });
        }
        inner.record.synced(now);
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
            owed: Some(ResyncCause::Subscribed),
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
            view,
            record,
            queues,
            is_closed,
            ..
        } = &mut *inner;
        let Some(queue) = queues.iter_mut().find(|queue| queue.id == id) else {
            return Popped::Closed;
        };
        if let Some(cause) = queue.owed
            && record.is_synced()
        {
            queue.owed = None;
            return Popped::Update(Update::Resync(Resync {
                cause,
                objects: view.objects(),
            }));
        }
        match queue.changes.pop_front() {
            Some(change) => Popped::Update(Update::Change(change)),
            None if *is_closed => Popped::Closed,
            None => Popped::Nothing,
        }
    }

    /// Ends all subscriptions once they have taken what is queued for them.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.is_closed = true;
        inner.wake();
    }
}

/// The view changes only in whole steps: a list is gathered aside and taken over at its end, so a
/// connection that breaks in the middle leaves the view as it was. Nobody is waited for.
impl<K: Kind> Sink<K> for Arc<Hub<K>> {
    type List = View<K>;

    fn note<T>(&self, note: impl FnOnce(&mut Record) -> T) -> T {
        note(&mut self.lock().record)
    }

    async fn stage(
        &self,
        list: &mut View<K>,
        items: &mut (impl Iterator<Item = Item<K>> + Send),
        _received: Timestamp,
    ) -> bool {
        Hub::stage(self, list, items)
    }

    fn complete(&self, list: View<K>, received: Timestamp, now: Instant) -> usize {
        let objects = list.len();
        self.replace(list, received, now);
        objects
    }

    async fn apply(&self, items: impl Iterator<Item = Item<K>> + Send, received: Timestamp) {
        Hub::apply(self, items, received);
    }
}

impl<K: Kind> Observed for Hub<K> {
    fn state(&self) -> StreamState {
        let inner = self.lock();
        let lags = |queue: &&Queue<K>| matches!(queue.owed, Some(ResyncCause::Lagged { .. }));
        let lagging = inner.queues.iter().filter(lags).count();
        let queued = inner.queues.iter().map(|queue| queue.changes.len()).max();
        let of_sink = OfSink {
            objects: inner.view.len(),
            subscribers: inner.queues.len(),
            lagging,
            queued: queued.unwrap_or(0),
        };
        inner.record.state(Instant::now(), of_sink)
    }
}

impl<K: Kind> Inner<K> {
    fn publish(&mut self, change: &Change<K>) {
        self.record.changed();
        for queue in &mut self.queues {
            match &mut queue.owed {
                // The snapshot that it is owed will have this change.
                Some(ResyncCause::Subscribed) => {}
                Some(ResyncCause::Lagged { missed }) => *missed += 1,
                None if queue.changes.len() >= queue.capacity => {
                    let missed = queue.changes.len() as u64 + 1;
                    queue.owed = Some(ResyncCause::Lagged { missed });
                    queue.changes = VecDeque::new();
                    self.record.lagged();
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
