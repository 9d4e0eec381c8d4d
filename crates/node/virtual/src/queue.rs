//! A work queue by client-go's rules: an item is queued once, is processed by one worker at a time,
//! and is queued again if it was added meanwhile.
//!
//! It stands in for the scheduler of kube-runtime, which takes its items from a store of objects: a
//! pod that only the runtime still has is an item here too. It holds one entry for each item that
//! was added, so its size is bounded by the number of pods.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use kube_client_metrics::hooks::WorkqueueMetrics;
use kubevitals_model::{Backoff, BackoffPolicy, Jitter, Rng};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// Waits after failures of an item.
const RETRY: BackoffPolicy = BackoffPolicy {
    first: Duration::from_millis(250),
    second: Duration::from_millis(500),
    max: Duration::from_mins(1),
    jitter: Jitter::Added(0.1),
};

/// A work queue. Clones share it.
pub(crate) struct WorkQueue<K> {
    inner: Arc<Inner<K>>,
}

struct Inner<K> {
    state: Mutex<State<K>>,
    metrics: Arc<dyn WorkqueueMetrics>,
    /// Wakes a worker: an item is ready, or the next delayed one is due earlier.
    wake: Notify,
}

struct State<K> {
    ready: VecDeque<K>,
    /// Queued items with the time of their first add, including those that are in progress.
    dirty: HashMap<K, Instant>,
    running: HashMap<K, Instant>,
    delayed: HashMap<K, Instant>,
    by_time: BTreeSet<(Instant, K)>,
    backoffs: HashMap<K, Backoff>,
    is_closed: bool,
}

/// The processing of an item, which ends when this is dropped.
pub(crate) struct Work<K: Clone + Eq + Hash + Ord> {
    queue: WorkQueue<K>,
    pub(crate) item: K,
}

impl<K> Clone for WorkQueue<K> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<K: Clone + Eq + Hash + Ord> WorkQueue<K> {
    pub(crate) fn new(metrics: Arc<dyn WorkqueueMetrics>) -> Self {
        let state = State {
            ready: VecDeque::new(),
            dirty: HashMap::new(),
            running: HashMap::new(),
            delayed: HashMap::new(),
            by_time: BTreeSet::new(),
            backoffs: HashMap::new(),
            is_closed: false,
        };
        Self {
            inner: Arc::new(Inner {
                state: Mutex::new(state),
                metrics,
                wake: Notify::new(),
            }),
        }
    }

    /// Adds an item that is not queued yet.
    pub(crate) fn add(&self, item: K) {
        let mut state = self.inner.state.lock();
        state.add(item, Instant::now(), &*self.inner.metrics);
        drop(state);
        self.inner.wake.notify_one();
    }

    /// Adds an item after a delay; an earlier time that was set before stays.
    pub(crate) fn add_after(&self, item: K, delay: Duration) {
        let Some(at) = Instant::now().checked_add(delay) else {
            return;
        };
        let mut state = self.inner.state.lock();
        if state.is_closed || state.delayed.get(&item).is_some_and(|before| *before <= at) {
            return;
        }
        if let Some(before) = state.delayed.insert(item.clone(), at) {
            state.by_time.remove(&(before, item.clone()));
        }
        state.by_time.insert((at, item));
        drop(state);
        self.inner.wake.notify_one();
    }

    /// Adds an item after the wait of one more failure.
    pub(crate) fn retry(&self, item: K) {
        self.inner.metrics.retried();
        let wait = {
            let mut state = self.inner.state.lock();
            let backoff = state.backoffs.entry(item.clone());
            backoff
                .or_insert_with(|| Backoff::new(RETRY, Rng::random()))
                .next_wait()
        };
        self.add_after(item, wait);
    }

    /// Forgets the failures of an item.
    pub(crate) fn forget(&self, item: &K) {
        self.inner.state.lock().backoffs.remove(item);
    }

    /// The number of failures in a row.
    pub(crate) fn failures(&self, item: &K) -> u32 {
        let state = self.inner.state.lock();
        state.backoffs.get(item).map_or(0, Backoff::failures)
    }

