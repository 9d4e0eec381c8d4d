//! Encoded sizes of protobuf lists. The length precedes the content, so it must be known before the
//! first byte is sent; summing it up for every request would mean one more pass over all pods.

use std::sync::Arc;

use hashbrown::HashMap;

use super::{NodeEntry, PodSlot};

/// Bytes that pods take as items of a protobuf list, in total and by namespace. A clone copies one
/// word per namespace.
#[derive(Clone, Default)]
pub(crate) struct SizeIndex {
    total: usize,
    /// The index of a namespace in `by_namespace`. Replaced only when a namespace is added.
    indexes: Arc<HashMap<Arc<str>, usize>>,
    by_namespace: Vec<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Change {
    Add,
    Remove,
}

impl SizeIndex {
    /// Returns the size of all pods.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Returns the size of the pods of a namespace.
    pub(crate) fn namespace(&self, namespace: &str) -> usize {
        let index = self.indexes.get(namespace);
        let bytes = index.and_then(|index| self.by_namespace.get(*index));
        bytes.copied().unwrap_or_default()
    }

    /// Replaces the pods of a node. `hidden` pods, before and after, do not count: another node
    /// claims their names.
    pub(crate) fn replace(
        &mut self,
        before: Option<&NodeEntry>,
        after: Option<&NodeEntry>,
        hidden: (&[Arc<PodSlot>], &[Arc<PodSlot>]),
    ) {
        // Mostly the pods are the same, and only their bodies differ.
        let none_hidden = hidden.0.is_empty() && hidden.1.is_empty();
        let pair = before.zip(after).filter(|_| none_hidden);
        let same = |at: usize| pair.is_some_and(|(before, after)| before.is_same_pod(after, at));
        if let Some((before, after)) = pair {
            self.resize(before, after, same);
        }
        for (entry, change, hidden) in [
            (before, Change::Remove, hidden.0),
            (after, Change::Add, hidden.1),
        ] {
            let Some(entry) = entry else {
                continue;
            };
            for (at, span) in entry.pods.iter().enumerate() {
                if !same(at) && !hidden.iter().any(|slot| Arc::ptr_eq(slot, &span.slot)) {
                    self.change(entry, at, change);
                }
            }
        }
    }

    /// Applies the growth of the pods that are the `same` except for their bodies, summed up by
    /// namespace first.
    fn resize(&mut self, before: &NodeEntry, after: &NodeEntry, same: impl Fn(usize) -> bool) {
        let mut sums: Option<(&Arc<str>, [usize; 2])> = None;
        for (at, span) in after.pods.iter().enumerate().filter(|(at, _)| same(*at)) {
            let Some([old, new]) = before.changed_sizes(after, at) else {
                continue;
            };
            let namespace = span.slot.key.namespace();
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
            self.total = self.total + new - old;
            let sum = self.sum(namespace);
            *sum = *sum + new - old;
        }
    }

    /// Counts a pod that is no longer hidden.
    pub(crate) fn show(&mut self, entry: &NodeEntry, slot: &Arc<PodSlot>) {
        if let Some(at) = entry.position(slot) {
            self.change(entry, at, Change::Add);
        }
    }

    /// Stops counting a pod whose name another node claims.
    pub(crate) fn hide(&mut self, entry: &NodeEntry, slot: &Arc<PodSlot>) {
        if let Some(at) = entry.position(slot) {
            self.change(entry, at, Change::Remove);
        }
    }

    fn change(&mut self, entry: &NodeEntry, at: usize, change: Change) {
        let Some((object, span)) = entry.pod_at(at).zip(entry.pods.get(at)) else {
            return;
        };
        let bytes = object.item_len();
        let sum = self.sum(span.slot.key.namespace());
        if change == Change::Add {
            *sum += bytes;
            self.total += bytes;
        } else {
            *sum -= bytes;
            self.total -= bytes;
        }
    }

    fn sum(&mut self, namespace: &Arc<str>) -> &mut usize {
        let index = match self.indexes.get(&**namespace) {
            Some(index) => *index,
            None => self.add_namespace(namespace),
        };
        self.by_namespace
            .get_mut(index)
            .expect("every index is one of a sum")
    }

    /// Adds a namespace, and removes those without pods.
    fn add_namespace(&mut self, namespace: &Arc<str>) -> usize {
        let mut indexes = HashMap::with_capacity(self.indexes.len() + 1);
        let mut sums = Vec::with_capacity(self.indexes.len() + 1);
        for (own, index) in &*self.indexes {
            let sum = self.by_namespace.get(*index).copied().unwrap_or_default();
            if sum > 0 {
                indexes.insert(Arc::clone(own), sums.len());
                sums.push(sum);
            }
        }
        let index = sums.len();
        indexes.insert(Arc::clone(namespace), index);
        sums.push(0);
        self.indexes = Arc::new(indexes);
        self.by_namespace = sums;
        index
    }
}
