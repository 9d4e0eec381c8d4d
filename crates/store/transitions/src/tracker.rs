//! All pods that are followed, and when what is to be told of them.
//!
//! The tracker is owned by one task and has no locks. It is given states and events in whatever order the two streams
//! come, and hands out records: for each pod one of its start, once it is ready or never will be, and one of its life, once
//! it is gone. Both wait for a while ([`TrackerConfig::linger`]), since events arrive apart from states and later.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::hash_map::Entry;
use hashbrown::{HashMap, HashSet};
use kubevitals_model::Timestamp;
use kubevitals_watch::{Event, Pod, Uid};

use crate::facts::Facts;
use crate::life::{Life, StartupReport, was_ready};
use crate::record::{End, PodRecord};

/// How a tracker works.
#[derive(Debug, Clone)]
pub struct TrackerConfig {
    /// How long late events are waited for; without an end, until [`Tracker::finish`].
    pub linger: Option<Duration>,
    /// Which of the pods that existed before the start are told of.
    pub existing: Existing,
    /// Whether every change is told until a pod is ready.
    pub progress: bool,
    /// Pods that are followed at most; those beyond are counted and left out.
    pub most_pods: usize,
    /// Pods that are gone and wait for late events at most; the oldest is told early.
    pub most_ended: usize,
    /// Pods of which events are kept before the pod itself is seen; the oldest is dropped.
    pub most_early: usize,
}

/// Which of the pods that existed before the start are told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Existing {
    /// Those that are still starting, and those created since a time up to which another process has told of them.
    Unsettled {
        /// The time; none if there was no other process.
        since: Option<Timestamp>,
    },
    /// All.
    All,
}

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

/// What happened to everything that was given in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// States of pods that were news.
    pub states: u64,
    /// States that were known already or older than those known.
    pub repeated: u64,
    /// Events that were taken in.
    pub events: u64,
    /// Events that say nothing that is used here.
    pub events_unused: u64,
    /// Events of pods that had been told of already.
    pub events_late: u64,
    /// Pods that did not come, or came too late, of which events were dropped.
    pub early_dropped: u64,
    /// States of pods that were left out because too many are followed.
    pub refused: u64,
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
    told: Told,
    /// The newest time that this process has shown.
    now: Option<Timestamp>,
    counts: Counts,
}

#[derive(Debug)]
struct Due {
    since: Option<Timestamp>,
    uid: Uid,
    /// Whether it is the life that is over, or only the start.
    is_life: bool,
}

/// The last pods that were told of to the end, so that a late word does not raise one.
#[derive(Debug, Default)]
struct Told {
    uids: HashSet<Uid>,
    order: VecDeque<Uid>,
}

/// Enough for a minute of the fastest cluster.
const MOST_TOLD: usize = 65_536;

