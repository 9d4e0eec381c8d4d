//! One node: its samples, its pods and their containers, and what was last told of them.
//!
//! All of it lies behind the node's own lock. Nothing here knows of another node.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use kubevitals_model::{
    AsPodSummary, ContainerKey, ContainerKeyRef, ContainerSample, Interner, Labels, NodeBatch,
    NodeName, NodeSample, PodPhase, PodSummary, Timestamp, Uid,
};

use self::scratch::Scratch;
use self::table::{Container, Table, key_of};
use crate::directory::Directory;
use crate::metrics::{Dropped, UsageMetrics};
use crate::publisher::{NodeUsage, UsagePublisher};
use crate::rules::{Moment, Rules};
use crate::series::{Series, Taken};
use crate::store::Ingested;

mod explain;
mod scratch;
pub(crate) mod table;

/// Containers of unknown pods that are held for a node: more than a node starts between two looks
/// at the API, and all of a usual node while the first list of pods is still on its way.
const MAX_HELD: usize = 512;

/// What is known of a node.
pub(crate) struct NodeState {
    name: NodeName,
    labels: Labels,
    uid: Option<Uid>,
    standing: Standing,
    /// Whether something changed that was not told yet.
    is_dirty: bool,
    usage: Series,
    pods: Table,
    /// Samples of pods that the API has not told of yet, so that their first rate comes no later
    /// for it.
    held: BTreeMap<ContainerKey, Series>,
    failure: Option<Failure>,
    answered: Option<Timestamp>,
    told: Told,
    /// Whether it is served although it was last asked in vain.
    is_kept: bool,
    /// When it was last looked for what is too old, and until when there can be nothing.
    settled: Range<Moment>,
}

/// Why a node is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Its Node object is there.
    Declared,
    /// Only pods are known that are bound to it.
    OnlyBound,
    /// It was taken out of the store: who still holds it must look again.
    Dead,
}

/// Why the node was last asked in vain.
#[derive(Debug, Clone)]
struct Failure {
    why: Arc<str>,
    since: Timestamp,
    next_attempt: Option<Timestamp>,
}

/// How much was told at the last publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Told {
    pub(crate) nodes: u32,
    pub(crate) pods: u32,
    pub(crate) containers: u32,
}

/// What everything that happens to a node needs besides the node.
#[derive(Clone, Copy)]
pub(crate) struct Surroundings<'a> {
    pub(crate) rules: Rules<'a>,
    pub(crate) directory: &'a Directory,
    pub(crate) names: &'a Interner,
    pub(crate) metrics: &'a UsageMetrics,
    pub(crate) publishers: &'a [Arc<dyn UsagePublisher>],
}

impl NodeState {
    /// A node of which nothing is known but its name.
    pub(crate) fn new(name: NodeName) -> Self {
        Self {
            name,
            labels: Labels::default(),
            uid: None,
            standing: Standing::OnlyBound,
            is_dirty: false,
            usage: Series::default(),
            pods: Table::default(),
            held: BTreeMap::new(),
            failure: None,
            answered: None,
            told: Told::default(),
            is_kept: false,
            settled: Moment::NEVER..Moment::NEVER,
        }
    }

    pub(crate) fn name(&self) -> &NodeName {
        &self.name
    }

    pub(crate) fn is_declared(&self) -> bool {
        self.standing == Standing::Declared
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.standing == Standing::Dead
    }

    /// Marks the node as taken out of the store if nothing depends on it any more.
    pub(crate) fn bury(&mut self) -> bool {
        if !self.is_declared() && self.pods.is_empty() {
            self.standing = Standing::Dead;
        }
        self.is_dead()
    }

    /// The Node object is new or has changed; gives whether there is something to tell.
    pub(crate) fn declare(&mut self, labels: &Labels, uid: &Uid, metrics: &UsageMetrics) -> bool {
        if self.uid.as_ref().is_some_and(|known| known != uid) {
            // Another machine under the same name: what the old one counted has nothing to do with
            // it.
            self.forget_samples();
            self.is_dirty = true;
        }
        self.is_dirty |= !self.is_declared() || self.labels != *labels;
        if !self.is_declared() {
            metrics.known_nodes.inc();
        }
        self.standing = Standing::Declared;
        self.labels = labels.clone();
        self.uid = Some(uid.clone());
        self.is_dirty
    }

