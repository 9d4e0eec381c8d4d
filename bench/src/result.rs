//! What came out of a run, as data: every raw number, and what one needs to know to judge them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::BenchError;
use crate::machine::Machine;
use crate::measure::{Repeat, Schedule, Spread};

/// A calibration whose clock shows this much more than the least processor time of the run means
/// that the machine was busy with something else, or ran slower.
pub const NOISY: f64 = 1.10;

/// The unit of a measure, which decides how it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
    /// Bytes per second.
    BytesPerSecond,
    /// A plain number.
    Count,
}

/// Which way is better; a fact that is only told has none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    /// Less cost.
    Lower,
    /// More done.
    Higher,
    /// Neither: it shows that the work was the same.
    Neither,
}

/// Something that is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Metric {
    /// Its key in [`Repeat::values`].
    pub key: String,
    /// What the table calls it.
    pub label: String,
    /// Its unit.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// The contender that ratios of this measure are taken against, where the report's own baseline
    /// has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
}

/// All measurements of one contender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// The contender.
    pub name: String,
    /// In the order in which they were made.
    pub repeats: Vec<Repeat>,
}

/// A whole run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The benchmark.
    pub bench: String,
    /// When it began (RFC 3339).
    pub started: String,
    /// Where it ran.
    pub machine: Machine,
    /// Programs and libraries by name.
    pub versions: BTreeMap<String, String>,
    /// What it was run with.
    pub parameters: BTreeMap<String, String>,
    /// Who ran beside whom.
    pub schedule: Schedule,
    /// The contender that ratios are taken against.
    pub baseline: String,
    /// What was measured, in the order of the table.
    pub metrics: Vec<Metric>,
    /// The contenders, ours first.
    pub contenders: Vec<Measured>,
}

/// How quiet the machine was.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    /// The least processor time of a calibration, in seconds: what it takes on a machine that does
    /// nothing else.
    pub best: f64,
    /// The most that the clock showed for one.
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

    /// A number that is only told.
    pub fn count(key: &str, label: &str) -> Self {
        Self::new(key, label, Unit::Count, Better::Neither)
    }

    /// Any.
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

    /// The same with a baseline of its own.
    #[must_use]
    pub fn against(mut self, contender: &str) -> Self {
        self.against = Some(contender.to_owned());
        self
    }
}

impl Measured {
    /// Where the values of one measure lie.
    pub fn spread(&self, key: &str) -> Option<Spread> {
        let values = self
            .repeats
            .iter()
            .filter_map(|repeat| repeat.values.get(key));
        Spread::of(values.copied())
    }
}

impl Report {
    /// The contender that ratios of a measure are taken against.
    pub fn baseline_of<'a>(&'a self, metric: &'a Metric) -> &'a str {
        metric.against.as_deref().unwrap_or(&self.baseline)
    }

    /// How many times better a contender is than the baseline, repeat by repeat: those of one
    /// number were measured side by side. Infinite where only the contender costs nothing, left out
    /// where neither does.
    pub fn ratio(&self, contender: &Measured, metric: &Metric) -> Option<Spread> {
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

    /// How quiet the machine was.
    pub fn noise(&self) -> Option<Noise> {
        let repeats: Vec<&Repeat> = self
            .contenders
            .iter()
            .flat_map(|one| &one.repeats)
            .collect();
        let both = |repeat: &&Repeat| [repeat.calibration_before, repeat.calibration_after];
        let best = Spread::of(repeats.iter().flat_map(both).map(|one| one.cpu))?.min;
        let worst = Spread::of(repeats.iter().flat_map(both).map(|one| one.clock))?.max;
        let noisy = |repeat: &&&Repeat| both(repeat).iter().any(|one| one.clock > best * NOISY);
        Some(Noise {
            best,
            worst,
            noisy: repeats.iter().filter(noisy).count(),
            repeats: repeats.len(),
        })
    }

    /// The report as a file of `folder`, which holds one for each benchmark and size.
    pub fn write(&self, folder: &Path, name: &str) -> Result<PathBuf, BenchError> {
        std::fs::create_dir_all(folder).map_err(BenchError::file("make", folder))?;
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

    /// A server that is better in all but one, and measured with one noisy repeat.
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
                Metric::seconds("other", "what nobody measured"),
            ],
            contenders: vec![
                Measured {
                    name: "ours".to_owned(),
                    repeats: vec![
                        repeat(0.50, 20.0 * mib, 900e6, 0.0, 0.041),
                        repeat(0.40, 21.0 * mib, 950e6, 0.0, 0.052),
                    ],
                },
                Measured {
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
    fn a_report_survives_its_file() {
        let report = report();
        let folder = tempfile::tempdir().unwrap();
        let path = report.write(folder.path(), "server").unwrap();
        let read: Report = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
        assert_eq!(read, report);
    }

    #[test]
    fn a_ratio_compares_repeats_that_were_measured_side_by_side() {
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
    fn a_busy_machine_is_noticed() {
        let noise = report().noise().unwrap();
        assert_eq!((noise.noisy, noise.repeats), (1, 4));
        assert!((noise.worst / noise.best - 1.3).abs() < 1e-9);
    }

    #[test]
    fn a_machine_that_is_busy_all_the_time_is_noticed_too() {
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
