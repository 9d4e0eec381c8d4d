//! The queued objects and those in progress, counted by client-go's rules.
//!
//! The ledger has no clock and no task of its own. It holds an entry for every object that is
//! queued, delayed or in progress: as many as the scheduler of kube-runtime.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use kube_client_metrics::hooks::WorkqueueMetrics;
use tokio::time::Instant;

/// Identifies an object of the controller's kind.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
}

/// When an object is reconciled again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Requeue {
    OnChange,
    After(Duration),
    /// With kube's own `Action`, whose delay cannot be read.
    AfterUnknownDelay,
}

/// Identifies one reconciliation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct RunId(u64);

/// The state of one queue.
pub(super) struct Ledger {
    metrics: Arc<dyn WorkqueueMetrics>,
    /// Queued objects, with the time of their first add.
    queued: HashMap<Key, Instant>,
    /// The number of queued objects with a namespace.
    queued_with_namespace: usize,
    /// Objects that will be queued, with the time at which they are.
    delayed: HashMap<Key, Instant>,
    /// The same by time.
    delayed_by_time: BTreeSet<(Instant, Key)>,
    running: HashMap<RunId, Instant>,
    next_run: u64,
    is_closed: bool,
}

impl Ledger {
    pub(super) fn new(metrics: Arc<dyn WorkqueueMetrics>) -> Self {
        Self {
            metrics,
            queued: HashMap::new(),
            queued_with_namespace: 0,
            delayed: HashMap::new(),
            delayed_by_time: BTreeSet::new(),
            running: HashMap::new(),
            next_run: 0,
            is_closed: false,
        }
    }

    /// Records a trigger for the object.
    pub(super) fn trigger(&mut self, key: Key, now: Instant) {
        if self.is_closed {
            return;
        }
        // The scheduler moves an entry forward instead of adding a second one.
        self.remove_delayed(&key);
        self.add(key, now);
    }

    /// Records the result of a reconciliation. Returns whether [`next_due`](Self::next_due) is
    /// earlier than before.
    pub(super) fn requeue(&mut self, key: Key, requeue: Requeue, now: Instant) -> bool {
        if self.is_closed || requeue == Requeue::OnChange {
            return false;
        }
        self.metrics.retried();
        let Requeue::After(delay) = requeue else {
            return false;
        };
        // The scheduler ignores a request that is later than an existing one.
        if self.queued.contains_key(&key) {
            return false;
        }
        if delay.is_zero() {
            self.add(key, now);
            return false;
        }
        // A time that overflows is never due.
        let Some(at) = now.checked_add(delay) else {
            return false;
        };
        if self.delayed.get(&key).is_some_and(|before| *before <= at) {
            return false;
        }
        self.remove_delayed(&key);
        self.delayed.insert(key.clone(), at);
        self.delayed_by_time.insert((at, key));
        self.delayed_by_time
            .first()
            .is_some_and(|(first, _)| *first == at)
    }

    /// Records the start of a reconciliation.
    pub(super) fn start(&mut self, key: &Key, now: Instant) -> RunId {
        self.advance(now);
        let run = RunId(self.next_run);
        self.next_run += 1;
        self.running.insert(run, now);
        if self.is_closed {
            return run;
        }
        if let Some(since) = self.take_queued(key) {
            self.metrics.taken(now.saturating_duration_since(since));
        } else {
            // Queued in a way that could not be observed, so the queue duration is unknown.
            self.remove_delayed(key);
            self.metrics.added();
            self.metrics.taken(Duration::ZERO);
        }
        run
    }

    /// Records the end of a reconciliation, with any result.
    pub(super) fn end(&mut self, run: RunId, now: Instant) {
        if let Some(since) = self.running.remove(&run) {
            self.metrics.done(now.saturating_duration_since(since));
        }
    }

    /// Queues the delayed objects that are due.
    pub(super) fn advance(&mut self, now: Instant) {
        while let Some((at, key)) = self.delayed_by_time.pop_first() {
            if at > now {
                self.delayed_by_time.insert((at, key));
                return;
            }
            self.delayed.remove(&key);
            self.add(key, at);
        }
    }

    /// Reports the durations of the work in progress.
    pub(super) fn report_unfinished(&self, now: Instant) {
        let ages = self.running.values();
        let ages = ages.map(|since| now.saturating_duration_since(*since));
        let (total, longest) = ages
            .fold((Duration::ZERO, Duration::ZERO), |(total, longest), age| {
                (total.saturating_add(age), longest.max(age))
            });
        self.metrics.in_progress(total, longest);
    }

    /// Returns when the next delayed object is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.delayed_by_time.first().map(|(at, _)| *at)
    }

    pub(super) fn is_working(&self) -> bool {
        !self.running.is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Empties the queue; work in progress continues.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        let queued = u64::try_from(self.queued.len()).unwrap_or(u64::MAX);
        if queued > 0 {
            self.metrics.abandoned(queued);
        }
        self.queued.clear();
        self.queued_with_namespace = 0;
        self.delayed.clear();
        self.delayed_by_time.clear();
    }

    fn add(&mut self, key: Key, since: Instant) {
        if self.queued.contains_key(&key) {
            return;
        }
        self.metrics.added();
        self.queued_with_namespace += usize::from(key.namespace.is_some());
        self.queued.insert(key, since);
    }

    fn take_queued(&mut self, key: &Key) -> Option<Instant> {
        if let Some(since) = self.queued.remove(key) {
            self.queued_with_namespace -= usize::from(key.namespace.is_some());
            return Some(since);
        }
        // A cluster-scoped object may have been triggered with the namespace of an object it owns.
        if key.namespace.is_some() || self.queued_with_namespace == 0 {
            return None;
        }
        let triggered = self.queued.keys().find(|queued| queued.name == key.name)?;
        let triggered = triggered.clone();
        self.queued_with_namespace -= 1;
        self.queued.remove(&triggered)
    }

    fn remove_delayed(&mut self, key: &Key) {
        if let Some(at) = self.delayed.remove(key) {
            self.delayed_by_time.remove(&(at, key.clone()));
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("queued", &self.queued.len())
            .field("delayed", &self.delayed.len())
            .field("running", &self.running.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