    /// The Node object is gone. Pods that are still bound to it stay known until they are deleted
    /// too.
    pub(crate) fn undeclare(
        &mut self,
        metrics: &UsageMetrics,
        publishers: &[Arc<dyn UsagePublisher>],
    ) {
        if !self.is_declared() {
            return;
        }
        self.standing = Standing::OnlyBound;
        self.is_dirty = false;
        self.uid = None;
        self.labels = Labels::default();
        self.forget_samples();
        metrics.known_nodes.dec();
        self.account(Told::default(), metrics);
        for publisher in publishers {
            publisher.withdraw(&self.name);
        }
    }

    fn forget_samples(&mut self) {
        self.usage = Series::default();
        self.pods.clear_containers();
        self.held = BTreeMap::new();
        self.failure = None;
        self.answered = None;
    }

    /// A pod that is bound to this node is new or has changed; gives whether there is something to
    /// tell.
    pub(crate) fn pod_applied(&mut self, pod: &Arc<dyn AsPodSummary>) -> bool {
        let summary = pod.summary();
        let found = self.pods.find(key_of(summary));
        if summary.phase.is_final() {
            self.is_dirty |= found.is_ok();
            if let Ok(at) = found {
                self.pods.remove(at);
            }
            return self.is_dirty;
        }
        match found {
            Ok(at) if self.is_same_pod(at, summary) => {
                self.is_dirty |= self.pods.pod(at).is_some_and(|known| {
                    known.labels != summary.labels || is_running(known) != is_running(summary)
                });
                self.pods.replace(at, Arc::clone(pod));
            }
            Ok(at) => {
                self.pods.remove(at);
                self.pods.insert(at, Arc::clone(pod));
                self.is_dirty = true;
            }
            Err(at) => {
                self.pods.insert(at, Arc::clone(pod));
                self.adopt(at);
            }
        }
        self.is_dirty
    }

    /// A pod is no longer bound to this node; gives whether there is something to tell.
    pub(crate) fn pod_deleted(&mut self, pod: &PodSummary) -> bool {
        if let Ok(at) = self.pods.find(key_of(pod))
            && self.is_same_pod(at, pod)
        {
            self.is_dirty |= !self.pods.containers(at).is_empty();
            self.pods.remove(at);
        }
        self.is_dirty
    }

    fn is_same_pod(&self, at: usize, pod: &PodSummary) -> bool {
        self.pods
            .pod(at)
            .is_some_and(|known| known.identity.uid == pod.identity.uid)
    }

    /// Gives a pod that has become known the samples that were held for it.
    fn adopt(&mut self, at: usize) {
        let Some(pod) = self.pods.pod(at) else { return };
        let key = key_of(pod).to_owned_key();
        let is_its = |name: &&ContainerKey| *name.pod() == key;
        let own: Vec<ContainerKey> = self.held.keys().filter(is_its).cloned().collect();
        for name in own {
            if let Some(series) = self.held.remove(&name) {
                let name = Arc::clone(name.container());
                self.pods.add_container(at, Container { name, series });
                self.is_dirty = true;
            }
        }
        self.free_held();
    }

    /// A map that has been emptied keeps its last leaf, which is larger than all else that a node
    /// without pods needs.
    fn free_held(&mut self) {
        if self.held.is_empty() {
            self.held = BTreeMap::new();
        }
    }

