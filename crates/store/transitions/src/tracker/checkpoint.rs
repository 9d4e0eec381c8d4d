//! Up to where everything has been told, so that of several processes each tells what no other has.
//!
//! All processes see the states of pods in the same order, which is that of their versions. What is
//! told of a pod becomes due with a state, so "all that came due up to this version is told" means
//! the same to each of them, wherever they are. A process that saw a state only in a list may know
//! it by a later version. Then the time decides, with a margin on the side of telling twice.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use kubevitals_model::Timestamp;

/// Clocks of nodes may be so far apart, and the API's times are whole seconds.
const MARGIN: Duration = Duration::from_secs(5);

/// Everything that came due with a state of this version, or an earlier one, has been told. Written
/// as `VERSION@TIME`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    /// The version.
    pub version: u64,
    /// When the process that told it had seen that version, by its own clock.
    pub time: Timestamp,
}

/// What is no checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointError;

impl Checkpoint {
    /// Whether it has been told what came due with a state of this version. For one that was found
    /// in a list, `happened` is when, at the latest, it came due by the API's time.
    pub(super) fn covers(self, version: Option<u64>, happened: Option<Timestamp>) -> bool {
        let is_older = happened
            .and_then(|happened| happened.checked_add(MARGIN))
            .is_some_and(|safely| safely < self.time);
        is_older || version.is_some_and(|version| version <= self.version)
    }

    /// The one that covers more.
    #[must_use]
    pub(super) fn further(self, other: Option<Self>) -> Self {
        other
            .filter(|other| other.version > self.version)
            .unwrap_or(self)
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.version, self.time.rfc3339_millis())
    }
}

impl FromStr for Checkpoint {
    type Err = CheckpointError;

    fn from_str(text: &str) -> Result<Self, CheckpointError> {
        let (version, time) = text.split_once('@').ok_or(CheckpointError)?;
        Ok(Self {
            version: version.parse().map_err(|_| CheckpointError)?,
            time: time.parse().map_err(|_| CheckpointError)?,
        })
    }
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a version and a time, such as 7@2026-11-15T20:12:10.5Z")
    }
}

impl std::error::Error for CheckpointError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_as_it_is_written() {
        let told = Checkpoint {
            version: 987_654,
            time: Timestamp::from_unix_millis(1_794_773_520_123),
        };
        assert_eq!(told.to_string(), "987654@2026-11-15T20:12:00.123Z");
        assert_eq!(told.to_string().parse(), Ok(told));
        for text in [
            "",
            "1",
            "@",
            "1@",
            "1@soon",
            "-1@2026-11-15T20:12:00Z",
            "x@2026-11-15T20:12:00Z",
        ] {
            assert_eq!(text.parse::<Checkpoint>(), Err(CheckpointError), "{text}");
        }
    }

    #[test]
    fn versions_decide_and_times_only_where_they_leave_no_doubt() {
        let at = Timestamp::from_unix_millis;
        let told = Checkpoint {
            version: 100,
            time: at(60_000),
        };
        assert!(told.covers(Some(100), None));
        assert!(!told.covers(Some(101), None));
        assert!(!told.covers(None, None));
        assert!(told.covers(Some(200), Some(at(54_999))));
        assert!(!told.covers(Some(200), Some(at(55_000))));
        assert_eq!(told.further(None), told);
        let more = Checkpoint {
            version: 101,
            time: at(0),
        };
        assert_eq!(told.further(Some(more)), more);
        assert_eq!(more.further(Some(told)), more);
    }
}
