//! The one task that owns the tracker. Whatever changes a life comes through here, one thing after
//! another.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kubevitals_cli::Shutdown;
use kubevitals_model::Timestamp;
use kubevitals_transitions::{Arrival, Shard, Tracker};
use kubevitals_watch::{
    Change, Event, EventType, Pod, Seen, Subscription, Tail, Tailed, Update, What,
};
use tokio::time::MissedTickBehavior;

use super::metrics::{Changes, LoopMetrics, Published, RoleMetrics};
use super::standby::Standby;
use super::teller::Teller;

/// How often time is told to the tracker. What is to be told waits for seconds.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// So many changes of one stream are taken at once before the others are looked at.
const BATCH: usize = 256;

/// The tracker, and all that reaches it.
pub(super) struct EventLoop {
    pub(super) tracker: Tracker,
    pub(super) pods: Subscription<Pod>,
    pub(super) events: Option<Tail<Event>>,
    /// None if this process is alone.
    pub(super) standby: Option<Standby>,
    pub(super) shard: Shard,
    pub(super) teller: Teller,
    pub(super) metrics: RoleMetrics,
    pub(super) pulse: Pulse,
    pub(super) clock: fn() -> Timestamp,
    pub(super) counted: Counted,
}

/// What the loop counts itself.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pods: Changes,
    events: Changes,
    other_shards: u64,
    resyncs: u64,
}

/// When the loop last turned, for who asks whether it still does.
#[derive(Debug, Clone)]
pub(super) struct Pulse {
    begun: Instant,
    /// Milliseconds from `begun` until all pods are known and the loop last turned; 0 before.
    last: Arc<AtomicU64>,
}

/// Times the changes that are taken one after another.
struct Watch<'m> {
    metrics: &'m LoopMetrics,
    now: Timestamp,
    since: Instant,
}

