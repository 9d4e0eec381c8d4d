//! Resource versions.
//!
//! A replica numbers its changes by itself: its revisions say nothing about those of another. A
//! client that resumes a watch at another replica must list again, or it would miss deletions. So a
//! resource version consists of a revision and the number of the replica:
//!
//! ```text
//! 63             14 13       0
//! │ revision       │ replica │
//! ```
//!
//! It is a decimal number that grows with every change of one replica, and over its restarts.

use std::hash::{BuildHasher as _, RandomState};

use kubevitals_model::Timestamp;

/// The bits of the replica. With these, versions fit into 63 bits until the year 2106.
const REPLICA_BITS: u32 = 14;

/// Revisions per second of the clock, as a power of two. A restarted process begins above every
/// revision of its predecessor as long as less than 131,072 objects change per second on average.
const RATE_BITS: u32 = 17;

/// Converts between revisions and resource versions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Versions {
    replica: u64,
}

impl Versions {
    /// The versions of a replica with this number, or a random one.
    pub(crate) fn new(replica: Option<u16>) -> Self {
        let replica = match replica {
            Some(replica) => u64::from(replica),
            // The seeds of hashes are random.
            None => RandomState::new().hash_one(0),
        };
        Self {
            replica: replica % (1 << REPLICA_BITS),
        }
    }

    /// Returns the revision at which a process that starts now begins.
    pub(crate) fn first_revision(now: Timestamp) -> u64 {
        let millis = u64::try_from(now.unix_millis()).unwrap_or_default().max(1);
        let revision = (u128::from(millis) << RATE_BITS) / 1000;
        u64::try_from(revision).unwrap_or_default()
    }

    pub(crate) const fn version(self, revision: u64) -> u64 {
        (revision << REPLICA_BITS) | self.replica
    }

    /// Returns the revision of a version; `None` if another replica assigned it.
    pub(crate) const fn revision(self, version: u64) -> Option<u64> {
        if version % (1 << REPLICA_BITS) == self.replica {
            Some(version >> REPLICA_BITS)
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_belongs_to_one_replica() {
        let (own, other) = (Versions::new(Some(7)), Versions::new(Some(8)));
        let revision = Versions::first_revision(Timestamp::from_unix_millis(1_763_254_228_000));
        let version = own.version(revision);
        assert_eq!(own.revision(version), Some(revision));
        assert_eq!(other.revision(version), None);
        assert!(own.version(revision + 1) > version);
        assert!(i64::try_from(version).is_ok());
    }

    #[test]
    fn versions_fit_into_63_bits_until_2106() {
        let late = Versions::first_revision(Timestamp::from_unix_millis(((1 << 32) - 1) * 1000));
        assert!(i64::try_from(Versions::new(None).version(late)).is_ok());
    }

    #[test]
    fn a_restarted_process_begins_above_its_predecessor() {
        let at =
            |seconds: i64| Versions::first_revision(Timestamp::from_unix_millis(seconds * 1000));
        let changes = 450_000 * 3600 / 15;
        assert!(at(1_763_254_228) + changes < at(1_763_254_228 + 3600));
    }
}
