//! Tracks pods and decides when their records are emitted.
//!
//! The tracker is owned by one task and has no locks. It accepts states and events in any order and
//! emits records: for each pod one of its start, once it is ready or never will be, and one of its
//! lifecycle, once it is deleted. Both wait for a while ([`TrackerConfig::linger`]), since events
//! arrive separately from states and later.
//!
//! Several replicas may track the same pods. The leader emits; the standbys
//! ([`Tracker::stand_by`]) queue due records, and drop those that a [`Checkpoint`] of the leader
//! covers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use kubevitals_model::{Event, Pod, Timestamp, Uid};

pub use self::checkpoint::{Checkpoint, CheckpointError};
use self::config::settled_at;
pub use self::config::{Counts, Existing, TrackerConfig};
use self::due::Due;
use self::finished::FinishedPods;
use self::pulls::DuePull;
use crate::facts::{Facts, PullTarget};
use crate::lifecycle::{Lifecycle, StartupReport};
use crate::record::{End, PodRecord};

mod checkpoint;
mod config;
mod due;
mod finished;
mod pulls;

/// A listed event older than this, of an unknown pod, belongs to a deleted one.
const STALE_EVENT_AGE: Duration = Duration::from_mins(1);

/// How a state was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// In the first list: the pod existed before the tracker.
    Listed,
    /// In a list after a gap: the pod may be new, and states may have been missed.
    Relisted,
    /// From the watch.
    Live,
}

/// An emitted record.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// A pod is ready, or never will be. At most once for each pod; never for one that had started
    /// before the tracker and is skipped.
    Startup(Arc<PodRecord>),
    /// A pod is deleted, or tracking ends. Once for each pod, after its start.
    Lifecycle(Arc<PodRecord>),
    /// A pod that is still starting has changed.
    Progress(Arc<PodRecord>),
    /// An image was pulled for a pod that is starting, or was found present. Once for each of its
    /// containers and image volumes.
    ImagePull(Arc<PodRecord>, PullTarget),
}

/// Tracks the lifecycles of pods.
#[derive(Debug)]
pub struct Tracker {
    config: TrackerConfig,
    lifecycles: HashMap<Uid, Box<Lifecycle>>,
    early: HashMap<Uid, Facts>,
    early_order: VecDeque<Uid>,
    /// The UIDs of mirror pods by the UIDs in their events.
    mirrors: HashMap<Uid, Uid>,
    /// Due records, in the order in which they became due.
    due: VecDeque<Due>,
    /// Pulls that a standby has queued.
    due_pulls: VecDeque<DuePull>,
    ended: usize,
    /// Pods whose start is not emitted yet.
    starting: HashSet<Uid>,
    finished: FinishedPods,
    /// The newest time given to the tracker.
    now: Option<Timestamp>,
    /// The newest version seen, and when.
    newest: Option<Checkpoint>,
    /// The newest version of an event of the watch.
    newest_event: Option<u64>,
    /// When the first list was received.
    listed: Option<Timestamp>,
    /// The number of the last list of all pods.
    generation: u32,
    is_standby: bool,
    /// The checkpoint of the leader.
    leader_checkpoint: Option<Checkpoint>,
    counts: Counts,
}

impl Tracker {
    pub fn new(config: TrackerConfig) -> Self {
        Self {
            config,
            lifecycles: HashMap::new(),
            early: HashMap::new(),
            early_order: VecDeque::new(),
            mirrors: HashMap::new(),
            due: VecDeque::new(),
            due_pulls: VecDeque::new(),
            ended: 0,
            starting: HashSet::new(),
            finished: FinishedPods::default(),
            now: None,
            newest: None,
            newest_event: None,
            listed: None,
            generation: 0,
            is_standby: false,
            leader_checkpoint: None,
            counts: Counts::default(),
        }
    }

    /// The number of tracked pods.
    pub fn len(&self) -> usize {
        self.lifecycles.len()
    }

    pub fn is_empty(&self) -> bool {
        self.lifecycles.is_empty()
    }

    /// The number of pods that are starting, or whose start is not emitted yet.
    pub fn starting(&self) -> usize {
        self.starting.len()
    }

