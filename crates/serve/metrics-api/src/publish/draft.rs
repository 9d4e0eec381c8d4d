//! A node as it is rendered, before it takes effect.

use std::cmp::Ordering;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};

use kubevitals_model::{Labels, PodKey, Timestamp};
use kubevitals_usage::{NodeUsage, PodUsage};

use crate::catalog::{Counted, Found, NodeEntry, OwnPiece, PodPiece, PodSlot};
use crate::render::proto::{node_body, pod_body};

/// A node rendered, but not numbered yet: a `since` of zero stands for a change.
pub(super) struct Draft {
    buffer: Vec<u8>,
    pub(super) own: Option<OwnPiece>,
    pods: Vec<PodPiece>,
    added: Vec<Arc<PodSlot>>,
    removed: Vec<Arc<PodSlot>>,
}

impl Draft {
    pub(super) fn of(view: &NodeUsage<'_>, number: u32, before: Option<&NodeEntry>) -> Self {
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
        let mut sorted: Vec<&PodUsage> = view.pods.iter().collect();
        if !view.pods.is_sorted_by(|a, b| a.key < b.key) {
            sorted.sort_by(|a, b| a.key.cmp(&b.key));
            // The same pod twice would be two items of one name.
            sorted.dedup_by(|a, b| a.key == b.key);
        }
        for pod in sorted {
            let mut order = next.map(|piece| order_of(&piece.slot.key, &pod.key));
            while let (Some(piece), Some(Ordering::Less)) = (next, order) {
                draft.removed.push(Arc::clone(&piece.slot));
                next = known.next();
                known_at += 1;
                order = next.map(|piece| order_of(&piece.slot.key, &pod.key));
            }
            let same = next.filter(|_| order == Some(Ordering::Equal));
            let own = same.filter(|piece| same_labels(&piece.slot.labels, &pod.labels));
            let old = own.and_then(|_| before?.pod_at(known_at));
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

    fn own(&mut self, view: &NodeUsage<'_>, before: Option<&NodeEntry>) {
        let Some(usage) = view.usage else {
            return;
        };
        node_body(&mut self.buffer, usage);
        let same = before.filter(|before| same_labels(&before.labels, view.labels));
        let old = same.and_then(|before| Some((before.own()?, before.own?)));
        let unchanged = old.filter(|(found, _)| *self.buffer == *found.body);
        let Ok(end) = u32::try_from(self.buffer.len()) else {
            self.buffer.clear();
            return;
        };
        self.own = Some(OwnPiece {
            created: unchanged.map_or(view.published, |(_, own)| own.created),
            end,
            age: age(view.published, usage.timestamp),
            since: unchanged.map_or(0, |(_, own)| own.since),
            born: old.map_or(0, |(_, own)| own.born),
        });
    }

    /// Renders a pod. Without a container, or beyond the 4 GiB that a node can have, there is
    /// nothing to serve.
    fn pod(
        &mut self,
        view: &NodeUsage<'_>,
        pod: &PodUsage,
        number: u32,
        slot: Option<&Arc<PodSlot>>,
        old: Option<Found<'_>>,
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
        // What says the same as before stays as it was: also when it was published.
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
                node: number,
                hint: AtomicU32::new(at),
                born: AtomicU64::new(0),
            });
            self.added.push(Arc::clone(&slot));
            slot
        };
        self.pods.push(PodPiece {
            slot,
            created: unchanged.map_or(view.published, |old| old.meta.created),
            end,
            age: age(view.published, oldest.usage.timestamp),
            since: unchanged.map_or(0, |old| old.since),
        });
        true
    }

    /// Numbers what has changed.
    pub(super) fn number(
        mut self,
        view: &NodeUsage<'_>,
        version: &mut u64,
        alive: &Arc<AtomicUsize>,
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
            if piece.slot.born.load(Relaxed) == 0 {
                piece.slot.born.store(piece.since, Relaxed);
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

/// A pod mostly has the very name that it had before.
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

/// How old a sample was when it was published; a sample from the future is as fresh as can be.
fn age(published: Timestamp, taken: Timestamp) -> u32 {
    let age = published.since(taken).unwrap_or_default();
    u32::try_from(age.as_millis()).unwrap_or(u32::MAX)
}
