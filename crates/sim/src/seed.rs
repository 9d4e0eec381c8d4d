//! Reproducible randomness: everything random in the simulated cluster is a function of one seed.
//!
//! The seed of each part is derived from that of its parent (cluster, workload, pod, container), so
//! that adding one pod does not affect any other.

use kubevitals_model::fnv1a;

use crate::json::push_hex;

/// Alphabet of generated name suffixes in Kubernetes: no vowels, so no accidental words.
const SAFE_LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// A deterministic random number generator (`SplitMix64`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Seed(u64);

/// A version 4 UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(u128);

impl Seed {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Derives the seed of the part called `tag`.
    #[must_use]
    pub const fn derive(self, tag: u64) -> Self {
        Self(mix(self.0 ^ mix(tag.wrapping_add(0x9E37_79B9_7F4A_7C15))))
    }

    /// Derives the seed of the part with this name.
    #[must_use]
    pub fn derive_name(self, name: &str) -> Self {
        self.derive(fnv1a(name.as_bytes()))
    }

    /// Returns the next number.
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Returns a number from `low` to `high`, both inclusive.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        let span = high.saturating_sub(low);
        if span == u64::MAX {
            return self.next();
        }
        low + self.next() % (span + 1)
    }

    /// Returns true with this probability, in thousandths.
    pub const fn happens(&mut self, thousandths: u64) -> bool {
        self.between(1, 1_000) <= thousandths
    }

    /// Returns a random UUID.
    pub const fn uid(&mut self) -> Uid {
        let random = ((self.next() as u128) << 64) | self.next() as u128;
        let cleared = random & !((0xF << 76) | (0b11 << 62));
        Uid(cleared | (0x4 << 76) | (0b10 << 62))
    }

    /// Appends a generated name suffix of this length.
    pub fn push_suffix(&mut self, out: &mut String, letters: usize) {
        for _ in 0..letters {
            let pick = usize::try_from(self.between(0, 26)).unwrap_or(0);
            out.push(char::from(SAFE_LETTERS.get(pick).copied().unwrap_or(b'b')));
        }
    }

    /// Returns sixty-four hexadecimal digits, as in the id of a container or an image.
    pub fn hex64(mut self) -> String {
        let mut out = String::with_capacity(64);
        self.push_hex64(&mut out);
        out
    }

    pub(crate) fn push_hex64(&mut self, out: &mut String) {
        for _ in 0..4 {
            push_hex(out, self.next(), 16);
        }
    }
}

impl Uid {
    pub(crate) fn push(self, out: &mut String) {
        let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(0);
        let (high, low) = (half(self.0 >> 64), half(self.0));
        for (index, (bits, digits)) in [
            (high >> 32, 8),
            (high >> 16, 4),
            (high, 4),
            (low >> 48, 4),
            (low, 12),
        ]
        .into_iter()
        .enumerate()
        {
            if index > 0 {
                out.push('-');
            }
            push_hex(out, bits, digits);
        }
    }
}

impl std::fmt::Display for Uid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = String::with_capacity(36);
        self.push(&mut text);
        f.write_str(&text)
    }
}

const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers() {
        let (mut one, mut other) = (Seed::new(7), Seed::new(7));
        assert_eq!(
            [one.next(), one.next(), one.next()],
            [other.next(), other.next(), other.next()]
        );
        assert_ne!(Seed::new(7).derive(1), Seed::new(7).derive(2));
        assert_ne!(Seed::new(7).derive_name("a"), Seed::new(7).derive_name("b"));
    }

    #[test]
    fn numbers_stay_within_their_bounds() {
        let mut seed = Seed::new(3);
        for _ in 0..1_000 {
            assert!((10..=15).contains(&seed.between(10, 15)));
        }
        assert_eq!(seed.between(5, 5), 5);
        let _ = seed.between(0, u64::MAX);
    }

    #[test]
    fn a_uid_is_of_version_four() {
        let text = Seed::new(1).uid().to_string();
        assert_eq!(text.len(), 36, "{text}");
        let bits: String = text.chars().filter(|letter| *letter != '-').collect();
        assert_eq!(bits, format!("{:032x}", Seed::new(1).uid().0));
        let digits: Vec<char> = text.chars().collect();
        assert_eq!(digits[14], '4', "{text}");
        assert!("89ab".contains(digits[19]), "{text}");
    }
}
