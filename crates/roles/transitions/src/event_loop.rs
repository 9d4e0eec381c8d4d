//! The event loop: the one task that owns the tracker. Pod changes, events, ticks and changes of
//! leadership reach it here, one after another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kubevitals_cli::{RunError, Shutdown};
use kubevitals_model::{Clock, Event, Pod, Timestamp};
use kubevitals_transitions::{Arrival, Shard, Tracker};
use kubevitals_watch::{
    Change, EventType, EventWatcher, ObjectEvent, Origin, Subscription, Update, WatchedObject,
};
use tokio::time::MissedTickBehavior;

use crate::emitter::Emitter;
use crate::leader_state::LeaderState;
use crate::metrics::{ChangeCounts, LoopMetrics, LoopSnapshot, RoleMetrics};
use crate::version_order::VersionOrder;

/// Interval at which the tracker's clock advances. Due records wait for seconds.
const TICK_INTERVAL: Duration = Duration::from_millis(250);

/// Changes of one watch that are processed before the other inputs are polled.
const MAX_BATCH: usize = 256;

pub(crate) struct EventLoop {
    pub(crate) tracker: Tracker,
    pub(crate) pods: Subscription<Pod>,
    pub(crate) events: Option<EventWatcher<Event>>,
    /// `None` without leader election.
    pub(crate) leader: Option<LeaderState>,
    pub(crate) shard: Shard,
    pub(crate) emitter: Emitter,
    pub(crate) metrics: RoleMetrics,
    pub(crate) heartbeat: Heartbeat,
    pub(crate) clock: Clock,
    pub(crate) counts: InputCounts,
    pub(crate) versions: VersionOrder,
}

/// Inputs of the loop so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct InputCounts {
    pub(crate) pods: ChangeCounts,
    pub(crate) events: ChangeCounts,
    pub(crate) other_shards: u64,
    pub(crate) resyncs: u64,
}

/// The time of the loop's last iteration, for the health checks.
#[derive(Debug, Clone)]
pub(crate) struct Heartbeat {
    started: Instant,
    /// Milliseconds from `started` to the last iteration; 0 before the first list of pods.
    last: Arc<AtomicU64>,
}

/// Measures the changes of one batch.
struct Stopwatch<'m> {
    metrics: &'m LoopMetrics,
    now: Timestamp,
    since: Instant,
}

impl EventLoop {
    /// Runs until shutdown is requested. Fails if the pod watch or leader election ends before.
    pub(crate) async fn run(&mut self, mut shutdown: Shutdown) -> Result<(), RunError> {
        let mut ticks = tokio::time::interval(TICK_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Events are read after the first list of pods: many listed events are of pods that no
            // longer exist.
            let is_listed = self.counts.resyncs > 0;
            tokio::select! {
                () = shutdown.requested() => return Ok(()),
                update = self.pods.next() => match update {
                    Some(update) => self.process_pods(update),
                    None if shutdown.is_requested() => return Ok(()),
                    None => return Err(RunError::runtime("pod watch ended unexpectedly")),
                },
                Some(event) = next_event(&mut self.events), if is_listed => self.process_events(event),
                changed = leadership_changed(&mut self.leader) => {
                    changed?;
                    self.update_leadership();
                }
                _ = ticks.tick() => self.tick(),
            }
            if self.counts.resyncs > 0 {
                self.heartbeat.beat();
            }
        }
    }

    /// Processes everything that is queued. The watches have ended, so the queues do too.
    pub(crate) fn drain(&mut self) {
        // A replica that lost the Lease must not emit.
        self.update_leadership();
        while let Some(update) = self.pods.try_next() {
            self.process_pods(update);
        }
        while let Some(event) = self.events.as_mut().and_then(EventWatcher::try_next) {
            self.process_events(event);
        }
        let now = self.clock.now();
        let Self {
            tracker, emitter, ..
        } = self;
        tracker.advance(now, &mut |output| emitter.emit(output, now));
        tracker.shut_down(&mut |output| emitter.emit(output, now));
        self.publish();
    }

    fn tick(&mut self) {
        let now = self.clock.now();
        let Self {
            tracker, emitter, ..
        } = self;
        tracker.advance(now, &mut |output| emitter.emit(output, now));
        if let Some(leader) = &mut self.leader
            && !tracker.is_standby()
        {
            leader.advance(tracker.checkpoint(), emitter.line_counts());
        }
        self.publish();
    }

