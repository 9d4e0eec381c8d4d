//! What must hold, and what did not.

use std::fmt;
use std::time::Duration;

use kubevitals_bench::measure::Values;

use crate::readers::Ended;

/// A reader may cost the server as much as buffers of a connection, and nowhere near a list of its
/// own.
const BYTES_OF_A_READER: f64 = 512.0 * 1024.0;

/// A probe that takes longer may be given up by who asks.
const LIVEZ: Duration = Duration::from_millis(100);

/// Kubelets take a sample every 15 seconds at the latest; then it waits for the next scrape.
const KUBELET: Duration = Duration::from_secs(15);

/// Scrapes have some jitter, and timestamps are of whole seconds.
const JITTER: Duration = Duration::from_secs(2);

/// What must hold.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    growth: f64,
    oldest: Duration,
}

impl Bounds {
    pub(crate) fn new(readers: u32, resolution: Duration) -> Self {
        Self {
            growth: f64::from(readers) * BYTES_OF_A_READER,
            oldest: resolution + KUBELET + JITTER,
        }
    }

    /// What did not hold, each in a clause.
    pub(crate) fn missed(&self, values: &Values, must_turn_away: bool) -> Vec<String> {
        let value = |key: &str| values.get(key).copied().unwrap_or(f64::NAN);
        let mut missed = Vec::new();
        let mut hold = |holds: bool, what: String| {
            if !holds {
                missed.push(what);
            }
        };
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let growth = value("rss.peak") - value("rss.before");
        hold(
            growth <= self.growth,
            format!(
                "memory grew by {:.0} MiB, more than {:.0}",
                mib(growth),
                mib(self.growth)
            ),
        );
        let oldest = value("age.max");
        hold(
            oldest <= self.oldest.as_secs_f64(),
            format!(
                "a sample was {oldest:.1} s old, more than {:?}",
                self.oldest
            ),
        );
        for (key, whose) in [
            ("livez.max", "a kubelet"),
            ("livez.readers_max", "the readers"),
        ] {
            let slowest = value(key);
            hold(
                slowest <= LIVEZ.as_secs_f64(),
                format!(
                    "/livez took {:.0} ms from the address of {whose}, more than {LIVEZ:?}",
                    slowest * 1e3
                ),
            );
        }
        let failed = value("livez.failed");
        hold(failed == 0.0, format!("/livez failed {failed} times"));
        let (away, blank) = (value("away"), value("away.blank"));
        hold(
            blank == 0.0,
            format!("{blank} of {away} that were turned away were not told when to come back"),
        );
        hold(
            !must_turn_away || away > 0.0,
            "nobody was turned away, although there were more readers than places".to_owned(),
        );
        hold(
            value("failed") == 0.0,
            format!("{} readers failed", value("failed")),
        );
        missed
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let growth = self.growth / f64::from(1 << 20);
        let oldest = self.oldest;
        write!(
            f,
            "memory grows by {growth:.0} MiB at most, no sample is older than {oldest:?}, /livez answers within {LIVEZ:?}, \
             429 comes with Retry-After"
        )
    }
}

/// How many readers ended in which way.
pub(crate) fn count(ended: &[Ended]) -> Values {
    #[expect(clippy::cast_precision_loss, reason = "thousands of readers at most")]
    let of =
        |wanted: &dyn Fn(&Ended) -> bool| ended.iter().filter(|one| wanted(one)).count() as f64;
    let blank = |one: &Ended| {
        // A number of seconds or a date; an empty header says neither.
        matches!(one, Ended::TurnedAway { retry_after } if retry_after.as_deref().is_none_or(str::is_empty))
    };
    let counts = [
        ("whole", of(&|one| *one == Ended::Whole)),
        ("cut", of(&|one| *one == Ended::Cut)),
        ("away", of(&|one| matches!(one, Ended::TurnedAway { .. }))),
        ("away.blank", of(&blank)),
        ("failed", of(&|one| matches!(one, Ended::Failed(_)))),
    ];
    let counts = counts.into_iter();
    counts.map(|(key, value)| (key.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Values {
        let away = |after: &str| Ended::TurnedAway {
            retry_after: Some(after.to_owned()),
        };
        let mut values = count(&[Ended::Whole, Ended::Cut, away("1")]);
        values.extend(
            [
                ("rss.before", 50e6),
                ("rss.peak", 60e6),
                ("age.max", 29.0),
                ("livez.max", 0.02),
                ("livez.readers_max", 0.03),
                ("livez.failed", 0.0),
            ]
            .map(|(key, value)| (key.to_owned(), value)),
        );
        values
    }

    #[test]
    fn each_condition_is_missed_by_itself() {
        let bounds = Bounds::new(200, Duration::from_secs(15));
        assert_eq!(bounds.missed(&good(), true), Vec::<String>::new());
        for (key, value, words) in [
            ("rss.peak", 300e6, "memory grew by"),
            ("age.max", 40.0, "a sample was 40.0 s old"),
            (
                "livez.max",
                0.2,
                "/livez took 200 ms from the address of a kubelet",
            ),
            ("livez.readers_max", 0.2, "from the address of the readers"),
            ("livez.failed", 1.0, "/livez failed"),
            ("away.blank", 1.0, "when to come back"),
            ("away", 0.0, "nobody was turned away"),
            ("failed", 2.0, "2 readers failed"),
        ] {
            let mut values = good();
            values.insert(key.to_owned(), value);
            let missed = bounds.missed(&values, true);
            assert!(
                missed.len() == 1 && missed[0].contains(words),
                "{key}: {missed:?}"
            );
        }
        let mut nobody = good();
        nobody.insert("away".to_owned(), 0.0);
        assert!(bounds.missed(&nobody, false).is_empty());
    }

    #[test]
    fn what_was_not_measured_does_not_hold() {
        let bounds = Bounds::new(200, Duration::from_secs(15));
        assert!(bounds.missed(&Values::new(), false).len() >= 5);
    }

    #[test]
    fn who_is_turned_away_without_a_word_is_counted() {
        let blank = Ended::TurnedAway { retry_after: None };
        let counts = count(&[blank, Ended::Failed("x".to_owned())]);
        assert_eq!(counts["away.blank"].to_bits(), 1.0_f64.to_bits());
        assert_eq!(counts["failed"].to_bits(), 1.0_f64.to_bits());
    }
}
