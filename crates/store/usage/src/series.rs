//! What is known of one container or of one node as a whole: the last sample, and the last usage
//! that was made of it.
//!
//! Times of samples are the node's and are only ever compared with each other. How old a value is
//! goes by when it was received: a node whose clock is wrong is served as well as any other, with
//! the times that it claims.

use std::cmp::Ordering;
use std::time::Duration;

use kubevitals_model::{
    Bytes, BytesSample, ContainerSample, CoreNanos, CpuSample, CpuUsage, NoRate, Timestamp, Usage,
    container_rate,
};

use crate::rules::{Moment, Rules};

/// So many samples in a row that are older than the last mean that the clock of the node was set
/// back.
const OLDER_BEFORE_BASELINE: u8 = 2;

/// How much longer than on our clock the time between two samples may seem: a kubelet's answer may
/// be a housekeeping interval old, an answer may be slow, and clocks are adjusted in small steps.
/// Beyond it the node's clock jumped.
const CLOCK_TOLERANCE: Duration = Duration::from_mins(1);

/// What a kubelet averages its own figure over is not said. cAdvisor looks every 10 s and stretches
/// that to 15 s: the longer one is claimed, so that an autoscaler which waits for a whole window
/// after a start waits long enough.
const KUBELET_WINDOW: Duration = Duration::from_secs(15);

/// The last sample and the last usage. 64 bytes: there are hundreds of thousands.
#[derive(Debug, Default)]
pub(crate) struct Series {
    /// Of the last sample, by the clock of the node; meaningless while `cpu_seen` is never.
    cpu_at: i64,
    cpu_total: u64,
    nanocores: u64,
    memory: u64,
    extras: Option<Box<Extras>>,
    /// How long after the last sample the window of the rate ended: zero; negative after samples
    /// without a rate; positive after the clock was set back.
    rate_offset: i32,
    window_millis: u32,
    cpu_seen: Moment,
    rate_seen: Moment,
    memory_seen: Moment,
    state: State,
    older_in_a_row: u8,
    is_served: bool,
    /// Whether the answer that `memory` is of said that swap is zero, as nearly all do: that is not
    /// worth a box. Counts before what `extras` has.
    is_swap_zero: bool,
}

/// Amounts that few have.
#[derive(Debug, Default)]
struct Extras {
    swap: u64,
    storage: u64,
    swap_seen: Moment,
    storage_seen: Moment,
}

/// What the last new sample led to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    /// No CPU sample yet.
    #[default]
    NoCpu,
    /// A rate, from counters.
    Rate,
    /// The kubelet's own average: there is no rate yet.
    KubeletAverage,
    /// No rate.
    NoRate(NoRate),
    /// No rate, because the node's clock jumped.
    ClockStepped,
}

/// What a sample was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Newer than the last.
    New {
        /// Whether the container started again since the last sample.
        restarted: bool,
    },
    /// The last one again.
    Repeated,
    /// Older than the last one, and ignored.
    Older,
    /// It says nothing of CPU.
    WithoutCpu,
}

impl Series {
    /// Takes in a sample.
    pub(crate) fn take(&mut self, sample: &ContainerSample, rules: &Rules<'_>) -> Taken {
        let Some(cpu) = sample.cpu else {
            self.take_amounts(sample, None, rules);
            return Taken::WithoutCpu;
        };
        let previous = self.last();
        match previous.map(|previous| cpu.at.cmp(&previous.at)) {
            Some(Ordering::Equal) => {
                self.older_in_a_row = 0;
                return Taken::Repeated;
            }
            Some(Ordering::Less) => {
                self.older_in_a_row += 1;
                if self.older_in_a_row < OLDER_BEFORE_BASELINE {
                    return Taken::Older;
                }
            }
            Some(Ordering::Greater) | None => {}
        }
        let restarted = matches!((previous, sample.started),
            (Some(previous), Some(started)) if started >= previous.at && started <= cpu.at);
        self.decide(previous, cpu, sample, rules);
        self.take_amounts(sample, Some(cpu.at), rules);
        Taken::New { restarted }
    }

