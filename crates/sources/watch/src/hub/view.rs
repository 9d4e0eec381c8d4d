//! Objects by name.
//!
//! The set holds nothing but pointers: an object is found by the names inside it, so a name is kept once.

use std::borrow::Borrow;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use hashbrown::HashSet;

use super::What;
use crate::kind::Kind;

#[derive(Debug)]
pub(crate) struct View<K> {
    objects: HashSet<ByName<K>>,
}

/// What one event changes: nothing, an object, or two of one name.
pub(crate) type Changes<K> = std::iter::Flatten<std::array::IntoIter<Option<What<K>>, 2>>;

/// An object that is equal to any other of the same name.
#[derive(Debug)]
struct ByName<K>(Arc<K>);

/// Whatever has a namespace and a name: lets the set be searched without making an object.
trait Named {
    fn names(&self) -> (&str, &str);
}

impl<K> Default for View<K> {
    fn default() -> Self {
        Self {
            objects: HashSet::new(),
        }
    }
}

impl<K: Kind> View<K> {
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Arc<K>> {
        let names: &dyn Named = &(namespace, name);
        self.objects.get(names).map(|ByName(object)| object)
    }

    pub(crate) fn objects(&self) -> Vec<Arc<K>> {
        let objects = self.objects.iter();
        objects.map(|ByName(object)| Arc::clone(object)).collect()
    }

    /// Takes in the newest state of an object. Nothing changes if it is the state known already; another object of
    /// the same name means that the one known was deleted meanwhile.
    pub(crate) fn put(&mut self, object: Arc<K>) -> Changes<K> {
        let changes = match self.get_same_name(&object) {
            None => [Some(What::Added(Arc::clone(&object))), None],
            Some(known) if known.identity().is_same_state(object.identity()) => return none(),
            Some(known) if known.identity().is_same_object(object.identity()) => {
                let before = Arc::clone(known);
                let now = Arc::clone(&object);
                [Some(What::Modified { before, now }), None]
            }
            Some(known) => [
                Some(What::Deleted(Arc::clone(known))),
                Some(What::Added(Arc::clone(&object))),
            ],
        };
        self.objects.replace(ByName(object));
        changes.into_iter().flatten()
    }

    /// Forgets an object, given the state in which it was deleted. An object of which nothing is known needs no
    /// deletion, and a late word of one that had the same name deletes nothing.
    pub(crate) fn remove(&mut self, last: Arc<K>) -> Changes<K> {
        let is_known = self
            .get_same_name(&last)
            .is_some_and(|known| known.identity().is_same_object(last.identity()));
        if !is_known {
            return none();
        }
        self.remove_named(&last);
        [Some(What::Deleted(last)), None].into_iter().flatten()
    }

    /// The state known already, if the object is in that very state: saves keeping it twice.
    pub(crate) fn known(&self, object: &K) -> Option<Arc<K>> {
        let identity = object.identity();
        let known = self.get(&identity.namespace, &identity.name)?;
        let is_same = known.identity().is_same_state(identity);
        is_same.then(|| Arc::clone(known))
    }

    /// Becomes the list, and says what differed: deletions first, so that what is told never holds more objects at
    /// once than there are.
    pub(crate) fn replace(&mut self, mut list: Self) -> Vec<What<K>> {
        let mut changes = Vec::new();
        for ByName(known) in &self.objects {
            let identity = known.identity();
            let is_there = list
                .get(&identity.namespace, &identity.name)
                .is_some_and(|listed| listed.identity().is_same_object(identity));
            if !is_there {
                changes.push(What::Deleted(Arc::clone(known)));
            }
        }
        for ByName(listed) in &list.objects {
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
        std::mem::swap(&mut self.objects, &mut list.objects);
        changes
    }

    fn get_same_name(&self, object: &Arc<K>) -> Option<&Arc<K>> {
        let identity = object.identity();
        self.get(&identity.namespace, &identity.name)
    }

    fn remove_named(&mut self, object: &Arc<K>) {
        let identity = object.identity();
        let names: &dyn Named = &(&*identity.namespace, &*identity.name);
        self.objects.remove(names);
    }
}

impl<K: Kind> Named for ByName<K> {
    fn names(&self) -> (&str, &str) {
        let identity = self.0.identity();
        (&identity.namespace, &identity.name)
    }
}

impl Named for (&str, &str) {
    fn names(&self) -> (&str, &str) {
        *self
    }
}

impl<'a, K: Kind> Borrow<dyn Named + 'a> for ByName<K> {
    fn borrow(&self) -> &(dyn Named + 'a) {
        self
    }
}

impl PartialEq for dyn Named + '_ {
    fn eq(&self, other: &Self) -> bool {
        self.names() == other.names()
    }
}

impl Eq for dyn Named + '_ {}

impl Hash for dyn Named + '_ {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.names().hash(state);
    }
}

impl<K: Kind> PartialEq for ByName<K> {
    fn eq(&self, other: &Self) -> bool {
        self.names() == other.names()
    }
}

impl<K: Kind> Eq for ByName<K> {}

impl<K: Kind> Hash for ByName<K> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.names().hash(state);
    }
}

fn none<K>() -> Changes<K> {
    [None, None].into_iter().flatten()
}