    /// The records of pods that are starting now, in no order: not ready, not over, and not about
    /// to be deleted.
    pub fn starting_records(&self) -> impl Iterator<Item = &PodRecord> {
        let pods = self.starting.iter();
        pods.filter_map(|uid| {
            let lifecycle = self.lifecycles.get(uid)?;
            let is_starting = lifecycle.startup == StartupReport::Open
                && lifecycle.record.pod.meta.deleted.is_none();
            is_starting.then_some(&lifecycle.record)
        })
    }

    /// The number of pods known only from events.
    pub fn early(&self) -> usize {
        self.early.len()
    }

    /// The number of records that wait for late events, or for the leader's checkpoint.
    pub fn queued(&self) -> usize {
        self.due.len() + self.due_pulls.len()
    }

    /// Whether another replica leads.
    pub fn is_standby(&self) -> bool {
        self.is_standby
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The record of a tracked pod.
    pub fn get(&self, uid: &Uid) -> Option<&PodRecord> {
        self.lifecycles.get(uid).map(|lifecycle| &lifecycle.record)
    }

    /// The records of all tracked pods, in no order.
    pub fn records(&self) -> impl Iterator<Item = &PodRecord> {
        self.lifecycles.values().map(|lifecycle| &lifecycle.record)
    }

    /// Applies a state of a pod.
    pub fn pod(
        &mut self,
        pod: &Arc<Pod>,
        arrival: Arrival,
        observed: Option<Timestamp>,
        out: &mut impl FnMut(Output),
    ) {
        self.now = self.now.max(observed);
        let uid = &pod.summary.identity.uid;
        let version = pod.summary.identity.resource_version.as_number();
        // Lists are in no order: a version in a list says nothing about those before it.
        if arrival == Arrival::Live {
            self.observe_version(version);
        }
        let is_full = self.lifecycles.len() >= self.config.max_pods;
        let mut has_early_facts = false;
        let lifecycle = match self.lifecycles.entry(uid.clone()) {
            Entry::Occupied(known) => {
                let lifecycle = known.into_mut();
                lifecycle.generation = self.generation;
                if !lifecycle.apply(pod, arrival, observed) {
                    self.counts.repeated += 1;
                    return;
                }
                lifecycle
            }
            Entry::Vacant(_) if self.finished.contains(uid) => {
                self.counts.repeated += 1;
                return;
            }
            Entry::Vacant(_) if is_full => {
                self.counts.rejected += 1;
                return;
            }
            Entry::Vacant(place) => {
                let facts = self.early.remove(pod.event_uid()).unwrap_or_default();
                if let Some(static_uid) = &pod.static_uid {
                    self.mirrors.insert((**static_uid).clone(), uid.clone());
                }
                let startup = self.config.existing.startup(pod, arrival);
                if startup == StartupReport::Open {
                    self.starting.insert(uid.clone());
                }
                has_early_facts = facts != Facts::default();
                let mut lifecycle = Lifecycle::begin(pod, facts, startup, arrival, observed);
                lifecycle.generation = self.generation;
                place.insert(Box::new(lifecycle))
            }
        };
        self.counts.states += 1;
        if lifecycle.startup == StartupReport::Open {
            if lifecycle.record.is_settled() {
                lifecycle.startup = StartupReport::Due;
                let happened = settled_at(pod).filter(|_| arrival != Arrival::Live);
                self.enqueue(uid, false, version, happened);
            } else if self.config.progress && !self.is_standby {
                out(Output::Progress(Arc::new(lifecycle.record.clone())));
            }
        }
        if has_early_facts {
            self.report_pulls(uid, out);
        }
        self.emit_due(out);
    }

    /// Applies the deletion of a pod, in its last state.
    pub fn deleted(
        &mut self,
        pod: &Arc<Pod>,
        arrival: Arrival,
        observed: Option<Timestamp>,
        out: &mut impl FnMut(Output),
    ) {
        self.pod(pod, arrival, observed, out);
        let uid = &pod.summary.identity.uid;
        let version = pod.summary.identity.resource_version.as_number();
        match arrival {
            Arrival::Live => {
                // The API server sets the time when it deletes a pod, with or without a grace
                // period.
                let is_unselected = self.config.has_selector && pod.meta.deleted.is_none();
                let end = if is_unselected {
                    End::Unselected
                } else {
                    End::Deleted
                };
                self.end(uid, end, version, observed);
            }
            Arrival::Listed | Arrival::Relisted => {
                self.end(uid, End::Vanished, self.newest_version(), observed);
            }
        }
        self.emit_due(out);
    }

    /// Applies a list of all pods, and ends the tracked ones that are missing.
    pub fn resync<'p>(
        &mut self,
        pods: impl IntoIterator<Item = &'p Arc<Pod>>,
        arrival: Arrival,
        observed: Option<Timestamp>,
        out: &mut impl FnMut(Output),
    ) {
        self.generation = self.generation.wrapping_add(1);
        self.listed = self.listed.or(observed);
        let mut newest = None;
        for pod in pods {
            newest = newest.max(pod.summary.identity.resource_version.as_number());
            self.pod(pod, arrival, observed, out);
        }
        self.observe_version(newest);
        let lifecycles = self.lifecycles.values();
        let mut missing: Vec<&PodRecord> = lifecycles
            .filter(|lifecycle| {
                lifecycle.generation != self.generation && lifecycle.record.end == End::Open
            })
            .map(|lifecycle| &lifecycle.record)
            .collect();
        missing.sort_unstable_by(|one, two| order(one).cmp(&order(two)));
        let missing: Vec<Uid> = missing
            .into_iter()
            .map(|record| record.pod.summary.identity.uid.clone())
            .collect();
        for uid in missing {
            self.end(&uid, End::Vanished, self.newest_version(), observed);
        }
        self.emit_due(out);
    }

