//! Objects by name.
//!
//! The table holds nothing but pointers: an object is found by the names inside it, so a name is
//! kept once.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::What;
use crate::kind::Kind;
use kubevitals_model::Identity;

#[derive(Debug)]
pub(crate) struct View<K> {
    objects: HashTable<Arc<K>>,
    hasher: DefaultHashBuilder,
}

/// What one event changes: nothing, an object, or two of one name.
pub(crate) type Changes<K> = std::iter::Flatten<std::array::IntoIter<Option<What<K>>, 2>>;

impl<K> Default for View<K> {
    fn default() -> Self {
        Self {
            objects: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }
}

impl<K: Kind> View<K> {
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

    /// Takes in the newest state of an object. Nothing changes if it is the state known already;
    /// another object of the same name means that the one known was deleted meanwhile.
    pub(crate) fn put(&mut self, object: Arc<K>) -> Changes<K> {
        let changes = match self.entry(object.identity()) {
            Entry::Vacant(place) => {
                place.insert(Arc::clone(&object));
                [Some(What::Added(object)), None]
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
                    [Some(What::Modified { before, now }), None]
                } else {
                    [Some(What::Deleted(before)), Some(What::Added(object))]
                }
            }
        };
        changes.into_iter().flatten()
    }

    /// Forgets an object, given the state in which it was deleted. An object of which nothing is
    /// known needs no deletion, and a late word of one that had the same name deletes nothing.
    pub(crate) fn remove(&mut self, last: Arc<K>) -> Changes<K> {
        match self.entry(last.identity()) {
            Entry::Occupied(known) if known.get().identity().is_same_object(last.identity()) => {
                known.remove();
            }
            _ => return none(),
        }
        [Some(What::Deleted(last)), None].into_iter().flatten()
    }

    /// The state known already, if the object is in that very state: saves keeping it twice.
    pub(crate) fn known(&self, object: &K) -> Option<Arc<K>> {
        let known = self.get_same_name(object)?;
        let is_same = known.identity().is_same_state(object.identity());
        is_same.then(|| Arc::clone(known))
    }

    /// Becomes the list, and says what differed: deletions first, so that what is told never holds
    /// more objects at once than there are.
    pub(crate) fn replace(&mut self, list: Self) -> Vec<What<K>> {
        let mut changes = Vec::new();
        for known in &self.objects {
            let is_there = list
                .get_same_name(known)
                .is_some_and(|listed| listed.identity().is_same_object(known.identity()));
            if !is_there {
                changes.push(What::Deleted(Arc::clone(known)));
            }
        }
        for listed in &list.objects {
            match self.get_same_name(listed) {
                Some(known) if known.identity().is_same_state(listed.identity()) => {}
                Some(known) if known.identity().is_same_object(listed.identity()) => {
                    changes.push(What::Modified {
                        before: Arc::clone(known),
                        now: Arc::clone(listed),
                    });
                }
                _ => changes.push(What::Added(Arc::clone(listed))),
            }
        }
        *self = list;
        changes
    }

    fn get_same_name(&self, object: &K) -> Option<&Arc<K>> {
        let identity = object.identity();
        self.get(&identity.namespace, &identity.name)
    }

    /// The place of whatever has these names, found once for looking and writing.
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
