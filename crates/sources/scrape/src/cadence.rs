//! When to ask a kubelet: once in a resolution, and where it can be told just after it has taken a
//! new sample.
//!
//! A kubelet takes samples by clocks of its own and repeats the last one to whoever asks in
//! between. Two kinds are told apart by the times in their answers (ADR 0022):
//!
//! - **Each container by a clock of its own**, as cAdvisor does: after a wait that is drawn anew
//!   each time, between once and twice its interval. At every moment some sample is new and some is
//!   old, so that no moment is better than another. What counts is that scrapes are evenly apart:
//!   each node has a moment of its own in the resolution.
//! - **All at once and steadily**, as a runtime or a virtual kubelet may. A [`Cadence`] learns how
//!   far apart samples are and how far the kubelet's clock is off ours, and plans the next scrape
//!   for the moment at which the next sample is due: values are as fresh as they can be, and no
//!   scrape is wasted on a repetition.
//!
//! The plan is bounded whatever the kubelet says: scrapes are never closer than one second, and
//! never further apart than twice the resolution; those of the first kind never further apart than
//! the resolution.

use std::time::Duration;

use kubevitals_model::Timestamp;

/// The shortest wait between two scrapes.
const MIN_WAIT: u64 = 1_000;
/// Closer than this the lag need not be known.
const FINE: i64 = 400;
/// So much earlier than the last success the next attempt may be.
const STEP: i64 = 1_000;
/// No kubelet samples a container more often.
const MIN_PERIOD: u64 = 10_000;
/// Nor, where all are looked at in one go, much less often.
const MAX_PERIOD: u64 = 15_000;
/// A sample is visible this soon after it was taken.
const MIN_MARGIN: u64 = 200;
const MAX_MARGIN: u64 = 1_500;
/// So many scrapes in a row that bring nothing new are followed by a quick one, since the sample is
/// overdue.
const QUICK_AFTER_REPEAT: u32 = 2;
/// Samples that are no further apart than this were taken in one go.
const TOGETHER: u64 = 2_000;
/// So many answers in a row must show samples that were taken together once one has shown others.
const PROBATION: u8 = 8;
/// Samples whose distances differ by more than this on average come when they come: no plan can
/// meet them.
const MAX_DEVIATION: u64 = 800;

/// What a scrape showed of the kubelet's sample clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SampleTimes {
    /// The latest time of a CPU sample, by the kubelet's clock.
    pub newest: Option<Timestamp>,
    /// The earliest.
    pub oldest: Option<Timestamp>,
}

/// When to ask one kubelet. All times but those in [`SampleTimes`] are of one steady clock of ours.
#[derive(Debug, Clone)]
pub struct Cadence {
    resolution: u64,
    /// Between 0 and 1, stable for a node: spreads what nothing else spreads.
    spread: f64,
    newest: Option<Timestamp>,
    lag: Lag,
    /// When the last scrape was that brought nothing new.
    repeated: Option<Timestamp>,
    /// The time between two samples, and how far it is off on average.
    period: Option<u64>,
    deviation: u64,
    repeats: u32,
    /// How many answers must still show samples that were taken together before that is believed.
    apart: u8,
    /// Whether usage is still to come of a second sample.
    wants_second: bool,
}

/// How much later than its own time a sample can be seen by our clock: how far the clocks differ,
/// and a little more.
///
/// Every scrape says something certain about it: a sample that is there was visible by then, one
/// that was not there when asked and came later was not. Between the two the truth is found by
/// halves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Lag {
    /// It is no more than this.
    most: Option<i64>,
    /// It is more than this.
    least: Option<i64>,
}

impl SampleTimes {
    /// Takes in one more time.
    pub fn add(&mut self, at: Timestamp) {
        self.newest = Some(self.newest.map_or(at, |newest| newest.max(at)));
        self.oldest = Some(self.oldest.map_or(at, |oldest| oldest.min(at)));
    }
}

impl Cadence {
    /// For a node of this name.
    pub fn new(resolution: Duration, node: &str) -> Self {
        Self {
            resolution: millis(resolution).max(1_000),
            spread: spread(node),
            newest: None,
            lag: Lag::default(),
            repeated: None,
            period: None,
            deviation: 0,
            repeats: 0,
            apart: 0,
            wants_second: true,
        }
    }

    /// The kubelet has told what its containers use: nothing hangs on a second sample.
    pub fn warmed(&mut self) {
        self.wants_second = false;
    }

