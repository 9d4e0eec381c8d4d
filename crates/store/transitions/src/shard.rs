//! Sharding of pods by UID.

use std::fmt;
use std::num::NonZero;
use std::str::FromStr;

use kubevitals_model::{Uid, fnv1a};

/// One of several equal parts of all pods, by their UIDs. Written as `0/4`: the first of four.
///
/// A pod belongs to the part whose number is FNV-1a (64 bits) of the 16 bytes of its UID, modulo
/// the number of parts. That will not change: processes of different versions may share the work. A
/// UID that is no UUID is hashed as text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    index: u32,
    count: NonZero<u32>,
}

/// The error of an invalid [`Shard`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardError;

impl Shard {
    /// All pods.
    pub const ALL: Self = Self {
        index: 0,
        count: NonZero::<u32>::MIN,
    };

    /// Part `index` of `count`, counted from 0.
    pub fn new(index: u32, count: u32) -> Result<Self, ShardError> {
        let count = NonZero::new(count).ok_or(ShardError)?;
        if index < count.get() {
            Ok(Self { index, count })
        } else {
            Err(ShardError)
        }
    }

    /// The index, from 0.
    pub fn index(self) -> u32 {
        self.index
    }

    /// The number of shards.
    pub fn count(self) -> u32 {
        self.count.get()
    }

    /// Whether the pod of this UID is in this part.
    pub fn contains(self, uid: &Uid) -> bool {
        if self.count.get() == 1 {
            return true;
        }
        let hash = match uid.as_uuid() {
            Some(bytes) => fnv1a(bytes),
            None => fnv1a(uid.to_string().as_bytes()),
        };
        hash % u64::from(self.count.get()) == u64::from(self.index)
    }
}

impl FromStr for Shard {
    type Err = ShardError;

    fn from_str(text: &str) -> Result<Self, ShardError> {
        let number = |text: &str| {
            let is_plain = text.bytes().all(|byte| byte.is_ascii_digit());
            text.parse().ok().filter(|_| is_plain).ok_or(ShardError)
        };
        let (index, count) = text.split_once('/').ok_or(ShardError)?;
        Self::new(number(index)?, number(count)?)
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.index, self.count)
    }
}

impl fmt::Display for ShardError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a part of a number of parts, such as 0/4 for the first of four")
    }
}

impl std::error::Error for ShardError {}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pod_stays_in_its_part_from_version_to_version() {
        for (uid, of_4, of_7) in [
            ("b37f14a9-3bf4-458b-8cfd-e3c6a7a61b4a", 1, 0),
            ("00000000-0000-4000-8000-000000000001", 2, 2),
            ("00000000-0000-4000-8000-000000000002", 3, 6),
            ("static-pod-hash", 0, 5),
        ] {
            let part = |count| {
                (0..count)
                    .find(|index| Shard::new(*index, count).unwrap().contains(&uid.into()))
                    .unwrap()
            };
            assert_eq!((part(4), part(7)), (of_4, of_7), "{uid}");
        }
    }

    #[test]
    fn only_parts_of_something_are_taken() {
        assert_eq!("0/1".parse(), Ok(Shard::ALL));
        assert_eq!("3/4".parse::<Shard>().unwrap().to_string(), "3/4");
        for text in [
            "", "/", "4/4", "1/0", "0/0", "-1/4", "+1/4", "1/4/2", "a/b", "1",
        ] {
            assert_eq!(text.parse::<Shard>(), Err(ShardError), "{text}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_pod_is_in_exactly_one_part(uid in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\\PC{0,40}", count in 1_u32..64) {
            let uid = Uid::from(uid.as_str());
            let parts = (0..count).filter(|index| Shard::new(*index, count).unwrap().contains(&uid));
            prop_assert_eq!(parts.count(), 1);
        }
    }
}
