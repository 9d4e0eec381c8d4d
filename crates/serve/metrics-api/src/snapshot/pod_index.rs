//! Pods sorted by namespace and name.

use std::sync::Arc;

use kubevitals_model::{AsPodKey as _, PodKeyRef};

use super::PodSlot;

/// A leaf is split when it has grown to twice this size, and merged with its neighbour when both
/// together are smaller.
const LEAF: usize = 256;

type Leaf = Vec<Arc<PodSlot>>;

/// Pods sorted by namespace and name. A clone shares all of them; a change copies one leaf and the
/// list of leaves.
#[derive(Clone, Default)]
pub(crate) struct PodIndex {
    /// No leaf is empty.
    leaves: Arc<Vec<Arc<Leaf>>>,
    len: usize,
}

/// A position in the index: before the pod that it refers to, or at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Position {
    leaf: usize,
    within: usize,
}

impl PodIndex {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get(&self, key: PodKeyRef<'_>) -> Option<&Arc<PodSlot>> {
        let at = self.position(|own| own < key);
        self.at(at).filter(|slot| slot.key.as_pod_key() == key)
    }

    /// Returns the position of the first pod for which `before` is false. As in
    /// [`slice::partition_point`], it must be false for all that follow.
    pub(crate) fn position(&self, before: impl Fn(PodKeyRef<'_>) -> bool) -> Position {
        let holds = |slot: &Arc<PodSlot>| before(slot.key.as_pod_key());
        let leaf = self
            .leaves
            .partition_point(|leaf| leaf.last().is_some_and(holds));
        let within = self.leaves.get(leaf);
        Position {
            leaf,
            within: within.map_or(0, |leaf| leaf.partition_point(holds)),
        }
    }

    /// Returns the range of the pods of a namespace.
    pub(crate) fn namespace_range(&self, namespace: &str) -> (Position, Position) {
        (
            self.position(|key| key.namespace < namespace),
            self.position(|key| key.namespace <= namespace),
        )
    }

    /// Returns the range of all pods.
    pub(crate) fn full_range(&self) -> (Position, Position) {
        (Position::default(), self.position(|_| true))
    }

    /// Returns the number of pods between two positions.
    pub(crate) fn count_between(&self, from: Position, to: Position) -> usize {
        let leaves = self.leaves.iter().take(to.leaf).skip(from.leaf);
        let whole: usize = leaves.map(|leaf| leaf.len()).sum();
        (whole + to.within).saturating_sub(from.within)
    }

    pub(crate) fn at(&self, at: Position) -> Option<&Arc<PodSlot>> {
        self.leaves.get(at.leaf)?.get(at.within)
    }

    /// Returns up to `max` pods from a position on; fewer where a leaf ends.
    pub(crate) fn chunk(&self, at: Position, max: usize) -> &[Arc<PodSlot>] {
        let leaf = self.leaves.get(at.leaf);
        let rest = leaf
            .and_then(|leaf| leaf.get(at.within..))
            .unwrap_or_default();
        rest.get(..max).unwrap_or(rest)
    }

    /// Returns the position that follows.
    pub(crate) fn next_position(&self, at: Position) -> Position {
        match self.leaves.get(at.leaf) {
            Some(leaf) if at.within + 1 < leaf.len() => Position {
                leaf: at.leaf,
                within: at.within + 1,
            },
            _ => Position {
                leaf: at.leaf + 1,
                within: 0,
            },
        }
    }

    /// Inserts a pod; returns the pod of the same name that it replaces.
    pub(crate) fn insert(&mut self, slot: &Arc<PodSlot>) -> Option<Arc<PodSlot>> {
        let key = slot.key.as_pod_key();
        let at = self.position(|own| own < key);
        let leaves = Arc::make_mut(&mut self.leaves);
        // A pod after all others is appended to the last leaf.
        let (at_leaf, within) = if at.leaf < leaves.len() {
            (at.leaf, at.within)
        } else {
            let last = leaves.len().saturating_sub(1);
            (last, leaves.last().map_or(0, |leaf| leaf.len()))
        };
        let Some(leaf) = leaves.get_mut(at_leaf) else {
            leaves.push(Arc::new(vec![Arc::clone(slot)]));
            self.len = 1;
            return None;
        };
        let leaf = Arc::make_mut(leaf);
        if let Some(own) = leaf.get_mut(within)
            && own.key.as_pod_key() == key
        {
            return Some(std::mem::replace(own, Arc::clone(slot)));
        }
        leaf.insert(within, Arc::clone(slot));
        if leaf.len() >= 2 * LEAF {
            let upper = leaf.split_off(LEAF);
            leaves.insert(at_leaf + 1, Arc::new(upper));
        }
        self.len += 1;
        None
    }

    /// Removes this very pod, not another one of the same name.
    pub(crate) fn remove(&mut self, slot: &Arc<PodSlot>) -> bool {
        let key = slot.key.as_pod_key();
        let at = self.position(|own| own < key);
        if !self.at(at).is_some_and(|own| Arc::ptr_eq(own, slot)) {
            return false;
        }
        let leaves = Arc::make_mut(&mut self.leaves);
        let Some(leaf) = leaves.get_mut(at.leaf) else {
            return false;
        };
        let leaf = Arc::make_mut(leaf);
        leaf.remove(at.within);
        let left = leaf.len();
        self.len -= 1;
        let joins = leaves
            .get(at.leaf + 1)
            .is_some_and(|next| left + next.len() < LEAF);
        if left == 0 {
            leaves.remove(at.leaf);
        } else if joins {
            let next = leaves.remove(at.leaf + 1);
            if let Some(leaf) = leaves.get_mut(at.leaf) {
                Arc::make_mut(leaf).extend(next.iter().map(Arc::clone));
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU32, AtomicU64};

    use kubevitals_model::{Labels, PodKey};
    use proptest::prelude::*;

    use super::*;

    fn slot(namespace: u8, name: u16) -> Arc<PodSlot> {
        Arc::new(PodSlot {
            key: PodKey::new(format!("n{namespace}"), format!("p{name}")),
            labels: Labels::default(),
            node: 0,
            hint: AtomicU32::new(0),
            added: AtomicU64::new(0),
        })
    }

    fn walk(index: &PodIndex, (mut at, end): (Position, Position)) -> Vec<String> {
        let mut keys = Vec::new();
        while at < end {
            let slot = index.at(at).unwrap();
            let chunk = index.chunk(at, 3);
            assert!(Arc::ptr_eq(&chunk[0], slot) && chunk.len() <= 3);
            keys.push(slot.key.to_string());
            at = index.next_position(at);
        }
        keys
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(24) })]

        /// The oracle is a `BTreeMap`. There are enough steps for leaves to split and merge.
        #[test]
        fn the_index_is_a_sorted_map(steps in prop::collection::vec((0..3u8, 0..900u16, prop::bool::weighted(0.6)), 0..3000)) {
            let mut index = PodIndex::default();
            let mut model = BTreeMap::new();
            let first = index.clone();
            for (namespace, name, insert) in steps {
                let slot = slot(namespace, name);
                if insert {
                    let replaced = index.insert(&slot).is_some();
                    prop_assert_eq!(model.insert(slot.key.clone(), slot).is_some(), replaced);
                } else if let Some(own) = model.remove(&slot.key) {
                    prop_assert!(!index.remove(&slot));
                    prop_assert!(index.remove(&own));
                } else {
                    prop_assert!(!index.remove(&slot));
                }
            }
            let names = |of: &str| -> Vec<String> {
                model.keys().filter(|key| of.is_empty() || &**key.namespace() == of).map(ToString::to_string).collect()
            };
            prop_assert_eq!(index.len(), model.len());
            prop_assert_eq!(first.len(), 0);
            prop_assert_eq!(walk(&index, index.full_range()), names(""));
            for namespace in ["n0", "n1", "n2", "n"] {
                prop_assert_eq!(walk(&index, index.namespace_range(namespace)), if namespace == "n" { Vec::new() } else { names(namespace) });
            }
            let (from, to) = index.namespace_range("n1");
            prop_assert_eq!(index.count_between(from, to), names("n1").len());
            for (key, slot) in &model {
                prop_assert!(index.get(key.as_pod_key()).is_some_and(|own| Arc::ptr_eq(own, slot)));
            }
        }
    }
}
