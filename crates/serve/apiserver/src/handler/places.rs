//! The places of requests in flight, shared between users.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use hashbrown::HashMap;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of places. A user who holds half of them gets no more of the last quarter, so that one
/// user cannot keep out all others.
pub(super) struct Places {
    free: Arc<Semaphore>,
    total: usize,
    /// The places that each user holds, by the hash of the name. It has no more entries than there
    /// are places.
    held: Arc<Mutex<HashMap<u64, usize>>>,
    hasher: RandomState,
}

/// A place that is free again when it is dropped.
pub(super) struct Place {
    _permit: OwnedSemaphorePermit,
    user: u64,
    held: Arc<Mutex<HashMap<u64, usize>>>,
}

impl Places {
    pub(super) fn new(total: usize) -> Self {
        let total = total.max(1);
        Self {
            free: Arc::new(Semaphore::new(total)),
            total,
            held: Arc::default(),
            hasher: RandomState::new(),
        }
    }

    /// Takes a place; `None` if there is none for this user.
    pub(super) fn take(&self, user: &str) -> Option<Place> {
        let permit = Arc::clone(&self.free).try_acquire_owned().ok()?;
        let user = self.hasher.hash_one(user);
        let mut held = self.held.lock();
        let count = held.get(&user).copied().unwrap_or_default();
        if count >= self.total.div_ceil(2) && self.free.available_permits() < self.total / 4 {
            return None;
        }
        held.insert(user, count + 1);
        Some(Place {
            _permit: permit,
            user,
            held: Arc::clone(&self.held),
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut held = self.held.lock();
        if let Some(count) = held.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                held.remove(&self.user);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One tenant used to be able to hold all places, each for the timeout of a request.
    #[test]
    fn one_user_cannot_hold_all_places() {
        let places = Places::new(400);
        let tenant: Vec<Place> = std::iter::from_fn(|| places.take("tenant")).collect();
        assert_eq!(tenant.len(), 300);
        let others: Vec<Place> = (0..100)
            .filter_map(|number| places.take(&format!("user-{number}")))
            .collect();
        assert_eq!(others.len(), 100);
        assert!(places.take("late").is_none());
        drop(tenant);
        assert!(places.take("tenant").is_some());
        drop(others);
        assert!(places.held.lock().is_empty());
    }

    #[test]
    fn few_places_are_not_reserved() {
        for total in [1, 2, 3] {
            let places = Places::new(total);
            let all: Vec<Place> = std::iter::from_fn(|| places.take("tenant")).collect();
            assert_eq!(all.len(), total);
        }
    }
}
