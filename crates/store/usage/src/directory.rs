//! All pods that the API has reported, by name: to explain absences, and to check the claims of
//! kubelets.

use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashSet, HashTable};
use kubevitals_model::{AsPodSummary, PodKeyRef};
use parking_lot::{Mutex, MutexGuard};

use crate::node::pod_table::key_of;

/// Enough that two tasks rarely contend, few enough that half-empty tables cost little.
const SHARDS: usize = 16;

/// All pods by namespace and name, in shards that are locked one at a time and only briefly.
#[derive(Default)]
pub(crate) struct Directory {
    hasher: DefaultHashBuilder,
    shards: [Mutex<HashTable<Arc<dyn AsPodSummary>>>; SHARDS],
}

impl Directory {
    /// Inserts a pod; returns the one of the same name that it replaces.
    pub(crate) fn put(&self, pod: &Arc<dyn AsPodSummary>) -> Option<Arc<dyn AsPodSummary>> {
        let hash = self.hash(key_of(pod.summary()));
        let mut shard = self.shard(hash);
        let is_same =
            |other: &Arc<dyn AsPodSummary>| key_of(other.summary()) == key_of(pod.summary());
        let hash_of = |other: &Arc<dyn AsPodSummary>| self.hash(key_of(other.summary()));
        match shard.entry(hash, is_same, hash_of) {
            Entry::Occupied(mut known) => Some(std::mem::replace(known.get_mut(), Arc::clone(pod))),
            Entry::Vacant(vacant) => {
                vacant.insert(Arc::clone(pod));
                None
            }
        }
    }

    pub(crate) fn get(&self, key: PodKeyRef<'_>) -> Option<Arc<dyn AsPodSummary>> {
        let hash = self.hash(key);
        let shard = self.shard(hash);
        shard
            .find(hash, |pod| key_of(pod.summary()) == key)
            .map(Arc::clone)
    }

    /// Removes a pod, unless another one of the same name has replaced it.
    pub(crate) fn remove(&self, pod: &dyn AsPodSummary) {
        let key = key_of(pod.summary());
        let hash = self.hash(key);
        let is_it = |other: &Arc<dyn AsPodSummary>| {
            key_of(other.summary()) == key
                && other.summary().identity.uid == pod.summary().identity.uid
        };
        let mut shard = self.shard(hash);
        if let Ok(known) = shard.find_entry(hash, is_it) {
            known.remove();
        }
    }

    /// Returns the pods that are not among these names.
    pub(crate) fn missing_from(
        &self,
        names: &HashSet<PodKeyRef<'_>>,
    ) -> Vec<Arc<dyn AsPodSummary>> {
        let mut missing = Vec::new();
        for shard in &self.shards {
            let shard = shard.lock();
            let gone = shard
                .iter()
                .filter(|pod| !names.contains(&key_of(pod.summary())));
            missing.extend(gone.map(Arc::clone));
        }
        missing
    }

    pub(crate) fn is_empty(&self) -> bool {
        let is_empty = |shard: &Mutex<HashTable<_>>| shard.lock().is_empty();
        self.shards.iter().all(is_empty)
    }

    fn hash(&self, key: PodKeyRef<'_>) -> u64 {
        self.hasher.hash_one(key)
    }

    /// Locks the shard of a hash. Hash tables use the low and the topmost bits themselves, so the
    /// shard is chosen by those in between.
    fn shard(&self, hash: u64) -> MutexGuard<'_, HashTable<Arc<dyn AsPodSummary>>> {
        let index = usize::try_from(hash >> 40).unwrap_or_default() % SHARDS;
        let [first, ..] = &self.shards;
        let shard = self.shards.get(index).unwrap_or(first);
        shard.lock()
    }
}
