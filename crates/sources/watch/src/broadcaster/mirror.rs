//! A subscriber's own copy of the cache.

use std::sync::Arc;

use kubevitals_model::Timestamp;

use super::cache::Cache;
use super::{Change, ObjectEvent, Origin, Resync, Update};
use crate::kind::Kind;

/// A subscriber's copy of the cache, for subscribers that must see every deletion: it turns a
/// resync into changes.
///
/// It shares the objects with the reflector and costs a pointer for each.
#[derive(Debug)]
pub struct Mirror<K> {
    cache: Cache<K>,
}

impl<K> Default for Mirror<K> {
    fn default() -> Self {
        Self {
            cache: Cache::default(),
        }
    }
}

impl<K: Kind> Mirror<K> {
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies an update and returns the changes since the one before. `now` is the time of receipt
    /// of changes that come from a resync.
    pub fn apply(&mut self, update: Update<K>, now: Timestamp) -> Vec<Change<K>> {
        match update {
            Update::Resync(Resync { objects, .. }) => {
                let mut list = Cache::default();
                for object in objects {
                    list.put(object).for_each(drop);
                }
                let changes = self.cache.replace(list).into_iter();
                let relisted = |event| Change {
                    event,
                    origin: Origin::Relist,
                    received: now,
                };
                changes.map(relisted).collect()
            }
            Update::Change(change) => {
                match &change.event {
                    ObjectEvent::Added(object) | ObjectEvent::Modified { now: object, .. } => {
                        self.cache.put(Arc::clone(object)).for_each(drop);
                    }
                    ObjectEvent::Deleted(object) => {
                        self.cache.remove(Arc::clone(object)).for_each(drop);
                    }
                }
                vec![change]
            }
        }
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        self.cache.get(namespace, name)
    }

    /// Returns all objects, unordered.
    pub fn objects(&self) -> Vec<Arc<K>> {
        self.cache.objects()
    }

    pub fn len(&self) -> usize {
        self.cache.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