    /// Takes in what a scrape at `asked` showed, and tells whether it brought a new sample.
    pub fn scraped(&mut self, asked: Timestamp, times: SampleTimes) -> bool {
        let Some(newest) = times.newest else {
            // Without times every answer must be taken as new.
            return true;
        };
        self.compare(&times);
        let Some(before) = self.newest else {
            self.newest = Some(newest);
            return true;
        };
        if self.apart > 0 {
            self.newest = Some(newest);
            self.wants_second = false;
            return newest > before;
        }
        if newest <= before {
            self.repeats = self.repeats.saturating_add(1);
            self.repeated = Some(asked);
            if newest < before {
                // Its clock was set back, or the pod whose sample was the newest has gone.
                self.newest = Some(newest);
                self.lag = Lag::default();
            }
            return false;
        }
        self.learn_period(before, newest);
        self.repeats = 0;
        self.newest = Some(newest);
        if let Some(repeated) = self.repeated.take() {
            self.lag.is_more_than(between(newest, repeated));
        }
        let seen = between(newest, asked);
        if let (Some(period), Some(most)) = (self.period, self.lag.most)
            && let Ok(period) = i64::try_from(period)
            && seen > most.saturating_add(period / 4 * 3)
        {
            // Newer than before, but one that should have been there was not yet.
            self.lag.is_more_than(seen.saturating_sub(period));
        }
        self.lag.is_at_most(seen);
        true
    }

    /// When to ask next after a scrape at `asked` that was answered.
    pub fn next(&self, asked: Timestamp) -> Timestamp {
        let latest = self.resolution.saturating_mul(2);
        plus(asked, self.wait(asked).clamp(MIN_WAIT, latest))
    }

    /// The estimated time between two samples, once it is known.
    pub fn period(&self) -> Option<Duration> {
        self.period.map(Duration::from_millis)
    }

    /// Notes whether the samples of an answer were taken in one go.
    fn compare(&mut self, times: &SampleTimes) {
        let apart = match (times.oldest, times.newest) {
            (Some(oldest), Some(newest)) => newest.unix_millis().abs_diff(oldest.unix_millis()),
            _ => 0,
        };
        if apart <= TOGETHER {
            self.apart = self.apart.saturating_sub(1);
            return;
        }
        self.apart = PROBATION;
        // What was learned of all at once is learned of nobody.
        self.lag = Lag::default();
        self.repeated = None;
        self.period = None;
        self.deviation = 0;
        self.repeats = 0;
    }

    fn wait(&self, asked: Timestamp) -> u64 {
        let Some(newest) = self.newest else {
            return self.slot(asked);
        };
        if self.apart > 0 {
            return if self.wants_second {
                self.settling_wait()
            } else {
                self.slot(asked)
            };
        }
        let (Some(period), Some(lag)) = (self.period, self.lag.guess(self.period)) else {
            return self.wait_for_second(asked, newest);
        };
        if period < MIN_PERIOD / 10 * 9 || self.deviation > MAX_DEVIATION {
            // It samples more often than a kubelet does, or whenever it is asked, or by chance.
            return self.slot(asked);
        }
        if self.repeats > 0 {
            // Overdue: it comes any moment. Unless this kubelet has stopped taking samples.
            return match self.repeats {
                1..=QUICK_AFTER_REPEAT => (period / 10).min(self.resolution / 4),
                _ => self.resolution,
            };
        }
        let age = u64::try_from(between(newest, asked).saturating_sub(lag)).unwrap_or(0);
        let margin = self.deviation.saturating_mul(2);
        let margin = margin.clamp(MIN_MARGIN, MAX_MARGIN);
        // They become visible at `due`, `due + period`, …: the last one that is not much later than
        // the resolution.
        let due = (period.saturating_add(margin)).saturating_sub(age);
        let bound = self.resolution.saturating_add(self.resolution / 4);
        let further = bound.saturating_sub(due) / period.max(1);
        due.saturating_add(further.saturating_mul(period))
    }

    /// The wait for the second sample of a node of which one is known.
    fn wait_for_second(&self, asked: Timestamp, newest: Timestamp) -> u64 {
        let age = u64::try_from(between(newest, asked));
        let age = age.ok().filter(|age| *age <= MAX_PERIOD);
        match age {
            _ if self.repeats > 3 => self.resolution,
            Some(age) if self.repeats == 0 => {
                let due = MIN_PERIOD.saturating_add(MIN_MARGIN);
                let due = due.saturating_sub(age);
                if self.wants_second {
                    due.min(self.settling_wait())
                } else {
                    due
                }
            }
            // Overdue, or its clock is not ours and nothing is known of its phase: look about.
            _ => self.settling_wait() / 2,
        }
    }

