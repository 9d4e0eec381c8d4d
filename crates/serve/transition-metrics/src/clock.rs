//! Durations between what a record notes.

use std::time::Duration;

use kubevitals_model::Timestamp;
use kubevitals_transitions::{Moment, PodRecord};

/// Makes durations of one record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clock {
    /// Of a pod that began before it was watched all that happened before was observed at one time:
    /// only the API's count.
    by_api_alone: bool,
}

impl Clock {
    pub(crate) fn of(record: &PodRecord) -> Self {
        Self {
            by_api_alone: record.reconstructed,
        }
    }

    /// The time from one to the other, if one clock knows both.
    pub(crate) fn between(self, from: Option<Moment>, to: Option<Moment>) -> Option<Duration> {
        self.seen(to?).since(self.seen(from?))
    }

    fn seen(self, moment: Moment) -> Moment {
        Moment {
            observed: moment.observed.filter(|_| !self.by_api_alone),
            ..moment
        }
    }
}

/// The last of several, by each clock that knows all of them; none if one is missing or there is
/// none.
pub(crate) fn last(moments: impl IntoIterator<Item = Option<Moment>>) -> Option<Moment> {
    let later = |one: Option<Timestamp>, two: Option<Timestamp>| Some(one?.max(two?));
    moments
        .into_iter()
        .try_fold(None, |last: Option<Moment>, next| {
            let next = next?;
            Some(Some(last.map_or(next, |last| Moment {
                api: later(last.api, next.api),
                observed: later(last.observed, next.observed),
            })))
        })?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(
        clippy::unnecessary_wraps,
        reason = "what a record notes may be missing"
    )]
    fn at(api: Option<i64>, observed: Option<i64>) -> Option<Moment> {
        Some(Moment {
            api: api.map(Timestamp::from_unix_millis),
            observed: observed.map(Timestamp::from_unix_millis),
        })
    }

    #[test]
    fn the_last_is_known_by_clocks_that_know_all() {
        let two = [at(Some(2_000), Some(5)), at(Some(1_000), Some(9))];
        assert_eq!(last(two), at(Some(2_000), Some(9)));
        let one_clock = [at(Some(2_000), Some(5)), at(None, Some(3))];
        assert_eq!(last(one_clock), at(None, Some(5)));
        assert_eq!(last([at(Some(1), None), None]), None);
        assert_eq!(last([]), None);
    }

    #[test]
    fn what_was_found_at_once_took_no_known_time() {
        let (from, to) = (at(None, Some(10)), at(None, Some(10)));
        let live = Clock {
            by_api_alone: false,
        };
        assert_eq!(live.between(from, to), Some(Duration::ZERO));
        let reconstructed = Clock { by_api_alone: true };
        assert_eq!(reconstructed.between(from, to), None);
        let stated = reconstructed.between(at(Some(1_000), Some(10)), at(Some(3_000), Some(10)));
        assert_eq!(stated, Some(Duration::from_secs(2)));
    }
}
