//! Repetition in turns, the spread of the values, and how quiet the machine was.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::BenchError;

/// About 40 ms of work in a release build. Without optimization it would be a second, and nothing
/// is measured then.
const CALIBRATION_ROUNDS: u32 = if cfg!(debug_assertions) {
    200_000
} else {
    20_000_000
};

/// Values of one contender in one turn, by the key of the metric. A value that could not be
/// measured is missing.
pub type Values = BTreeMap<String, f64>;

/// Whether contenders run alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Schedule {
    /// One after the other: the cost of each alone. Repeats are interleaved, A B A B, so that a
    /// machine that slows down over the run affects both.
    OneAfterOther,
    /// All at the same time: the cost of each while the others run, under the same conditions.
    Together,
}

/// Number and order of measurements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Plan {
    pub schedule: Schedule,
    /// Measurements per contender.
    pub repeats: usize,
}

/// Contenders that run at the same time, by index, and the number of their repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// From 0.
    pub repeat: usize,
    /// One, or all of them.
    pub contenders: Vec<usize>,
}

/// One measurement of one contender.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Repeat {
    pub values: Values,
    /// Calibration right before.
    pub calibration_before: Calibration,
    /// Calibration right after.
    pub calibration_after: Calibration,
}

/// Duration of a fixed amount of work. On an idle machine the two are equal; wall-clock time
/// exceeds processor time while another process has the processor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Wall-clock time, in seconds.
    pub clock: f64,
    /// Processor time, in seconds.
    pub cpu: f64,
}

/// Minimum, median and maximum of some values.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub min: f64,
    /// The mean of the middle two if their number is even.
    pub median: f64,
    pub max: f64,
}

impl Plan {
    /// Returns the turns in order.
    pub fn turns(self, contenders: usize) -> Vec<Turn> {
        let turn = |repeat, contenders| Turn { repeat, contenders };
        (0..self.repeats)
            .flat_map(|repeat| match self.schedule {
                Schedule::OneAfterOther => {
                    (0..contenders).map(|one| turn(repeat, vec![one])).collect()
                }
                Schedule::Together => vec![turn(repeat, (0..contenders).collect())],
            })
            .collect()
    }

    /// Measures every contender as often as planned; `measure` gets the contender's index and the
    /// repeat.
    pub async fn run(
        self,
        contenders: usize,
        measure: impl AsyncFn(usize, usize) -> Result<Values, BenchError>,
    ) -> Result<Vec<Vec<Repeat>>, BenchError> {
        let mut results = vec![Vec::with_capacity(self.repeats); contenders];
        for turn in self.turns(contenders) {
            let calibration_before = calibrate();
            let together = turn.contenders.iter().map(|one| measure(*one, turn.repeat));
            let measured = try_join_all(together).await?;
            let calibration_after = calibrate();
            for (contender, values) in turn.contenders.into_iter().zip(measured) {
                if let Some(repeats) = results.get_mut(contender) {
                    repeats.push(Repeat {
                        values,
                        calibration_before,
                        calibration_after,
                    });
                }
            }
        }
        Ok(results)
    }
}

impl Spread {
    /// Computes the spread of some values; none if there are none, or if one is not a number.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        if sorted.iter().any(|value| value.is_nan()) {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(*sorted.get(middle.checked_sub(1)?)?, upper)
        } else {
            upper
        };
        Some(Self {
            min: *sorted.first()?,
            median,
            max: *sorted.last()?,
        })
    }

    /// The largest distance from the median, as a share of it; none if the median is 0.
    pub fn relative(self) -> Option<f64> {
        let distance = (self.max - self.median).max(self.median - self.min);
        (self.median != 0.0).then(|| (distance / self.median).abs())
    }
}

/// Times a fixed amount of work on this thread.
pub fn calibrate() -> Calibration {
    let (clock, cpu) = (Instant::now(), thread_time());
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..CALIBRATION_ROUNDS {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
    Calibration {
        clock: clock.elapsed().as_secs_f64(),
        cpu: thread_time().saturating_sub(cpu).as_secs_f64(),
    }
}

fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    fn plan(schedule: Schedule, repeats: usize) -> Plan {
        Plan { schedule, repeats }
    }

    #[test]
    fn repeats_are_interleaved() {
        let turns = plan(Schedule::OneAfterOther, 2).turns(2);
        let order: Vec<_> = turns
            .iter()
            .map(|t| (t.repeat, t.contenders.clone()))
            .collect();
        assert_eq!(
            order,
            [(0, vec![0]), (0, vec![1]), (1, vec![0]), (1, vec![1])]
        );
        let turns = plan(Schedule::Together, 2).turns(3);
        assert_eq!(turns.len(), 2);
        assert!(turns.iter().all(|turn| turn.contenders == [0, 1, 2]));
    }

    #[tokio::test]
    async fn values_are_kept_by_contender() {
        let order = RefCell::new(Vec::new());
        let measured = plan(Schedule::OneAfterOther, 2)
            .run(2, async |contender, repeat| {
                order.borrow_mut().push((contender, repeat));
                let value = [10.0, 20.0][contender] + [1.0, 2.0][repeat];
                Ok(Values::from([("x".to_owned(), value)]))
            })
            .await
            .unwrap();
        assert_eq!(*order.borrow(), [(0, 0), (1, 0), (0, 1), (1, 1)]);
        let values = |index: usize| {
            measured[index]
                .iter()
                .map(|r| r.values["x"])
                .collect::<Vec<_>>()
        };
        assert_eq!((values(0), values(1)), (vec![11.0, 12.0], vec![21.0, 22.0]));
        assert!(
            measured
                .iter()
                .flatten()
                .all(|r| r.calibration_before.clock > 0.0)
        );
    }

    #[tokio::test]
    async fn together_is_at_the_same_time() {
        // Each waits for the other: one after the other would deadlock.
        let meeting = tokio::sync::Barrier::new(2);
        let measured = plan(Schedule::Together, 1)
            .run(2, async |_, _| {
                meeting.wait().await;
                Ok(Values::new())
            })
            .await;
        assert_eq!(measured.unwrap().len(), 2);
    }

    #[test]
    fn the_median_is_the_middle_value() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        let (min, median, max) = (1.0, 2.5, 4.0);
        assert_eq!(
            spread(&[4.0, 1.0, 3.0, 2.0]),
            Some(Spread { min, median, max })
        );
        assert_eq!(spread(&[5.0, 1.0, 2.0]).map(|s| s.median), Some(2.0));
        assert_eq!(
            spread(&[5.0, 1.0, 2.0]).and_then(Spread::relative),
            Some(1.5)
        );
        assert_eq!(spread(&[0.0, 0.0]).and_then(Spread::relative), None);
        assert_eq!(spread(&[]), None);
        assert_eq!(spread(&[1.0, f64::NAN]), None);
    }
}