    /// Whether events with this UID are of a mirror pod, which has another.
    pub fn is_mirrored(&self, uid: &Uid) -> bool {
        self.mirrors.contains_key(uid)
    }

    /// Applies an event of the watch.
    pub fn event(&mut self, event: &Event, out: &mut impl FnMut(Output)) {
        let version = event.identity.resource_version.as_number();
        self.newest_event = self.newest_event.max(version);
        self.apply_event(event, out);
    }

    fn apply_event(&mut self, event: &Event, out: &mut impl FnMut(Output)) {
        if !Facts::is_relevant(event) {
            self.counts.events_ignored += 1;
            return;
        }
        let uid = &event.regarding.uid;
        let uid = self.mirrors.get(uid).unwrap_or(uid);
        if let Some(lifecycle) = self.lifecycles.get_mut(uid) {
            self.counts.events += 1;
            lifecycle.record.facts.learn(event);
            let emits = self.config.progress && !self.is_standby;
            if emits && lifecycle.startup == StartupReport::Open {
                out(Output::Progress(Arc::new(lifecycle.record.clone())));
            }
            if event.reason.as_deref() == Some("Pulled") {
                let uid = uid.clone();
                self.report_pulls(&uid, out);
            }
        } else if self.finished.contains(uid) {
            self.counts.events_late += 1;
        } else {
            self.counts.events += 1;
            self.learn_early(&event.regarding.uid, event);
        }
    }

    /// Applies an event of a list, which has events of deleted pods too: an old one of an unknown
    /// pod is ignored, so that it does not displace events of pods that are yet to be seen.
    pub fn event_listed(&mut self, event: &Event, now: Timestamp, out: &mut impl FnMut(Output)) {
        let happened = event.happened();
        let is_old =
            happened.is_none_or(|at| now.since(at).is_some_and(|age| age > STALE_EVENT_AGE));
        let uid = &event.regarding.uid;
        let uid = self.mirrors.get(uid).unwrap_or(uid);
        if is_old && !self.lifecycles.contains_key(uid) {
            self.counts.events_stale += 1;
            return;
        }
        self.apply_event(event, out);
    }

    /// Forgets all versions: those of the cluster went back, so that a state with a lower version
    /// may be newer, and checkpoints cover nothing.
    pub fn forget_versions(&mut self) {
        self.newest = None;
        self.newest_event = None;
        self.leader_checkpoint = None;
        for lifecycle in self.lifecycles.values_mut() {
            lifecycle.accepts_any_version = true;
        }
    }

