//! All pods that are followed, and when what is to be told of them.
//!
//! The tracker is owned by one task and has no locks. It is given states and events in whatever
//! order the two streams come, and hands out records: for each pod one of its start, once it is
//! ready or never will be, and one of its life, once it is gone. Both wait for a while
//! ([`TrackerConfig::linger`]), since events arrive apart from states and later.
//!
//! Several processes may follow the same pods. One leads and tells; the others [stand
//! by](Tracker::stand_by), keep back what comes due, and drop what a [`Checkpoint`] of the leader
//! covers.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use kubevitals_model::{Event, Pod, Timestamp, Uid};

pub use self::checkpoint::{Checkpoint, CheckpointError};
use self::config::settled_at;
pub use self::config::{Counts, Existing, TrackerConfig};
use self::due::Due;
use self::told::Told;
use crate::facts::Facts;
use crate::life::{Life, StartupReport};
use crate::record::{End, PodRecord};

mod checkpoint;
mod config;
mod due;
mod told;

/// An event in a list that is older than this, of a pod that is not known, is of one that is gone.
const STALE: Duration = Duration::from_mins(1);

/// How a state became known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrival {
    /// In the first list: the pod existed before the start.
    Listed,
    /// In a list after a gap: the pod may be new, and states may have been missed.
    Relisted,
    /// As it happened.
    Live,
}

/// What is told of a pod.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// A pod is ready, or never will be. Once for each pod whose start is told of.
    Startup(Arc<PodRecord>),
    /// A pod is gone, or nobody looks any longer. Once for each pod, after its start.
    Life(Arc<PodRecord>),
    /// Something is new about a pod that is still starting.
    Progress(Arc<PodRecord>),
}

/// All pods that are followed.
#[derive(Debug)]
pub struct Tracker {
    config: TrackerConfig,
    lives: HashMap<Uid, Box<Life>>,
    early: HashMap<Uid, Facts>,
    early_order: VecDeque<Uid>,
    /// What is to be told, in the order in which it came due.
    due: VecDeque<Due>,
    ended: usize,
    /// Lives whose start is to be told.
    starting: usize,
    told: Told,
    /// The newest time that this process has shown.
    now: Option<Timestamp>,
    /// The newest version that was seen, and when.
    newest: Option<Checkpoint>,
    /// Which list of all pods was the last.
    generation: u32,
    is_standby: bool,
    /// What another process has told.
    told_until: Option<Checkpoint>,
    counts: Counts,
}

impl Tracker {
    /// Follows nothing yet.
    pub fn new(config: TrackerConfig) -> Self {
        Self {
            config,
            lives: HashMap::new(),
            early: HashMap::new(),
            early_order: VecDeque::new(),
            due: VecDeque::new(),
            ended: 0,
            starting: 0,
            told: Told::default(),
            now: None,
            newest: None,
            generation: 0,
            is_standby: false,
            told_until: None,
            counts: Counts::default(),
        }
    }

    /// How many pods are followed.
    pub fn len(&self) -> usize {
        self.lives.len()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.lives.is_empty()
    }

    /// How many of them are still starting, or have started and are to be told of.
    pub fn starting(&self) -> usize {
        self.starting
    }

    /// How many are only known from events so far.
    pub fn early(&self) -> usize {
        self.early.len()
    }

    /// What waits to be told: for late events, or for another process to tell it.
    pub fn waiting(&self) -> usize {
        self.due.len()
    }

