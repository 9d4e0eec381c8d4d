//! Configuration, limits and metrics that the loops of all nodes share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::buffers::BufferPool;
use crate::config::ScrapeConfig;
use crate::metrics::ScrapeMetrics;
use crate::sink::ScrapeSink;

/// Maximum number of responses that are read at once, with buffers of about 100 KiB each; others
/// wait in the kernel. The processor needs fewer, but some kubelets begin to respond and then take
/// their time.
const MAX_RESPONSES: usize = 64;

/// Maximum number of TLS handshakes at once, which are bound by the processor too. A kubelet that
/// accepts a connection and then sends nothing holds one until its timeout.
const MAX_HANDSHAKES: usize = 64;

/// Scrapes start at multiples of this interval, so that one wake-up of the process serves all that
/// are due. Kubelets sample every ten seconds or more, so a tenth of a second does not matter.
const START_INTERVAL: Duration = Duration::from_millis(100);

pub(crate) struct ScraperInner {
    pub(crate) config: ScrapeConfig,
    pub(crate) sink: Arc<dyn ScrapeSink>,
    pub(crate) metrics: Arc<ScrapeMetrics>,
    pub(crate) requests: Semaphore,
    pub(crate) buffers: BufferPool,
    pub(crate) handshakes: Semaphore,
    started: Instant,
    /// The latest due time of any scrape, in milliseconds after the start. A running loop schedules
    /// its next scrape whenever one is due, so this lies in the past only if no loop runs.
    latest_due: AtomicI64,
}

impl ScraperInner {
    pub(crate) fn new(
        config: ScrapeConfig,
        sink: Arc<dyn ScrapeSink>,
        metrics: ScrapeMetrics,
    ) -> Self {
        Self {
            requests: Semaphore::new(config.concurrency.min(Semaphore::MAX_PERMITS)),
            buffers: BufferPool::new(config.concurrency.min(MAX_RESPONSES)),
            handshakes: Semaphore::new(MAX_HANDSHAKES),
            started: Instant::now(),
            latest_due: AtomicI64::new(0),
            config,
            sink,
            metrics: Arc::new(metrics),
        }
    }

    /// Returns the time since the scraper started.
    pub(crate) fn since_start(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.started)
    }

    /// Rounds a due time up to the next start interval.
    pub(crate) fn align(&self, due: Instant) -> Instant {
        let since = self.since_start(due).as_nanos();
        let wait = since.next_multiple_of(START_INTERVAL.as_nanos()) - since;
        due + Duration::from_nanos(u64::try_from(wait).unwrap_or(0))
    }

    /// Records that a scrape is due at this time.
    pub(crate) fn scheduled(&self, due: Instant) {
        self.latest_due
            .fetch_max(self.millis(due), Ordering::Relaxed);
    }

    /// Returns how long the scrape that is due last is overdue.
    pub(crate) fn overdue(&self, now: Instant) -> Duration {
        let latest_due = self.latest_due.load(Ordering::Relaxed);
        let overdue = self.millis(now).saturating_sub(latest_due);
        Duration::from_millis(u64::try_from(overdue).unwrap_or(0))
    }

    fn millis(&self, at: Instant) -> i64 {
        i64::try_from(self.since_start(at).as_millis()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
impl ScraperInner {
    /// Returns one whose sink ignores everything.
    pub(crate) fn noop(config: ScrapeConfig) -> Self {
        let mut registry = kubevitals_telemetry::Metrics::new();
        let metrics = ScrapeMetrics::register(&mut registry, config.resolution);
        Self::new(config, Arc::new(crate::sink::NoopSink), metrics)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Credentials, Transport};

    #[tokio::test(start_paused = true)]
    async fn due_times_are_rounded_up_to_the_start_interval() {
        let config = ScrapeConfig::new(Transport::InsecureHttp, Credentials::None);
        let inner = ScraperInner::noop(config);
        let begun = Instant::now();
        let after = |micros| begun + Duration::from_micros(micros);
        for (due, start) in [(0, 0), (1, 100_000), (99_999, 100_000), (100_000, 100_000)] {
            assert_eq!(inner.align(after(due)), after(start), "{due}");
        }
        assert_eq!(inner.align(after(15_012_345)), after(15_100_000));
    }
}
