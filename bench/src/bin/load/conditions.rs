//! The conditions of the benchmark.

use std::fmt;
use std::time::Duration;

use kubevitals_bench::measure::Values;

use crate::readers::Outcome;

/// Memory that a reader may cost the server: connection buffers, but far less than a list.
const MAX_BYTES_PER_READER: f64 = 512.0 * 1024.0;

/// Maximum latency of a probe: clients may give up a slower one.
const MAX_LIVEZ_LATENCY: Duration = Duration::from_millis(100);

/// Kubelets take a sample every 15 seconds at least; then it waits for the next scrape.
const KUBELET_SAMPLE_INTERVAL: Duration = Duration::from_secs(15);

/// Scrapes have some jitter, and timestamps have whole seconds.
const JITTER: Duration = Duration::from_secs(2);

/// Limits of memory growth and of the age of samples.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    growth: f64,
    oldest: Duration,
}

impl Bounds {
    pub(crate) fn new(readers: u32, resolution: Duration) -> Self {
        Self {
            growth: f64::from(readers) * MAX_BYTES_PER_READER,
            oldest: resolution + KUBELET_SAMPLE_INTERVAL + JITTER,
        }
    }

    /// Returns the conditions that are not met, as clauses.
    pub(crate) fn violations(&self, values: &Values, must_reject: bool) -> Vec<String> {
        let value = |key: &str| values.get(key).copied().unwrap_or(f64::NAN);
        let mut violations = Vec::new();
        let mut require = |holds: bool, what: String| {
            if !holds {
                violations.push(what);
            }
        };
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let growth = value("rss.peak") - value("rss.before");
        require(
            growth <= self.growth,
            format!(
                "memory grew by {:.0} MiB, more than {:.0}",
                mib(growth),
                mib(self.growth)
            ),
        );
        let oldest = value("age.max");
        require(
            oldest <= self.oldest.as_secs_f64(),
            format!(
                "a sample was {oldest:.1} s old, more than {:?}",
                self.oldest
            ),
        );
        for (key, source) in [
            ("livez.max", "a kubelet"),
            ("livez.readers_max", "the readers"),
        ] {
            let slowest = value(key);
            require(
                slowest <= MAX_LIVEZ_LATENCY.as_secs_f64(),
                format!(
                    "/livez took {:.0} ms from the address of {source}, more than {MAX_LIVEZ_LATENCY:?}",
                    slowest * 1e3
                ),
            );
        }
        let failed = value("livez.failed");
        require(failed == 0.0, format!("/livez failed {failed} times"));
        let (away, blank) = (value("away"), value("away.blank"));
        require(
            blank == 0.0,
            format!("{blank} of {away} rejections had no Retry-After"),
        );
        require(
            !must_reject || away > 0.0,
            "no request was rejected, although there were more readers than the limit".to_owned(),
        );
        require(
            value("failed") == 0.0,
            format!("{} readers failed", value("failed")),
        );
        violations
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let growth = self.growth / f64::from(1 << 20);
        let oldest = self.oldest;
        write!(
            f,
            "memory grows by {growth:.0} MiB at most, no sample is older than {oldest:?}, /livez responds within {MAX_LIVEZ_LATENCY:?}, \
             429 has a Retry-After"
        )
    }
}

/// Counts the readers by outcome.
pub(crate) fn count(outcomes: &[Outcome]) -> Values {
    #[expect(clippy::cast_precision_loss, reason = "thousands of readers at most")]
    let of = |wanted: &dyn Fn(&Outcome) -> bool| {
        outcomes.iter().filter(|one| wanted(one)).count() as f64
    };
    let blank = |one: &Outcome| {
        // A number of seconds or a date, but not empty.
        matches!(one, Outcome::Rejected { retry_after } if retry_after.as_deref().is_none_or(str::is_empty))
    };
    let counts = [
        ("whole", of(&|one| *one == Outcome::Complete)),
        ("cut", of(&|one| *one == Outcome::Aborted)),
        ("away", of(&|one| matches!(one, Outcome::Rejected { .. }))),
        ("away.blank", of(&blank)),
        ("failed", of(&|one| matches!(one, Outcome::Failed(_)))),
    ];
    let counts = counts.into_iter();
    counts.map(|(key, value)| (key.to_owned(), value)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Values {
        let away = |after: &str| Outcome::Rejected {
            retry_after: Some(after.to_owned()),
        };
        let mut values = count(&[Outcome::Complete, Outcome::Aborted, away("1")]);
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
        assert_eq!(bounds.violations(&good(), true), Vec::<String>::new());
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
            ("away.blank", 1.0, "no Retry-After"),
            ("away", 0.0, "no request was rejected"),
            ("failed", 2.0, "2 readers failed"),
        ] {
            let mut values = good();
            values.insert(key.to_owned(), value);
            let violations = bounds.violations(&values, true);
            assert!(
                violations.len() == 1 && violations[0].contains(words),
                "{key}: {violations:?}"
            );
        }
        let mut none_rejected = good();
        none_rejected.insert("away".to_owned(), 0.0);
        assert!(bounds.violations(&none_rejected, false).is_empty());
    }

    #[test]
    fn a_missing_value_does_not_meet_its_condition() {
        let bounds = Bounds::new(200, Duration::from_secs(15));
        assert!(bounds.violations(&Values::new(), false).len() >= 5);
    }

    #[test]
    fn a_rejection_without_retry_after_is_counted() {
        let blank = Outcome::Rejected { retry_after: None };
        let counts = count(&[blank, Outcome::Failed("x".to_owned())]);
        assert_eq!(counts["away.blank"].to_bits(), 1.0_f64.to_bits());
        assert_eq!(counts["failed"].to_bits(), 1.0_f64.to_bits());
    }
}