    /// Takes in an answer of the kubelet, and tells what is new.
    pub(crate) fn ingest(&mut self, batch: &NodeBatch, around: &Surroundings<'_>) -> Ingested {
        let mut done = Ingested::default();
        if !self.is_declared() {
            around.metrics.dropped(Dropped::UnknownNode, batch.len());
            return done;
        }
        done.known_node = true;
        self.failure = None;
        self.note_kept(around.metrics);
        self.answered = Some(around.rules.now);
        let of_node = self.usage.take(&as_container(&batch.node), &around.rules);
        let is_node_new = matches!(of_node, Taken::New { .. });
        done.new_sample = is_node_new;
        around.metrics.took(of_node, self.usage.state());
        self.pods.fetch();
        let mut at = 0;
        for (key, sample) in batch.containers() {
            match self.pods.find_near(key.pod, at) {
                Some(found) => {
                    at = found;
                    self.take(found, key.container, sample, &mut done, around);
                }
                None => self.hold(key, sample, &mut done, around),
            }
        }
        done.new_sample |= done.taken > 0;
        for (reason, count) in [
            (Dropped::Foreign, done.foreign),
            (Dropped::Overflow, done.overflowed),
        ] {
            if count > 0 {
                around.metrics.dropped(reason, count);
            }
        }
        // What is only held is news of the kubelet, but nothing to tell.
        if is_node_new || done.taken > 0 || self.is_dirty {
            self.tell(around);
        }
        done
    }

    /// Takes in a sample of a container of a pod that is bound to this node.
    fn take(
        &mut self,
        at: usize,
        name: &str,
        sample: &ContainerSample,
        done: &mut Ingested,
        around: &Surroundings<'_>,
    ) {
        let siblings = self.pods.containers(at);
        let index = siblings.iter().position(|sibling| *sibling.name == *name);
        if index.is_none() && sample.cpu.is_none() && sample.memory.is_none() {
            // A kubelet states when a container started before it knows anything else of it.
            around
                .metrics
                .took(Taken::WithoutCpu, Series::default().state());
            return;
        }
        let known = match index {
            Some(index) => self
                .pods
                .containers_mut(at)
                .get_mut(index)
                .map(|own| &mut own.series),
            None => self.pods.add_container(
                at,
                Container {
                    name: around.names.intern(name),
                    series: Series::default(),
                },
            ),
        };
        let Some(series) = known else {
            done.overflowed += 1;
            return;
        };
        let taken = series.take(sample, &around.rules);
        around.metrics.took(taken, series.state());
        match taken {
            Taken::New { .. } => done.taken += 1,
            Taken::Repeated => done.repeated += 1,
            Taken::Older => done.older += 1,
            Taken::WithoutCpu => {}
        }
    }

    /// Keeps a sample of a pod that is not known to be here: unless it is known to be elsewhere, or
    /// ended, the kubelet may be ahead of the API.
    fn hold(
        &mut self,
        key: ContainerKeyRef<'_>,
        sample: &ContainerSample,
        done: &mut Ingested,
        around: &Surroundings<'_>,
    ) {
        let is_foreign = around.directory.get(key.pod).is_some_and(|pod| {
            let pod = pod.summary();
            let is_elsewhere = pod
                .node
                .as_ref()
                .is_some_and(|node| **node != *self.name.as_str());
            is_elsewhere || pod.phase.is_final()
        });
        if is_foreign {
            done.foreign += 1;
            return;
        }
        let taken = if let Some(series) = self.held.get_mut(key.as_dyn()) {
            series.take(sample, &around.rules)
        } else if self.held.len() < MAX_HELD {
            let mut series = Series::default();
            let taken = series.take(sample, &around.rules);
            // Shared, as those of known pods are: the name of a container stays once its pod is
            // known.
            let names = around.names;
            let key = ContainerKey::new(
                names.intern(key.pod.namespace),
                key.pod.name,
                names.intern(key.container),
            );
            self.held.insert(key, series);
            taken
        } else {
            done.overflowed += 1;
            return;
        };
        done.held += 1;
        done.new_sample |= matches!(taken, Taken::New { .. });
    }

    /// The node was asked in vain. What is known stays.
    pub(crate) fn failed(
        &mut self,
        why: Arc<str>,
        next_attempt: Option<Timestamp>,
        now: Timestamp,
        metrics: &UsageMetrics,
    ) {
        if !self.is_declared() {
            return;
        }
        let since = self.failure.as_ref().map_or(now, |failure| failure.since);
        self.failure = Some(Failure {
            why,
            since,
            next_attempt,
        });
        self.note_kept(metrics);
    }

