//! The loop of one node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kubevitals_model::{Backoff, BackoffPolicy, Jitter, NodeName, Rng, Timestamp};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::config::ScrapeConfig;
use crate::deadline::Deadline;
use crate::error::ScrapeError;
use crate::inner::ScraperInner;
use crate::metrics::{InFlight, NodeMetrics, NodeState};
use crate::permits::Standing;
use crate::schedule::Schedule;
use crate::session::{ScrapeContext, Scraped, Session};
use crate::sink::{BatchInfo, Coverage, ScrapedNode};
use crate::target::Target;

const MIN_BACKOFF: Duration = Duration::from_secs(1);

/// Delay of a triggered scrape: the kubelet must first sample the pod that became Running.
const TRIGGER_DELAY: Duration = Duration::from_secs(1);

/// Signals to the loop of a node.
#[derive(Debug)]
pub(crate) struct Control {
    wake: Notify,
    target: Mutex<Arc<Target>>,
    is_changed: AtomicBool,
    is_triggered: AtomicBool,
    is_removed: AtomicBool,
}

/// The loop of one node, and its state.
pub(crate) struct NodeLoop {
    node: ScrapedNode,
    inner: Arc<ScraperInner>,
    control: Arc<Control>,
    session: Session,
    schedule: Schedule,
    backoff: Backoff,
    metrics: NodeMetrics,
    /// The time of the first failure since the last success, and the reason of the last.
    failing: Option<(Instant, &'static str)>,
    due: Instant,
    last_scrape: Option<Instant>,
    /// The due time of the last triggered scrape.
    triggered: Option<Instant>,
}

impl Control {
    pub(crate) fn new(target: Arc<Target>) -> Self {
        Self {
            wake: Notify::new(),
            target: Mutex::new(target),
            is_changed: AtomicBool::new(false),
            is_triggered: AtomicBool::new(false),
            is_removed: AtomicBool::new(false),
        }
    }

    pub(crate) fn update(&self, target: Arc<Target>) {
        let mut current = self.target.lock();
        // Nodes change every few minutes, nearly always in fields that do not matter here.
        if **current != *target {
            *current = target;
            self.is_changed.store(true, Ordering::Release);
            self.wake.notify_one();
        }
    }

