//! The result of a run as data: every raw value, and the context needed to judge it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::machine::Machine;
use crate::measure::{Repeat, Schedule, Spread};

/// A calibration whose wall-clock time exceeds the least processor time of the run by this factor
/// shows that the machine was busy, or ran slower.
pub const NOISE_THRESHOLD: f64 = 1.10;

/// Unit of a metric, which determines its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    Seconds,
    Bytes,
    BytesPerSecond,
    /// A plain number.
    Count,
}

/// The better direction; informational values have none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// A cost.
    Lower,
    /// A throughput.
    Higher,
    /// Informational: for example, it shows that the work was the same.
    Neither,
}

/// A measured quantity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Key in [`Repeat::values`].
    pub key: String,
    /// Label in the table.
    pub label: String,
    pub unit: Unit,
    pub better: Better,
    /// The baseline of this metric, if it differs from the report's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
}

/// All measurements of one contender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ContenderResult {
    pub name: String,
    /// In the order of measurement.
    pub repeats: Vec<Repeat>,
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name of the benchmark.
    pub bench: String,
    /// Start time (RFC 3339).
    pub started: String,
    pub machine: Machine,
    /// Versions of programs and libraries by name.
    pub versions: BTreeMap<String, String>,
    pub parameters: BTreeMap<String, String>,
    pub schedule: Schedule,
    /// The contender that ratios are relative to.
    pub baseline: String,
    /// In the order of the table.
    pub metrics: Vec<Metric>,
    /// Contenders, ours first.
    pub contenders: Vec<ContenderResult>,
}

/// The noise of the machine.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    /// Least processor time of a calibration, in seconds: its duration on an idle machine.
    pub best: f64,
    /// Maximum wall-clock time of a calibration.
    pub worst: f64,
    /// Repeats that began or ended on a busy machine.
    pub noisy: usize,
    /// All repeats.
    pub repeats: usize,
}

impl Metric {
    /// A cost in seconds.
    pub fn seconds(key: &str, label: &str) -> Self {
        Self::new(key, label, Unit::Seconds, Better::Lower)
    }

    /// A cost in bytes.
    pub fn bytes(key: &str, label: &str) -> Self {
        Self::new(key, label, Unit::Bytes, Better::Lower)
    }

    /// An informational number.
    pub fn count(key: &str, label: &str) -> Self {
        Self::info(key, label, Unit::Count)
    }

    /// An informational value.
    pub fn info(key: &str, label: &str, unit: Unit) -> Self {
        Self::new(key, label, unit, Better::Neither)
    }

    pub fn new(key: &str, label: &str, unit: Unit, better: Better) -> Self {
        let (key, label) = (key.to_owned(), label.to_owned());
        Self {
            key,
            label,
            unit,
            better,
            against: None,
        }
    }

    /// Sets the baseline of this metric.
    #[must_use]
    pub fn against(mut self, contender: &str) -> Self {
        self.against = Some(contender.to_owned());
        self
    }
}

impl ContenderResult {
    /// Computes the spread of one metric.
    pub fn spread(&self, key: &str) -> Option<Spread> {
        let values = self
            .repeats
            .iter()
            .filter_map(|repeat| repeat.values.get(key));
        Spread::of(values.copied())
    }
}

impl Report {
    /// Returns the contender that ratios of a metric are relative to.
    pub fn baseline_of<'a>(&'a self, metric: &'a Metric) -> &'a str {
        metric.against.as_deref().unwrap_or(&self.baseline)
    }

    /// Computes how many times better a contender is than the baseline, repeat by repeat: repeats
    /// of one number were measured side by side. Infinite where only the contender costs nothing,
    /// omitted where neither does.
    pub fn ratio(&self, contender: &ContenderResult, metric: &Metric) -> Option<Spread> {
        let baseline = self
            .contenders
            .iter()
            .find(|one| one.name == self.baseline_of(metric))?;
        let pairs = contender.repeats.iter().zip(&baseline.repeats);
        let ratios: Vec<f64> = pairs
            .filter_map(|(ours, theirs)| {
                let (ours, theirs) = (
                    ours.values.get(&metric.key)?,
                    theirs.values.get(&metric.key)?,
                );
                let ratio = match metric.better {
                    Better::Lower => theirs / ours,
                    Better::Higher => ours / theirs,
                    Better::Neither => return None,
                };
                (!ratio.is_nan()).then_some(ratio)
            })
            .collect();
        Spread::of(ratios)
    }

    /// Computes how quiet the machine was.
    pub fn noise(&self) -> Option<Noise> {
        let repeats: Vec<&Repeat> = self
            .contenders
            .iter()
            .flat_map(|one| &one.repeats)
            .collect();
        let both = |repeat: &&Repeat| [repeat.calibration_before, repeat.calibration_after];
        let best = Spread::of(repeats.iter().flat_map(both).map(|one| one.cpu))?.min;
        let worst = Spread::of(repeats.iter().flat_map(both).map(|one| one.clock))?.max;
        let noisy = |repeat: &&&Repeat| {
            both(repeat)
                .iter()
                .any(|one| one.clock > best * NOISE_THRESHOLD)
        };
        Some(Noise {
            best,
            worst,
            noisy: repeats.iter().filter(noisy).count(),
            repeats: repeats.len(),
        })
    }

