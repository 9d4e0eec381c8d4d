//! The queue, as its producers and its worker see it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::config::SinkConfig;
use crate::exporter::SinkItem;
use crate::metrics::{DropReason, SinkMetrics};
use crate::worker::Worker;

/// Queues items for an exporter. Clones share the queue; when the last is dropped, the worker
/// exports what is queued and ends.
pub struct Sink<T> {
    handle: Arc<Handle<T>>,
}

/// The records of a sink so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SinkCounts {
    pub exported: u64,
    pub dropped: u64,
    /// Records that are queued or in flight.
    pub queued: u64,
}

/// Closes the queue when the last [`Sink`] is dropped.
struct Handle<T> {
    queue: Arc<Queue<T>>,
}

pub(crate) struct Queue<T> {
    state: Mutex<QueueState<T>>,
    /// Wakes the worker: for the first item, for a full batch, and on close.
    pub(crate) wake: Notify,
    pub(crate) stage: watch::Sender<Stage>,
    pub(crate) config: SinkConfig,
    pub(crate) metrics: SinkMetrics,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    Running,
    /// The grace period of the shutdown is over.
    Abandoned,
    /// The worker has ended.
    Ended,
}

struct QueueState<T> {
    items: VecDeque<T>,
    /// The size of `items`.
    queued_size: usize,
    /// The size of the batch in flight, which counts against the capacity.
    in_flight_size: usize,
    /// The records of the batch in flight; 0 if there is none, or if it was dropped.
    in_flight_records: u64,
    counts: SinkCounts,
    /// The reason why further items are dropped; `None` while the queue is open.
    closed: Option<DropReason>,
}

/// The state of the queue for the worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    Empty,
    /// Some items, but not a full batch.
    Partial,
    /// A full batch, or the last one.
    Ready,
    /// Empty and closed.
    Done,
}

impl<T: SinkItem> Sink<T> {
    /// Creates a sink and its worker, which must be run.
    pub fn new(config: SinkConfig, metrics: SinkMetrics) -> (Self, Worker<T>) {
        let queue = Arc::new(Queue {
            state: Mutex::new(QueueState {
                items: VecDeque::new(),
                queued_size: 0,
                in_flight_size: 0,
                in_flight_records: 0,
                counts: SinkCounts::default(),
                closed: None,
            }),
            wake: Notify::new(),
            stage: watch::Sender::new(Stage::Running),
            config,
            metrics,
        });
        let worker = Worker::new(Arc::clone(&queue));
        let handle = Arc::new(Handle { queue });
        (Self { handle }, worker)
    }

    /// Queues an item and returns whether there was room. Never waits for the exporter.
    pub fn push(&self, item: T) -> bool {
        let queue = &self.handle.queue;
        let (size, records) = (item.size(), item.records());
        let mut state = queue.state.lock();
        let used = state.queued_size + state.in_flight_size;
        let reason = state.closed.or_else(|| {
            let has_room = used.saturating_add(size) <= queue.config.capacity;
            (!has_room).then_some(DropReason::QueueFull)
        });
        if let Some(reason) = reason {
            state.counts.dropped += records;
            drop(state);
            queue.metrics.dropped(reason).inc_by(records);
            return false;
        }
        let is_first = state.items.is_empty();
        let before = state.queued_size;
        state.queued_size += size;
        state.counts.queued += records;
        state.items.push_back(item);
        let max_batch = queue.config.max_batch;
        let is_full = before < max_batch && state.queued_size >= max_batch;
        drop(state);
        queue.metrics.queued().inc_by(signed(records));
        // Waking the worker costs more than queueing an item.
        if is_first || is_full {
            queue.wake.notify_one();
        }
        true
    }

    pub fn counts(&self) -> SinkCounts {
        self.handle.queue.state.lock().counts
    }

    /// Accepts no more items, waits up to `grace` for the queued ones to be exported, and drops the
    /// rest.
    pub async fn shutdown(&self, grace: Duration) -> SinkCounts {
        let queue = &self.handle.queue;
        queue.close(DropReason::Shutdown);
        let mut stage = queue.stage.subscribe();
        let ended = stage.wait_for(|stage| *stage == Stage::Ended);
        if timeout(grace, ended).await.is_err() {
            queue.drop_all(DropReason::Shutdown);
            queue.advance(Stage::Abandoned);
        }
        self.counts()
    }
}

