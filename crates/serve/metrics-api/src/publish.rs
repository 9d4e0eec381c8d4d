//! From a publication to the next catalog.
//!
//! Rendering happens outside of any lock. Then one publication at a time takes effect: it numbers what has changed, and
//! puts the next catalog in the place of the last.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use hashbrown::HashMap;
use kubevitals_model::{Labels, NodeName, Timestamp};
use kubevitals_usage::{NodeView, PodUsage};

use crate::api::State;
use crate::catalog::{Catalog, Counted, NodeEntry, OwnPiece, PodPiece, PodSlot};
use crate::render::proto::{Meta, Written, node_item, pod_item};

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

/// A node rendered, but not numbered yet: a `since` of zero stands for a change.
struct Draft {
    buffer: Vec<u8>,
    own: Option<OwnPiece>,
    pods: Vec<PodPiece>,
    added: Vec<Arc<PodSlot>>,
    removed: Vec<Arc<PodSlot>>,
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
    pub(crate) fn publish(&self, view: &NodeView<'_>) {
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
        let bytes = entry.counted.bytes;
        let replaced = next.nodes.set(number, Some(Arc::new(entry)));
        self.current.fetch_add(bytes, Ordering::Relaxed);
        self.commit(&mut writer, next, view.node, &added, &removed);
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
        self.commit(&mut writer, next, node, &[], &removed);
        self.forget(Some(gone));
    }

    /// Puts a catalog in the place of the last, once pods have come and gone.
    fn commit(
        &self,
        writer: &mut Writer,
        mut next: Catalog,
        node: &NodeName,
        added: &[Arc<PodSlot>],
        removed: &[Arc<PodSlot>],
    ) {
        if added.is_empty() && removed.is_empty() {
            self.serve(next);
            return;
        }
        // Held until the catalog is in its place: who reads by labels sees both or neither.
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        for slot in removed {
            next.version += 1;
            if !next.pods.remove(slot) {
                writer.displaced.retain(|own| !Arc::ptr_eq(own, slot));
                continue;
            }
            groups.remove(slot);
            writer.log(
                next.version,
                Logged::PodGone(Arc::clone(slot), node.clone()),
            );
            let other = writer.displaced.iter();
            if let Some(at) = other.rev().position(|own| own.key == slot.key) {
                let other = writer.displaced.remove(writer.displaced.len() - 1 - at);
                next.pods.insert(&other);
                groups.insert(&other);
                if let Some(entry) = next.nodes.get(other.node) {
                    next.version += 1;
                    let back = Logged::PodBack(other, entry.name.clone());
                    writer.log(next.version, back);
                }
            }
        }
        for slot in added {
            if let Some(other) = next.pods.insert(slot) {
                groups.remove(&other);
                if let Some(entry) = next.nodes.get(other.node) {
                    next.version += 1;
                    let gone = Logged::PodGone(Arc::clone(&other), entry.name.clone());
                    writer.log(next.version, gone);
                }
                writer.displaced.push(other);
            }
            groups.insert(slot);
        }
        self.serve(next);
    }

    fn serve(&self, next: Catalog) {
        let version = next.version;
        self.catalog.store(Arc::new(next));
        self.versions.send_replace(version);
    }

    fn forget(&self, entry: Option<Arc<NodeEntry>>) {
        if let Some(entry) = entry {
            self.current
                .fetch_sub(entry.counted.bytes, Ordering::Relaxed);
        }
    }
}

impl Draft {
    fn of(view: &NodeView<'_>, number: u32, before: Option<&NodeEntry>) -> Self {
        let room = before.map_or(0, |before| before.buffer.len() + 64);
        let mut draft = Self {
            buffer: Vec::with_capacity(room),
            own: None,
            pods: Vec::with_capacity(view.pods.len()),
            added: Vec::new(),
            removed: Vec::new(),
        };
        draft.own(view, before);
        let mut known = before.map_or(&[][..], |before| &before.pods).iter();
        let mut known_at = 0;
        let mut next = known.next();
        let mut last = None;
        let unsorted = !view.pods.is_sorted_by(|a, b| a.key <= b.key);
        let mut sorted: Vec<&PodUsage> = view.pods.iter().collect();
        if unsorted {
            sorted.sort_by(|a, b| a.key.cmp(&b.key));
        }
        for pod in sorted {
            // The same pod twice would be two items of one name.
            if last.replace(&pod.key) == Some(&pod.key) {
                continue;
            }
            while let Some(piece) = next.filter(|piece| piece.slot.key < pod.key) {
                draft.removed.push(Arc::clone(&piece.slot));
                next = known.next();
                known_at += 1;
            }
            let same = next.filter(|piece| piece.slot.key == pod.key);
            let own = same.filter(|piece| same_labels(&piece.slot.labels, &pod.labels));
            let old = own
                .and_then(|_| before?.pod_at(known_at))
                .map(|found| (found.item, found.since));
            let kept = draft.pod(view, pod, number, own.map(|piece| &piece.slot), old);
            if let Some(piece) = same {
                if !kept || own.is_none() {
                    draft.removed.push(Arc::clone(&piece.slot));
                }
                next = known.next();
                known_at += 1;
            }
        }
        let left = next.into_iter().chain(known);
        draft
            .removed
            .extend(left.map(|piece| Arc::clone(&piece.slot)));
        draft
    }