    /// Whether another process tells.
    pub fn is_standby(&self) -> bool {
        self.is_standby
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// What is known of a pod.
    pub fn get(&self, uid: &Uid) -> Option<&PodRecord> {
        self.lives.get(uid).map(|life| &life.record)
    }

    /// All pods, in no order.
    pub fn records(&self) -> impl Iterator<Item = &PodRecord> {
        self.lives.values().map(|life| &life.record)
    }

    /// A pod was seen in a state.
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
        // What lists show comes in no order: that one version was seen says nothing of those before
        // it.
        if arrival == Arrival::Live {
            self.has_seen(version);
        }
        let is_full = self.lives.len() >= self.config.most_pods;
        let life = match self.lives.entry(uid.clone()) {
            Entry::Occupied(known) => {
                let life = known.into_mut();
                life.generation = self.generation;
                if !life.apply(pod, observed) {
                    self.counts.repeated += 1;
                    return;
                }
                life
            }
            // Only who is no longer followed can have been told of to the end.
            Entry::Vacant(_) if self.told.has(uid) => {
                self.counts.repeated += 1;
                return;
            }
            Entry::Vacant(_) if is_full => {
                self.counts.refused += 1;
                return;
            }
            Entry::Vacant(place) => {
                let facts = self.early.remove(uid).unwrap_or_default();
                let startup = self.config.existing.startup(pod, arrival);
                self.starting += usize::from(startup == StartupReport::Open);
                let mut life = Life::begin(pod, facts, startup, observed);
                life.generation = self.generation;
                place.insert(Box::new(life))
            }
        };
        self.counts.states += 1;
        if life.startup == StartupReport::Open {
            if life.record.is_settled() {
                life.startup = StartupReport::Due;
                let happened = settled_at(pod).filter(|_| arrival != Arrival::Live);
                self.come_due(uid, false, version, happened);
            } else if self.config.progress && !self.is_standby {
                out(Output::Progress(Arc::new(life.record.clone())));
            }
        }
        self.tell_due(out);
    }

