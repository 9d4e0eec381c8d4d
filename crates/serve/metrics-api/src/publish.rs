//! From a publication to the next catalog.
//!
//! Rendering happens outside of any lock. Then one publication at a time takes effect: it numbers
//! what has changed, and puts the next catalog in the place of the last.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use hashbrown::HashMap;
use kubevitals_model::{Labels, NodeName};
use kubevitals_usage::NodeUsage;

use crate::api::State;
use crate::catalog::{Catalog, NodeEntry, PodSlot};
use draft::Draft;

mod draft;

/// What only publications need.
pub(crate) struct Writer {
    numbers: HashMap<NodeName, u32>,
    free: Vec<u32>,
    /// Pods that another node claims too: the node that claimed a name last has it. Rarely any.
    displaced: Vec<Arc<PodSlot>>,
    log: VecDeque<LogEntry>,
    /// How many entries the log has at most.
    most_logged: usize,
    /// Up to this version the log is forgotten.
    forgotten: u64,
}

/// What cannot be seen from the objects that are there, and with which version it happened.
#[derive(Clone)]
pub(crate) struct LogEntry {
    pub(crate) version: u64,
    pub(crate) what: Logged,
}

/// What happened; pods come with the name of their node.
#[derive(Clone)]
pub(crate) enum Logged {
    NodeGone(NodeName, Labels),
    PodGone(Arc<PodSlot>, NodeName),
    /// The node that had claimed the pod's name has given it up.
    PodBack(Arc<PodSlot>, NodeName),
}

/// What a publication changes.
struct Change<'a> {
    node: &'a NodeName,
    before: Option<&'a NodeEntry>,
    after: Option<&'a NodeEntry>,
    added: &'a [Arc<PodSlot>],
    removed: &'a [Arc<PodSlot>],
}

impl Writer {
    pub(crate) fn new(version: u64, most_logged: usize) -> Self {
        Self {
            numbers: HashMap::new(),
            free: Vec::new(),
            displaced: Vec::new(),
            log: VecDeque::new(),
            most_logged,
            forgotten: version,
        }
    }

    /// What happened after a version, oldest first; `None` if some of it is forgotten.
    pub(crate) fn log_since(&self, version: u64) -> Option<Vec<LogEntry>> {
        if version < self.forgotten {
            return None;
        }
        let first = self.log.partition_point(|entry| entry.version <= version);
        Some(self.log.iter().skip(first).cloned().collect())
    }

    fn number(&mut self, node: &NodeName) -> u32 {
        if let Some(number) = self.numbers.get(node) {
            return *number;
        }
        let next =
            u32::try_from(self.numbers.len()).expect("there are fewer nodes than 32 bits count");
        let number = self.free.pop().unwrap_or(next);
        self.numbers.insert(node.clone(), number);
        number
    }

    fn log(&mut self, version: u64, what: Logged) {
        if self.log.len() >= self.most_logged
            && let Some(oldest) = self.log.pop_front()
        {
            self.forgotten = oldest.version;
        }
        if self.most_logged == 0 {
            self.forgotten = version;
        } else {
            self.log.push_back(LogEntry { version, what });
        }
    }
}

impl State {
    /// Serves a node and its pods as they are now.
    pub(crate) fn publish(&self, view: &NodeUsage<'_>) {
        let number = self.writer().number(view.node);
        let before = self.catalog.load().nodes.get(number).cloned();
        let draft = Draft::of(view, number, before.as_deref());

        let mut writer = self.writer();
        let last = self.catalog.load_full();
        let mut next = next_of(&last);
        let relabelled = before
            .as_ref()
            .filter(|before| before.own.is_some())
            .filter(|before| draft.own.is_none() || before.labels != *view.labels);
        if let Some(before) = relabelled {
            next.version += 1;
            let gone = Logged::NodeGone(before.name.clone(), before.labels.clone());
            writer.log(next.version, gone);
        }
        let entry = draft.number(view, &mut next.version, &self.alive, before.as_deref());
        let (added, removed, entry) = entry;
        if before.is_none() {
            let at = next.find_node(view.node.as_str()).unwrap_or_else(|at| at);
            let mut order = Vec::clone(&next.node_order);
            order.insert(at.min(order.len()), number);
            next.node_order = Arc::new(order);
        }
        self.current
            .fetch_add(entry.counted.bytes, Ordering::Relaxed);
        let entry = Arc::new(entry);
        let replaced = next.nodes.set(number, Some(Arc::clone(&entry)));
        let change = Change {
            node: view.node,
            before: replaced.as_deref(),
            after: Some(&entry),
            added: &added,
            removed: &removed,
        };
        self.commit(&mut writer, next, &change);
        self.forget(replaced);
    }