    fn own(&mut self, view: &NodeView<'_>, before: Option<&NodeEntry>) {
        let Some(usage) = view.usage else {
            return;
        };
        let meta = Meta {
            name: view.node.as_str(),
            namespace: "",
            created: view.published,
            labels: view.labels,
        };
        let written = node_item(&mut self.buffer, meta, usage);
        let same = before.filter(|before| same_labels(&before.labels, view.labels));
        let old = same.and_then(|before| Some((before.own()?.item, before.own?)));
        let since = old.filter(|(item, _)| self.unchanged(0, item, &written));
        let Ok(end) = u32::try_from(self.buffer.len()) else {
            self.buffer.clear();
            return;
        };
        self.own = Some(OwnPiece {
            end,
            age: age(view.published, usage.timestamp),
            since: since.map_or(0, |(_, own)| own.since),
            born: old.map_or(0, |(_, own)| own.born),
        });
    }

    /// Renders a pod. Without a container, or beyond the 4 GiB that a node can have, there is nothing to serve.
    fn pod(
        &mut self,
        view: &NodeView<'_>,
        pod: &PodUsage,
        number: u32,
        slot: Option<&Arc<PodSlot>>,
        old: Option<(&[u8], u64)>,
    ) -> bool {
        let Some(oldest) = pod.oldest() else {
            return false;
        };
        let meta = Meta {
            name: pod.key.name(),
            namespace: pod.key.namespace(),
            created: view.published,
            labels: &pod.labels,
        };
        let start = self.buffer.len();
        let written = pod_item(&mut self.buffer, meta, &oldest.usage, &pod.containers);
        let Ok(end) = u32::try_from(self.buffer.len()) else {
            self.buffer.truncate(start);
            return false;
        };
        let unchanged = old.filter(|(item, _)| self.unchanged(start, item, &written));
        let at = u32::try_from(self.pods.len()).unwrap_or(u32::MAX);
        let slot = if let Some(slot) = slot {
            if slot.hint.load(Ordering::Relaxed) != at {
                slot.hint.store(at, Ordering::Relaxed);
            }
            Arc::clone(slot)
        } else {
            let slot = Arc::new(PodSlot {
                key: pod.key.clone(),
                labels: pod.labels.clone(),
                node: number,
                hint: AtomicU32::new(at),
                born: AtomicU64::new(0),
            });
            self.added.push(Arc::clone(&slot));
            slot
        };
        self.pods.push(PodPiece {
            slot,
            end,
            age: age(view.published, oldest.usage.timestamp),
            since: unchanged.map_or(0, |(_, since)| since),
        });
        true
    }

    /// Whether what was written from `start` on says the same as an item before, up to when it was published: then the
    /// time of the earlier publication stands.
    fn unchanged(&mut self, start: usize, old: &[u8], written: &Written) -> bool {
        let creation = written.seconds.clone();
        let Some(new) = self.buffer.get(start..) else {
            return false;
        };
        let (Some(from), Some(to)) = (
            creation.start.checked_sub(start),
            creation.end.checked_sub(start),
        ) else {
            return false;
        };
        let same = new.len() == old.len()
            && new.get(..from) == old.get(..from)
            && new.get(to..) == old.get(to..);
        if same
            && let Some(own) = self.buffer.get_mut(creation)
            && let Some(earlier) = old.get(from..to)
        {
            own.copy_from_slice(earlier);
        }
        same
    }

    /// Numbers what has changed.
    fn number(
        mut self,
        view: &NodeView<'_>,
        version: &mut u64,
        alive: &Arc<std::sync::atomic::AtomicUsize>,
        before: Option<&NodeEntry>,
    ) -> (Vec<Arc<PodSlot>>, Vec<Arc<PodSlot>>, NodeEntry) {
        let mut count = |since: &mut u64| {
            if *since == 0 {
                *version += 1;
                *since = *version;
            }
        };
        if let Some(own) = &mut self.own {
            count(&mut own.since);
            if own.born == 0 {
                own.born = own.since;
            }
        }
        for piece in &mut self.pods {
            count(&mut piece.since);
        }
        // A new slot is numbered with its first message, before anybody can see it.
        for piece in &self.pods {
            if piece.slot.born.load(Ordering::Relaxed) == 0 {
                piece.slot.born.store(piece.since, Ordering::Relaxed);
            }
        }
        let labels = match before {
            Some(before) if before.labels == *view.labels => before.labels.clone(),
            _ => view.labels.clone(),
        };
        let bytes =
            self.buffer.len() + self.pods.len() * size_of::<PodPiece>() + size_of::<NodeEntry>();
        let entry = NodeEntry {
            name: view.node.clone(),
            labels,
            published: view.published,
            latest: *version,
            buffer: self.buffer.into_boxed_slice(),
            own: self.own,
            pods: self.pods.into_boxed_slice(),
            counted: Counted::new(bytes, alive),
        };
        (self.added, self.removed, entry)
    }
}

/// All that the next catalog shares with the last.
fn next_of(last: &Catalog) -> Catalog {
    Catalog {
        version: last.version,
        nodes: last.nodes.clone(),
        node_order: Arc::clone(&last.node_order),
        pods: last.pods.clone(),
        ..Catalog::default()
    }
}

fn same_labels(a: &Labels, b: &Labels) -> bool {
    a.is_same_allocation(b) || a == b
}

/// How old a sample was when it was published; a sample from the future is as fresh as can be.
fn age(published: Timestamp, taken: Timestamp) -> u32 {
    let age = published.since(taken).unwrap_or_default();
    u32::try_from(age.as_millis()).unwrap_or(u32::MAX)
}