    /// Applies a change of leadership or of the leader's checkpoint.
    fn update_leadership(&mut self) {
        let Self {
            tracker,
            emitter,
            leader: Some(leader),
            clock,
            ..
        } = self
        else {
            return;
        };
        let is_leader = *leader.leading.borrow_and_update();
        if tracker.is_standby()
            && let Some(checkpoint) = leader.lease_checkpoint()
        {
            tracker.apply_checkpoint(checkpoint);
        }
        if is_leader && tracker.is_standby() {
            let queued = tracker.queued();
            let now = clock.now();
            tracker.lead(&mut |output| emitter.emit(output, now));
            tracing::info!(queued, "acquired leadership, emitting records");
        } else if !is_leader && !tracker.is_standby() {
            tracker.stand_by();
            leader.clear();
            tracing::info!("not the leader, standing by");
        }
        self.publish();
    }

    pub(crate) fn publish(&mut self) {
        self.emitter.pods.update(&self.tracker, &self.clock);
        self.metrics.publish(LoopSnapshot {
            tracker: self.tracker.counts(),
            records: self.emitter.counts,
            inputs: self.counts,
            tracked: self.tracker.len(),
            starting: self.tracker.starting(),
            early: self.tracker.early(),
            queued: self.tracker.queued(),
            is_leader: !self.tracker.is_standby(),
        });
    }

    fn process_pods(&mut self, first: Update<Pod>) {
        let metrics = self.metrics.pod.clone();
        let mut stopwatch = Stopwatch::start(&metrics, self.clock.now());
        let mut next = Some(first);
        let mut left = MAX_BATCH;
        while let Some(update) = next {
            match update {
                Update::Change(change) => {
                    let received = change.received;
                    self.process_change(change);
                    stopwatch.lap(received);
                }
                Update::Resync(all) => {
                    self.process_list(&all.objects, stopwatch.now);
                    stopwatch = Stopwatch::start(&metrics, self.clock.now());
                }
            }
            left -= 1;
            next = if left > 0 { self.pods.try_next() } else { None };
        }
    }

    fn process_change(&mut self, change: Change<Pod>) {
        if self.versions.went_back(&change) {
            tracing::warn!(
                "resource versions went back, as after a restore of etcd: pods may be reported twice"
            );
            self.tracker.forget_versions();
        }
        let (pod, is_gone, count) = match change.event {
            ObjectEvent::Added(pod) => (pod, false, &mut self.counts.pods.added),
            ObjectEvent::Modified { now, .. } => (now, false, &mut self.counts.pods.modified),
            ObjectEvent::Deleted(pod) => (pod, true, &mut self.counts.pods.deleted),
        };
        let arrival = match change.origin {
            Origin::Live => {
                *count += 1;
                Arrival::Live
            }
            Origin::Relist => {
                self.counts.pods.listed += 1;
                Arrival::Relisted
            }
        };
        if !self.shard.contains(&pod.summary.identity.uid) {
            self.counts.other_shards += 1;
            return;
        }
        let Self {
            tracker, emitter, ..
        } = self;
        let now = change.received;
        let mut out = |output| emitter.emit(output, now);
        if is_gone {
            tracker.deleted(&pod, arrival, Some(now), &mut out);
        } else {
            tracker.pod(&pod, arrival, Some(now), &mut out);
        }
    }

    fn process_list(&mut self, pods: &[Arc<Pod>], now: Timestamp) {
        let arrival = if self.counts.resyncs == 0 {
            Arrival::Listed
        } else {
            Arrival::Relisted
        };
        self.counts.resyncs += 1;
        self.counts.pods.listed += pods.len() as u64;
        let (shard, before) = (self.shard, self.counts.other_shards);
        let Self {
            tracker,
            emitter,
            counts,
            ..
        } = self;
        let ours = pods.iter().filter(|pod| {
            let is_ours = shard.contains(&pod.summary.identity.uid);
            counts.other_shards += u64::from(!is_ours);
            is_ours
        });
        tracker.resync(ours, arrival, Some(now), &mut |output| {
            emitter.emit(output, now);
        });
        tracing::info!(
            pods = pods.len(),
            other_shards = counts.other_shards - before,
            ?arrival,
            "processed a list of all pods"
        );
    }

    fn process_events(&mut self, first: WatchedObject<Event>) {
        let metrics = self.metrics.image_pull.clone();
        let mut stopwatch = Stopwatch::start(&metrics, self.clock.now());
        let mut next = Some(first);
        let mut left = MAX_BATCH;
        while let Some(watched) = next {
            let received = watched.received;
            self.process_event(&watched, stopwatch.now);
            stopwatch.lap(received);
            left -= 1;
            next = match &mut self.events {
                Some(events) if left > 0 => events.try_next(),
                _ => None,
            };
        }
    }

