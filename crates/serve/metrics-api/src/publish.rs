//! Turns a publication into the next snapshot.
//!
//! Encoding happens without a lock. Then one publication at a time is committed: it gives every
//! change a version and replaces the current snapshot.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hashbrown::HashMap;
use kubevitals_model::{Labels, NodeName};
use kubevitals_usage::NodeUsage;

use crate::api::Snapshots;
use crate::snapshot::{NodeEntry, PodSlot, Snapshot};
use pending_node::PendingNode;

mod pending_node;

/// State that only commits and watches need.
pub(crate) struct Writer {
    node_ids: HashMap<NodeName, u32>,
    free_ids: Vec<u32>,
    /// Pods whose name another node has claimed since: the last claim wins. Rarely any.
    displaced: Vec<Arc<PodSlot>>,
    log: VecDeque<LogEntry>,
    max_log_len: usize,
    /// The log holds all events after this version.
    truncated_at: u64,
}

/// An event that the current objects do not show, and its version.
#[derive(Clone)]
pub(crate) struct LogEntry {
    pub(crate) version: u64,
    pub(crate) event: LogEvent,
}

/// A deletion or restoration; pods with the name of their node.
#[derive(Clone)]
pub(crate) enum LogEvent {
    NodeDeleted(NodeName, Labels),
    PodDeleted(Arc<PodSlot>, NodeName),
    /// The other node that claimed the pod's name has given it up.
    PodRestored(Arc<PodSlot>, NodeName),
}

/// The effect of a publication on the nodes and pods.
struct Change<'a> {
    node: &'a NodeName,
    before: Option<&'a NodeEntry>,
    after: Option<&'a NodeEntry>,
    added: &'a [Arc<PodSlot>],
    removed: &'a [Arc<PodSlot>],
}

impl Writer {
    pub(crate) fn new(version: u64, max_log_len: usize) -> Self {
        Self {
            node_ids: HashMap::new(),
            free_ids: Vec::new(),
            displaced: Vec::new(),
            log: VecDeque::new(),
            max_log_len,
            truncated_at: version,
        }
    }

    /// Returns the events after a version, oldest first; `None` if some are no longer kept.
    pub(crate) fn log_since(&self, version: u64) -> Option<Vec<LogEntry>> {
        if version < self.truncated_at {
            return None;
        }
        let first = self.log.partition_point(|entry| entry.version <= version);
        Some(self.log.iter().skip(first).cloned().collect())
    }

    fn node_id(&mut self, node: &NodeName) -> u32 {
        if let Some(id) = self.node_ids.get(node) {
            return *id;
        }
        let next =
            u32::try_from(self.node_ids.len()).expect("there are fewer nodes than 32 bits count");
        let id = self.free_ids.pop().unwrap_or(next);
        self.node_ids.insert(node.clone(), id);
        id
    }

    fn log(&mut self, version: u64, event: LogEvent) {
        if self.log.len() >= self.max_log_len
            && let Some(oldest) = self.log.pop_front()
        {
            self.truncated_at = oldest.version;
        }
        if self.max_log_len == 0 {
            self.truncated_at = version;
        } else {
            self.log.push_back(LogEntry { version, event });
        }
    }
}

impl Snapshots {
    /// Replaces the usage of a node and its pods.
    pub(crate) fn publish(&self, usage: &NodeUsage<'_>) {
        let id = self.writer.lock().node_id(usage.node);
        let before = self.current.load().nodes.get(id).cloned();
        let pending = PendingNode::encode(usage, id, before.as_deref());

        let mut writer = self.writer.lock();
        let last = self.current.load_full();
        let mut next = next_of(&last);
        let relabelled = before
            .as_ref()
            .filter(|before| before.own.is_some())
            .filter(|before| pending.own.is_none() || before.labels != *usage.labels);
        if let Some(before) = relabelled {
            next.version += 1;
            let deleted = LogEvent::NodeDeleted(before.name.clone(), before.labels.clone());
            writer.log(next.version, deleted);
        }
        let version = &mut next.version;
        let (added, removed, entry) =
            pending.assign_versions(usage, version, &self.live_bytes, before.as_deref());
        if before.is_none() {
            let at = next.find_node(usage.node.as_str()).unwrap_or_else(|at| at);
            let mut order = Vec::clone(&next.node_order);
            order.insert(at.min(order.len()), id);
            next.node_order = Arc::new(order);
        }
        self.current_bytes
            .fetch_add(entry.size.bytes, Ordering::Relaxed);
        let entry = Arc::new(entry);
        let replaced = next.nodes.set(id, Some(Arc::clone(&entry)));
        let change = Change {
            node: usage.node,
            before: replaced.as_deref(),
            after: Some(&entry),
            added: &added,
            removed: &removed,
        };
        self.commit(&mut writer, next, &change);
        self.release(replaced);
    }

