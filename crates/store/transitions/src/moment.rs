//! A moment by two clocks.

use std::time::Duration;

use kubevitals_model::Timestamp;

/// The time of an occurrence.
///
/// The two times are of different clocks and are never subtracted from one another. Either may be
/// unknown: the API has no time for a container's startup probe, and a recording has no time of
/// receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    /// The time in the API, in whole seconds, by the clock of the component that wrote it.
    pub api: Option<Timestamp>,
    /// The time of receipt of the state that first showed it.
    pub observed: Option<Timestamp>,
}

impl Moment {
    /// The API's time, or else the observer's.
    pub fn best(self) -> Option<Timestamp> {
        self.api.or(self.observed)
    }

    /// Returns the time since `earlier`: by the API's times if both have one, or else by those of
    /// the observer. `None` if no clock has both, or if the result would be negative.
    pub fn since(self, earlier: Self) -> Option<Duration> {
        let by_api = pair(self.api, earlier.api).and_then(|(to, from)| to.since(from));
        by_api
            .or_else(|| pair(self.observed, earlier.observed).and_then(|(to, from)| to.since(from)))
    }

    /// Whether the API's time is before that of a moment that must have been earlier: the clocks of
    /// two hosts disagree.
    pub fn is_before(self, earlier: Self) -> bool {
        pair(self.api, earlier.api).is_some_and(|(to, from)| to < from)
    }
}

/// Sets a moment unless it is set.
pub(crate) fn note(slot: &mut Option<Moment>, api: Option<Timestamp>, observed: Option<Timestamp>) {
    slot.get_or_insert(Moment { api, observed });
}

fn pair<T>(one: Option<T>, two: Option<T>) -> Option<(T, T)> {
    one.zip(two)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(api: Option<i64>, observed: Option<i64>) -> Moment {
        Moment {
            api: api.map(Timestamp::from_unix_millis),
            observed: observed.map(Timestamp::from_unix_millis),
        }
    }

    #[test]
    fn clocks_are_not_mixed() {
        assert_eq!(at(Some(5), None).since(at(None, Some(3))), None);
        let seconds = at(Some(5_000), Some(90)).since(at(Some(2_000), Some(10)));
        assert_eq!(seconds, Some(Duration::from_secs(3)));
        let observed = at(None, Some(90)).since(at(Some(2_000), Some(10)));
        assert_eq!(observed, Some(Duration::from_millis(80)));
    }

    #[test]
    fn durations_are_never_negative() {
        let (late, early) = (at(Some(5), None), at(Some(7), None));
        assert_eq!(late.since(early), None);
        assert!(late.is_before(early) && !early.is_before(late));
        // The observer saw the actual order.
        let observed = at(Some(5), Some(20)).since(at(Some(7), Some(10)));
        assert_eq!(observed, Some(Duration::from_millis(10)));
    }

    #[test]
    fn the_first_moment_stays() {
        let mut slot = None;
        note(&mut slot, Some(Timestamp::from_unix_millis(1)), None);
        note(&mut slot, Some(Timestamp::from_unix_millis(2)), None);
        assert_eq!(slot, Some(at(Some(1), None)));
    }
}
