//! How long protobuf lists are. Their length stands in front, so that it must be known before the
//! first byte leaves; to add it up for every list would be to walk over all pods before one of them
//! is written.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{NodeEntry, PodSlot};

/// The bytes that pods take as items of a protobuf list, in all and by namespace. A clone copies
/// some words for a namespace.
#[derive(Clone, Default)]
pub(crate) struct Lengths {
    all: usize,
    /// Where the bytes of a namespace are. Replaced only when there is a new one.
    places: Arc<HashMap<Arc<str>, usize>>,
    by_namespace: Vec<usize>,
}

/// What changes a sum.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Comes,
    Goes,
}

impl Lengths {
    /// Of all pods.
    pub(crate) fn all(&self) -> usize {
        self.all
    }

    /// Of the pods of a namespace.
    pub(crate) fn namespace(&self, namespace: &str) -> usize {
        let place = self.places.get(namespace);
        let bytes = place.and_then(|place| self.by_namespace.get(*place));
        bytes.copied().unwrap_or_default()
    }

    /// A node is served in another way, or for the first time, or no longer. What is `hidden` does
    /// not count: another node claims its name.
    pub(crate) fn replace(
        &mut self,
        before: Option<&NodeEntry>,
        after: Option<&NodeEntry>,
        hidden: (&[Arc<PodSlot>], &[Arc<PodSlot>]),
    ) {
        // Mostly the same pods come again, and only their bodies differ.
        let is_open = hidden.0.is_empty() && hidden.1.is_empty();
        let pair = before.zip(after).filter(|_| is_open);
        let same = |at: usize| pair.is_some_and(|(before, after)| before.has_same(after, at));
        if let Some((before, after)) = pair {
            self.regrow(before, after, same);
        }
        for (entry, change, hidden) in [
            (before, Change::Goes, hidden.0),
            (after, Change::Comes, hidden.1),
        ] {
            let Some(entry) = entry else {
                continue;
            };
            for (at, piece) in entry.pods.iter().enumerate() {
                if !same(at) && !hidden.iter().any(|slot| Arc::ptr_eq(slot, &piece.slot)) {
                    self.change(entry, at, change);
                }
            }
        }
    }

    /// Counts anew those that are the `same` but for their bodies: what they have grown by is added
    /// up for a namespace first.
    fn regrow(&mut self, before: &NodeEntry, after: &NodeEntry, same: impl Fn(usize) -> bool) {
        let mut sums: Option<(&Arc<str>, [usize; 2])> = None;
        for (at, piece) in after.pods.iter().enumerate().filter(|(at, _)| same(*at)) {
            let Some([old, new]) = before.pair_of_lengths(after, at) else {
                continue;
            };
            let namespace = piece.slot.key.namespace();
            match &mut sums {
                Some((own, [olds, news])) if *own == namespace => {
                    *olds += old;
                    *news += new;
                }
                _ => {
                    self.grow(sums.replace((namespace, [old, new])));
                }
            }
        }
        self.grow(sums);
    }

    fn grow(&mut self, sums: Option<(&Arc<str>, [usize; 2])>) {
        if let Some((namespace, [old, new])) = sums {
            self.all = self.all + new - old;
            let sum = self.sum(namespace);
            *sum = *sum + new - old;
        }
    }

    /// A pod is served again that was hidden.
    pub(crate) fn show(&mut self, entry: &NodeEntry, slot: &Arc<PodSlot>) {
        if let Some(at) = entry.position(slot) {
            self.change(entry, at, Change::Comes);
        }
    }

    /// A pod is no longer served since another node claims its name.
    pub(crate) fn hide(&mut self, entry: &NodeEntry, slot: &Arc<PodSlot>) {
        if let Some(at) = entry.position(slot) {
            self.change(entry, at, Change::Goes);
        }
    }

    fn change(&mut self, entry: &NodeEntry, at: usize, change: Change) {
        let Some((bytes, piece)) = entry.pod_at(at).zip(entry.pods.get(at)) else {
            return;
        };
        let bytes = bytes.item_len();
        let sum = self.sum(piece.slot.key.namespace());
        if change == Change::Comes {
            *sum += bytes;
            self.all += bytes;
        } else {
            *sum -= bytes;
            self.all -= bytes;
        }
    }

    fn sum(&mut self, namespace: &Arc<str>) -> &mut usize {
        let place = match self.places.get(&**namespace) {
            Some(place) => *place,
            None => self.open(namespace),
        };
        self.by_namespace
            .get_mut(place)
            .expect("every place is one of a sum")
    }

    /// Makes a place for a namespace, and forgets those that have no pods any more.
    fn open(&mut self, namespace: &Arc<str>) -> usize {
        let mut places = HashMap::with_capacity(self.places.len() + 1);
        let mut sums = Vec::with_capacity(self.places.len() + 1);
        for (own, place) in &*self.places {
            let sum = self.by_namespace.get(*place).copied().unwrap_or_default();
            if sum > 0 {
                places.insert(Arc::clone(own), sums.len());
                sums.push(sum);
            }
        }
        let place = sums.len();
        places.insert(Arc::clone(namespace), place);
        sums.push(0);
        self.places = Arc::new(places);
        self.by_namespace = sums;
        place
    }
}