    /// Stops serving a node and its pods.
    pub(crate) fn withdraw(&self, node: &NodeName) {
        let mut writer = self.writer.lock();
        let Some(id) = writer.node_ids.remove(node) else {
            return;
        };
        let last = self.current.load_full();
        let mut next = next_of(&last);
        let at = next.find_node(node.as_str());
        let gone = next.nodes.set(id, None);
        writer.free_ids.push(id);
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
            let deleted = LogEvent::NodeDeleted(gone.name.clone(), gone.labels.clone());
            writer.log(next.version, deleted);
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
        self.release(Some(gone));
    }

    /// Replaces the current snapshot, after adding and removing pods.
    fn commit(&self, writer: &mut Writer, mut next: Snapshot, change: &Change<'_>) {
        let &Change { before, after, .. } = change;
        if change.added.is_empty() && change.removed.is_empty() {
            let hidden = &*writer.displaced;
            next.sizes.replace(before, after, (hidden, hidden));
            self.serve(next);
            return;
        }
        let hidden_before = writer.displaced.clone();
        // Held until the snapshot is replaced: a reader by labels sees both or neither.
        let mut label_index = self.label_index.write();
        for slot in change.removed {
            next.version += 1;
            if !next.pods.remove(slot) {
                writer.displaced.retain(|own| !Arc::ptr_eq(own, slot));
                continue;
            }
            label_index.remove(slot);
            writer.log(
                next.version,
                LogEvent::PodDeleted(Arc::clone(slot), change.node.clone()),
            );
            let other = writer.displaced.iter();
            if let Some(at) = other.rev().position(|own| own.key == slot.key) {
                let other = writer.displaced.remove(writer.displaced.len() - 1 - at);
                next.pods.insert(&other);
                label_index.insert(&other);
                if let Some(entry) = next.nodes.get(other.node) {
                    if entry.name != *change.node {
                        next.sizes.show(entry, &other);
                    }
                    next.version += 1;
                    let restored = LogEvent::PodRestored(other, entry.name.clone());
                    writer.log(next.version, restored);
                }
            }
        }
        for slot in change.added {
            if let Some(other) = next.pods.insert(slot) {
                label_index.remove(&other);
                if let Some(entry) = next.nodes.get(other.node) {
                    if entry.name != *change.node {
                        next.sizes.hide(entry, &other);
                    }
                    next.version += 1;
                    let deleted = LogEvent::PodDeleted(Arc::clone(&other), entry.name.clone());
                    writer.log(next.version, deleted);
                }
                writer.displaced.push(other);
            }
            label_index.insert(slot);
        }
        let hidden = (&*hidden_before, &*writer.displaced);
        next.sizes.replace(before, after, hidden);
        self.serve(next);
    }

    fn serve(&self, next: Snapshot) {
        let version = next.version;
        self.current.store(Arc::new(next));
        // An unchanged node wakes no watch.
        let newer = |last: &mut u64| std::mem::replace(last, version) != version;
        self.revisions.send_if_modified(newer);
    }

    fn release(&self, entry: Option<Arc<NodeEntry>>) {
        if let Some(entry) = entry {
            self.current_bytes
                .fetch_sub(entry.size.bytes, Ordering::Relaxed);
        }
    }
}

/// Returns a copy that shares everything with the last snapshot.
fn next_of(last: &Snapshot) -> Snapshot {
    Snapshot {
        version: last.version,
        nodes: last.nodes.clone(),
        node_order: Arc::clone(&last.node_order),
        pods: last.pods.clone(),
        sizes: last.sizes.clone(),
    }
}