    /// Makes a rate of the last sample and a new one where there is an honest one, and takes the
    /// new one as the last.
    fn decide(
        &mut self,
        previous: Option<CpuSample>,
        cpu: CpuSample,
        sample: &ContainerSample,
        rules: &Rules<'_>,
    ) {
        let stepped = previous.is_some_and(|previous| self.clock_stepped(previous, cpu, rules));
        let base = previous.filter(|previous| {
            let window = cpu.at.since(previous.at);
            window.is_none_or(|window| window <= rules.config.longest_window)
        });
        let decided = if stepped {
            // The start was read from the clock before it jumped: a rate since then would be wrong
            // too.
            Err(State::ClockStepped)
        } else if base.is_none() && !is_near(cpu.at, rules) {
            Err(State::NoRate(NoRate::FirstSample))
        } else {
            container_rate(base, cpu, sample.started, rules.config.first_window)
                .map(|rate| (rate.usage, rate.window))
                .map_err(State::NoRate)
        };
        self.advance(cpu, rules);
        match decided {
            Ok((usage, window)) => self.set_rate(usage, window, State::Rate, rules),
            Err(state) => match kubelets_average(sample, cpu.at, rules) {
                Some((usage, window)) => self.set_rate(usage, window, State::KubeletAverage, rules),
                None => self.state = state,
            },
        }
    }

    /// Whether the node's clock went backwards, or forwards by much more than ours.
    fn clock_stepped(&self, previous: CpuSample, cpu: CpuSample, rules: &Rules<'_>) -> bool {
        let Some(window) = cpu.at.since(previous.at) else {
            return true;
        };
        let passed = rules.since(self.cpu_seen).unwrap_or_default();
        window > passed.saturating_add(CLOCK_TOLERANCE)
    }

    /// Takes a sample as the last one; the rate stays where it was in time.
    fn advance(&mut self, cpu: CpuSample, rules: &Rules<'_>) {
        let rate_at = self.cpu_at.saturating_add(i64::from(self.rate_offset));
        self.cpu_at = cpu.at.unix_millis();
        self.cpu_total = cpu.total.get();
        self.cpu_seen = rules.moment();
        self.older_in_a_row = 0;
        match i32::try_from(rate_at.saturating_sub(self.cpu_at)) {
            Ok(offset) => self.rate_offset = offset,
            // The clock jumped by weeks: when the rate was true can no longer be said.
            Err(_) => self.rate_seen = Moment::NEVER,
        }
    }

    fn set_rate(&mut self, usage: CpuUsage, window: Duration, state: State, rules: &Rules<'_>) {
        let Ok(window_millis) = u32::try_from(window.as_millis()) else {
            // A window of seven weeks: `longest_window` was set beyond sense.
            self.state = State::NoRate(NoRate::FirstSample);
            return;
        };
        self.nanocores = usage.nanocores();
        self.window_millis = window_millis;
        self.rate_offset = 0;
        self.rate_seen = rules.moment();
        self.state = state;
    }

    /// Takes what needs no second sample. An amount that was read long before the CPU of the same
    /// answer is old.
    fn take_amounts(
        &mut self,
        sample: &ContainerSample,
        cpu_at: Option<Timestamp>,
        rules: &Rules<'_>,
    ) {
        let current = |amount: Option<BytesSample>| {
            let amount = amount?;
            let age = cpu_at.and_then(|cpu_at| cpu_at.since(amount.at));
            (age.unwrap_or_default() <= rules.config.staleness).then_some(amount.bytes.count())
        };
        let moment = rules.moment();
        let extra = rules.config.extra;
        let swap = current(sample.swap).filter(|_| extra.swap);
        let memory = current(sample.memory);
        let is_swap_zero = swap == Some(0) && memory.is_some() && self.extras.is_none();
        if self.is_swap_zero && !is_swap_zero {
            // The zero stays as old as it is, whatever becomes of the memory.
            let extras = self.extras.get_or_insert_default();
            extras.swap = 0;
            extras.swap_seen = self.memory_seen;
        }
        self.is_swap_zero = is_swap_zero;
        if let Some(memory) = memory {
            self.memory = memory;
            self.memory_seen = moment;
        }
        if let Some(swap) = swap.filter(|_| !is_swap_zero) {
            let extras = self.extras.get_or_insert_default();
            extras.swap = swap;
            extras.swap_seen = moment;
        }
        if let Some(storage) = current(sample.ephemeral_storage).filter(|_| extra.ephemeral_storage)
        {
            let extras = self.extras.get_or_insert_default();
            extras.storage = storage;
            extras.storage_seen = moment;
        }
    }

