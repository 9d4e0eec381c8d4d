//! How long to wait before the next attempt, and the randomness that keeps clients apart.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// Waits with full jitter: each is random between nothing and a bound that doubles up to a cap.
///
/// After a server restart all its clients come back at once; spreading them over the whole interval
/// is what lets it get up again.
#[derive(Debug)]
pub(crate) struct Backoff {
    base: Duration,
    cap: Duration,
    failures: u32,
    random: Random,
}

/// A small generator (splitmix64). Good enough to spread clients; nothing secret depends on it.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Backoff {
    pub(crate) fn new(base: Duration, cap: Duration, seed: Option<u64>) -> Self {
        Self {
            base,
            cap,
            failures: 0,
            random: Random::new(seed),
        }
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }

    /// The next wait.
    pub(crate) fn next(&mut self) -> Duration {
        let doubled = 1_u32.checked_shl(self.failures).unwrap_or(u32::MAX);
        let bound = self.base.saturating_mul(doubled).min(self.cap);
        self.failures = self.failures.saturating_add(1);
        self.random.up_to(bound)
    }

    pub(crate) fn random(&mut self) -> &mut Random {
        &mut self.random
    }
}

impl Random {
    fn new(seed: Option<u64>) -> Self {
        // The standard library seeds its hash maps from the system; nothing else is needed here.
        Self(seed.unwrap_or_else(|| RandomState::new().hash_one(0)))
    }

    /// Between nothing and `bound`.
    pub(crate) fn up_to(&mut self, bound: Duration) -> Duration {
        // 32 bits of fraction: as fine as a wait can use.
        let fraction = u32::try_from(self.next() >> 32).expect("32 bits are left");
        let nanos = (bound.as_nanos() * u128::from(fraction)) >> 32;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: Duration = Duration::from_millis(800);
    const CAP: Duration = Duration::from_secs(30);

    #[test]
    fn waits_grow_up_to_the_cap_and_spread_over_the_whole_interval() {
        let mut longest = [Duration::ZERO; 12];
        let mut shortest = [Duration::MAX; 12];
        for seed in 0..500 {
            let mut backoff = Backoff::new(BASE, CAP, Some(seed));
            for (longest, shortest) in longest.iter_mut().zip(&mut shortest) {
                let wait = backoff.next();
                *longest = wait.max(*longest);
                *shortest = wait.min(*shortest);
            }
        }
        for (failures, (longest, shortest)) in (0..).zip(longest.into_iter().zip(shortest)) {
            let bound = (BASE * 2_u32.pow(failures)).min(CAP);
            assert!(
                longest <= bound && longest > bound * 9 / 10,
                "{failures}: {longest:?}"
            );
            assert!(shortest < bound / 10, "{failures}: {shortest:?}");
        }
    }

    #[test]
    fn it_never_overflows_and_starts_again_after_a_reset() {
        let mut backoff = Backoff::new(BASE, CAP, Some(1));
        for _ in 0..100 {
            assert!(backoff.next() <= CAP);
        }
        backoff.reset();
        assert!(backoff.next() <= BASE);
        let mut endless = Backoff::new(Duration::MAX, Duration::MAX, None);
        endless.next();
        endless.next();
    }
}
