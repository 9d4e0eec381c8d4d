//! Runs every probe against every target of it, each in a task of its own.
//!
//! A target that hangs blocks nothing but its own task, and one place of the global limit until
//! its timeout. What was delayed or left out for want of places is measured: lag, missed ticks.

mod task;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use kubevitals_model::Clock;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::histogram::Histogram;
use crate::history::History;
use crate::probe::{Executor, Job, OutcomeSink};
use crate::state::TargetStatus;

/// What a scheduler needs.
pub struct SchedulerOptions {
    pub clock: Clock,
    pub executor: Arc<dyn Executor>,
    pub sink: Arc<dyn OutcomeSink>,
    /// Maximum number of runs at the same time.
    pub concurrency: usize,
    /// Number of results that are kept, and of older failures.
    pub history: usize,
}

/// Runs jobs until it is shut down. It needs a tokio runtime.
pub struct Scheduler {
    shared: Arc<Shared>,
    drain: watch::Sender<bool>,
    state: Mutex<State>,
}

/// What a change of the jobs did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Applied {
    pub added: usize,
    /// Targets that keep their task and their counters.
    pub kept: usize,
    pub removed: usize,
}

/// How a shutdown ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drained {
    /// Number of runs that were ended because the grace period was over.
    pub abandoned: usize,
}

/// Figures of the scheduler itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchedulerStats {
    /// Number of targets.
    pub targets: usize,
    /// Number of runs in progress.
    pub in_flight: usize,
    /// Number of runs that were started.
    pub started: u64,
    /// Number of ticks without a run, because the previous run had not ended.
    pub missed: u64,
    /// Number of runs that panicked.
    pub panics: u64,
    /// From when a run was due to its start.
    pub lag: Histogram,
}

/// What all tasks share.
struct Shared {
    clock: Clock,
    executor: Arc<dyn Executor>,
    sink: Arc<dyn OutcomeSink>,
    permits: Semaphore,
    history: History,
    in_flight: AtomicUsize,
    started: AtomicU64,
    missed: AtomicU64,
    panics: AtomicU64,
    lag: Mutex<Histogram>,
}

#[derive(Default)]
struct State {
    /// Sorted, so that what is shown has a stable order.
    entries: BTreeMap<Key, Entry>,
    tasks: JoinSet<()>,
    closed: bool,
}

/// A probe and a target, by their names.
type Key = (Arc<str>, Arc<str>);

struct Entry {
    /// Dropping it ends the task.
    job: watch::Sender<Arc<Job>>,
    status: Arc<TargetStatus>,
}

impl Scheduler {
    /// A scheduler without jobs.
    pub fn new(options: SchedulerOptions) -> Self {
        let concurrency = options.concurrency.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            shared: Arc::new(Shared {
                clock: options.clock,
                executor: options.executor,
                sink: options.sink,
                permits: Semaphore::new(concurrency),
                history: History::new(options.history),
                in_flight: AtomicUsize::new(0),
                started: AtomicU64::new(0),
                missed: AtomicU64::new(0),
                panics: AtomicU64::new(0),
                lag: Mutex::default(),
            }),
            drain: watch::Sender::new(false),
            state: Mutex::default(),
        }
    }

    /// Makes these the jobs: new ones start, missing ones end, and the others keep their tasks and
    /// counters, with new settings from their next run on. Of equal names and targets the first
    /// counts. Call it inside the runtime.
    pub fn apply(&self, jobs: Vec<Job>) -> Applied {
        let mut applied = Applied::default();
        let mut state = self.state.lock();
        if state.closed {
            return applied;
        }
        // The tasks that have ended since the last change.
        while state.tasks.try_join_next().is_some() {}
        let mut wanted = HashSet::new();
        for job in jobs {
            let key = (Arc::clone(&job.probe.name), Arc::clone(&job.target.text));
            if !wanted.insert(key.clone()) {
                continue;
            }
            if let Some(entry) = state.entries.get(&key) {
                entry.status.set_probe(Arc::clone(&job.probe));
                entry.job.send_replace(Arc::new(job));
                applied.kept += 1;
            } else {
                let entry = self.start(job, &mut state.tasks);
                state.entries.insert(key, entry);
                applied.added += 1;
            }
        }
        state.entries.retain(|key, entry| {
            let keep = wanted.contains(key);
            if !keep {
                applied.removed += 1;
                entry.status.remove(&*self.shared.sink);
            }
            keep
        });
        applied
    }

    fn start(&self, job: Job, tasks: &mut JoinSet<()>) -> Entry {
        let status = Arc::new(TargetStatus::new(
            Arc::clone(&job.probe),
            Arc::clone(&job.target.text),
        ));
        let (sender, receiver) = watch::channel(Arc::new(job));
        let shared = Arc::clone(&self.shared);
        let drain = self.drain.subscribe();
        tasks.spawn(task::run(shared, receiver, drain, Arc::clone(&status)));
        Entry {
            job: sender,
            status,
        }
    }

    /// All targets, sorted by probe and target.
    pub fn statuses(&self) -> Vec<Arc<TargetStatus>> {
        let state = self.state.lock();
        let statuses = state.entries.values().map(|entry| &entry.status);
        statuses.map(Arc::clone).collect()
    }

    /// The last results.
    pub fn history(&self) -> &History {
        &self.shared.history
    }

    pub fn stats(&self) -> SchedulerStats {
        let shared = &self.shared;
        SchedulerStats {
            targets: self.state.lock().entries.len(),
            in_flight: shared.in_flight.load(Ordering::Relaxed),
            started: shared.started.load(Ordering::Relaxed),
            missed: shared.missed.load(Ordering::Relaxed),
            panics: shared.panics.load(Ordering::Relaxed),
            lag: *shared.lag.lock(),
        }
    }

    /// Starts no more runs, waits until those in progress have ended, and ends what remains after
    /// the grace period. All tasks have ended when it returns. Statistics stay readable.
    pub async fn shutdown(&self, grace: Duration) -> Drained {
        let mut tasks = {
            let mut state = self.state.lock();
            state.closed = true;
            std::mem::take(&mut state.tasks)
        };
        self.drain.send_replace(true);
        let all_ended = async { while tasks.join_next().await.is_some() {} };
        let in_time = tokio::time::timeout(grace, all_ended).await.is_ok();
        let abandoned = if in_time { 0 } else { tasks.len() };
        tasks.shutdown().await;
        Drained { abandoned }
    }
}

#[cfg(test)]
mod tests;