    /// Drops what is too old, and tells of it.
    pub(crate) fn expire(&mut self, around: &Surroundings<'_>) {
        let rules = &around.rules;
        // Nearly always: a node that answers has nothing that is too old for another half a minute.
        if self.settled.contains(&rules.moment()) && !self.is_dirty {
            return;
        }
        if !self.held.is_empty() {
            let before = self.held.len();
            self.held.retain(|_, series| !series.is_silent(rules));
            let gone = before - self.held.len();
            around.metrics.dropped(Dropped::UnknownPod, gone);
            self.free_held();
        }
        let expired = |container: &&Container| container.series.has_expired(rules);
        let gone = self.pods.all_containers().iter().filter(expired).count();
        around.metrics.expired.inc_by(gone as u64);
        let is_gone = gone > 0 || self.usage.has_expired(rules);
        let is_forgotten = |own: &Container| own.series.is_forgotten(rules);
        if self.pods.all_containers().iter().any(is_forgotten) {
            self.pods.retain_containers(|own| !is_forgotten(own));
        }
        self.settle(rules);
        if is_gone || self.is_dirty {
            self.tell(around);
        }
    }

    /// Remembers until when nothing becomes too old. What is heard from now on does so later.
    fn settle(&mut self, rules: &Rules<'_>) {
        let containers = self.pods.all_containers().iter();
        let series = containers
            .map(|container| &container.series)
            .chain(self.held.values())
            .chain([&self.usage]);
        let oldest = series.filter_map(Series::oldest).min();
        let now = rules.moment();
        // After a clock was set back, what comes next is older than all that is there.
        self.settled = now..rules.fresh_until(oldest.map_or(now, |oldest| oldest.min(now)));
    }

    /// Tells what changes of pods and of the node itself have left to tell.
    pub(crate) fn flush(&mut self, around: &Surroundings<'_>) {
        if self.is_dirty {
            self.tell(around);
        }
    }

    fn tell(&mut self, around: &Surroundings<'_>) {
        self.is_dirty = false;
        if !self.is_declared() {
            return;
        }
        let usage = self.usage.serve(&around.rules);
        let mut told = Told {
            nodes: usage.is_some().into(),
            ..Told::default()
        };
        Scratch::with(|scratch| {
            for at in 0..self.pods.len() {
                if let Some((pod, containers)) = self.pods.entry_mut(at) {
                    let served = scratch.add(pod, containers, &around.rules);
                    told.pods += u32::from(served > 0);
                    told.containers += served;
                }
            }
            let usage = NodeUsage {
                node: &self.name,
                labels: &self.labels,
                usage: usage.as_ref(),
                pods: scratch.pods(),
                published: around.rules.now,
            };
            for publisher in around.publishers {
                publisher.publish(&usage);
            }
        });
        around.metrics.publications.inc();
        self.account(told, around.metrics);
    }

    fn account(&mut self, told: Told, metrics: &UsageMetrics) {
        metrics.told(self.told, told);
        self.told = told;
        self.note_kept(metrics);
    }

    /// Keeps count of the nodes that are served although they were last asked in vain.
    fn note_kept(&mut self, metrics: &UsageMetrics) {
        let is_kept = self.failure.is_some() && self.told != Told::default();
        match (self.is_kept, is_kept) {
            (false, true) => metrics.kept_nodes.inc(),
            (true, false) => metrics.kept_nodes.dec(),
            _ => return,
        };
        self.is_kept = is_kept;
    }
}

/// Only running pods are served, as metrics-server does.
fn is_running(pod: &PodSummary) -> bool {
    pod.phase == PodPhase::Running
}

/// A node's sample is that of a container without a start.
fn as_container(node: &NodeSample) -> ContainerSample {
    ContainerSample {
        cpu: node.cpu,
        memory: node.memory,
        swap: node.swap,
        ephemeral_storage: node.ephemeral_storage,
        cpu_now: node.cpu_now,
        started: None,
    }
}
