//! Durations between the moments of a record.

use std::time::Duration;

use kubevitals_model::Timestamp;
use kubevitals_transitions::Moment;

/// Returns the time from one moment to the other, if one clock has both.
pub(crate) fn between(from: Option<Moment>, to: Option<Moment>) -> Option<Duration> {
    to?.since(from?)
}

/// Returns the last of several moments, by each clock that has all of them; `None` if one is
/// missing or there are none.
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
        reason = "moments of a record may be missing"
    )]
    fn at(api: Option<i64>, observed: Option<i64>) -> Option<Moment> {
        Some(Moment {
            api: api.map(Timestamp::from_unix_millis),
            observed: observed.map(Timestamp::from_unix_millis),
        })
    }

    #[test]
    fn the_last_moment_needs_a_clock_that_has_all() {
        let two = [at(Some(2_000), Some(5)), at(Some(1_000), Some(9))];
        assert_eq!(last(two), at(Some(2_000), Some(9)));
        let one_clock = [at(Some(2_000), Some(5)), at(None, Some(3))];
        assert_eq!(last(one_clock), at(None, Some(5)));
        assert_eq!(last([at(Some(1), None), None]), None);
        assert_eq!(last([]), None);
    }
}