    /// What can be served now.
    pub(crate) fn usage(&self, rules: &Rules<'_>) -> Option<Usage> {
        if !rules.is_fresh(self.rate_seen) || !rules.is_fresh(self.memory_seen) {
            return None;
        }
        let extra = |amount: fn(&Extras) -> (u64, Moment)| {
            let (bytes, seen) = amount(self.extras.as_deref()?);
            rules.is_fresh(seen).then_some(Bytes::new(bytes))
        };
        let ended = self.cpu_at.saturating_add(i64::from(self.rate_offset));
        Some(Usage {
            cpu: CpuUsage::from_nanocores(self.nanocores),
            memory: Bytes::new(self.memory),
            swap: if self.is_swap_zero {
                Some(Bytes::new(0))
            } else {
                extra(|extras| (extras.swap, extras.swap_seen))
            },
            ephemeral_storage: extra(|extras| (extras.storage, extras.storage_seen)),
            timestamp: Timestamp::from_unix_millis(ended),
            window: Duration::from_millis(self.window_millis.into()),
        })
    }

    /// As [`Series::usage`], and remembers that it was told.
    pub(crate) fn serve(&mut self, rules: &Rules<'_>) -> Option<Usage> {
        let usage = self.usage(rules);
        self.is_served = usage.is_some();
        usage
    }

    /// Whether something was told that can no longer be served.
    pub(crate) fn has_expired(&self, rules: &Rules<'_>) -> bool {
        self.is_served && self.usage(rules).is_none()
    }

    /// When it was heard of what is oldest in it: nothing of it is too old as long as that is
    /// fresh.
    pub(crate) fn oldest(&self) -> Option<Moment> {
        let heard = [self.cpu_seen, self.rate_seen, self.memory_seen];
        heard
            .into_iter()
            .filter(|seen| *seen != Moment::NEVER)
            .min()
    }

    /// Whether nothing was heard for so long that not even a rate can be made with what is known.
    pub(crate) fn is_forgotten(&self, rules: &Rules<'_>) -> bool {
        let heard = self.cpu_seen.max(self.memory_seen);
        let age = rules.since(heard).unwrap_or(Duration::MAX);
        age > rules.config.longest_window.max(rules.config.staleness)
    }

    /// Whether nothing was heard for as long as a value may be served.
    pub(crate) fn is_silent(&self, rules: &Rules<'_>) -> bool {
        !rules.is_fresh(self.cpu_seen.max(self.memory_seen))
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    pub(crate) fn cpu_seen(&self) -> Moment {
        self.cpu_seen
    }

    pub(crate) fn rate_seen(&self) -> Moment {
        self.rate_seen
    }

    pub(crate) fn memory_seen(&self) -> Moment {
        self.memory_seen
    }

    fn last(&self) -> Option<CpuSample> {
        (self.cpu_seen != Moment::NEVER).then(|| CpuSample {
            at: Timestamp::from_unix_millis(self.cpu_at),
            total: CoreNanos::new(self.cpu_total),
        })
    }
}

/// Whether a lone sample can be of now. A second one shows that the kubelet lives, whatever its
/// clock says; a single one may have been standing there for hours, and only our own clock can
/// tell.
fn is_near(at: Timestamp, rules: &Rules<'_>) -> bool {
    let apart = Duration::from_millis(at.unix_millis().abs_diff(rules.now.unix_millis()));
    apart <= rules.config.staleness
}

/// The average that the kubelet states itself, if it can be of now.
fn kubelets_average(
    sample: &ContainerSample,
    at: Timestamp,
    rules: &Rules<'_>,
) -> Option<(CpuUsage, Duration)> {
    let usage = sample.cpu_now.filter(|_| is_near(at, rules))?;
    let window = match sample.started {
        Some(started) => at.since(started)?.min(KUBELET_WINDOW),
        None => KUBELET_WINDOW,
    };
    (!window.is_zero()).then_some((usage, window))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_one_cache_line() {
        assert_eq!(size_of::<Series>(), 64);
    }
}
