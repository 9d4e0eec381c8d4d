//! What the loops of all nodes share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use kubevitals_model::Timestamp;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::config::ScrapeConfig;
use crate::metrics::ScrapeMetrics;
use crate::receive::Receive;
use crate::workspaces::Workspaces;

/// So many answers are read at once, with a buffer of about 100 KiB each; others wait in the
/// kernel. Few would do for the processor, were there not kubelets that begin to answer and then
/// take their time.
const READERS: usize = 64;

/// So many TLS handshakes at once: they too are bound by the processor. A kubelet that takes a
/// connection and then says nothing holds one until its time is over, so they are not too few.
const HANDSHAKES: usize = 64;

/// Scrapes begin on a beat, so that one wake of the process serves all that are due. What is waited
/// for is a sample that is taken every ten seconds or more: a tenth of a second later it is as
/// good.
const BEAT: Duration = Duration::from_millis(100);

pub(crate) struct Shared {
    pub(crate) config: ScrapeConfig,
    pub(crate) receiver: Arc<dyn Receive>,
    pub(crate) metrics: Arc<ScrapeMetrics>,
    pub(crate) requests: Semaphore,
    pub(crate) workspaces: Workspaces,
    pub(crate) handshakes: Semaphore,
    begun: Instant,
    /// The latest moment for which any scrape was planned, in milliseconds after the beginning. A
    /// loop that runs plans again whenever its time has come, so this lies in the past only if none
    /// does.
    planned: AtomicI64,
}

impl Shared {
    pub(crate) fn new(
        config: ScrapeConfig,
        receiver: Arc<dyn Receive>,
        metrics: ScrapeMetrics,
    ) -> Self {
        Self {
            requests: Semaphore::new(config.concurrency.min(Semaphore::MAX_PERMITS)),
            workspaces: Workspaces::new(config.concurrency.min(READERS)),
            handshakes: Semaphore::new(HANDSHAKES),
            begun: Instant::now(),
            planned: AtomicI64::new(0),
            config,
            receiver,
            metrics: Arc::new(metrics),
        }
    }

    /// A moment by a clock that nobody sets.
    pub(crate) fn steady(&self, at: Instant) -> Timestamp {
        Timestamp::from_unix_millis(self.millis(at))
    }

    /// The first beat at or after a moment.
    pub(crate) fn on_beat(&self, at: Instant) -> Instant {
        let since = at.saturating_duration_since(self.begun).as_nanos();
        let beat = BEAT.as_nanos();
        let wait = since.next_multiple_of(beat) - since;
        at + Duration::from_nanos(u64::try_from(wait).unwrap_or(0))
    }

    /// A scrape is due then.
    pub(crate) fn planned(&self, due: Instant) {
        self.planned.fetch_max(self.millis(due), Ordering::Relaxed);
    }

    /// How long every scrape is overdue.
    pub(crate) fn overdue(&self, now: Instant) -> Duration {
        let planned = self.planned.load(Ordering::Relaxed);
        let over = self.millis(now).saturating_sub(planned);
        Duration::from_millis(u64::try_from(over).unwrap_or(0))
    }

    fn millis(&self, at: Instant) -> i64 {
        let after = at.saturating_duration_since(self.begun);
        i64::try_from(after.as_millis()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use kubevitals_model::{NodeBatch, NodeName};
    use kubevitals_telemetry::Metrics;

    use super::*;
    use crate::{Answer, Credentials, Failure, Transport};

    struct Nobody;

    impl Receive for Nobody {
        fn received(&self, _: &NodeName, _: &NodeBatch, _: &Answer) {}
        fn failed(&self, _: &NodeName, _: &Failure, _: Timestamp) {}
        fn left(&self, _: &NodeName) {}
    }

    /// Of a scraper that has nobody to tell.
    pub(crate) fn shared() -> Shared {
        let config = ScrapeConfig::new(Transport::InsecureHttp, Credentials::None);
        let metrics = ScrapeMetrics::register(&mut Metrics::new(), config.resolution);
        Shared::new(config, Arc::new(Nobody), metrics)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_due_within_a_beat_is_due_at_once_and_never_too_early() {
        let shared = shared();
        let begun = Instant::now();
        let after = |micros| begun + Duration::from_micros(micros);
        for (due, beat) in [(0, 0), (1, 100_000), (99_999, 100_000), (100_000, 100_000)] {
            assert_eq!(shared.on_beat(after(due)), after(beat), "{due}");
        }
        assert_eq!(shared.on_beat(after(15_012_345)), after(15_100_000));
    }
}