    /// Waits for an item; `None` once the queue is closed.
    pub(crate) async fn next(&self) -> Option<Work<K>> {
        loop {
            let due = {
                let mut state = self.inner.state.lock();
                if state.is_closed {
                    // The next waiting worker ends too.
                    self.inner.wake.notify_one();
                    return None;
                }
                let now = Instant::now();
                state.advance(now, &*self.inner.metrics);
                if let Some(item) = state.take(now, &*self.inner.metrics) {
                    let has_more = !state.ready.is_empty() || !state.by_time.is_empty();
                    drop(state);
                    if has_more {
                        self.inner.wake.notify_one();
                    }
                    return Some(Work {
                        queue: self.clone(),
                        item,
                    });
                }
                state.by_time.first().map(|(at, _)| *at)
            };
            let timer = async {
                match due {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = timer => {}
                () = self.inner.wake.notified() => {}
            }
        }
    }

    /// Reports the durations of the work in progress, as client-go does every 500 ms.
    pub(crate) fn report_unfinished(&self) {
        let state = self.inner.state.lock();
        let now = Instant::now();
        let mut total = Duration::ZERO;
        let mut longest = Duration::ZERO;
        for since in state.running.values() {
            let age = now.saturating_duration_since(*since);
            total = total.saturating_add(age);
            longest = longest.max(age);
        }
        drop(state);
        self.inner.metrics.in_progress(total, longest);
    }

    /// Empties the queue and ends its workers after their current item.
    pub(crate) fn close(&self) {
        let mut state = self.inner.state.lock();
        let queued: HashSet<&K> = state.ready.iter().collect();
        let abandoned = u64::try_from(queued.len().max(state.dirty.len())).unwrap_or(u64::MAX);
        if abandoned > 0 {
            self.inner.metrics.abandoned(abandoned);
        }
        state.is_closed = true;
        state.ready.clear();
        state.dirty.clear();
        state.delayed.clear();
        state.by_time.clear();
        state.backoffs.clear();
        drop(state);
        self.inner.wake.notify_one();
    }

    fn done(&self, item: &K) {
        let mut state = self.inner.state.lock();
        if let Some(since) = state.running.remove(item) {
            let worked = Instant::now().saturating_duration_since(since);
            self.inner.metrics.done(worked);
        }
        let is_dirty = state.dirty.contains_key(item);
        if is_dirty {
            state.ready.push_back(item.clone());
        }
        drop(state);
        if is_dirty {
            self.inner.wake.notify_one();
        }
    }
}

impl<K: Clone + Eq + Hash + Ord> State<K> {
    fn add(&mut self, item: K, since: Instant, metrics: &dyn WorkqueueMetrics) {
        if self.is_closed || self.dirty.contains_key(&item) {
            return;
        }
        metrics.added();
        self.dirty.insert(item.clone(), since);
        if !self.running.contains_key(&item) {
            self.ready.push_back(item);
        }
    }

    /// Queues the delayed items that are due.
    fn advance(&mut self, now: Instant, metrics: &dyn WorkqueueMetrics) {
        while self.by_time.first().is_some_and(|(at, _)| *at <= now) {
            let Some((at, item)) = self.by_time.pop_first() else {
                return;
            };
            self.delayed.remove(&item);
            self.add(item, at, metrics);
        }
    }

    fn take(&mut self, now: Instant, metrics: &dyn WorkqueueMetrics) -> Option<K> {
        let item = self.ready.pop_front()?;
        if let Some(since) = self.dirty.remove(&item) {
            metrics.taken(now.saturating_duration_since(since));
        }
        self.running.insert(item.clone(), now);
        Some(item)
    }
}

impl<K: Clone + Eq + Hash + Ord> Drop for Work<K> {
    fn drop(&mut self) {
        self.queue.done(&self.item);
    }
}

impl<K> fmt::Debug for WorkQueue<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.inner.state.lock();
        f.debug_struct("WorkQueue")
            .field("ready", &state.ready.len())
            .field("delayed", &state.delayed.len())
            .field("running", &state.running.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use kube_client_metrics::Hooks;

    use super::*;

    fn queue() -> WorkQueue<&'static str> {
        WorkQueue::new(Hooks::default().workqueues.queue("test"))
    }

    #[tokio::test(start_paused = true)]
    async fn an_item_is_queued_once_and_has_one_worker() {
        let queue = queue();
        queue.add("a");
        queue.add("a");
        queue.add("b");
        let first = queue.next().await.unwrap();
        assert_eq!(first.item, "a");
        // Added while it is in progress: it waits for its worker.
        queue.add("a");
        let second = queue.next().await.unwrap();
        assert_eq!(second.item, "b");
        drop(second);
        let waiting = tokio::time::timeout(Duration::from_secs(1), queue.next()).await;
        assert!(waiting.is_err());
        drop(first);
        assert_eq!(queue.next().await.unwrap().item, "a");
        let waiting = tokio::time::timeout(Duration::from_secs(1), queue.next()).await;
        assert!(waiting.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn delays_keep_the_earliest_time_and_failures_back_off() {
        let queue = queue();
        let start = Instant::now();
        queue.add_after("a", Duration::from_secs(5));
        queue.add_after("a", Duration::from_secs(50));
        queue.add_after("a", Duration::from_secs(2));
        drop(queue.next().await.unwrap());
        assert_eq!(start.elapsed(), Duration::from_secs(2));
        let mut longest = Duration::ZERO;
        for failures in 1..=12 {
            let start = Instant::now();
            queue.retry("a");
            assert_eq!(queue.failures(&"a"), failures);
            drop(queue.next().await.unwrap());
            longest = longest.max(start.elapsed());
        }
        assert!(
            longest >= RETRY.max && longest <= RETRY.max * 12 / 10,
            "{longest:?}"
        );
        queue.forget(&"a");
        assert_eq!(queue.failures(&"a"), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_all_workers() {
        let queue = queue();
        let workers: Vec<_> = (0..3)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.next().await.is_none() })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.close();
        for worker in workers {
            assert!(worker.await.unwrap());
        }
        queue.add("late");
        assert!(queue.next().await.is_none());
    }
}
