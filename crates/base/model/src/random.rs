//! Pseudo-random numbers and a stable hash, to spread clients and nodes over time. Nothing secret
//! depends on them.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

/// A pseudo-random number generator (splitmix64).
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// A generator that yields the same numbers for the same seed.
    pub const fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator that yields the same numbers for the same name.
    pub fn named(name: &str) -> Self {
        Self(fnv1a(name.as_bytes()))
    }

    /// A generator with a random seed: the standard library takes that of its hash maps from the
    /// system.
    pub fn random() -> Self {
        Self(RandomState::new().hash_one(0))
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 up to 1, in steps of 2^-32.
    pub fn fraction(&mut self) -> f64 {
        let upper = u32::try_from(self.next_u64() >> 32).unwrap_or(u32::MAX);
        f64::from(upper) / (f64::from(u32::MAX) + 1.0)
    }

    /// Returns a duration from zero up to `bound`.
    pub fn duration_up_to(&mut self, bound: Duration) -> Duration {
        let upper = self.next_u64() >> 32;
        let nanos = (bound.as_nanos() * u128::from(upper)) >> 32;
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Returns the FNV-1a hash. It is the same in every process.
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From the reference of FNV: <http://www.isthe.com/chongo/tech/comp/fnv/>
    #[test]
    fn fnv1a_matches_the_reference() {
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn numbers_repeat_for_a_name_and_differ_between_names() {
        let first = |name| Rng::named(name).next_u64();
        assert_eq!(first("node-a"), first("node-a"));
        assert_ne!(first("node-a"), first("node-b"));
        assert_ne!(Rng::random().next_u64(), Rng::random().next_u64());
    }

    #[test]
    fn fractions_and_durations_spread_over_the_whole_range() {
        let mut rng = Rng::seeded(1);
        let bound = Duration::from_secs(10);
        let (mut lowest, mut highest) = (1.0_f64, 0.0_f64);
        for _ in 0..1_000 {
            let fraction = rng.fraction();
            assert!((0.0..1.0).contains(&fraction));
            (lowest, highest) = (lowest.min(fraction), highest.max(fraction));
            assert!(rng.duration_up_to(bound) < bound);
        }
        assert!(lowest < 0.01 && highest > 0.99, "{lowest}..{highest}");
        assert!(rng.duration_up_to(Duration::MAX) <= Duration::MAX);
    }
}
