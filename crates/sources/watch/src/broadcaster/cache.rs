//! Objects by namespace and name.
//!
//! The table holds pointers alone: an object is found by the names inside it, so that each name is
//! stored once.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::ObjectEvent;
use crate::kind::Kind;
use kubevitals_model::Identity;

#[derive(Debug)]
pub(crate) struct Cache<K> {
    objects: HashTable<Arc<K>>,
    hasher: DefaultHashBuilder,
}

/// The changes of one event: none, one, or two of the same name.
pub(crate) type Changes<K> = std::iter::Flatten<std::array::IntoIter<Option<ObjectEvent<K>>, 2>>;

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self {
            objects: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl<K: Kind> Cache<K> {
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        let hash = hash_of(&self.hasher, namespace, name);
        self.objects.find(hash, |known| {
            let identity = known.identity();
            *identity.name == *name && *identity.namespace == *namespace
        })
    }

    pub(crate) fn objects(&self) -> Vec<Arc<K>> {
        self.objects.iter().map(Arc::clone).collect()
    }

    /// Stores the newest state of an object. Nothing changes if the state is cached already;
    /// another object of the same name means that the cached one was deleted meanwhile.
    pub(crate) fn put(&mut self, object: Arc<K>) -> Changes<K> {
        let changes = match self.entry(object.identity()) {
            Entry::Vacant(entry) => {
                entry.insert(Arc::clone(&object));
                [Some(ObjectEvent::Added(object)), None]
            }
            Entry::Occupied(mut known) => {
                let (before, now) = (known.get().identity(), object.identity());
                if before.is_same_state(now) {
                    return none();
                }
                let is_same_object = before.is_same_object(now);
                let before = std::mem::replace(known.get_mut(), Arc::clone(&object));
                if is_same_object {
                    let now = object;
                    [Some(ObjectEvent::Modified { before, now }), None]
                } else {
                    [
                        Some(ObjectEvent::Deleted(before)),
                        Some(ObjectEvent::Added(object)),
                    ]
                }
            }
        };
        changes.into_iter().flatten()
    }

    /// Removes an object, given its last state. An unknown object needs no deletion, and a late
    /// event of an earlier object of the same name deletes nothing.
    pub(crate) fn remove(&mut self, last: Arc<K>) -> Changes<K> {
        match self.entry(last.identity()) {
            Entry::Occupied(known) if known.get().identity().is_same_object(last.identity()) => {
                known.remove();
            }
            _ => return none(),
        }
        [Some(ObjectEvent::Deleted(last)), None]
            .into_iter()
            .flatten()
    }

    /// Returns the cached object if it is in the same state, so that it is not stored twice.
    pub(crate) fn known(&self, object: &K) -> Option<Arc<K>> {
        let known = self.get_same_name(object)?;
        let is_same = known.identity().is_same_state(object.identity());
        is_same.then(|| Arc::clone(known))
    }

    /// Replaces all objects by those of a list and returns the differences: deletions first, so
    /// that a subscriber never holds more objects than exist.
    pub(crate) fn replace(&mut self, list: Self) -> Vec<ObjectEvent<K>> {
        let mut changes = Vec::new();
        for known in &self.objects {
            let is_there = list
                .get_same_name(known)
                .is_some_and(|listed| listed.identity().is_same_object(known.identity()));
            if !is_there {
                changes.push(ObjectEvent::Deleted(Arc::clone(known)));
            }
        }
        for listed in &list.objects {
            match self.get_same_name(listed) {
                Some(known) if known.identity().is_same_state(listed.identity()) => {}
                Some(known) if known.identity().is_same_object(listed.identity()) => {
                    changes.push(ObjectEvent::Modified {
                        before: Arc::clone(known),
                        now: Arc::clone(listed),
                    });
                }
                _ => changes.push(ObjectEvent::Added(Arc::clone(listed))),
            }
        }
        *self = list;
        changes
    }

    fn get_same_name(&self, object: &K) -> Option<&Arc<K>> {
        let identity = object.identity();
        self.get(&identity.namespace, &identity.name)
    }

    /// Returns the entry of these names, looked up once for reading and writing.
    fn entry(&mut self, wanted: &Identity) -> Entry<'_, Arc<K>> {
        let Self { objects, hasher } = self;
        objects.entry(
            hash_of(hasher, &wanted.namespace, &wanted.name),
            |known| {
                let identity = known.identity();
                identity.name == wanted.name && identity.namespace == wanted.namespace
            },
            |known| {
                let identity = known.identity();
                hash_of(hasher, &identity.namespace, &identity.name)
            },
        )
    }
}

fn hash_of(hasher: &DefaultHashBuilder, namespace: &str, name: &str) -> u64 {
    hasher.hash_one((namespace, name))
}

fn none<K>() -> Changes<K> {
    [None, None].into_iter().flatten()
}