    /// Serves nothing of a node any more.
    pub(crate) fn withdraw(&self, node: &NodeName) {
        let mut writer = self.writer();
        let Some(number) = writer.numbers.remove(node) else {
            return;
        };
        let last = self.catalog.load_full();
        let mut next = next_of(&last);
        let at = next.find_node(node.as_str());
        let gone = next.nodes.set(number, None);
        writer.free.push(number);
        let Some(gone) = gone else {
            return;
        };
        if let Ok(at) = at {
            let mut order = Vec::clone(&next.node_order);
            order.remove(at);
            next.node_order = Arc::new(order);
        }
        next.version += 1;
        if gone.own.is_some() {
            let departed = Logged::NodeGone(gone.name.clone(), gone.labels.clone());
            writer.log(next.version, departed);
        }
        let removed: Vec<_> = gone.pods.iter().map(|pod| Arc::clone(&pod.slot)).collect();
        let change = Change {
            node,
            before: Some(&gone),
            after: None,
            added: &[],
            removed: &removed,
        };
        self.commit(&mut writer, next, &change);
        self.forget(Some(gone));
    }

    /// Puts a catalog in the place of the last, once pods have come and gone.
    fn commit(&self, writer: &mut Writer, mut next: Catalog, change: &Change<'_>) {
        let &Change { before, after, .. } = change;
        if change.added.is_empty() && change.removed.is_empty() {
            let hidden = &*writer.displaced;
            next.lengths.replace(before, after, (hidden, hidden));
            self.serve(next);
            return;
        }
        let hidden_before = writer.displaced.clone();
        // Held until the catalog is in its place: who reads by labels sees both or neither.
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        for slot in change.removed {
            next.version += 1;
            if !next.pods.remove(slot) {
                writer.displaced.retain(|own| !Arc::ptr_eq(own, slot));
                continue;
            }
            groups.remove(slot);
            writer.log(
                next.version,
                Logged::PodGone(Arc::clone(slot), change.node.clone()),
            );
            let other = writer.displaced.iter();
            if let Some(at) = other.rev().position(|own| own.key == slot.key) {
                let other = writer.displaced.remove(writer.displaced.len() - 1 - at);
                next.pods.insert(&other);
                groups.insert(&other);
                if let Some(entry) = next.nodes.get(other.node) {
                    if entry.name != *change.node {
                        next.lengths.show(entry, &other);
                    }
                    next.version += 1;
                    let back = Logged::PodBack(other, entry.name.clone());
                    writer.log(next.version, back);
                }
            }
        }
        for slot in change.added {
            if let Some(other) = next.pods.insert(slot) {
                groups.remove(&other);
                if let Some(entry) = next.nodes.get(other.node) {
                    if entry.name != *change.node {
                        next.lengths.hide(entry, &other);
                    }
                    next.version += 1;
                    let gone = Logged::PodGone(Arc::clone(&other), entry.name.clone());
                    writer.log(next.version, gone);
                }
                writer.displaced.push(other);
            }
            groups.insert(slot);
        }
        let hidden = (&*hidden_before, &*writer.displaced);
        next.lengths.replace(before, after, hidden);
        self.serve(next);
    }

    fn serve(&self, next: Catalog) {
        let version = next.version;
        self.catalog.store(Arc::new(next));
        // A node that said nothing new wakes nobody.
        let newer = |last: &mut u64| std::mem::replace(last, version) != version;
        self.versions.send_if_modified(newer);
    }

    fn forget(&self, entry: Option<Arc<NodeEntry>>) {
        if let Some(entry) = entry {
            self.current
                .fetch_sub(entry.counted.bytes, Ordering::Relaxed);
        }
    }
}

/// All that the next catalog shares with the last.
fn next_of(last: &Catalog) -> Catalog {
    Catalog {
        version: last.version,
        nodes: last.nodes.clone(),
        node_order: Arc::clone(&last.node_order),
        pods: last.pods.clone(),
        lengths: last.lengths.clone(),
    }
}
