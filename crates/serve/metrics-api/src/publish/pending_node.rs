//! A node that is encoded but not committed yet.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use kubevitals_model::{Labels, PodKey, Timestamp};
use kubevitals_usage::{NodeUsage, PodUsage};

use crate::render::proto::{node_body, pod_body};
use crate::snapshot::{Entry, LiveBytes, NodeEntry, NodeSpan, PodSlot, PodSpan};

/// An encoded node without versions: a `modified` of zero marks a change.
pub(super) struct PendingNode {
    buffer: Vec<u8>,
    pub(super) own: Option<NodeSpan>,
    pods: Vec<PodSpan>,
    added: Vec<Arc<PodSlot>>,
    removed: Vec<Arc<PodSlot>>,
}

impl PendingNode {
    pub(super) fn encode(usage: &NodeUsage<'_>, id: u32, before: Option<&NodeEntry>) -> Self {
        let capacity = before.map_or(0, |before| before.buffer.len() + 64);
        let mut pending = Self {
            buffer: Vec::with_capacity(capacity),
            own: None,
            pods: Vec::with_capacity(usage.pods.len()),
            added: Vec::new(),
            removed: Vec::new(),
        };
        pending.encode_node(usage, before);
        let mut known = before.map_or(&[][..], |before| &before.pods).iter();
        let mut known_at = 0;
        let mut next = known.next();
        let mut sorted: Vec<&PodUsage> = usage.pods.iter().collect();
        if !usage.pods.is_sorted_by(|a, b| a.key < b.key) {
            sorted.sort_by(|a, b| a.key.cmp(&b.key));
            // A duplicate would become a second item of the same name.
            sorted.dedup_by(|a, b| a.key == b.key);
        }
        for pod in sorted {
            let mut order = next.map(|span| order_of(&span.slot.key, &pod.key));
            while let (Some(span), Some(Ordering::Less)) = (next, order) {
                pending.removed.push(Arc::clone(&span.slot));
                next = known.next();
                known_at += 1;
                order = next.map(|span| order_of(&span.slot.key, &pod.key));
            }
            let same = next.filter(|_| order == Some(Ordering::Equal));
            let own = same.filter(|span| same_labels(&span.slot.labels, &pod.labels));
            let old = own.and_then(|_| before?.pod_at(known_at));
            let slot = own.map(|span| &span.slot);
            let is_served = pending.encode_pod(usage.published, pod, id, slot, old);
            if let Some(span) = same {
                if !is_served || own.is_none() {
                    pending.removed.push(Arc::clone(&span.slot));
                }
                next = known.next();
                known_at += 1;
            }
        }
        let left = next.into_iter().chain(known);
        pending
            .removed
            .extend(left.map(|span| Arc::clone(&span.slot)));
        pending
    }

    fn encode_node(&mut self, node: &NodeUsage<'_>, before: Option<&NodeEntry>) {
        let Some(usage) = node.usage else {
            return;
        };
        node_body(&mut self.buffer, usage);
        let same = before.filter(|before| same_labels(&before.labels, node.labels));
        let old = same.and_then(|before| Some((before.own()?, before.own?)));
        let unchanged = old.filter(|(object, _)| *self.buffer == *object.body);
        let Ok(end) = u32::try_from(self.buffer.len()) else {
            self.buffer.clear();
            return;
        };
        self.own = Some(NodeSpan {
            created: unchanged.map_or(node.published, |(_, own)| own.created),
            end,
            age: age(node.published, usage.timestamp),
            modified: unchanged.map_or(0, |(_, own)| own.modified),
            added: old.map_or(0, |(_, own)| own.added),
        });
    }

    /// Encodes a pod; returns whether it is served. A pod without containers is not, nor is one
    /// beyond the 4 GiB that a node can have.
    fn encode_pod(
        &mut self,
        published: Timestamp,
        pod: &PodUsage,
        node: u32,
        slot: Option<&Arc<PodSlot>>,
        old: Option<Entry<'_>>,
    ) -> bool {
        let Some(oldest) = pod.oldest() else {
            return false;
        };
        let start = self.buffer.len();
        pod_body(&mut self.buffer, &oldest.usage, &pod.containers);
        let Ok(end) = u32::try_from(self.buffer.len()) else {
            self.buffer.truncate(start);
            return false;
        };
        // An unchanged pod keeps its creation time and version.
        let unchanged = old.filter(|old| self.buffer.get(start..) == Some(old.body));
        let at = u32::try_from(self.pods.len()).unwrap_or(u32::MAX);
        let slot = if let Some(slot) = slot {
            if slot.hint.load(Relaxed) != at {
                slot.hint.store(at, Relaxed);
            }
            Arc::clone(slot)
        } else {
            let slot = Arc::new(PodSlot {
                key: pod.key.clone(),
                labels: pod.labels.clone(),
                node,
                hint: AtomicU32::new(at),
                added: AtomicU64::new(0),
            });
            self.added.push(Arc::clone(&slot));
            slot
        };
        self.pods.push(PodSpan {
            slot,
            created: unchanged.map_or(published, |old| old.meta.created),
            end,
            age: age(published, oldest.usage.timestamp),
            modified: unchanged.map_or(0, |old| old.modified),
        });
        true
    }

    /// Gives every change a version. Returns the added and removed pods, and the entry to serve.
    pub(super) fn assign_versions(
        mut self,
        usage: &NodeUsage<'_>,
        version: &mut u64,
        live: &Arc<AtomicUsize>,
        before: Option<&NodeEntry>,
    ) -> (Vec<Arc<PodSlot>>, Vec<Arc<PodSlot>>, NodeEntry) {
        let mut assign = |modified: &mut u64| {
            if *modified == 0 {
                *version += 1;
                *modified = *version;
            }
        };
        if let Some(own) = &mut self.own {
            assign(&mut own.modified);
            if own.added == 0 {
                own.added = own.modified;
            }
        }
        for span in &mut self.pods {
            assign(&mut span.modified);
        }
        // A new slot gets the version of its first message, before a reader can see it.
        for span in &self.pods {
            if span.slot.added.load(Relaxed) == 0 {
                span.slot.added.store(span.modified, Relaxed);
            }
        }
        let labels = match before {
            Some(before) if before.labels == *usage.labels => before.labels.clone(),
            _ => usage.labels.clone(),
        };
        let bytes =
            self.buffer.len() + self.pods.len() * size_of::<PodSpan>() + size_of::<NodeEntry>();
        let entry = NodeEntry {
            name: usage.node.clone(),
            labels,
            published: usage.published,
            modified: *version,
            buffer: self.buffer.into_boxed_slice(),
            own: self.own,
            pods: self.pods.into_boxed_slice(),
            size: LiveBytes::new(bytes, live),
        };
        (self.added, self.removed, entry)
    }
}

/// Compares keys, by address first: a pod mostly shares its key with its last publication.
fn order_of(a: &PodKey, b: &PodKey) -> Ordering {
    if a.is_same_allocation(b) {
        Ordering::Equal
    } else {
        a.cmp(b)
    }
}

fn same_labels(a: &Labels, b: &Labels) -> bool {
    a.is_same_allocation(b) || a == b
}

/// Returns the age of a sample at its publication in milliseconds; zero for a sample from the
/// future.
fn age(published: Timestamp, sampled: Timestamp) -> u32 {
    let age = published.since(sampled).unwrap_or_default();
    u32::try_from(age.as_millis()).unwrap_or(u32::MAX)
}