    /// Writes the report to a file of `folder`, which has one per benchmark and size.
    pub fn write(&self, folder: &Path, name: &str) -> Result<PathBuf, BenchError> {
        std::fs::create_dir_all(folder).map_err(BenchError::file("create", folder))?;
        let path = folder.join(format!("{name}.json"));
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        std::fs::write(&path, text).map_err(BenchError::file("write", &path))?;
        Ok(path)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::measure::{Calibration, Values};

    /// A server that is better in all metrics but one, with one noisy repeat.
    pub(crate) fn report() -> Report {
        let repeat = |cpu: f64, rss: f64, speed: f64, blind: f64, after: f64| Repeat {
            values: Values::from([
                ("cpu".to_owned(), cpu),
                ("rss".to_owned(), rss),
                ("speed".to_owned(), speed),
                ("blind".to_owned(), blind),
                ("reads".to_owned(), 140.0),
            ]),
            calibration_before: Calibration {
                clock: 0.040,
                cpu: 0.040,
            },
            calibration_after: Calibration {
                clock: after,
                cpu: 0.040,
            },
        };
        let mib = 1024.0 * 1024.0;
        Report {
            bench: "server".to_owned(),
            started: "2026-11-16T00:00:00Z".to_owned(),
            machine: Machine {
                cores: 2,
                cpu_model: "Some CPU".to_owned(),
                kernel: "6.18.0".to_owned(),
                memory_bytes: 8 << 30,
            },
            versions: BTreeMap::from([("peer".to_owned(), "v0.9.0".to_owned())]),
            parameters: BTreeMap::from([("nodes".to_owned(), "100".to_owned())]),
            schedule: Schedule::OneAfterOther,
            baseline: "peer".to_owned(),
            metrics: vec![
                Metric::seconds("cpu", "CPU under load"),
                Metric::bytes("rss", "peak RSS"),
                Metric::new("speed", "full list", Unit::BytesPerSecond, Better::Higher),
                Metric::seconds("blind", "blind after a lost scrape"),
                Metric::count("reads", "reads"),
                Metric::seconds("other", "not measured"),
            ],
            contenders: vec![
                ContenderResult {
                    name: "ours".to_owned(),
                    repeats: vec![
                        repeat(0.50, 20.0 * mib, 900e6, 0.0, 0.041),
                        repeat(0.40, 21.0 * mib, 950e6, 0.0, 0.052),
                    ],
                },
                ContenderResult {
                    name: "peer".to_owned(),
                    repeats: vec![
                        repeat(4.0, 10.0 * mib, 90e6, 30.4, 0.041),
                        repeat(4.2, 10.0 * mib, 95e6, 30.6, 0.042),
                    ],
                },
            ],
        }
    }

    #[test]
    fn a_report_can_be_written_and_read() {
        let report = report();
        let folder = tempfile::tempdir().unwrap();
        let path = report.write(folder.path(), "server").unwrap();
        let read: Report = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert_eq!(read, report);
    }

    #[test]
    fn committed_results_can_be_read() {
        for entry in std::fs::read_dir(crate::session::source_folder().join("results")).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|extension| extension == "json")
            {
                let text = std::fs::read(&path).unwrap();
                serde_json::from_slice::<Report>(&text).unwrap();
            }
        }
    }

    #[test]
    fn a_ratio_compares_repeats_of_the_same_turn() {
        let report = report();
        let ours = &report.contenders[0];
        let ratio = |index: usize| report.ratio(ours, &report.metrics[index]);
        let cpu = ratio(0).unwrap();
        assert!(
            (cpu.min - 8.0).abs() < 1e-9 && (cpu.max - 10.5).abs() < 1e-9,
            "{cpu:?}"
        );
        assert!((ratio(2).unwrap().median - 10.0).abs() < 1e-9);
        assert_eq!(ratio(3).map(|spread| spread.min), Some(f64::INFINITY));
        assert_eq!((ratio(4), ratio(5)), (None, None));
    }

    #[test]
    fn noise_of_a_busy_machine_is_detected() {
        let noise = report().noise().unwrap();
        assert_eq!((noise.noisy, noise.repeats), (1, 4));
        assert!((noise.worst / noise.best - 1.3).abs() < 1e-9);
    }

    #[test]
    fn noise_of_a_machine_that_is_always_busy_is_detected() {
        let mut report = report();
        for repeat in report
            .contenders
            .iter_mut()
            .flat_map(|one| &mut one.repeats)
        {
            repeat.calibration_before.clock = 0.070;
            repeat.calibration_after.clock = 0.070;
        }
        assert_eq!(report.noise().map(|noise| noise.noisy), Some(4));
    }
}
