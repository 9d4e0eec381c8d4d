//! The task of one target.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt;
use kubevitals_model::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{error, info};

use super::Shared;
use crate::outcome::{Facts, Failure, Outcome, Reason};
use crate::probe::{Completed, Job};
use crate::schedule::Schedule;
use crate::state::{TargetStatus, Verdict};

/// A run ends itself at its timeout. One that does not is dropped this much later.
const OVERRUN: Duration = Duration::from_millis(500);

/// Maximum length of the message of a failure.
const MAX_MESSAGE_BYTES: usize = 1024;

/// Why a wait ended.
enum Wake {
    Due,
    /// The job has changed.
    Changed,
    /// The job was removed, or the scheduler drains.
    End,
}

/// Counts a run in progress, also if it is dropped.
struct InFlight<'a>(&'a AtomicUsize);

/// Runs a job at its ticks, until it is removed or the scheduler drains.
pub(super) async fn run(
    shared: Arc<Shared>,
    mut jobs: watch::Receiver<Arc<Job>>,
    mut drain: watch::Receiver<bool>,
    status: Arc<TargetStatus>,
) {
    let mut schedule = schedule_of(&jobs.borrow_and_update());
    loop {
        match wait(&mut jobs, &mut drain, schedule.due()).await {
            Wake::End => return,
            Wake::Changed => {
                adapt(&mut schedule, &jobs.borrow_and_update());
                continue;
            }
            Wake::Due => {}
        }
        let permit = tokio::select! {
            biased;
            () = ended(&mut jobs, &mut drain) => return,
            permit = shared.permits.acquire() => permit,
        };
        // The semaphore is never closed.
        let Ok(permit) = permit else { return };
        // The job may have changed while it waited for a place.
        let job = Arc::clone(&jobs.borrow_and_update());
        let started = Instant::now();
        let lag = started.saturating_duration_since(schedule.due());
        let now = shared.clock.now();
        shared.lag.lock().observe(lag);
        shared.started.fetch_add(1, Ordering::Relaxed);
        // A run whose job is removed is dropped: nobody wants its result. A drain lets it end.
        let outcome = tokio::select! {
            biased;
            () = removed(&mut jobs) => return,
            outcome = execute(&shared, &job) => outcome,
        };
        drop(permit);
        record(&shared, &job, &status, now, lag, outcome);
        let missed = schedule.advance(Instant::now());
        if missed > 0 {
            shared.missed.fetch_add(missed, Ordering::Relaxed);
            status.add_missed(missed);
        }
        adapt(&mut schedule, &jobs.borrow_and_update());
    }
}

/// The ticks of a job, by its names.
fn schedule_of(job: &Job) -> Schedule {
    let name = format!("{}\0{}", job.probe.name, job.target.text);
    Schedule::new(&name, job.probe.interval, job.probe.jitter, Instant::now())
}

/// The ticks stay where they are, unless the interval has become another.
fn adapt(schedule: &mut Schedule, job: &Job) {
    if !schedule.is_for(job.probe.interval, job.probe.jitter) {
        *schedule = schedule_of(job);
    }
}

async fn wait(
    jobs: &mut watch::Receiver<Arc<Job>>,
    drain: &mut watch::Receiver<bool>,
    due: Instant,
) -> Wake {
    tokio::select! {
        biased;
        changed = jobs.changed() => {
            if changed.is_ok() { Wake::Changed } else { Wake::End }
        }
        () = drained(drain) => Wake::End,
        () = tokio::time::sleep_until(due) => Wake::Due,
    }
}

/// Waits until the job is removed.
async fn removed(jobs: &mut watch::Receiver<Arc<Job>>) {
    while jobs.changed().await.is_ok() {}
}

/// Waits until the scheduler drains, or is gone.
async fn drained(drain: &mut watch::Receiver<bool>) {
    let _ = drain.wait_for(|draining| *draining).await;
}

async fn ended(jobs: &mut watch::Receiver<Arc<Job>>, drain: &mut watch::Receiver<bool>) {
    tokio::select! {
        () = removed(jobs) => {}
        () = drained(drain) => {}
    }
}

/// Runs a job once: it ends in time and does not panic, whatever the executor does.
async fn execute(shared: &Shared, job: &Job) -> Outcome {
    let started = shared.clock.now();
    let begin = Instant::now();
    let _in_flight = InFlight::enter(&shared.in_flight);
    let limit = job.probe.timeout.saturating_add(OVERRUN);
    let run = AssertUnwindSafe(shared.executor.execute(job)).catch_unwind();
    let (reason, message) = match tokio::time::timeout(limit, run).await {
        Ok(Ok(mut outcome)) => {
            if let Some(failure) = &mut outcome.failure {
                shorten(&mut failure.message);
            }
            return outcome;
        }
        Ok(Err(_panic)) => {
            shared.panics.fetch_add(1, Ordering::Relaxed);
            error!(probe = %job.probe.name, target = job.target.as_str(), "a probe panicked");
            (Reason::Internal, "the probe panicked")
        }
        Err(_elapsed) => (
            Reason::ReadTimeout,
            "the probe did not end within its timeout",
        ),
    };
    Outcome {
        started,
        duration: begin.elapsed(),
        failure: Some(Failure {
            reason,
            phase: None,
            message: message.to_owned(),
        }),
        phases: Vec::new(),
        facts: Facts::default(),
    }
}

fn record(
    shared: &Shared,
    job: &Job,
    status: &TargetStatus,
    started: Timestamp,
    lag: Duration,
    outcome: Outcome,
) {
    let mut completed = Completed {
        probe: Arc::clone(&job.probe),
        target: Arc::clone(&job.target.text),
        scheduled: started.checked_sub(lag).unwrap_or(started),
        lag,
        outcome,
        verdict: Verdict::Unknown,
        previous: None,
    };
    if !status.record(&mut completed, &*shared.sink) {
        return;
    }
    if let Some(previous) = completed.previous {
        log_change(&completed, previous);
    }
    shared.history.push(completed);
}

/// One line for each change of the verdict, not for each run.
fn log_change(completed: &Completed, previous: Verdict) {
    let failure = completed.outcome.failure.as_ref();
    info!(
        probe = %completed.probe.name,
        target = %completed.target,
        verdict = completed.verdict.as_str(),
        previous = previous.as_str(),
        reason = failure.map(|failure| failure.reason.as_str()),
        message = failure.map(|failure| failure.message.as_str()),
        "verdict of a probe changed"
    );
}

fn shorten(message: &mut String) {
    if message.len() > MAX_MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        message.push('…');
    }
}

impl<'a> InFlight<'a> {
    fn enter(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