    /// Advances the clock and emits records that have waited long enough.
    pub fn advance(&mut self, now: Timestamp, out: &mut impl FnMut(Output)) {
        self.now = self.now.max(Some(now));
        self.emit_due(out);
    }

    /// Emits due records at shutdown, and leaves open ones to the next leader. A standby emits
    /// nothing.
    pub fn shut_down(&mut self, out: &mut impl FnMut(Output)) {
        if self.is_standby {
            return;
        }
        while let Some(due) = self.due.pop_front() {
            self.emit(&due, out);
        }
    }

    /// Emits records of every pod, in the order of creation: there is no further input.
    pub fn finish(&mut self, out: &mut impl FnMut(Output)) {
        self.due.clear();
        self.due_pulls.clear();
        self.ended = 0;
        self.starting.clear();
        let mut lifecycles: Vec<Lifecycle> = self
            .lifecycles
            .drain()
            .map(|(_, lifecycle)| *lifecycle)
            .collect();
        lifecycles.sort_unstable_by(|one, two| order(&one.record).cmp(&order(&two.record)));
        for lifecycle in lifecycles {
            let record = Arc::new(lifecycle.record);
            if matches!(lifecycle.startup, StartupReport::Open | StartupReport::Due) {
                let done = record.pulls();
                for (target, _) in
                    done.filter(|(_, pull)| pull.done.is_some() && !pull.report.is_done)
                {
                    out(Output::ImagePull(Arc::clone(&record), target));
                }
                out(Output::Startup(Arc::clone(&record)));
            }
            out(Output::Lifecycle(record));
        }
    }

    fn observe_version(&mut self, version: Option<u64>) {
        let Some((version, time)) = version.zip(self.now) else {
            return;
        };
        let seen = Checkpoint {
            version,
            event_version: None,
            time,
        };
        self.newest = Some(seen.further(self.newest));
    }

    fn newest_version(&self) -> Option<u64> {
        self.newest.map(|newest| newest.version)
    }

    fn end(&mut self, uid: &Uid, end: End, version: Option<u64>, observed: Option<Timestamp>) {
        let Some(lifecycle) = self.lifecycles.get_mut(uid) else {
            return;
        };
        if !lifecycle.end(end, observed) {
            return;
        }
        match (lifecycle.startup, end) {
            // Nothing is known of its start, which goes on.
            (StartupReport::Open, End::Unselected) => {
                lifecycle.startup = StartupReport::Skipped;
                self.starting.remove(uid);
            }
            (StartupReport::Open, _) => lifecycle.startup = StartupReport::Due,
            _ => {}
        }
        self.ended += 1;
        self.counts.vanished += u64::from(end == End::Vanished);
        self.enqueue(uid, true, version, None);
    }

    fn enqueue(
        &mut self,
        uid: &Uid,
        is_lifecycle: bool,
        version: Option<u64>,
        happened: Option<Timestamp>,
    ) {
        let due = Due {
            since: self.now,
            uid: uid.clone(),
            is_lifecycle,
            version,
            happened,
        };
        if self.is_emitted_by_leader(version, happened) {
            self.counts.leader_emitted += 1;
            self.discard(&due);
        } else {
            self.due.push_back(due);
        }
    }

    fn learn_early(&mut self, uid: &Uid, event: &Event) {
        if let Some(facts) = self.early.get_mut(uid) {
            facts.learn(event);
            return;
        }
        while self.early.len() >= self.config.max_early.max(1) {
            let Some(oldest) = self.early_order.pop_front() else {
                break;
            };
            // Pods that were seen since are no longer there.
            if self.early.remove(&oldest).is_some() {
                self.counts.early_dropped += 1;
            }
        }
        if self.early_order.len() >= 2 * self.config.max_early.max(1) {
            self.early_order.retain(|uid| self.early.contains_key(uid));
        }
        let mut facts = Facts::default();
        facts.learn(event);
        self.early.insert(uid.clone(), facts);
        self.early_order.push_back(uid.clone());
    }
}

/// The order of creation, and then of names.
fn order(record: &PodRecord) -> (Option<Timestamp>, &str, &str, &Uid) {
    let identity = &record.pod.summary.identity;
    let created = record.milestones.created.best();
    (created, &identity.namespace, &identity.name, &identity.uid)
}
