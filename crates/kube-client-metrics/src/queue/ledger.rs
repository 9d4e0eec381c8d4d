//! Which objects wait and which are worked on, by client-go's rules of counting.
//!
//! The ledger is told what happens and when; it has no clock and no task of its own. It holds an
//! entry for every object that waits, will wait, or is worked on: as many as the scheduler of
//! kube-runtime holds beside it.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::hooks::WorkqueueMetrics;

/// An object of the kind that a controller is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) name: String,
    pub(super) namespace: Option<String>,
}

/// When an object is to be looked at again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// Only when something changes.
    OnChange,
    /// After this time.
    After(Duration),
    /// After a time that nobody can read.
    Sometime,
}

/// One piece of work, from its beginning to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Run(u64);

/// The state of one queue.
pub(super) struct Ledger {
    metrics: Arc<dyn WorkqueueMetrics>,
    /// What waits to be worked on, and since when.
    waiting: HashMap<Key, Instant>,
    /// How many of these are in a namespace.
    waiting_in_namespaces: usize,
    /// What will wait once its time has come.
    later: HashMap<Key, Instant>,
    /// The same by time.
    due: BTreeSet<(Instant, Key)>,
    running: HashMap<Run, Instant>,
    runs: u64,
    is_closed: bool,
}

impl Ledger {
    pub(super) fn new(metrics: Arc<dyn WorkqueueMetrics>) -> Self {
        Self {
            metrics,
            waiting: HashMap::new(),
            waiting_in_namespaces: 0,
            later: HashMap::new(),
            due: BTreeSet::new(),
            running: HashMap::new(),
            runs: 0,
            is_closed: false,
        }
    }

    /// Something asks for the object to be looked at now.
    pub(super) fn trigger(&mut self, key: Key, now: Instant) {
        if self.is_closed {
            return;
        }
        // The scheduler moves an entry forward instead of adding a second one.
        self.forget_later(&key);
        self.add(key, now);
    }

    /// Work on the object ended with this wish. Gives whether the next moment of interest has come
    /// closer.
    pub(super) fn requeue(&mut self, key: Key, again: Again, now: Instant) -> bool {
        if self.is_closed || again == Again::OnChange {
            return false;
        }
        self.metrics.retried();
        let Again::After(delay) = again else {
            return false;
        };
        // The scheduler ignores a later wish while an earlier one stands.
        if self.waiting.contains_key(&key) {
            return false;
        }
        if delay.is_zero() {
            self.add(key, now);
            return false;
        }
        // A time that no clock can show is never due.
        let Some(at) = now.checked_add(delay) else {
            return false;
        };
        if self.later.get(&key).is_some_and(|before| *before <= at) {
            return false;
        }
        self.forget_later(&key);
        self.later.insert(key.clone(), at);
        self.due.insert((at, key));
        self.due.first().is_some_and(|(first, _)| *first == at)
    }

    /// Work on the object begins.
    pub(super) fn begin(&mut self, key: &Key, now: Instant) -> Run {
        self.advance(now);
        let run = Run(self.runs);
        self.runs += 1;
        self.running.insert(run, now);
        if self.is_closed {
            return run;
        }
        if let Some(since) = self.take_waiting(key) {
            self.metrics.taken(now.saturating_duration_since(since));
        } else {
            // Asked for in a way that could not be seen: it waited for no time that is known.
            self.forget_later(key);
            self.metrics.added();
            self.metrics.taken(Duration::ZERO);
        }
        run
    }

    /// Work ended, with whatever result.
    pub(super) fn end(&mut self, run: Run, now: Instant) {
        if let Some(since) = self.running.remove(&run) {
            self.metrics.done(now.saturating_duration_since(since));
        }
    }

    /// What was put off until now waits from now on.
    pub(super) fn advance(&mut self, now: Instant) {
        while let Some((at, key)) = self.due.pop_first() {
            if at > now {
                self.due.insert((at, key));
                return;
            }
            self.later.remove(&key);
            self.add(key, at);
        }
    }

    /// Tells how long the work that has not ended has taken so far.
    pub(super) fn tell_unfinished(&self, now: Instant) {
        let ages = self.running.values();
        let ages = ages.map(|since| now.saturating_duration_since(*since));
        let (total, longest) = ages
            .fold((Duration::ZERO, Duration::ZERO), |(total, longest), age| {
                (total.saturating_add(age), longest.max(age))
            });
        self.metrics.in_progress(total, longest);
    }

    /// When something that was put off is due next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    pub(super) fn is_working(&self) -> bool {
        !self.running.is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// The queue is gone: nothing waits in it any more, though work may go on.
    pub(super) fn close(&mut self) {
        self.is_closed = true;
        let waiting = u64::try_from(self.waiting.len()).unwrap_or(u64::MAX);
        if waiting > 0 {
            self.metrics.abandoned(waiting);
        }
        self.waiting.clear();
        self.waiting_in_namespaces = 0;
        self.later.clear();
        self.due.clear();
    }

    fn add(&mut self, key: Key, since: Instant) {
        if self.waiting.contains_key(&key) {
            return;
        }
        self.metrics.added();
        self.waiting_in_namespaces += usize::from(key.namespace.is_some());
        self.waiting.insert(key, since);
    }

    fn take_waiting(&mut self, key: &Key) -> Option<Instant> {
        if let Some(since) = self.waiting.remove(key) {
            self.waiting_in_namespaces -= usize::from(key.namespace.is_some());
            return Some(since);
        }
        // An object without a namespace may have been asked for with that of an object it owns.
        if key.namespace.is_some() || self.waiting_in_namespaces == 0 {
            return None;
        }
        let asked = self.waiting.keys().find(|asked| asked.name == key.name)?;
        let asked = asked.clone();
        self.waiting_in_namespaces -= 1;
        self.waiting.remove(&asked)
    }

    fn forget_later(&mut self, key: &Key) {
        if let Some(at) = self.later.remove(key) {
            self.due.remove(&(at, key.clone()));
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("waiting", &self.waiting.len())
            .field("later", &self.later.len())
            .field("running", &self.running.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
