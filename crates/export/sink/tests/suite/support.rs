//! A sink of numbers with an exporter that follows a script.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_sink::{
    DropReason, ExportError, Exporter, RetryPolicy, Sink, SinkConfig, SinkItem, SinkMetrics,
};
use parking_lot::Mutex;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Item(pub(crate) u64);

impl SinkItem for Item {}

/// The result of one call of the exporter, which succeeds at once when the script is over.
pub(crate) enum Step {
    /// Succeeds after this time.
    Slow(Duration),
    Fail(ExportError),
}

/// One call of the exporter: the time since the start, and the batch.
pub(crate) type Call = (Duration, Vec<u64>);

pub(crate) struct ScriptedExporter {
    started: Instant,
    steps: VecDeque<Step>,
    calls: Arc<Mutex<Vec<Call>>>,
}

pub(crate) struct Harness {
    pub(crate) sink: Sink<Item>,
    pub(crate) worker: JoinHandle<()>,
    pub(crate) metrics: SinkMetrics,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Exporter<Item> for ScriptedExporter {
    async fn export(&mut self, batch: &[Item]) -> Result<(), ExportError> {
        let numbers = batch.iter().map(|item| item.0).collect();
        self.calls.lock().push((self.started.elapsed(), numbers));
        match self.steps.pop_front() {
            None => Ok(()),
            Some(Step::Fail(error)) => Err(error),
            Some(Step::Slow(time)) => {
                sleep(time).await;
                Ok(())
            }
        }
    }
}

impl Harness {
    /// Room for 10 items, batches of 4 after a second, and back-off without jitter.
    pub(crate) fn start(steps: impl IntoIterator<Item = Step>) -> Self {
        let config = SinkConfig {
            capacity: 10,
            max_batch: 4,
            linger: seconds(1),
            retry: RetryPolicy {
                jitter: 0.0,
                max_elapsed: Some(seconds(20)),
                ..RetryPolicy::default()
            },
            ..SinkConfig::new("test")
        };
        let metrics = SinkMetrics::unregistered();
        let (sink, worker) = Sink::new(config, metrics.clone());
        let calls = Arc::default();
        let exporter = ScriptedExporter {
            started: Instant::now(),
            steps: steps.into_iter().collect(),
            calls: Arc::clone(&calls),
        };
        Self {
            sink,
            worker: tokio::spawn(worker.run(exporter)),
            metrics,
            calls,
        }
    }

    /// Pushes numbers and returns how many were accepted.
    pub(crate) fn push(&self, numbers: impl IntoIterator<Item = u64>) -> usize {
        let accepted = numbers.into_iter().filter(|n| self.sink.push(Item(*n)));
        accepted.count()
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().clone()
    }

    /// Records exported, dropped and queued.
    pub(crate) fn counts(&self) -> [u64; 3] {
        let counts = self.sink.counts();
        [counts.exported, counts.dropped, counts.queued]
    }

    pub(crate) fn dropped(&self, reason: DropReason) -> u64 {
        self.metrics.dropped(reason).get()
    }
}

pub(crate) fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) fn retryable(after: Option<u64>) -> Step {
    Step::Fail(ExportError::Retryable {
        message: "unavailable".to_owned(),
        after: after.map(seconds),
    })
}
