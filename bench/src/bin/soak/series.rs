//! Samples over time, and whether they stay flat.

use std::fmt::Write as _;

use kubevitals_bench::measure::{Spread, Values};

/// Values at one time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sample {
    /// Seconds since the warm-up ended.
    pub(crate) at: f64,
    /// Resident memory, in bytes.
    pub(crate) rss: f64,
    /// Pods that the server serves.
    pub(crate) pods: f64,
    /// Pods of the cluster, in any phase.
    pub(crate) cluster: f64,
    /// Series of its own metrics: series of deleted objects must be removed.
    pub(crate) series: f64,
}

/// Limits within which memory counts as flat.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rule {
    /// Share by which the last third may exceed the first.
    pub(crate) share: f64,
    /// Further bytes: an allocator varies a little in any case.
    pub(crate) slack: f64,
}

/// All samples, in order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series(pub(crate) Vec<Sample>);

impl Series {
    /// Medians of the first and of the last third.
    fn thirds(&self, of: impl Fn(&Sample) -> f64) -> Option<(f64, f64)> {
        let third = self.0.len() / 3;
        let median =
            |samples: &[Sample]| Spread::of(samples.iter().map(&of)).map(|spread| spread.median);
        let first = median(self.0.get(..third)?)?;
        let last = median(self.0.get(self.0.len() - third..)?)?;
        Some((first, last))
    }

    /// Returns the growth of memory per minute, by least squares.
    fn slope_per_minute(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "thousands of samples at most")]
        let count = self.0.len() as f64;
        let mean = |of: &dyn Fn(&Sample) -> f64| self.0.iter().map(of).sum::<f64>() / count;
        let (at, rss) = (mean(&|sample| sample.at), mean(&|sample| sample.rss));
        let spread: f64 = self.0.iter().map(|sample| (sample.at - at).powi(2)).sum();
        let together: f64 = self
            .0
            .iter()
            .map(|sample| (sample.at - at) * (sample.rss - rss))
            .sum();
        (spread > 0.0).then(|| together / spread * 60.0)
    }

    /// Returns the values of the table.
    pub(crate) fn values(&self) -> Values {
        let mut values = Values::new();
        let mut set = |key: &str, value: f64| values.insert(key.to_owned(), value);
        let thirds = [
            ("rss", self.thirds(|sample| sample.rss)),
            ("pods", self.thirds(|sample| sample.pods)),
            ("cluster.pods", self.thirds(|sample| sample.cluster)),
            ("series", self.thirds(|sample| sample.series)),
        ];
        for (key, thirds) in thirds {
            if let Some((first, last)) = thirds {
                set(&format!("{key}.first"), first);
                set(&format!("{key}.last"), last);
            }
        }
        if let Some(slope) = self.slope_per_minute() {
            set("rss.slope", slope);
        }
        if let Some(spread) = Spread::of(self.0.iter().map(|sample| sample.rss)) {
            set("rss.max", spread.max);
        }
        values
    }

    /// Returns the conditions that are not met, as clauses.
    pub(crate) fn violations(&self, rule: Rule) -> Vec<String> {
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let mut violations = Vec::new();
        match self.thirds(|sample| sample.rss) {
            Some((first, last)) if last > first * (1.0 + rule.share) + rule.slack => {
                violations.push(format!(
                    "memory changed from {:.1} to {:.1} MiB between the first and the last third",
                    mib(first),
                    mib(last)
                ));
            }
            Some(_) => {}
            None => violations.push("too few samples".to_owned()),
        }
        match self.thirds(|sample| sample.series) {
            Some((first, last)) if last > first * (1.0 + rule.share) => violations.push(format!(
                "series of its own metrics changed from {first:.0} to {last:.0}"
            )),
            _ => {}
        }
        violations
    }

    /// Formats the samples as CSV.
    pub(crate) fn csv(&self) -> String {
        let mut text = "seconds,rss_bytes,pods,cluster_pods,own_series\n".to_owned();
        for Sample {
            at,
            rss,
            pods,
            cluster,
            series,
        } in &self.0
        {
            let _ = writeln!(text, "{at:.0},{rss:.0},{pods:.0},{cluster:.0},{series:.0}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Rule = Rule {
        share: 0.05,
        slack: 1e6,
    };

    fn series(rss: impl Fn(f64) -> f64) -> Series {
        let sample = |at: u32| Sample {
            at: f64::from(at) * 10.0,
            rss: rss(f64::from(at)),
            pods: 3_000.0,
            cluster: 3_100.0,
            series: 500.0,
        };
        Series((0..60).map(sample).collect())
    }

    #[test]
    fn a_leak_is_detected_and_a_wave_is_not() {
        let leak = series(|n| 30e6 + n * 0.1e6);
        assert!(
            leak.violations(RULE)[0].contains("memory changed from"),
            "{leak:?}"
        );
        let slope = leak.values()["rss.slope"];
        assert!((slope - 0.6e6).abs() < 1.0, "{slope}");
        let wave = series(|n| 30e6 + (n % 7.0) * 0.1e6);
        assert_eq!(wave.violations(RULE), Vec::<String>::new());
    }

    #[test]
    fn series_that_are_not_removed_are_detected() {
        let mut behind = series(|_| 30e6);
        for (number, sample) in (0_u32..).zip(&mut behind.0) {
            sample.series += f64::from(number);
        }
        let violations = behind.violations(RULE);
        assert!(
            violations.len() == 1 && violations[0].contains("own metrics"),
            "{violations:?}"
        );
    }

    #[test]
    fn no_samples_do_not_meet_the_conditions() {
        assert_eq!(Series::default().violations(RULE).len(), 1);
    }

    #[test]
    fn every_sample_is_in_the_file() {
        let text = series(|_| 30e6).csv();
        assert_eq!(text.lines().count(), 61);
        assert_eq!(text.lines().nth(1), Some("0,30000000,3000,3100,500"));
    }
}
