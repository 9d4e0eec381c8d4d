//! Runs a workload in real time.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::{Clock, Timestamp};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::Workload;
use crate::clock::millis_between;
use crate::objects::ObjectWriter;

/// Transitions in one batch, after which the task yields.
const BATCH: usize = 500;
/// The clock may be stepped, which no timer notices.
const MAX_SLEEP: Duration = Duration::from_millis(200);

/// A workload that is driven by a task and shared with others.
#[derive(Debug, Clone)]
pub struct WorkloadHandle {
    workload: Arc<Mutex<Workload>>,
    changed: Arc<Notify>,
}

impl WorkloadHandle {
    /// Wraps a workload, which should be populated.
    pub fn new(workload: Workload) -> Self {
        Self {
            workload: Arc::new(Mutex::new(workload)),
            changed: Arc::default(),
        }
    }

    /// Reads or changes the workload. Must be short: the cluster stands still meanwhile.
    pub fn with<T>(&self, work: impl FnOnce(&mut Workload) -> T) -> T {
        let result = work(&mut self.workload.lock());
        self.changed.notify_one();
        result
    }

    fn step(&self, now: Timestamp, writer: &dyn ObjectWriter) -> (bool, Option<Timestamp>) {
        let mut workload = self.workload.lock();
        let more = workload.step_some(now, writer, BATCH);
        (more, workload.next_due())
    }
}

/// Runs transitions when they are due, until `stop` becomes true.
pub async fn drive(
    handle: WorkloadHandle,
    clock: Clock,
    writer: Arc<dyn ObjectWriter>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let now = clock.now();
        let (more, next) = handle.step(now, &*writer);
        if more {
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => return,
                () = tokio::task::yield_now() => continue,
            }
        }
        let wait = next.map_or(MAX_SLEEP, |next| {
            Duration::from_millis(millis_between(now, next)).min(MAX_SLEEP)
        });
        tokio::select! {
            _ = stop.wait_for(|stop| *stop) => return,
            () = handle.changed.notified() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}
