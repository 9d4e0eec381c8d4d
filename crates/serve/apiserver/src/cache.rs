//! A bounded cache with a lifetime for each entry.

use std::hash::Hash;
use std::time::Duration;

use hashbrown::HashMap;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

/// A map whose entries expire.
pub(crate) struct TtlCache<K, V> {
    entries: Mutex<HashMap<K, Entry<V>>>,
    max: usize,
}

struct Entry<V> {
    value: V,
    expires: Instant,
}

impl<K: Eq + Hash + Copy, V: Clone> TtlCache<K, V> {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            entries: Mutex::new(HashMap::new()),
            max: max.max(1),
        }
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let now = Instant::now();
        let mut entries = self.lock();
        let entry = entries.get(key)?;
        if entry.expires > now {
            return Some(entry.value.clone());
        }
        entries.remove(key);
        None
    }

    /// Inserts a value. A full cache evicts expired entries first, and then any: a cache that
    /// unauthenticated clients can fill must not grow, and a miss costs one request.
    pub(crate) fn put(&self, key: K, value: V, ttl: Duration) {
        if ttl.is_zero() {
            return;
        }
        let now = Instant::now();
        let mut entries = self.lock();
        if entries.len() >= self.max && !entries.contains_key(&key) {
            entries.retain(|_, entry| entry.expires > now);
            let surplus = (entries.len() + 1).saturating_sub(self.max);
            if surplus > 0 {
                // An eighth at a time, so that a full cache is not searched at each call.
                let leave = surplus.max(self.max / 8);
                let victims: Vec<K> = entries.keys().take(leave).copied().collect();
                for victim in &victims {
                    entries.remove(victim);
                }
            }
        }
        let expires = now + ttl;
        entries.insert(key, Entry { value, expires });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<K, Entry<V>>> {
        self.entries.lock()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn entries_expire() {
        let cache = TtlCache::new(8);
        cache.put(1, "a", Duration::from_secs(10));
        cache.put(2, "never", Duration::ZERO);
        tokio::time::advance(Duration::from_millis(9_999)).await;
        assert_eq!((cache.get(&1), cache.get(&2)), (Some("a"), None));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(cache.get(&1), None);
        assert!(cache.lock().is_empty());
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(64) })]

        #[test]
        fn the_cache_never_exceeds_its_maximum(keys in proptest::collection::vec(0_u16..500, 1..300), max in 1_usize..40) {
            let cache = TtlCache::new(max);
            for key in keys {
                cache.put(key, key, Duration::from_mins(1));
                prop_assert!(cache.lock().len() <= max);
                prop_assert_eq!(cache.get(&key), Some(key));
            }
        }
    }
}
