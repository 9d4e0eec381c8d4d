//! The loop of one node.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubevitals_model::{NodeName, Timestamp};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::backoff::Backoff;
use crate::cadence::Cadence;
use crate::deadline::Deadline;
use crate::failure::Failure;
use crate::metrics::{InFlight, NodeMetrics, State};
use crate::receive::Answer;
use crate::session::{Means, Scraped, Session};
use crate::shared::Shared;
use crate::target::Target;

/// A nudge is followed this much later: what the pod that turned Running uses must first be
/// sampled.
const NUDGE_AFTER: Duration = Duration::from_secs(1);

/// How the loop of a node is told things from outside.
#[derive(Debug)]
pub(crate) struct Control {
    wake: Notify,
    target: Mutex<Arc<Target>>,
    is_changed: AtomicBool,
    is_nudged: AtomicBool,
    has_left: AtomicBool,
}

/// The loop of one node, and all that it remembers.
pub(crate) struct NodeLoop {
    name: NodeName,
    shared: Arc<Shared>,
    control: Arc<Control>,
    session: Session,
    cadence: Cadence,
    backoff: Backoff,
    metrics: NodeMetrics,
    /// Since when it fails, and why.
    failing: Option<(Instant, &'static str)>,
    due: Instant,
    last: Option<Instant>,
    nudged: Option<Instant>,
}

impl Control {
    pub(crate) fn new(target: Arc<Target>) -> Self {
        Self {
            wake: Notify::new(),
            target: Mutex::new(target),
            is_changed: AtomicBool::new(false),
            is_nudged: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
        }
    }

    pub(crate) fn follow(&self, target: Arc<Target>) {
        let mut known = self.target.lock().unwrap_or_else(PoisonError::into_inner);
        // Nodes change every few minutes at least, nearly always in what is of no interest here.
        if **known != *target {
            *known = target;
            self.is_changed.store(true, Ordering::Release);
            self.wake.notify_one();
        }
    }

    pub(crate) fn nudge(&self) {
        self.is_nudged.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    pub(crate) fn leave(&self) {
        self.has_left.store(true, Ordering::Release);
        self.wake.notify_one();
    }
}

impl NodeLoop {
    pub(crate) fn new(
        name: NodeName,
        target: Arc<Target>,
        control: Arc<Control>,
        shared: Arc<Shared>,
    ) -> Self {
        let resolution = shared.config.resolution;
        Self {
            session: Session::new(target, &shared.config),
            cadence: Cadence::new(resolution, name.as_str()),
            backoff: Backoff::new(resolution, name.as_str()),
            metrics: shared.metrics.node(&name),
            failing: None,
            due: Instant::now(),
            last: None,
            nudged: None,
            name,
            shared,
            control,
        }
    }

    /// Scrapes the node until it leaves. Boxed, since a task has room for what it is given and
    /// again for what it moves that into.
    pub(crate) async fn run(mut self: Box<Self>) {
        loop {
            let shared = Arc::clone(&self.shared);
            let control = Arc::clone(&self.control);
            if control.has_left.load(Ordering::Acquire) {
                break;
            }
            if control.is_changed.swap(false, Ordering::AcqRel) {
                self.follow(&control);
            }
            if control.is_nudged.swap(false, Ordering::AcqRel) {
                self.heed_nudge(Instant::now());
            }
            let due = self.due;
            tokio::select! {
                biased;
                () = control.wake.notified() => continue,
                () = sleep_until(due) => {}
            }
            tokio::select! {
                biased;
                () = until_left(&control) => {}
                // Boxed: what a scrape needs is not kept between two of them.
                () = Box::pin(self.turn(&shared, due)) => {}
            }
        }
        let Self {
            name,
            shared,
            metrics,
            ..
        } = *self;
        // Its series first: who is told that it left may look for them.
        drop(metrics);
        shared.receiver.left(&name);
    }

    /// One scrape.
    async fn turn(&mut self, shared: &Arc<Shared>, due: Instant) {
        let Ok(_permit) = shared.requests.acquire().await else {
            return;
        };
        let _counted = InFlight::begin(&shared.metrics);
        let begun = Instant::now();
        self.last = Some(begun);
        let means = Means {
            config: &shared.config,
            workspaces: &shared.workspaces,
            handshakes: &shared.handshakes,
            metrics: &shared.metrics,
            asked: shared.config.clock.now(),
            deadline: Deadline::at(begun + shared.config.timeout),
        };
        let outcome = self.session.scrape(&means).await;
        let took = begun.elapsed();
        let is_whole = matches!(&outcome, Ok(Scraped { cut: None, .. }));
        self.metrics.requested(means.asked, took, is_whole);
        match outcome {
            Ok(scraped) => self.received(shared, begun, means.asked, &scraped),
            Err(failure) => self.failed(shared, &failure),
        }
        self.metrics.ticked(due.elapsed());
        shared.planned(self.due);
    }