    pub(crate) fn trigger(&self) {
        self.is_triggered.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    pub(crate) fn remove(&self) {
        self.is_removed.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Waits until the node is removed. Other signals wait until the scrape is over.
    async fn removed(&self) {
        while !self.is_removed.load(Ordering::Acquire) {
            self.wake.notified().await;
        }
    }
}

/// Backoff of a node: a short wait after the first failure, since most failures are brief, then
/// doubling up to four resolutions. An eighth of jitter keeps nodes that fail together apart.
fn backoff(resolution: Duration, node: &str) -> Backoff {
    let policy = BackoffPolicy {
        first: (resolution / 3).max(MIN_BACKOFF),
        second: resolution.max(MIN_BACKOFF),
        max: resolution.saturating_mul(4).max(MIN_BACKOFF),
        jitter: Jitter::Added(0.125),
    };
    Backoff::new(policy, Rng::named(node))
}

impl NodeLoop {
    pub(crate) fn new(
        name: NodeName,
        target: Arc<Target>,
        control: Arc<Control>,
        inner: Arc<ScraperInner>,
    ) -> Self {
        let (resolution, uid) = (target.resolution, target.uid.clone());
        Self {
            session: Session::new(target, &inner.config),
            schedule: Schedule::new(resolution, name.as_str()),
            backoff: backoff(resolution, name.as_str()),
            metrics: inner.metrics.node(&name),
            failing: None,
            due: Instant::now(),
            last_scrape: None,
            triggered: None,
            node: ScrapedNode { name, uid },
            inner,
            control,
        }
    }

    /// Scrapes the node until it is removed. Boxed: a task otherwise has room for its arguments
    /// twice, as passed and as moved.
    pub(crate) async fn run(mut self: Box<Self>) {
        loop {
            let inner = Arc::clone(&self.inner);
            let control = Arc::clone(&self.control);
            if control.is_removed.load(Ordering::Acquire) {
                break;
            }
            if control.is_changed.swap(false, Ordering::AcqRel) {
                self.on_change(&control);
            }
            if control.is_triggered.swap(false, Ordering::AcqRel) {
                inner.metrics.triggered();
                self.on_trigger(Instant::now());
            }
            let due = self.due;
            tokio::select! {
                biased;
                () = control.wake.notified() => continue,
                () = sleep_until(due) => {}
            }
            tokio::select! {
                biased;
                () = control.removed() => {}
                // Boxed: the state of a scrape is not kept between two of them.
                () = Box::pin(self.scrape(&inner, due)) => {}
            }
        }
    }

    async fn scrape(&mut self, inner: &Arc<ScraperInner>, due: Instant) {
        let is_suspect = self.failing.is_some() || !self.session.target().is_ready;
        let standing = if is_suspect {
            Standing::Suspect
        } else {
            Standing::Good
        };
        let _permit = inner.requests.acquire(standing).await;
        let _in_flight = InFlight::new(&inner.metrics);
        let started = Instant::now();
        self.last_scrape = Some(started);
        inner.read_wall_clock(started);
        if let Some(invalid) = &self.session.target().invalid {
            let error = ScrapeError::Annotation(invalid.clone());
            self.on_error(&error);
            inner.scheduled(self.due);
            return;
        }
        let ctx = ScrapeContext {
            inner,
            requested_at: inner.config.clock.now(),
            deadline: Deadline::at(started + self.timeout()),
            standing,
        };
        let result = self.session.scrape(&ctx).await;
        let is_success = matches!(&result, Ok(scraped) if scraped.truncated.is_none());
        self.metrics
            .observe_request(ctx.requested_at, started.elapsed(), is_success);
        match result {
            Ok(scraped) => self.on_scraped(started, ctx.requested_at, &scraped),
            Err(error) => self.on_error(&error),
        }
        inner.metrics.observe_scrape(due, Instant::now());
        inner.scheduled(self.due);
    }

    fn on_scraped(&mut self, started: Instant, requested_at: Timestamp, scraped: &Scraped) {
        let is_new = self.schedule.observe(scraped.report.newest);
        let wall = self.inner.wall_at(started);
        self.metrics
            .observe_response(scraped.bytes, &scraped.report, requested_at, is_new);
        let info = BatchInfo {
            requested_at,
            is_complete: scraped.truncated.is_none(),
            is_new,
            is_slot: self.schedule.is_slot_due(wall),
            next_slot: timestamp(wall + self.schedule.wait_for_slot(wall)),
        };
        let coverage = match scraped.batch() {
            Some(batch) => self.inner.sink.on_batch(&self.node, batch, &info),
            None => Coverage::Complete,
        };
        if info.is_complete && coverage != Coverage::UnknownNode {
            self.schedule.scraped_slot(wall);
        }
        let wait = self.schedule.next_wait(wall, coverage);
        self.due = self.inner.align(started + wait);
        match &scraped.truncated {
            Some(error) => self.on_error(error),
            None => self.on_success(),
        }
    }

    fn on_error(&mut self, error: &ScrapeError) {
        self.schedule.on_failure();
        let wait = self.backoff.next_wait();
        let now = Instant::now();
        self.due = self.inner.align(now + wait);
        self.metrics.record_failure(error);
        self.metrics.set_state(NodeState::Failing);
        let reason = error.reason();
        let since = self.failing.map_or(now, |(since, _)| since);
        if self.failing.is_none_or(|(_, last)| last != reason) {
            let node = &self.node.name;
            let remedy = error.remedy().unwrap_or_default();
            // It is expected that a node which is not ready cannot be scraped.
            if self.session.target().is_ready {
                tracing::warn!(%node, reason, %error, remedy, "failed to scrape node");
            } else {
                tracing::info!(%node, reason, %error, remedy, "failed to scrape node that is not ready");
            }
        }
        self.failing = Some((since, reason));
        self.inner.sink.on_error(&self.node, error, wait);
    }

    fn on_success(&mut self) {
        self.backoff.reset();
        self.metrics.set_state(NodeState::Ok);
        if let Some((since, reason)) = self.failing.take() {
            let seconds = since.elapsed().as_secs();
            tracing::info!(node = %self.node.name, reason, failing_for_seconds = seconds, "scrapes of node recovered");
        }
    }

    fn on_change(&mut self, control: &Control) {
        let target = Arc::clone(&control.target.lock());
        let became_ready = target.is_ready && !self.session.target().is_ready;
        let name = self.node.name.as_str();
        if target.resolution != self.schedule.resolution() {
            self.schedule = Schedule::new(target.resolution, name);
            self.backoff = backoff(target.resolution, name);
            self.due = self.due.min(Instant::now() + target.resolution);
        }
        self.node.uid = target.uid.clone();
        let has_moved = self.session.update(target, &self.inner.config);
        if has_moved || (became_ready && self.failing.is_some()) {
            self.backoff.reset();
            self.due = Instant::now();
        }
    }

    /// Returns the timeout of a scrape, which ends before the next one is due.
    fn timeout(&self) -> Duration {
        let max = ScrapeConfig::max_timeout(self.schedule.resolution());
        self.inner.config.timeout.min(max)
    }

    /// Scrapes soon, but at most three times in a resolution; a failing node keeps its backoff.
    fn on_trigger(&mut self, now: Instant) {
        if self.failing.is_some() {
            return;
        }
        let gap = self.schedule.resolution() / 3;
        let last = self.triggered.max(self.last_scrape);
        let earliest = last.map_or(now, |last| last + gap);
        let due = self.inner.align((now + TRIGGER_DELAY).max(earliest));
        // A scrape just before the slot would take its place.
        if due + self.schedule.lead() < self.due {
            self.triggered = Some(due);
            self.due = due;
        }
    }
}

/// Converts a time since the epoch.
fn timestamp(wall: Duration) -> Timestamp {
    Timestamp::from_unix_millis(i64::try_from(wall.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Credentials, Transport};

    #[tokio::test]
    async fn a_loop_is_small() {
        let config = ScrapeConfig::new(Transport::InsecureHttp, Credentials::None);
        let inner = Arc::new(ScraperInner::noop(config));
        let target = Arc::new(Target::unreachable());
        let control = Arc::new(Control::new(Arc::clone(&target)));
        let node = NodeLoop::new(NodeName::new("a"), target, control, inner);
        assert!(size_of::<NodeLoop>() < 640, "{}", size_of::<NodeLoop>());
        let run = Box::new(node).run();
        assert!(size_of_val(&run) < 320, "{}", size_of_val(&run));
    }
}