    /// A wait in which about a third of all containers can have got another sample.
    fn settling_wait(&self) -> u64 {
        const THIRD: u64 = MIN_PERIOD / 2;
        let spread = Duration::from_secs(1).mul_f64(self.spread);
        THIRD.saturating_sub(millis(spread)).min(self.resolution)
    }

    /// The wait until the node's own moment of the resolution. That is approached from behind, by a
    /// quarter at a time: no wait is longer than the resolution, and what began all at once at a
    /// start is spread after three or four scrapes.
    fn slot(&self, asked: Timestamp) -> u64 {
        let resolution = i64::try_from(self.resolution).unwrap_or(i64::MAX).max(1);
        let own = Duration::from_millis(self.resolution).mul_f64(self.spread);
        let own = i64::try_from(millis(own)).unwrap_or(0);
        let late = asked
            .unix_millis()
            .saturating_sub(own)
            .rem_euclid(resolution);
        let late = u64::try_from(late).unwrap_or(0);
        self.resolution
            .saturating_sub(late.min(self.resolution / 4))
    }

    fn learn_period(&mut self, before: Timestamp, newest: Timestamp) {
        let gap = newest.unix_millis().abs_diff(before.unix_millis());
        let Some(period) = self.period else {
            // As few samples as it can have been, none of them seen by a scrape in between.
            let count = gap.div_ceil(MAX_PERIOD + MIN_MARGIN).max(1);
            self.period = Some((gap / count).clamp(1_000, 60_000));
            return;
        };
        // Samples may have been missed in between, and then the gap is that of so many. None was if
        // the scrape before found none: without that evidence half of the truth, once believed,
        // would confirm itself.
        let count = match self.repeats {
            0 => (gap.saturating_add(period / 4) / period.max(1)).max(1),
            _ => 1,
        };
        let single = (gap / count).clamp(1_000, 60_000);
        let off = single.abs_diff(period);
        self.deviation = (self.deviation.saturating_mul(7).saturating_add(off)) / 8;
        self.period = Some(if single < period {
            period - off / 4
        } else {
            period + off / 8
        });
    }
}

impl Lag {
    fn is_at_most(&mut self, seen: i64) {
        // Rises slowly, since only clocks that drift apart make it rise.
        self.most = Some(match self.most {
            Some(most) if seen > most => most.saturating_add(seen.saturating_sub(most) / 64),
            _ => seen,
        });
        self.least = self.least.filter(|least| *least < seen);
    }

    fn is_more_than(&mut self, missed: i64) {
        self.least = Some(match self.least {
            Some(least) if missed < least => {
                least.saturating_sub(least.saturating_sub(missed) / 64)
            }
            _ => missed,
        });
        self.most = self.most.filter(|most| *most > missed);
    }

    /// What to take it for.
    fn guess(&self, period: Option<u64>) -> Option<i64> {
        let most = self.most?;
        let period = i64::try_from(period.unwrap_or(MIN_PERIOD)).unwrap_or(i64::MAX);
        let least = self
            .least
            .unwrap_or(i64::MIN)
            .max(most.saturating_sub(period));
        let doubt = most.saturating_sub(least);
        // In small steps: one too many costs a repetition.
        Some(match doubt {
            ..=FINE => most,
            _ => most.saturating_sub((doubt / 2).min(STEP)),
        })
    }
}

/// Milliseconds from one time to another; negative if they are the other way round.
fn between(from: Timestamp, to: Timestamp) -> i64 {
    to.unix_millis().saturating_sub(from.unix_millis())
}

/// A number from 0 up to 1 that is always the same for a name, and unlike that of similar names.
fn spread(name: &str) -> f64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in name.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    // The last bytes of a name have hardly reached the upper bits yet.
    hash = (hash ^ (hash >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let upper = u32::try_from(hash >> 32).unwrap_or(0);
    f64::from(upper) / (f64::from(u32::MAX) + 1.0)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn plus(at: Timestamp, milliseconds: u64) -> Timestamp {
    Timestamp::from_unix_millis(at.unix_millis().saturating_add_unsigned(milliseconds))
}

#[cfg(test)]
mod tests;
