//! When something happened, by two clocks.

use std::time::Duration;

use kubevitals_model::Timestamp;

/// When something happened.
///
/// The two times are of different clocks and are never subtracted from one another. Either may be
/// unknown: the API has no time for a container's startup probe, and a recording has none for when
/// it was received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moment {
    /// As the API states it, in whole seconds, by the clock of whoever wrote it.
    pub api: Option<Timestamp>,
    /// When the state that first showed it was seen.
    pub observed: Option<Timestamp>,
}

impl Moment {
    /// By the API's time where there is one.
    pub fn best(self) -> Option<Timestamp> {
        self.api.or(self.observed)
    }

    /// The time passed since `earlier`: by the API's times if both have one, or else by those of
    /// the observer. Unknown if no clock knows both, or if the clock says that it was the other way
    /// round.
    pub fn since(self, earlier: Self) -> Option<Duration> {
        let by_api = pair(self.api, earlier.api).and_then(|(to, from)| to.since(from));
        by_api
            .or_else(|| pair(self.observed, earlier.observed).and_then(|(to, from)| to.since(from)))
    }

    /// Whether the API's times say that this was before what it must have followed: two hosts
    /// disagree on the time.
    pub fn is_before(self, earlier: Self) -> bool {
        pair(self.api, earlier.api).is_some_and(|(to, from)| to < from)
    }
}

/// Keeps what was noted first.
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
    fn nothing_takes_less_than_no_time() {
        let (late, early) = (at(Some(5), None), at(Some(7), None));
        assert_eq!(late.since(early), None);
        assert!(late.is_before(early) && !early.is_before(late));
        // The observer saw the order in which it happened.
        let observed = at(Some(5), Some(20)).since(at(Some(7), Some(10)));
        assert_eq!(observed, Some(Duration::from_millis(10)));
    }

    #[test]
    fn what_was_noted_first_stays() {
        let mut slot = None;
        note(&mut slot, Some(Timestamp::from_unix_millis(1)), None);
        note(&mut slot, Some(Timestamp::from_unix_millis(2)), None);
        assert_eq!(slot, Some(at(Some(1), None)));
    }
}
