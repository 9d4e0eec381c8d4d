//! Answers that hold for a while, with a bound on how many are kept.

use std::hash::Hash;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use tokio::time::Instant;

/// A map whose entries expire.
pub(crate) struct TtlCache<K, V> {
    entries: Mutex<HashMap<K, Entry<V>>>,
    most: usize,
}

struct Entry<V> {
    value: V,
    expires: Instant,
}

impl<K: Eq + Hash + Copy, V: Clone> TtlCache<K, V> {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            entries: Mutex::new(HashMap::new()),
            most: most.max(1),
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

    /// Keeps a value. When there is no room, those go first that have expired, and then any: a
    /// cache that strangers can fill must not grow, and asking again costs a request.
    pub(crate) fn put(&self, key: K, value: V, ttl: Duration) {
        if ttl.is_zero() {
            return;
        }
        let now = Instant::now();
        let mut entries = self.lock();
        if entries.len() >= self.most && !entries.contains_key(&key) {
            entries.retain(|_, entry| entry.expires > now);
            let surplus = (entries.len() + 1).saturating_sub(self.most);
            if surplus > 0 {
                // An eighth at a time, so that a full cache is not searched at each call.
                let leave = surplus.max(self.most / 8);
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
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn answers_expire() {
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
        fn no_more_are_kept_than_fit(keys in proptest::collection::vec(0_u16..500, 1..300), most in 1_usize..40) {
            let cache = TtlCache::new(most);
            for key in keys {
                cache.put(key, key, Duration::from_mins(1));
                prop_assert!(cache.lock().len() <= most);
                prop_assert_eq!(cache.get(&key), Some(key));
            }
        }
    }
}