impl<T> Queue<T> {
    fn close(&self, reason: DropReason) {
        self.state.lock().closed.get_or_insert(reason);
        self.wake.notify_one();
    }

    /// Drops all items, those in flight included.
    fn drop_all(&self, reason: DropReason) {
        let mut state = self.state.lock();
        state.closed.get_or_insert(reason);
        state.items.clear();
        (state.queued_size, state.in_flight_size) = (0, 0);
        state.in_flight_records = 0;
        let dropped = std::mem::take(&mut state.counts.queued);
        state.counts.dropped += dropped;
        drop(state);
        self.metrics.queued().dec_by(signed(dropped));
        self.metrics.dropped(reason).inc_by(dropped);
    }

    fn advance(&self, stage: Stage) {
        self.stage.send_if_modified(|current| {
            let is_later = *current != Stage::Ended && *current != stage;
            if is_later {
                *current = stage;
            }
            is_later
        });
    }

    /// The worker ends and exports nothing any more.
    pub(crate) fn end(&self, reason: DropReason) {
        self.drop_all(reason);
        self.advance(Stage::Ended);
    }

    pub(crate) fn readiness(&self) -> Readiness {
        let state = self.state.lock();
        match (state.items.is_empty(), state.closed) {
            (true, None) => Readiness::Empty,
            (true, Some(_)) => Readiness::Done,
            (false, Some(_)) => Readiness::Ready,
            (false, None) if state.queued_size >= self.config.max_batch => Readiness::Ready,
            (false, None) => Readiness::Partial,
        }
    }

    /// Counts the batch in flight, of which `dropped` records were not exported, unless all of it
    /// was dropped meanwhile.
    pub(crate) fn complete(&self, dropped: u64, reason: DropReason) {
        self.complete_part((0, 0), dropped, reason);
    }

    /// Counts the part of the batch in flight that is not `rest`, a size and a number of records,
    /// as [`complete`](Self::complete) does.
    pub(crate) fn complete_part(&self, rest: (usize, u64), dropped: u64, reason: DropReason) {
        let mut state = self.state.lock();
        state.in_flight_size = rest.0.min(state.in_flight_size);
        let left = rest.1.min(state.in_flight_records);
        let records = state.in_flight_records - left;
        state.in_flight_records = left;
        let dropped = dropped.min(records);
        let exported = records - dropped;
        state.counts.queued = state.counts.queued.saturating_sub(records);
        state.counts.dropped += dropped;
        state.counts.exported += exported;
        drop(state);
        self.metrics.queued().dec_by(signed(records));
        self.metrics.exported().inc_by(exported);
        if dropped > 0 {
            self.metrics.dropped(reason).inc_by(dropped);
        }
    }
}

impl<T: SinkItem> Queue<T> {
    /// Moves the next batch into `batch`.
    pub(crate) fn take(&self, batch: &mut Vec<T>) {
        let mut state = self.state.lock();
        let mut size = 0_usize;
        while let Some(next) = state.items.front() {
            let with_next = size.saturating_add(next.size());
            if !batch.is_empty() && with_next > self.config.max_batch {
                break;
            }
            size = with_next;
            batch.extend(state.items.pop_front());
        }
        state.queued_size = state.queued_size.saturating_sub(size);
        state.in_flight_size = size;
        state.in_flight_records = batch.iter().map(T::records).sum();
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        self.queue.close(DropReason::Shutdown);
    }
}

impl<T> Clone for Sink<T> {
    fn clone(&self) -> Self {
        Self {
            handle: Arc::clone(&self.handle),
        }
    }
}

impl<T> fmt::Debug for Sink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = &self.handle.queue;
        f.debug_struct("Sink")
            .field("name", &queue.config.name)
            .field("counts", &queue.state.lock().counts)
            .finish_non_exhaustive()
    }
}

fn signed(records: u64) -> i64 {
    i64::try_from(records).unwrap_or(i64::MAX)
}
