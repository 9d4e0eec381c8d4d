//! The progress of the leader, so that the next leader continues without gaps or duplicates.
//!
//! All replicas see the states of pods in the same order, which is that of their versions. A record
//! becomes due with a state, so "all records due up to this version are emitted" means the same to
//! each of them. A replica that saw a state only in a list may know it by a later version. Then the
//! time decides, with a margin on the side of emitting twice.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use kubevitals_model::Timestamp;

/// Tolerated clock skew between nodes; the API's times are whole seconds.
const CLOCK_SKEW: Duration = Duration::from_secs(5);

/// A live event is received long before this time has passed.
const MAX_EVENT_DELAY: Duration = Duration::from_mins(1);

/// All records due with a state of this version or an earlier one are emitted. Written as
/// `VERSION@TIME`, or `VERSION/EVENT_VERSION@TIME`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Checkpoint {
    pub version: u64,
    /// The newest event that was processed. Events may have versions of their own.
    pub event_version: Option<u64>,
    /// The time at which the leader saw that version, by its own clock.
    pub time: Timestamp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointError;

impl Checkpoint {
    /// Whether records due with a state of this version are emitted. For a state of a list,
    /// `happened` is the latest time at which they became due, by the API's time.
    pub(super) fn covers(self, version: Option<u64>, happened: Option<Timestamp>) -> bool {
        let is_older = happened
            .and_then(|happened| happened.checked_add(CLOCK_SKEW))
            .is_some_and(|safely| safely < self.time);
        is_older || version.is_some_and(|version| version <= self.version)
    }

    /// Whether an event of this version is processed. One in a list may have been changed since:
    /// then its time decides.
    pub(super) fn covers_event(self, version: Option<u64>, happened: Timestamp) -> bool {
        let is_older = happened
            .checked_add(MAX_EVENT_DELAY)
            .is_some_and(|safely| safely < self.time);
        is_older || version.is_some_and(|version| Some(version) <= self.event_version)
    }

    /// Returns what both cover.
    #[must_use]
    pub(super) fn further(self, other: Option<Self>) -> Self {
        let Some(other) = other else {
            return self;
        };
        let further = if other.version > self.version {
            other
        } else {
            self
        };
        Self {
            event_version: self.event_version.max(other.event_version),
            ..further
        }
    }
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.version)?;
        if let Some(event_version) = self.event_version {
            write!(f, "/{event_version}")?;
        }
        write!(f, "@{}", self.time.rfc3339_millis())
    }
}

impl FromStr for Checkpoint {
    type Err = CheckpointError;

    fn from_str(text: &str) -> Result<Self, CheckpointError> {
        let (versions, time) = text.split_once('@').ok_or(CheckpointError)?;
        let (version, event_version) = match versions.split_once('/') {
            Some((version, event_version)) => (version, Some(event_version)),
            None => (versions, None),
        };
        let event_version = event_version.map(str::parse).transpose();
        Ok(Self {
            version: version.parse().map_err(|_| CheckpointError)?,
            event_version: event_version.map_err(|_| CheckpointError)?,
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
    fn a_checkpoint_survives_a_round_trip() {
        for (event_version, text) in [
            (None, "987654@2026-11-15T20:12:00.123Z"),
            (Some(77), "987654/77@2026-11-15T20:12:00.123Z"),
        ] {
            let checkpoint = Checkpoint {
                version: 987_654,
                event_version,
                time: Timestamp::from_unix_millis(1_794_773_520_123),
            };
            assert_eq!(checkpoint.to_string(), text);
            assert_eq!(checkpoint.to_string().parse(), Ok(checkpoint));
        }
        for text in [
            "",
            "1",
            "@",
            "1@",
            "1@soon",
            "-1@2026-11-15T20:12:00Z",
            "x@2026-11-15T20:12:00Z",
            "1/@2026-11-15T20:12:00Z",
            "1/2/3@2026-11-15T20:12:00Z",
        ] {
            assert_eq!(text.parse::<Checkpoint>(), Err(CheckpointError), "{text}");
        }
    }

    #[test]
    fn versions_decide_and_times_only_beyond_the_clock_skew() {
        let at = Timestamp::from_unix_millis;
        let checkpoint = Checkpoint {
            version: 100,
            event_version: Some(40),
            time: at(60_000),
        };
        assert!(checkpoint.covers(Some(100), None));
        assert!(!checkpoint.covers(Some(101), None));
        assert!(!checkpoint.covers(None, None));
        assert!(checkpoint.covers(Some(200), Some(at(54_999))));
        assert!(!checkpoint.covers(Some(200), Some(at(55_000))));
        assert_eq!(checkpoint.further(None), checkpoint);
        let more = Checkpoint {
            version: 101,
            event_version: None,
            time: at(0),
        };
        let both = Checkpoint {
            event_version: Some(40),
            ..more
        };
        assert_eq!(checkpoint.further(Some(more)), both);
        assert_eq!(more.further(Some(checkpoint)), both);
        assert!(checkpoint.covers_event(Some(40), at(60_000)));
        assert!(!checkpoint.covers_event(Some(41), at(0)));
        assert!(checkpoint.covers_event(Some(41), at(-1)));
    }
}
