//! A map of bounded size that forgets what was used least recently.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

/// A map with a limit of entries. It stands in for the crate `lru`, which has unsafe code for lists
/// of millions; these have thousands.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    limit: usize,
    entries: HashMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
    uses: u64,
}

impl<K: Clone + Eq + Hash, V> Lru<K, V> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            entries: HashMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
        }
    }

    /// Returns an entry and counts a use of it.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let (used, value) = self.entries.get_mut(key)?;
        self.uses += 1;
        if let Some(key) = self.by_use.remove(used) {
            self.by_use.insert(self.uses, key);
        }
        *used = self.uses;
        Some(value)
    }

    /// Adds or replaces an entry, and forgets the oldest if there are too many.
    pub(crate) fn insert(&mut self, key: K, value: V) {
        self.remove(&key);
        while self.entries.len() >= self.limit {
            let Some((_, oldest)) = self.by_use.pop_first() else {
                break;
            };
            self.entries.remove(&oldest);
        }
        self.uses += 1;
        self.by_use.insert(self.uses, key.clone());
        self.entries.insert(key, (self.uses, value));
    }

    pub(crate) fn remove(&mut self, key: &K) {
        if let Some((used, _)) = self.entries.remove(key) {
            self.by_use.remove(&used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_is_forgotten() {
        let mut map = Lru::new(2);
        map.insert("a", 1);
        map.insert("b", 2);
        assert_eq!(map.get_mut(&"a"), Some(&mut 1));
        map.insert("c", 3);
        assert_eq!(map.get_mut(&"b"), None);
        assert_eq!(map.get_mut(&"a"), Some(&mut 1));
        map.insert("a", 4);
        assert_eq!(map.get_mut(&"a"), Some(&mut 4));
        assert_eq!(map.get_mut(&"c"), Some(&mut 3));
        map.remove(&"c");
        assert_eq!((map.entries.len(), map.by_use.len()), (1, 1));
    }
}
