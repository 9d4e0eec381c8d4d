//! A subscriber's own copy of the view.

use std::sync::Arc;

use kubevitals_model::Timestamp;

use super::view::View;
use super::{Change, Resync, Seen, Update, What};
use crate::kind::Kind;

/// What a subscriber knows, for those who must see every deletion: a resync comes out as the
/// changes that it means.
///
/// It shares the objects with the stream and costs a pointer for each.
#[derive(Debug)]
pub struct Mirror<K> {
    view: View<K>,
}

impl<K> Default for Mirror<K> {
    fn default() -> Self {
        Self {
            view: View::default(),
        }
    }
}

impl<K: Kind> Mirror<K> {
    /// Knows nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes in an update and gives the changes since the one before. `now` stands for the time at
    /// which changes were received that only a resync tells of.
    pub fn apply(&mut self, update: Update<K>, now: Timestamp) -> Vec<Change<K>> {
        match update {
            Update::Resync(Resync { objects, .. }) => {
                let mut list = View::default();
                for object in objects {
                    list.put(object).for_each(drop);
                }
                let changes = self.view.replace(list).into_iter();
                let relisted = |what| Change {
                    what,
                    seen: Seen::Relist,
                    received: now,
                };
                changes.map(relisted).collect()
            }
            Update::Change(change) => {
                match &change.what {
                    What::Added(object) | What::Modified { now: object, .. } => {
                        self.view.put(Arc::clone(object)).for_each(drop);
                    }
                    What::Deleted(object) => {
                        self.view.remove(Arc::clone(object)).for_each(drop);
                    }
                }
                vec![change]
            }
        }
    }

    /// The object of a name.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        self.view.get(namespace, name)
    }

    /// All objects, in no order.
    pub fn objects(&self) -> Vec<Arc<K>> {
        self.view.objects()
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.view.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