impl EventLoop {
    /// Runs until the end is asked for, or the pods end.
    pub(super) async fn run(&mut self, mut shutdown: Shutdown) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // Events are read once pods are known: those that are listed tell much of pods that are
            // long gone.
            let is_listed = self.counted.resyncs > 0;
            tokio::select! {
                () = shutdown.requested() => return,
                update = self.pods.next() => match update {
                    Some(update) => self.take_pods(update),
                    None => return,
                },
                Some(event) = next_event(&mut self.events), if is_listed => self.take_events(event),
                () = turn_of(&mut self.standby) => self.take_turn(),
                _ = ticks.tick() => self.tick(),
            }
            if self.counted.resyncs > 0 {
                self.pulse.beat();
            }
        }
    }

    /// Takes in all that is queued. The streams have ended, so there is an end to it.
    pub(super) fn drain(&mut self) {
        // Who no longer leads must not tell what another tells.
        self.take_turn();
        while let Some(update) = self.pods.try_next() {
            self.take_pods(update);
        }
        while let Some(event) = self.events.as_mut().and_then(Tail::try_next) {
            self.take_events(event);
        }
        let now = (self.clock)();
        let Self {
            tracker, teller, ..
        } = self;
        tracker.advance(now, &mut |output| teller.tell(&output, now));
        tracker.shut_down(&mut |output| teller.tell(&output, now));
        self.publish();
    }

    fn tick(&mut self) {
        let now = (self.clock)();
        let Self {
            tracker, teller, ..
        } = self;
        tracker.advance(now, &mut |output| teller.tell(&output, now));
        if let Some(standby) = &mut self.standby
            && !tracker.is_standby()
        {
            standby.has_told(tracker.checkpoint(), teller.counts());
        }
        self.publish();
    }

    /// The election, or what the leader has written, has changed.
    fn take_turn(&mut self) {
        let Self {
            tracker,
            teller,
            standby: Some(standby),
            clock,
            ..
        } = self
        else {
            return;
        };
        let is_leader = *standby.leading.borrow_and_update();
        if tracker.is_standby()
            && let Some(until) = standby.known()
        {
            tracker.told_elsewhere(until);
        }
        if is_leader && tracker.is_standby() {
            let waiting = tracker.waiting();
            let now = clock();
            tracker.lead(&mut |output| teller.tell(&output, now));
            tracing::info!(waiting, "telling what comes from now on");
        } else if !is_leader && !tracker.is_standby() {
            tracker.stand_by();
            standby.has_lost();
            tracing::info!("standing by");
        }
        self.publish();
    }

    pub(super) fn publish(&self) {
        let Counted {
            pods,
            events,
            other_shards,
            resyncs,
        } = self.counted;
        self.metrics.publish(Published {
            counts: self.tracker.counts(),
            told: self.teller.told,
            pods,
            events,
            other_shards,
            resyncs,
            tracked: self.tracker.len(),
            starting: self.tracker.starting(),
            early: self.tracker.early(),
            waiting: self.tracker.waiting(),
            is_leader: !self.tracker.is_standby(),
        });
    }

    fn take_pods(&mut self, first: Update<Pod>) {
        let metrics = self.metrics.pod.clone();
        let mut watch = Watch::start(&metrics, (self.clock)());
        let mut next = Some(first);
        let mut left = BATCH;
        while let Some(update) = next {
            match update {
                Update::Change(change) => {
                    let received = change.received;
                    self.take_change(change);
                    watch.lap(received);
                }
                Update::Resync(all) => {
                    self.take_all(&all.objects, watch.now);
                    watch = Watch::start(&metrics, (self.clock)());
                }
            }
            left -= 1;
            next = if left > 0 { self.pods.try_next() } else { None };
        }
    }

    fn take_change(&mut self, change: Change<Pod>) {
        let (pod, is_gone, count) = match change.what {
            What::Added(pod) => (pod, false, &mut self.counted.pods.added),
            What::Modified { now, .. } => (now, false, &mut self.counted.pods.modified),
            What::Deleted(pod) => (pod, true, &mut self.counted.pods.deleted),
        };
        let arrival = match change.seen {
            Seen::Live => {
                *count += 1;
                Arrival::Live
            }
            Seen::Relist => {
                self.counted.pods.listed += 1;
                Arrival::Relisted
            }
        };
        if !self.shard.has(&pod.brief.identity.uid) {
            self.counted.other_shards += 1;
            return;
        }
        let Self {
            tracker, teller, ..
        } = self;
        let now = change.received;
        let mut out = |output| teller.tell(&output, now);
        if is_gone {
            tracker.deleted(&pod, arrival, Some(now), &mut out);
        } else {
            tracker.pod(&pod, arrival, Some(now), &mut out);
        }
    }

    fn take_all(&mut self, pods: &[Arc<Pod>], now: Timestamp) {
        let arrival = if self.counted.resyncs == 0 {
            Arrival::Listed
        } else {
            Arrival::Relisted
        };
        self.counted.resyncs += 1;
        self.counted.pods.listed += pods.len() as u64;
        let (shard, before) = (self.shard, self.counted.other_shards);
        let Self {
            tracker,
            teller,
            counted,
            ..
        } = self;
        let ours = pods.iter().filter(|pod| {
            let is_ours = shard.has(&pod.brief.identity.uid);
            counted.other_shards += u64::from(!is_ours);
            is_ours
        });
        tracker.resync(ours, arrival, Some(now), &mut |output| {
            teller.tell(&output, now);
        });
        tracing::info!(
            pods = pods.len(),
            other_shards = counted.other_shards - before,
            ?arrival,
            "all pods taken in"
        );
    }

    fn take_events(&mut self, first: Tailed<Event>) {
        let metrics = self.metrics.image_pull.clone();
        let mut watch = Watch::start(&metrics, (self.clock)());
        let mut next = Some(first);
        let mut left = BATCH;
        while let Some(tailed) = next {
            let received = tailed.received;
            self.take_event(&tailed, watch.now);
            watch.lap(received);
            left -= 1;
            next = match &mut self.events {
                Some(events) if left > 0 => events.try_next(),
                _ => None,
            };
        }
    }

    fn take_event(&mut self, tailed: &Tailed<Event>, now: Timestamp) {
        let counted = &mut self.counted.events;
        match (tailed.seen, tailed.event) {
            (Seen::Relist, _) => counted.listed += 1,
            (Seen::Live, EventType::Deleted) => counted.deleted += 1,
            (Seen::Live, EventType::Modified) => counted.modified += 1,
            (Seen::Live, _) => counted.added += 1,
        }
        // That an event is forgotten says nothing about its pod.
        if tailed.event == EventType::Deleted || !self.shard.has(&tailed.object.regarding.uid) {
            return;
        }
        let Self {
            tracker, teller, ..
        } = self;
        let mut out = |output| teller.tell(&output, now);
        match tailed.seen {
            Seen::Live => tracker.event(&tailed.object, &mut out),
            Seen::Relist => tracker.event_listed(&tailed.object, now, &mut out),
        }
    }
}

impl Pulse {
    pub(super) fn new() -> Self {
        Self {
            begun: Instant::now(),
            last: Arc::default(),
        }
    }

    /// How long ago the loop last turned; none if it does not know all pods yet.
    pub(super) fn age(&self) -> Option<Duration> {
        let last = self.last.load(Ordering::Relaxed);
        let since = self.begun.elapsed();
        (last > 0).then(|| since.saturating_sub(Duration::from_millis(last)))
    }

    fn beat(&self) {
        let now = u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now.max(1), Ordering::Relaxed);
    }
}

impl<'m> Watch<'m> {
    fn start(metrics: &'m LoopMetrics, now: Timestamp) -> Self {
        Self {
            metrics,
            now,
            since: Instant::now(),
        }
    }

    /// One change is done.
    fn lap(&mut self, received: Timestamp) {
        let now = Instant::now();
        let waited = self.now.since(received).unwrap_or_default();
        self.metrics.took(waited, now - self.since);
        self.since = now;
    }
}

/// Waits for news of the election; for ever, where there is none.
async fn turn_of(standby: &mut Option<Standby>) {
    match standby {
        Some(standby) => {
            tokio::select! {
                // Errors mean that the candidate is gone, which it is at the end alone.
                Ok(()) = standby.leading.changed() => {}
                Ok(()) = standby.seen.changed() => {}
                else => std::future::pending().await,
            }
        }
        None => std::future::pending().await,
    }
}

/// The next event; never, where none are watched or their stream has ended.
async fn next_event(events: &mut Option<Tail<Event>>) -> Option<Tailed<Event>> {
    match events {
        Some(tail) => tail.next().await,
        None => None,
    }
}
