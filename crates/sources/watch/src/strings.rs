//! Strings that repeat, kept once.
//!
//! A cluster of 150,000 pods has a few hundred namespaces, images and reasons, and a few thousand
//! label sets. Each is kept once and handed out as an [`Arc`]. Nothing leaks as pods come and go:
//! whatever nobody but the pool holds any more is swept out once as many strings were added as had
//! survived the last sweep, so the pool never holds more than about twice what is in use, and
//! adding stays cheap.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashSet;
use kubevitals_model::{LabelPair, Labels};

/// Strings longer than this are hardly ever the same twice: they are handed out without being kept.
const LONGEST: usize = 256;

/// No sweep pays below this many additions.
const MIN_BETWEEN_SWEEPS: usize = 1_024;

/// Strings and label sets that are kept at most. Beyond it all still works, with less sharing.
const MAX_KEPT: usize = 1 << 20;

/// A pool of strings that any number of streams share. Clones share the pool.
#[derive(Debug, Clone, Default)]
pub struct Interner {
    pool: Arc<Mutex<Pool>>,
}

/// The pool while it is locked: once for each object, not once for each string.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    texts: HashSet<Arc<str>>,
    sets: HashSet<Arc<[LabelPair]>>,
    /// Reused for each set that is looked up.
    pairs: Vec<LabelPair>,
    additions: usize,
    survivors: usize,
}

impl Interner {
    /// An empty pool.
    pub fn new() -> Self {
        Self::default()
    }

    /// The shared copy of a text.
    pub fn text(&self, text: &str) -> Arc<str> {
        self.lock().text(text)
    }

    /// How many strings and label sets are kept, those included that nobody uses any more.
    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// Whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Pool> {
        // The pool is whole after every statement, so a panic elsewhere leaves nothing half done.
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    pub(crate) fn text(&mut self, text: &str) -> Arc<str> {
        if let Some(kept) = self.texts.get(text) {
            return Arc::clone(kept);
        }
        let new: Arc<str> = text.into();
        if text.len() <= LONGEST && self.has_room() {
            self.texts.insert(Arc::clone(&new));
        }
        new
    }

    /// `None` for an empty text, which in Kubernetes means the same as an absent one.
    pub(crate) fn optional(&mut self, text: &str) -> Option<Arc<str>> {
        (!text.is_empty()).then(|| self.text(text))
    }

    /// The shared copy of a whole set; where a key comes twice, the later value counts, as in Go.
    pub(crate) fn set<'t>(&mut self, pairs: impl Iterator<Item = (&'t str, &'t str)>) -> Labels {
        let mut sorted = std::mem::take(&mut self.pairs);
        for (key, value) in pairs {
            sorted.push((self.text(key), self.text(value)));
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

    /// Counts an addition, and sweeps when it is time to.
    fn has_room(&mut self) -> bool {
        self.additions += 1;
        if self.additions > self.survivors.max(MIN_BETWEEN_SWEEPS) {
            // Sets first: they hold texts.
            self.sets.retain(|set| Arc::strong_count(set) > 1);
            self.texts.retain(|text| Arc::strong_count(text) > 1);
            self.additions = 0;
            self.survivors = self.len();
        }
        self.len() < MAX_KEPT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_text_is_the_same_allocation() {
        let interner = Interner::new();
        let one = interner.text("kube-system");
        assert!(Arc::ptr_eq(&one, &interner.text("kube-system")));
        assert!(!Arc::ptr_eq(&one, &interner.text("default")));
        assert_eq!(interner.len(), 2);
    }

    #[test]
    fn long_texts_are_not_kept() {
        let interner = Interner::new();
        let long = "x".repeat(LONGEST + 1);
        assert_eq!(&*interner.text(&long), long);
        assert!(interner.is_empty());
    }

    #[test]
    fn sets_are_shared_whatever_their_order_and_the_later_of_two_values_counts() {
        let interner = Interner::new();
        let mut pool = interner.lock();
        let one = pool.set([("b", "2"), ("a", "1")].into_iter());
        let two = pool.set([("a", "0"), ("b", "2"), ("a", "1")].into_iter());
        assert!(one.is_same_allocation(&two));
        assert_eq!(one.iter().collect::<Vec<_>>(), [("a", "1"), ("b", "2")]);
    }

    #[test]
    fn what_nobody_holds_is_swept_out() {
        let interner = Interner::new();
        let held = interner.text("held");
        for number in 0..100_000 {
            let label = number.to_string();
            interner.lock().set([("pod", label.as_str())].into_iter());
        }
        let kept = interner.len();
        assert!(kept <= 4 * MIN_BETWEEN_SWEEPS, "{kept} kept");
        assert!(Arc::ptr_eq(&held, &interner.text("held")));
    }

    #[test]
    fn what_is_held_is_kept_and_sweeps_stay_rare() {
        let interner = Interner::new();
        let held: Vec<Arc<str>> = (0..50_000)
            .map(|number| interner.text(&number.to_string()))
            .collect();
        assert_eq!(interner.len(), held.len());
        assert!(
            held.iter()
                .all(|text| Arc::ptr_eq(text, &interner.text(text)))
        );
    }
}