    fn received(&mut self, shared: &Shared, begun: Instant, asked: Timestamp, scraped: &Scraped) {
        let steady = shared.steady(begun);
        let is_new = self.cadence.scraped(steady, scraped.report.times);
        if scraped.is_warm {
            self.cadence.warmed();
        }
        let next = self.cadence.next(steady);
        let wait = next.since(steady).unwrap_or(shared.config.resolution);
        self.due = shared.on_beat(begun + wait);
        self.metrics.received(scraped.bytes);
        self.metrics.decoded(&scraped.report, asked, is_new);
        let answer = Answer {
            asked,
            is_complete: scraped.cut.is_none(),
            is_new,
            next: asked.checked_add(wait).unwrap_or(asked),
        };
        if let Some(batch) = scraped.batch() {
            shared.receiver.received(&self.name, batch, &answer);
        }
        match &scraped.cut {
            Some(failure) => self.failed(shared, failure),
            None => self.recovered(),
        }
    }

    fn failed(&mut self, shared: &Shared, failure: &Failure) {
        let wait = self.backoff.failed();
        let now = Instant::now();
        self.due = shared.on_beat(now + wait);
        self.metrics.failed(failure);
        self.metrics.set_state(State::Failing);
        let reason = failure.reason();
        let since = self.failing.map_or(now, |(since, _)| since);
        if self.failing.is_none_or(|(_, known)| known != reason) {
            let remedy = failure.remedy().unwrap_or_default();
            // That a node which is not ready cannot be scraped is no news.
            if self.session.target().is_ready {
                tracing::warn!(node = %self.name, reason, %failure, remedy, "node cannot be scraped");
            } else {
                tracing::info!(node = %self.name, reason, %failure, remedy, "node is not ready and cannot be scraped");
            }
        }
        self.failing = Some((since, reason));
        let wall = shared.config.clock.now();
        let next = wall.checked_add(wait).unwrap_or(wall);
        shared.receiver.failed(&self.name, failure, next);
    }

    fn recovered(&mut self) {
        self.backoff.reset();
        self.metrics.set_state(State::Ok);
        if let Some((since, reason)) = self.failing.take() {
            let seconds = since.elapsed().as_secs();
            tracing::info!(node = %self.name, reason, failing_for_seconds = seconds, "node can be scraped again");
        }
    }

    fn follow(&mut self, control: &Control) {
        let target = control
            .target
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let target = Arc::clone(&target);
        let became_ready = target.is_ready && !self.session.target().is_ready;
        let has_moved = self.session.follow(target, &self.shared.config);
        if has_moved || (became_ready && self.failing.is_some()) {
            self.backoff.reset();
            self.due = Instant::now();
        }
    }

    /// Scrapes soon, but not more than thrice in a resolution, and a node that fails no sooner than
    /// planned.
    fn heed_nudge(&mut self, now: Instant) {
        let gap = self.shared.config.resolution / 3;
        let since = self.nudged.max(self.last);
        if self.failing.is_some() {
            return;
        }
        let earliest = since.map_or(now, |since| since + gap);
        let due = self.shared.on_beat((now + NUDGE_AFTER).max(earliest));
        if due < self.due {
            self.nudged = Some(due);
            self.due = due;
        }
    }
}

/// Waits until the node has left; other news wait until the scrape is over.
async fn until_left(control: &Control) {
    loop {
        if control.has_left.load(Ordering::Acquire) {
            return;
        }
        control.wake.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use kubevitals_telemetry::Metrics;

    use super::*;
    use crate::{Credentials, ScrapeConfig, ScrapeMetrics, Transport};

    struct Nobody;

    impl crate::Receive for Nobody {
        fn received(&self, _: &NodeName, _: &kubevitals_model::NodeBatch, _: &Answer) {}
        fn failed(&self, _: &NodeName, _: &Failure, _: Timestamp) {}
        fn left(&self, _: &NodeName) {}
    }

    #[tokio::test]
    async fn a_loop_is_small() {
        let config = ScrapeConfig::new(Transport::InsecureHttp, Credentials::None);
        let metrics = ScrapeMetrics::register(&mut Metrics::new(), config.resolution);
        let shared = Arc::new(Shared::new(config, Arc::new(Nobody), metrics));
        let target = Arc::new(Target::nowhere());
        let control = Arc::new(Control::new(Arc::clone(&target)));
        let node = NodeLoop::new(NodeName::new("a"), target, control, shared);
        assert!(size_of::<NodeLoop>() < 640, "{}", size_of::<NodeLoop>());
        let run = Box::new(node).run();
        assert!(size_of_val(&run) < 320, "{}", size_of_val(&run));
    }
}