    fn process_event(&mut self, watched: &WatchedObject<Event>, now: Timestamp) {
        let counts = &mut self.counts.events;
        match (watched.origin, watched.event) {
            (Origin::Relist, _) => counts.listed += 1,
            (Origin::Live, EventType::Deleted) => counts.deleted += 1,
            (Origin::Live, EventType::Modified) => counts.modified += 1,
            (Origin::Live, _) => counts.added += 1,
        }
        // Events are deleted when they expire, which says nothing about their pod.
        let uid = &watched.object.regarding.uid;
        let is_ours = || self.shard.contains(uid) || self.tracker.is_mirrored(uid);
        if watched.event == EventType::Deleted || !is_ours() {
            return;
        }
        let Self {
            tracker, emitter, ..
        } = self;
        let mut out = |output| emitter.emit(output, now);
        match watched.origin {
            Origin::Live => tracker.event(&watched.object, &mut out),
            Origin::Relist => tracker.event_listed(&watched.object, now, &mut out),
        }
    }
}

impl Heartbeat {
    pub(crate) fn new() -> Self {
        Self {
            started: Instant::now(),
            last: Arc::default(),
        }
    }

    /// Returns the time since the last iteration; `None` before the first list of pods.
    pub(crate) fn age(&self) -> Option<Duration> {
        let last = self.last.load(Ordering::Relaxed);
        let since = self.started.elapsed();
        (last > 0).then(|| since.saturating_sub(Duration::from_millis(last)))
    }

    fn beat(&self) {
        let now = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now.max(1), Ordering::Relaxed);
    }
}

impl<'m> Stopwatch<'m> {
    fn start(metrics: &'m LoopMetrics, now: Timestamp) -> Self {
        Self {
            metrics,
            now,
            since: Instant::now(),
        }
    }

    /// Records one change.
    fn lap(&mut self, received: Timestamp) {
        let now = Instant::now();
        let waited = self.now.since(received).unwrap_or_default();
        self.metrics.record(waited, now - self.since);
        self.since = now;
    }
}

/// Waits for a change of leadership or of the leader's checkpoint; forever without an election.
async fn leadership_changed(leader: &mut Option<LeaderState>) -> Result<(), RunError> {
    match leader {
        Some(leader) => leader.changed().await,
        None => std::future::pending().await,
    }
}

/// The next event; `None` if events are not watched or their watch has ended.
async fn next_event(events: &mut Option<EventWatcher<Event>>) -> Option<WatchedObject<Event>> {
    match events {
        Some(events) => events.next().await,
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use kubevitals_cli::shutdown_channel;
    use kubevitals_jsonl::TransitionLines;
    use kubevitals_telemetry::Metrics;
    use kubevitals_transition_metrics::{FamilyConfig, TransitionMetrics};
    use kubevitals_transitions::TrackerConfig;
    use kubevitals_watch::{KubeTransport, WatchClient, WatchSpec};
    use tokio::sync::watch;

    use super::*;
    use crate::emitter::RecordCounts;
    use crate::pod_metrics::PodMetrics;

    #[tokio::test]
    async fn a_leader_whose_candidate_panics_stands_by_and_fails() {
        kubevitals_tls::install_crypto_provider();
        // Nothing needs to listen there: the pods are not listed before the candidate ends.
        let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = WatchClient::new(KubeTransport::new(config).unwrap());
        let pods = client.reflector(WatchSpec::<Pod>::new("pods"));
        let (_observed, observed) = watch::channel(None);
        let leader =
            LeaderState::with_candidate(observed, Arc::default(), |leading, _stop| async move {
                leading.set(true);
                tokio::task::yield_now().await;
                panic!("lost the clock");
            });
        let mut metrics = Metrics::new();
        let families = TransitionMetrics::register(&mut metrics, FamilyConfig::default());
        let mut event_loop = EventLoop {
            tracker: Tracker::new(TrackerConfig::default()),
            pods: pods.subscribe(),
            events: None,
            leader: Some(leader),
            shard: Shard::ALL,
            emitter: Emitter {
                form: TransitionLines::default(),
                lines: None,
                pods: PodMetrics::new(families, None),
                hooks: Vec::new(),
                counts: RecordCounts::default(),
            },
            metrics: RoleMetrics::register(&mut metrics),
            heartbeat: Heartbeat::new(),
            clock: Clock::system(),
            counts: InputCounts::default(),
            versions: VersionOrder::default(),
        };
        let (_trigger, shutdown) = shutdown_channel();
        let error = event_loop.run(shutdown).await.unwrap_err();
        assert_eq!(error.to_string(), "leader election ended unexpectedly");
        assert!(event_loop.tracker.is_standby());
    }
}
