//! Strings that repeat, stored once.
//!
//! A cluster of 150,000 pods has a few hundred namespaces, images and reasons, and a few thousand
//! label sets. Each is stored once and handed out as an [`Arc`]. Nothing leaks as pods come and go:
//! strings that only the pool refers to are swept once as many strings were added as had survived
//! the last sweep, so the pool never holds more than about twice what is in use, and adding stays
//! cheap.

use std::ops::DerefMut;
use std::sync::Arc;

use hashbrown::HashSet;
use parking_lot::Mutex;

use crate::labels::{LabelPair, Labels};

/// Longer strings hardly ever repeat: they are not stored.
const MAX_LENGTH: usize = 256;

/// A sweep does not pay below this many additions.
const MIN_BETWEEN_SWEEPS: usize = 1_024;

/// The maximum number of stored strings and label sets. Beyond it strings are no longer shared.
const MAX_STORED: usize = 1 << 20;

/// Shares equal strings and label sets among any number of reflectors. Clones share one pool.
#[derive(Debug, Clone, Default)]
pub struct Interner {
    pool: Arc<Mutex<StringPool>>,
}

/// The strings of a locked [`Interner`]: locked once per object, not once per string.
#[derive(Debug, Default)]
pub struct StringPool {
    texts: HashSet<Arc<str>>,
    sets: HashSet<Arc<[LabelPair]>>,
    /// Reused for each set that is looked up.
    pairs: Vec<LabelPair>,
    additions: usize,
    survivors: usize,
}

impl Interner {
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the shared copy of a string.
    pub fn intern(&self, text: &str) -> Arc<str> {
        self.lock().intern(text)
    }

    /// The number of stored strings and label sets, including those that are no longer in use.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Locks the pool.
    pub fn lock(&self) -> impl DerefMut<Target = StringPool> {
        self.pool.lock()
    }
}

impl StringPool {
    /// Returns the shared copy of a string.
    pub fn intern(&mut self, text: &str) -> Arc<str> {
        if let Some(kept) = self.texts.get(text) {
            return Arc::clone(kept);
        }
        let new: Arc<str> = text.into();
        if text.len() <= MAX_LENGTH && self.has_room() {
            self.texts.insert(Arc::clone(&new));
        }
        new
    }

    /// Returns `None` for an empty string, which in Kubernetes means the same as an absent one.
    pub fn intern_optional(&mut self, text: &str) -> Option<Arc<str>> {
        (!text.is_empty()).then(|| self.intern(text))
    }

    /// Returns the shared copy of a label set; of a repeated key the last value counts, as in Go.
    pub fn labels<'t>(&mut self, pairs: impl Iterator<Item = (&'t str, &'t str)>) -> Labels {
        let mut sorted = std::mem::take(&mut self.pairs);
        for (key, value) in pairs {
            sorted.push((self.intern(key), self.intern(value)));
        }
        if !sorted.is_sorted_by(|(one, _), (two, _)| one < two) {
            // Reversed, the stable sort puts the later of two equal keys first, and that one stays.
            sorted.reverse();
            sorted.sort_by(|(one, _), (two, _)| one.cmp(two));
            sorted.dedup_by(|(one, _), (two, _)| one == two);
        }
        let set = if let Some(kept) = self.sets.get(sorted.as_slice()) {
            Arc::clone(kept)
        } else {
            let new: Arc<[LabelPair]> = sorted.as_slice().into();
            if self.has_room() {
                self.sets.insert(Arc::clone(&new));
            }
            new
        };
        sorted.clear();
        self.pairs = sorted;
        Labels::from_sorted(set)
    }

    fn len(&self) -> usize {
        self.texts.len() + self.sets.len()
    }

    /// Counts an addition, and sweeps when one is due.
    fn has_room(&mut self) -> bool {
        self.additions += 1;
        if self.additions > self.survivors.max(MIN_BETWEEN_SWEEPS) {
            // Sets first: they hold texts.
            self.sets.retain(|set| Arc::strong_count(set) > 1);
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            self.additions = 0;
            self.survivors = self.len();
        }
        self.len() < MAX_STORED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_strings_share_one_allocation() {
        let interner = Interner::new();
        let one = interner.intern("kube-system");
        assert!(Arc::ptr_eq(&one, &interner.intern("kube-system")));
        assert!(!Arc::ptr_eq(&one, &interner.intern("default")));
        assert_eq!(interner.len(), 2);
    }

    #[test]
    fn long_strings_are_not_stored() {
        let interner = Interner::new();
        let long = "x".repeat(MAX_LENGTH + 1);
        assert_eq!(&*interner.intern(&long), long);
        assert!(interner.is_empty());
    }

    #[test]
    fn equal_label_sets_are_shared_in_any_order_and_the_last_value_of_a_key_counts() {
        let interner = Interner::new();
        let mut pool = interner.lock();
        let one = pool.labels([("b", "2"), ("a", "1")].into_iter());
        let two = pool.labels([("a", "0"), ("b", "2"), ("a", "1")].into_iter());
        assert!(one.is_same_allocation(&two));
        assert_eq!(one.iter().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
    }

    #[test]
    fn unused_strings_are_swept() {
        let interner = Interner::new();
        let held = interner.intern("held");
        for number in 0..100_000 {
            let label = number.to_string();
            interner
                .lock()
                .labels([("pod", label.as_str())].into_iter());
        }
        let stored = interner.len();
        assert!(stored <= 4 * MIN_BETWEEN_SWEEPS, "{stored} stored");
        assert!(Arc::ptr_eq(&held, &interner.intern("held")));
    }

    #[test]
    fn strings_in_use_survive_sweeps() {
        let interner = Interner::new();
        let held: Vec<Arc<str>> = (0..50_000)
            .map(|number| interner.intern(&number.to_string()))
            .collect();
        assert_eq!(interner.len(), held.len());
        assert!(
            held.iter()
                .all(|text| Arc::ptr_eq(text, &interner.intern(text)))
        );
    }
}