    /// A pod was deleted, in this last state.
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
            Arrival::Live => self.end(uid, End::Deleted, version, observed),
            Arrival::Listed | Arrival::Relisted => {
                self.end(uid, End::Vanished, self.newest_version(), observed);
            }
        }
        self.tell_due(out);
    }

    /// These are all pods there are: takes in how they are, and ends those that are missing.
    pub fn resync<'p>(
        &mut self,
        pods: impl IntoIterator<Item = &'p Arc<Pod>>,
        arrival: Arrival,
        observed: Option<Timestamp>,
        out: &mut impl FnMut(Output),
    ) {
        self.generation = self.generation.wrapping_add(1);
        let mut newest = None;
        for pod in pods {
            newest = newest.max(pod.summary.identity.resource_version.as_number());
            self.pod(pod, arrival, observed, out);
        }
        self.has_seen(newest);
        let lives = self.lives.values();
        let mut missing: Vec<&PodRecord> = lives
            .filter(|life| life.generation != self.generation && life.record.end == End::Open)
            .map(|life| &life.record)
            .collect();
        missing.sort_unstable_by(|one, two| order(one).cmp(&order(two)));
        let missing: Vec<Uid> = missing
            .into_iter()
            .map(|record| record.pod.summary.identity.uid.clone())
            .collect();
        for uid in missing {
            self.end(&uid, End::Vanished, self.newest_version(), observed);
        }
        self.tell_due(out);
    }

    /// An event was seen.
    pub fn event(&mut self, event: &Event, out: &mut impl FnMut(Output)) {
        if !Facts::are_told_by(event) {
            self.counts.events_unused += 1;
            return;
        }
        let uid = &event.regarding.uid;
        if let Some(life) = self.lives.get_mut(uid) {
            self.counts.events += 1;
            life.record.facts.learn(event);
            let is_told = self.config.progress && !self.is_standby;
            if is_told && life.startup == StartupReport::Open {
                out(Output::Progress(Arc::new(life.record.clone())));
            }
        } else if self.told.has(uid) {
            self.counts.events_late += 1;
        } else {
            self.counts.events += 1;
            self.learn_early(uid, event);
        }
    }

    /// An event was found in a list, which holds those of pods that are long gone: of a pod that is
    /// not known, an old one is left out, so that it does not take the place of what is yet to be
    /// needed.
    pub fn event_listed(&mut self, event: &Event, now: Timestamp, out: &mut impl FnMut(Output)) {
        let happened = event.happened();
        let is_old = happened.is_none_or(|at| now.since(at).is_some_and(|age| age > STALE));
        if is_old && !self.lives.contains_key(&event.regarding.uid) {
            self.counts.events_stale += 1;
            return;
        }
        self.event(event, out);
    }

    /// Time has passed: tells what has waited for long enough.
    pub fn advance(&mut self, now: Timestamp, out: &mut impl FnMut(Output)) {
        self.now = self.now.max(Some(now));
        self.tell_due(out);
    }

    /// The process ends, and another goes on: tells what is settled, and leaves what is open to the
    /// other. One that stands by leaves all of it.
    pub fn shut_down(&mut self, out: &mut impl FnMut(Output)) {
        if self.is_standby {
            return;
        }
        while let Some(due) = self.due.pop_front() {
            self.tell(&due, out);
        }
    }

    /// Nothing more will come from anywhere: tells of every pod, in the order in which they were
    /// created.
    pub fn finish(&mut self, out: &mut impl FnMut(Output)) {
        self.due.clear();
        self.ended = 0;
        self.starting = 0;
        let mut lives: Vec<Life> = self.lives.drain().map(|(_, life)| *life).collect();
        lives.sort_unstable_by(|one, two| order(&one.record).cmp(&order(&two.record)));
        for life in lives {
            let record = Arc::new(life.record);
            if matches!(life.startup, StartupReport::Open | StartupReport::Due) {
                out(Output::Startup(Arc::clone(&record)));
            }
            out(Output::Life(record));
        }
    }

    fn has_seen(&mut self, version: Option<u64>) {
        let Some((version, time)) = version.zip(self.now) else {
            return;
        };
        let seen = Checkpoint { version, time };
        self.newest = Some(seen.further(self.newest));
    }

    fn newest_version(&self) -> Option<u64> {
        self.newest.map(|newest| newest.version)
    }

    fn end(&mut self, uid: &Uid, end: End, version: Option<u64>, observed: Option<Timestamp>) {
        let Some(life) = self.lives.get_mut(uid) else {
            return;
        };
        if !life.end(end, observed) {
            return;
        }
        if life.startup == StartupReport::Open {
            life.startup = StartupReport::Due;
        }
        self.ended += 1;
        self.counts.vanished += u64::from(end == End::Vanished);
        self.come_due(uid, true, version, None);
    }

    fn come_due(
        &mut self,
        uid: &Uid,
        is_life: bool,
        version: Option<u64>,
        happened: Option<Timestamp>,
    ) {
        let due = Due {
            since: self.now,
            uid: uid.clone(),
            is_life,
            version,
            happened,
        };
        if self.is_told_elsewhere(version, happened) {
            self.counts.told_elsewhere += 1;
            self.forget(&due);
        } else {
            self.due.push_back(due);
        }
    }

    fn learn_early(&mut self, uid: &Uid, event: &Event) {
        if let Some(facts) = self.early.get_mut(uid) {
            facts.learn(event);
            return;
        }
        while self.early.len() >= self.config.most_early.max(1) {
            let Some(oldest) = self.early_order.pop_front() else {
                break;
            };
            // Those whose pod came are no longer there.
            if self.early.remove(&oldest).is_some() {
                self.counts.early_dropped += 1;
            }
        }
        if self.early_order.len() >= 2 * self.config.most_early.max(1) {
            self.early_order.retain(|uid| self.early.contains_key(uid));
        }
        let mut facts = Facts::default();
        facts.learn(event);
        self.early.insert(uid.clone(), facts);
        self.early_order.push_back(uid.clone());
    }
}

/// By age, and then by name.
fn order(record: &PodRecord) -> (Option<Timestamp>, &str, &str, &Uid) {
    let identity = &record.pod.summary.identity;
    let created = record.milestones.created.best();
    (created, &identity.namespace, &identity.name, &identity.uid)
}
