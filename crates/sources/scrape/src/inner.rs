//! Configuration, limits and metrics that the loops of all nodes share.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use kubevitals_model::Timestamp;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::buffers::BufferPool;
use crate::config::ScrapeConfig;
use crate::memory::MemoryPlan;
use crate::metrics::ScrapeMetrics;
use crate::permits::Permits;
use crate::sink::ScrapeSink;
use crate::slots::ConnectionSlots;

/// Maximum number of TLS handshakes at once, which are bound by the processor.
const MAX_HANDSHAKES: usize = 64;

/// Scrapes start at multiples of this interval by the wall clock, so that one wake-up of the
/// process serves all that are due. Kubelets sample every ten seconds or more, so a tenth of a
/// second does not matter.
pub(crate) const START_INTERVAL: Duration = Duration::from_millis(100);

/// Difference beyond which the wall clock is taken to have been set. Due times of all nodes are
/// computed from one relation of the clocks, so that they coincide.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(10);

pub(crate) struct ScraperInner {
    pub(crate) config: ScrapeConfig,
    pub(crate) sink: Arc<dyn ScrapeSink>,
    pub(crate) metrics: Arc<ScrapeMetrics>,
    pub(crate) requests: Permits,
    pub(crate) buffers: BufferPool,
    pub(crate) handshakes: Semaphore,
    pub(crate) slots: ConnectionSlots,
    started: Instant,
    /// The wall clock at the start, in nanoseconds since the epoch, as it shows today.
    wall_at_start: AtomicU64,
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
        let memory = MemoryPlan::new(
            config.memory_limit,
            config.max_body_bytes,
            config.concurrency,
        );
        Self {
            requests: Permits::new(config.concurrency),
            buffers: BufferPool::new(memory),
            handshakes: Semaphore::new(MAX_HANDSHAKES),
            slots: ConnectionSlots::new(config.max_connections),
            started: Instant::now(),
            wall_at_start: AtomicU64::new(nanos_since_epoch(config.clock.now())),
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

    /// Reads the wall clock: later due times follow it if it was set.
    pub(crate) fn read_wall_clock(&self, now: Instant) {
        let read = nanos_since_epoch(self.config.clock.now());
        let expected = u64::try_from(self.wall_at(now).as_nanos()).unwrap_or(u64::MAX);
        if Duration::from_nanos(read.abs_diff(expected)) > CLOCK_TOLERANCE {
            let elapsed = u64::try_from(self.since_start(now).as_nanos()).unwrap_or(u64::MAX);
            self.wall_at_start
                .store(read.saturating_sub(elapsed), Ordering::Relaxed);
        }
    }

    /// Returns the time since the epoch that the wall clock shows at a time.
    pub(crate) fn wall_at(&self, at: Instant) -> Duration {
        let start = Duration::from_nanos(self.wall_at_start.load(Ordering::Relaxed));
        start.saturating_add(self.since_start(at))
    }

    /// Rounds a due time up to the next start interval.
    pub(crate) fn align(&self, due: Instant) -> Instant {
        let since = self.wall_at(due).as_nanos();
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

fn nanos_since_epoch(at: Timestamp) -> u64 {
    u64::try_from(at.unix_millis())
        .unwrap_or(0)
        .saturating_mul(1_000_000)
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
    use kubevitals_model::SteppedClock;

    use super::*;
    use crate::{Credentials, Transport};

    #[tokio::test(start_paused = true)]
    async fn due_times_are_rounded_up_to_the_start_interval() {
        let clock = SteppedClock::new(Timestamp::from_unix_millis(1_700_000_000_000));
        let (inner, begun) = (with_clock(&clock), Instant::now());
        let after = |micros| begun + Duration::from_micros(micros);
        for (due, start) in [(0, 0), (1, 100_000), (99_999, 100_000), (100_000, 100_000)] {
            assert_eq!(inner.align(after(due)), after(start), "{due}");
        }
        assert_eq!(inner.align(after(15_012_345)), after(15_100_000));
    }

    /// Two replicas start at different times, and one of them has its clock set.
    #[tokio::test(start_paused = true)]
    async fn due_times_follow_the_wall_clock() {
        let clock = SteppedClock::new(Timestamp::from_unix_millis(1_700_000_000_030));
        let (inner, begun) = (with_clock(&clock), Instant::now());
        let after = |millis| begun + Duration::from_millis(millis);
        assert_eq!(inner.align(after(0)), after(70));
        // Less than the tolerance: due times of nodes still coincide.
        clock.set(Timestamp::from_unix_millis(1_700_000_000_039));
        inner.read_wall_clock(begun);
        assert_eq!(inner.align(after(0)), after(70));
        for step in [3_600_000, -3_600_000] {
            let set = Timestamp::from_unix_millis(1_700_000_000_055 + step);
            clock.set(set);
            inner.read_wall_clock(begun);
            assert_eq!(inner.align(after(0)), after(45));
            let shown = Duration::from_millis(set.unix_millis().unsigned_abs());
            assert_eq!(inner.wall_at(begun), shown);
        }
    }

    fn with_clock(clock: &SteppedClock) -> ScraperInner {
        let mut config = ScrapeConfig::new(Transport::InsecureHttp, Credentials::None);
        config.clock = clock.clock();
        ScraperInner::noop(config)
    }
}