impl Default for TrackerConfig {
    fn default() -> Self {
        Self {
            linger: Some(Duration::from_secs(3)),
            existing: Existing::Unsettled { since: None },
            progress: false,
            most_pods: 1_000_000,
            most_ended: 50_000,
            most_early: 10_000,
        }
    }
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
            told: Told::default(),
            now: None,
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
        let uid = &pod.brief.identity.uid;
        if self.told.has(uid) {
            self.counts.repeated += 1;
            return;
        }
        let is_full = self.lives.len() >= self.config.most_pods;
        let life = match self.lives.entry(uid.clone()) {
            Entry::Occupied(known) => {
                let life = known.into_mut();
                if !life.apply(pod, observed) {
                    self.counts.repeated += 1;
                    return;
                }
                life
            }
            Entry::Vacant(_) if is_full => {
                self.counts.refused += 1;
                return;
            }
            Entry::Vacant(place) => {
                let facts = self.early.remove(uid).unwrap_or_default();
                let startup = self.config.existing.startup(pod, arrival);
                place.insert(Box::new(Life::begin(pod, facts, startup, observed)))
            }
        };
        self.counts.states += 1;
        if life.startup == StartupReport::Open {
            if life.record.is_settled() {
                life.startup = StartupReport::Due;
                self.due.push_back(Due {
                    since: self.now,
                    uid: uid.clone(),
                    is_life: false,
                });
            } else if self.config.progress {
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
        let uid = &pod.brief.identity.uid;
        let end = match arrival {
            Arrival::Live => End::Deleted,
            Arrival::Listed | Arrival::Relisted => End::Vanished,
        };
        let Some(life) = self.lives.get_mut(uid) else {
            return;
        };
        if life.end(end, observed) {
            if life.startup == StartupReport::Open {
                life.startup = StartupReport::Due;
            }
            self.ended += 1;
            self.due.push_back(Due {
                since: self.now,
                uid: uid.clone(),
                is_life: true,
            });
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
            if self.config.progress && life.startup == StartupReport::Open {
                out(Output::Progress(Arc::new(life.record.clone())));
            }
        } else if self.told.has(uid) {
            self.counts.events_late += 1;
        } else {
            self.counts.events += 1;
            self.learn_early(uid, event);
        }
    }

    /// Time has passed: tells what has waited for long enough.
    pub fn advance(&mut self, now: Timestamp, out: &mut impl FnMut(Output)) {
        self.now = self.now.max(Some(now));
        self.tell_due(out);
    }

    /// The process ends, and another goes on: tells what is settled, and leaves what is open to the other.
    pub fn shut_down(&mut self, out: &mut impl FnMut(Output)) {
        while let Some(due) = self.due.pop_front() {
            self.tell(&due, out);
        }
    }

    /// Nothing more will come from anywhere: tells of every pod, in the order in which they were created.
    pub fn finish(&mut self, out: &mut impl FnMut(Output)) {
        self.due.clear();
        self.ended = 0;
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

    fn tell_due(&mut self, out: &mut impl FnMut(Output)) {
        while let Some(first) = self.due.front() {
            let has_waited = self.config.linger.is_some_and(|linger| {
                let until = first.since.and_then(|since| since.checked_add(linger));
                until <= self.now
            });
            let is_full = self.ended > self.config.most_ended;
            if !has_waited && !is_full {
                return;
            }
            if let Some(due) = self.due.pop_front() {
                self.tell(&due, out);
            }
        }
    }

    fn tell(&mut self, due: &Due, out: &mut impl FnMut(Output)) {
        let Some(life) = self.lives.get_mut(&due.uid) else {
            return;
        };
        if life.startup == StartupReport::Due {
            life.startup = StartupReport::Told;
            out(Output::Startup(Arc::new(life.record.clone())));
        }
        if due.is_life
            && let Some(life) = self.lives.remove(&due.uid)
        {
            self.ended = self.ended.saturating_sub(1);
            self.told.add(due.uid.clone());
            out(Output::Life(Arc::new(life.record)));
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

impl Existing {
    fn startup(self, pod: &Pod, arrival: Arrival) -> StartupReport {
        let is_ours = match (arrival, self) {
            (Arrival::Live | Arrival::Relisted, _) | (_, Self::All) => true,
            (Arrival::Listed, Self::Unsettled { since }) => {
                let is_settled = pod.brief.phase.is_final()
                    || pod.details.deleted.is_some()
                    || was_ready(pod)
                    || pod
                        .conditions
                        .iter()
                        .any(|condition| &*condition.kind == "Ready" && condition.is_true());
                let is_new = since
                    .zip(pod.details.created)
                    .is_some_and(|(since, created)| created >= since);
                !is_settled || is_new
            }
        };
        if is_ours {
            StartupReport::Open
        } else {
            StartupReport::NotOurs
        }
    }
}

impl Told {
    fn has(&self, uid: &Uid) -> bool {
        self.uids.contains(uid)
    }

    fn add(&mut self, uid: Uid) {
        if self.order.len() >= MOST_TOLD
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
        self.uids.insert(uid.clone());
        self.order.push_back(uid);
    }
}

/// By age, and then by name.
fn order(record: &PodRecord) -> (Option<Timestamp>, &str, &str, &Uid) {
    let identity = &record.pod.brief.identity;
    let created = record.milestones.created.best();
    (created, &identity.namespace, &identity.name, &identity.uid)
}
