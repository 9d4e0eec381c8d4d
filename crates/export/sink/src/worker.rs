//! Takes batches from the queue and exports them.

use std::sync::Arc;

use tokio::time::{Instant, sleep, timeout_at};

use crate::exporter::{ExportError, Exporter, SinkItem};
use crate::metrics::DropReason;
use crate::queue::{Queue, Readiness, Stage};

/// Exports what a [`Sink`](crate::Sink) queues. If it is dropped before its end, everything queued
/// is dropped and counted, and so is everything that follows.
#[must_use = "nothing is exported unless the worker runs"]
pub struct Worker<T> {
    queue: Arc<Queue<T>>,
    batch: Vec<T>,
    /// Whether the last export failed: only changes are logged.
    is_failing: bool,
    end_reason: DropReason,
}

impl<T: SinkItem> Worker<T> {
    pub(crate) fn new(queue: Arc<Queue<T>>) -> Self {
        Self {
            queue,
            batch: Vec::new(),
            is_failing: false,
            end_reason: DropReason::Shutdown,
        }
    }

    /// Runs until the sink is shut down or dropped and its queue is empty, or until the exporter is
    /// closed.
    pub async fn run(mut self, mut exporter: impl Exporter<T>) {
        while self.next_batch().await {
            if !self.export(&mut exporter).await {
                self.end_reason = DropReason::Rejected;
                return;
            }
        }
    }

    /// Waits for a batch; returns `false` if there will be none.
    async fn next_batch(&mut self) -> bool {
        let mut deadline = None;
        loop {
            match self.queue.readiness() {
                Readiness::Done => return false,
                Readiness::Ready => break,
                Readiness::Empty => {
                    deadline = None;
                    self.queue.wake.notified().await;
                }
                Readiness::Partial => {
                    let deadline =
                        *deadline.get_or_insert_with(|| Instant::now() + self.queue.config.linger);
                    if timeout_at(deadline, self.queue.wake.notified())
                        .await
                        .is_err()
                    {
                        break;
                    }
                }
            }
        }
        self.batch.clear();
        self.queue.take(&mut self.batch);
        true
    }

    /// Exports the batch, with retries; returns `false` once the exporter is closed.
    async fn export(&mut self, exporter: &mut impl Exporter<T>) -> bool {
        let started = Instant::now();
        let mut failures = 0;
        let (dropped, reason, is_open) = loop {
            let mut stage = self.queue.stage.subscribe();
            let result = tokio::select! {
                biased;
                result = exporter.export(&self.batch) => result,
                _ = stage.wait_for(|stage| *stage == Stage::Abandoned) => {
                    break (u64::MAX, DropReason::Shutdown, true);
                }
            };
            self.log_change(result.as_ref().err());
            let after = match result {
                Ok(()) => break (0, DropReason::Rejected, true),
                Err(ExportError::Rejected { records, .. }) => {
                    break (records, DropReason::Rejected, true);
                }
                Err(ExportError::Closed { records, .. }) => {
                    break (records, DropReason::Rejected, false);
                }
                Err(ExportError::Retryable { after, .. }) => after,
                Err(ExportError::Partial {
                    after,
                    retry,
                    rejected,
                    ..
                }) => {
                    self.keep(&retry, rejected);
                    if self.batch.is_empty() {
                        return true;
                    }
                    after
                }
            };
            let retry = &self.queue.config.retry;
            let delay = after.unwrap_or_else(|| retry.delay(failures));
            failures += 1;
            if (retry.max_elapsed).is_some_and(|max| started.elapsed() + delay > max) {
                break (u64::MAX, DropReason::RetriesExhausted, true);
            }
            tokio::select! {
                () = sleep(delay) => self.queue.metrics.retries().inc(),
                _ = stage.wait_for(|stage| *stage == Stage::Abandoned) => {
                    break (u64::MAX, DropReason::Shutdown, true);
                }
            };
        };
        self.queue.complete(dropped, reason);
        is_open
    }

    /// Keeps the items of the batch at these positions, and counts the others.
    fn keep(&mut self, positions: &[usize], rejected: u64) {
        let mut positions = positions.iter().copied().peekable();
        let mut at = 0;
        self.batch.retain(|_| {
            // Positions that do not ascend name nothing.
            while positions.next_if(|position| *position < at).is_some() {}
            let is_kept = positions.next_if_eq(&at).is_some();
            at += 1;
            is_kept
        });
        let size = self.batch.iter().map(T::size).sum();
        let records = self.batch.iter().map(T::records).sum();
        self.queue
            .complete_part((size, records), rejected, DropReason::Rejected);
    }

    fn log_change(&mut self, error: Option<&ExportError>) {
        let sink = self.queue.config.name;
        match error {
            Some(error) if !self.is_failing => {
                tracing::warn!(sink, %error, "failed to export");
            }
            None if self.is_failing => tracing::info!(sink, "export recovered"),
            _ => {}
        }
        self.is_failing = error.is_some();
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        self.queue.end(self.end_reason);
    }
}
