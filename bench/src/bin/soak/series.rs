//! What was seen over time, and whether it stayed flat.

use std::fmt::Write as _;

use kubevitals_bench::measure::{Spread, Values};

/// One look.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Look {
    /// Seconds since the warm-up ended.
    pub(crate) at: f64,
    /// Resident memory, in bytes.
    pub(crate) rss: f64,
    /// Pods that the server shows.
    pub(crate) pods: f64,
    /// Pods that the cluster has, in whatever state.
    pub(crate) cluster: f64,
    /// Series of its own metrics: what it counts by name must go with the name.
    pub(crate) series: f64,
}

/// When memory counts as flat.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rule {
    /// What the last third may be above the first, as a share.
    pub(crate) share: f64,
    /// And in bytes: an allocator moves by some whatever is done.
    pub(crate) slack: f64,
}

/// All looks, in their order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Series(pub(crate) Vec<Look>);

impl Series {
    /// Medians of the first and of the last third.
    fn thirds(&self, of: impl Fn(&Look) -> f64) -> Option<(f64, f64)> {
        let third = self.0.len() / 3;
        let median = |looks: &[Look]| Spread::of(looks.iter().map(&of)).map(|spread| spread.median);
        let first = median(self.0.get(..third)?)?;
        let last = median(self.0.get(self.0.len() - third..)?)?;
        Some((first, last))
    }

    /// How much memory grows in a minute, by least squares.
    fn slope_per_minute(&self) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "thousands of looks at most")]
        let count = self.0.len() as f64;
        let mean = |of: &dyn Fn(&Look) -> f64| self.0.iter().map(of).sum::<f64>() / count;
        let (at, rss) = (mean(&|look| look.at), mean(&|look| look.rss));
        let spread: f64 = self.0.iter().map(|look| (look.at - at).powi(2)).sum();
        let together: f64 = self
            .0
            .iter()
            .map(|look| (look.at - at) * (look.rss - rss))
            .sum();
        (spread > 0.0).then(|| together / spread * 60.0)
    }

    /// The figures of the table.
    pub(crate) fn values(&self) -> Values {
        let mut values = Values::new();
        let mut set = |key: &str, value: f64| values.insert(key.to_owned(), value);
        let thirds = [
            ("rss", self.thirds(|look| look.rss)),
            ("pods", self.thirds(|look| look.pods)),
            ("cluster.pods", self.thirds(|look| look.cluster)),
            ("series", self.thirds(|look| look.series)),
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
        if let Some(spread) = Spread::of(self.0.iter().map(|look| look.rss)) {
            set("rss.max", spread.max);
        }
        values
    }

    /// What is not flat, each in a clause.
    pub(crate) fn missed(&self, rule: Rule) -> Vec<String> {
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        let mut missed = Vec::new();
        match self.thirds(|look| look.rss) {
            Some((first, last)) if last > first * (1.0 + rule.share) + rule.slack => {
                missed.push(format!(
                    "memory went from {:.1} to {:.1} MiB between the first and the last third",
                    mib(first),
                    mib(last)
                ));
            }
            Some(_) => {}
            None => missed.push("too few looks to tell".to_owned()),
        }
        match self.thirds(|look| look.series) {
            Some((first, last)) if last > first * (1.0 + rule.share) => missed.push(format!(
                "series of its own metrics went from {first:.0} to {last:.0}"
            )),
            _ => {}
        }
        missed
    }

    /// For a spreadsheet.
    pub(crate) fn csv(&self) -> String {
        let mut text = "seconds,rss_bytes,pods,cluster_pods,own_series\n".to_owned();
        for Look {
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
        let look = |at: u32| Look {
            at: f64::from(at) * 10.0,
            rss: rss(f64::from(at)),
            pods: 3_000.0,
            cluster: 3_100.0,
            series: 500.0,
        };
        Series((0..60).map(look).collect())
    }

    #[test]
    fn a_leak_is_seen_and_a_wave_is_not() {
        let leak = series(|n| 30e6 + n * 0.1e6);
        assert!(
            leak.missed(RULE)[0].contains("memory went from"),
            "{leak:?}"
        );
        let slope = leak.values()["rss.slope"];
        assert!((slope - 0.6e6).abs() < 1.0, "{slope}");
        let wave = series(|n| 30e6 + (n % 7.0) * 0.1e6);
        assert_eq!(wave.missed(RULE), Vec::<String>::new());
    }

    #[test]
    fn series_that_stay_behind_are_seen() {
        let mut behind = series(|_| 30e6);
        for (number, look) in (0_u32..).zip(&mut behind.0) {
            look.series += f64::from(number);
        }
        let missed = behind.missed(RULE);
        assert!(
            missed.len() == 1 && missed[0].contains("own metrics"),
            "{missed:?}"
        );
    }

    #[test]
    fn nothing_seen_is_nothing_proven() {
        assert_eq!(Series::default().missed(RULE).len(), 1);
    }

    #[test]
    fn every_look_is_in_the_file() {
        let text = series(|_| 30e6).csv();
        assert_eq!(text.lines().count(), 61);
        assert_eq!(text.lines().nth(1), Some("0,30000000,3000,3100,500"));
    }
}
