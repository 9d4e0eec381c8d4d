//! The last sample and the last usage of a container, or of a node as a whole.
//!
//! Timestamps of samples are by the clock of the node and are only compared with each other. The
//! age of a value is monotonic time since its receipt: a node with a wrong clock is served like any
//! other, with the timestamps that it reports.

use std::cmp::Ordering;
use std::time::Duration;

use kubevitals_model::{
    Bytes, BytesSample, ContainerSample, CoreNanos, CpuSample, CpuUsage, NoRate, Timestamp, Usage,
    container_rate,
};

use crate::evaluation::{Evaluation, Tick};

const EPOCH: Timestamp = Timestamp::from_unix_millis(0);

/// The last instant of a year of four digits. RFC 3339 has no other years: a later timestamp would
/// make every JSON list that contains it unreadable.
const MAX_TIME: Timestamp = Timestamp::from_unix_millis(253_402_300_799_999);

/// Consecutive older samples after which the clock of the node is taken to have been set back.
const OLDER_BEFORE_BASELINE: u8 = 2;

/// Tolerated excess of the time between two samples over that of our clock: a kubelet's response
/// may be a housekeeping interval old or slow, and clocks are adjusted in small steps. Beyond it
/// the clock of the node has jumped.
const CLOCK_TOLERANCE: Duration = Duration::from_mins(1);

/// The window of the kubelet's own average, which it does not report. cAdvisor samples every 10 s
/// and stretches that to 15 s: the longer one is used, so that an autoscaler which waits for a
/// whole window after a start waits long enough.
const KUBELET_WINDOW: Duration = Duration::from_secs(15);

/// The shortest window of a rate. The kernel grants CPU time in slices of a period of 100 ms, and a
/// shorter window shows the slice instead of the usage. Kubelets sample every 10 s; a node that
/// reads its counters at each request can be scraped twice within milliseconds.
const MIN_WINDOW: Duration = Duration::from_secs(1);

/// The last sample and the last usage. 64 bytes: there are hundreds of thousands.
#[derive(Debug, Default)]
pub(crate) struct Series {
    /// The time of the last sample by the clock of the node; invalid while `cpu_seen` is never.
    cpu_at: i64,
    cpu_total: u64,
    nanocores: u64,
    memory: u64,
    extras: Option<Box<Extras>>,
    /// The end of the rate's window relative to the last sample: zero; negative after samples
    /// without a rate; positive after the clock was set back.
    rate_offset: i32,
    window_millis: u32,
    cpu_seen: Tick,
    rate_seen: Tick,
    memory_seen: Tick,
    rate_state: RateState,
    older_in_a_row: u8,
    is_served: bool,
    /// Whether the sample of `memory` had zero swap, as nearly all have: that is not worth a box.
    /// Takes precedence over `extras`.
    is_swap_zero: bool,
}

/// Resources that few containers have.
#[derive(Debug, Default)]
struct Extras {
    swap: u64,
    storage: u64,
    swap_seen: Tick,
    storage_seen: Tick,
}

/// The result of the last new sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum RateState {
    /// No CPU sample yet.
    #[default]
    NoCpu,
    /// A rate from counters.
    Rate,
    /// The kubelet's own average: there is no rate yet.
    KubeletAverage,
    NoRate(NoRate),
    /// No rate, because the node's clock jumped.
    ClockStepped,
}

/// The relation of a sample to its predecessor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SampleKind {
    New {
        /// Whether the container restarted since the last sample.
        restarted: bool,
    },
    /// Taken at the time of its predecessor, or so soon after it that there is no rate; ignored.
    Repeated,
    /// Older than the last one; ignored.
    Older,
    WithoutCpu,
    /// Its time is not between 1970 and 9999; ignored.
    InvalidTime,
}

impl Series {
    /// Records a sample and updates the usage.
    pub(crate) fn record(&mut self, sample: &ContainerSample, eval: &Evaluation<'_>) -> SampleKind {
        let Some(cpu) = sample.cpu else {
            self.record_amounts(sample, None, eval);
            return SampleKind::WithoutCpu;
        };
        if cpu.at <= EPOCH || cpu.at > MAX_TIME {
            return SampleKind::InvalidTime;
        }
        let previous = self.last();
        match previous.map(|previous| cpu.at.cmp(&previous.at)) {
            Some(Ordering::Equal) => {
                self.older_in_a_row = 0;
                return SampleKind::Repeated;
            }
            Some(Ordering::Less) => {
                self.older_in_a_row += 1;
                if self.older_in_a_row < OLDER_BEFORE_BASELINE {
                    return SampleKind::Older;
                }
            }
            Some(Ordering::Greater) | None => {}
        }
        if previous.is_some_and(|previous| is_too_soon(previous, cpu, sample.started)) {
            self.older_in_a_row = 0;
            return SampleKind::Repeated;
        }
        let restarted = matches!((previous, sample.started),
            (Some(previous), Some(started)) if started >= previous.at && started <= cpu.at);
        self.update_rate(previous, cpu, sample, eval);
        self.record_amounts(sample, Some(cpu.at), eval);
        SampleKind::New { restarted }
    }

    /// Computes the rate between the last sample and a new one, if there is a meaningful one, and
    /// makes the new one the last.
    fn update_rate(
        &mut self,
        previous: Option<CpuSample>,
        cpu: CpuSample,
        sample: &ContainerSample,
        eval: &Evaluation<'_>,
    ) {
        let stepped = previous.is_some_and(|previous| self.clock_stepped(previous, cpu, eval));
        let base = previous.filter(|previous| {
            let window = cpu.at.since(previous.at);
            window.is_none_or(|window| window <= eval.config.max_window)
        });
        let rate = if stepped {
            // The start time is by the clock before the jump: a rate since then would be wrong too.
            Err(RateState::ClockStepped)
        } else if base.is_none() && !is_recent(cpu.at, eval) {
            Err(RateState::NoRate(NoRate::FirstSample))
        } else {
            container_rate(base, cpu, sample.started, eval.config.first_window)
                .map(|rate| (rate.usage, rate.window))
                .map_err(RateState::NoRate)
        };
        self.advance(cpu, eval);
        match rate {
            Ok((usage, window)) => self.set_rate(usage, window, RateState::Rate, eval),
            Err(state) => match kubelet_average(sample, cpu.at, eval) {
                Some((usage, window)) => {
                    self.set_rate(usage, window, RateState::KubeletAverage, eval);
                }
                None => self.rate_state = state,
            },
        }
    }

    /// Whether the clock of the node went backwards, or forwards by much more than ours.
    fn clock_stepped(&self, previous: CpuSample, cpu: CpuSample, eval: &Evaluation<'_>) -> bool {
        let Some(window) = cpu.at.since(previous.at) else {
            return true;
        };
        let elapsed = eval.age(self.cpu_seen).unwrap_or_default();
        window > elapsed.saturating_add(CLOCK_TOLERANCE)
    }

    /// Makes a sample the last one; the rate keeps its time.
    fn advance(&mut self, cpu: CpuSample, eval: &Evaluation<'_>) {
        let rate_at = self.cpu_at.saturating_add(i64::from(self.rate_offset));
        self.cpu_at = cpu.at.unix_millis();
        self.cpu_total = cpu.total.get();
        self.cpu_seen = eval.tick();
        self.older_in_a_row = 0;
        match i32::try_from(rate_at.saturating_sub(self.cpu_at)) {
            Ok(offset) => self.rate_offset = offset,
            // The clock jumped by weeks: the time of the rate cannot be represented.
            Err(_) => self.rate_seen = Tick::NEVER,
        }
    }

    fn set_rate(
        &mut self,
        usage: CpuUsage,
        window: Duration,
        state: RateState,
        eval: &Evaluation<'_>,
    ) {
        let Ok(window_millis) = u32::try_from(window.as_millis()) else {
            // A window of seven weeks: `max_window` is set absurdly high.
            self.rate_state = RateState::NoRate(NoRate::FirstSample);
            return;
        };
        self.nanocores = usage.nanocores();
        self.window_millis = window_millis;
        self.rate_offset = 0;
        self.rate_seen = eval.tick();
        self.rate_state = state;
    }

    /// Records the resources that need no second sample. An amount that was sampled long before the
    /// CPU of the same scrape is stale.
    fn record_amounts(
        &mut self,
        sample: &ContainerSample,
        cpu_at: Option<Timestamp>,
        eval: &Evaluation<'_>,
    ) {
        let current = |amount: Option<BytesSample>| {
            let amount = amount?;
            let age = cpu_at.and_then(|cpu_at| cpu_at.since(amount.at));
            (age.unwrap_or_default() <= eval.config.staleness).then_some(amount.bytes.count())
        };
        let tick = eval.tick();
        let extra = eval.config.extra;
        let swap = current(sample.swap).filter(|_| extra.swap);
        let memory = current(sample.memory);
        let is_swap_zero = swap == Some(0) && memory.is_some() && self.extras.is_none();
        if self.is_swap_zero && !is_swap_zero {
            // The zero keeps its age, whatever happens to the memory.
            let extras = self.extras.get_or_insert_default();
            extras.swap = 0;
            extras.swap_seen = self.memory_seen;
        }
        self.is_swap_zero = is_swap_zero;
        if let Some(memory) = memory {
            self.memory = memory;
            self.memory_seen = tick;
        }
        if let Some(swap) = swap.filter(|_| !is_swap_zero) {
            let extras = self.extras.get_or_insert_default();
            extras.swap = swap;
            extras.swap_seen = tick;
        }
        if let Some(storage) = current(sample.ephemeral_storage).filter(|_| extra.ephemeral_storage)
        {
            let extras = self.extras.get_or_insert_default();
            extras.storage = storage;
            extras.storage_seen = tick;
        }
    }

    /// Returns the usage, if CPU and memory are within the staleness limit.
    pub(crate) fn usage(&self, eval: &Evaluation<'_>) -> Option<Usage> {
        if !eval.is_fresh(self.rate_seen) || !eval.is_fresh(self.memory_seen) {
            return None;
        }
        let extra = |amount: fn(&Extras) -> (u64, Tick)| {
            let (bytes, seen) = amount(self.extras.as_deref()?);
            eval.is_fresh(seen).then_some(Bytes::new(bytes))
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

    /// Returns [`Series::usage`], and remembers whether there is any.
    pub(crate) fn serve(&mut self, eval: &Evaluation<'_>) -> Option<Usage> {
        let usage = self.usage(eval);
        self.is_served = usage.is_some();
        usage
    }

    /// Whether there was usage at the last publication.
    pub(crate) fn is_served(&self) -> bool {
        self.is_served
    }

    /// Whether usage that was served has become stale.
    pub(crate) fn has_expired(&self, eval: &Evaluation<'_>) -> bool {
        self.is_served && self.usage(eval).is_none()
    }

    /// Returns the receipt of the oldest value: nothing expires while that is fresh.
    pub(crate) fn oldest_value(&self) -> Option<Tick> {
        let seen = [self.cpu_seen, self.rate_seen, self.memory_seen];
        seen.into_iter().filter(|seen| *seen != Tick::NEVER).min()
    }

    /// Whether the last sample is so old that no rate can be computed from it.
    pub(crate) fn is_obsolete(&self, eval: &Evaluation<'_>) -> bool {
        let seen = self.cpu_seen.max(self.memory_seen);
        let age = eval.age(seen).unwrap_or(Duration::MAX);
        age > eval.config.max_window.max(eval.config.staleness)
    }

    /// Whether the last sample is beyond the staleness limit.
    pub(crate) fn is_stale(&self, eval: &Evaluation<'_>) -> bool {
        !eval.is_fresh(self.cpu_seen.max(self.memory_seen))
    }

    pub(crate) fn rate_state(&self) -> RateState {
        self.rate_state
    }

    pub(crate) fn cpu_seen(&self) -> Tick {
        self.cpu_seen
    }

    pub(crate) fn rate_seen(&self) -> Tick {
        self.rate_seen
    }

    pub(crate) fn memory_seen(&self) -> Tick {
        self.memory_seen
    }

    fn last(&self) -> Option<CpuSample> {
        (self.cpu_seen != Tick::NEVER).then(|| CpuSample {
            at: Timestamp::from_unix_millis(self.cpu_at),
            total: CoreNanos::new(self.cpu_total),
        })
    }
}

/// Whether a sample follows its predecessor within [`MIN_WINDOW`]. The first one of a restarted
/// container does not: its counter starts anew.
fn is_too_soon(previous: CpuSample, cpu: CpuSample, started: Option<Timestamp>) -> bool {
    let window = cpu.at.since(previous.at);
    window.is_some_and(|window| window < MIN_WINDOW)
        && started.is_none_or(|started| started < previous.at)
        && cpu.total >= previous.total
}

/// Whether the time of a single sample is close to ours. A second sample shows that the kubelet
/// updates it, whatever its clock; a single one may be hours old, which only our clock shows.
fn is_recent(at: Timestamp, eval: &Evaluation<'_>) -> bool {
    let distance = Duration::from_millis(at.unix_millis().abs_diff(eval.wall.unix_millis()));
    distance <= eval.config.staleness
}

/// Returns the kubelet's own average, if it is recent.
fn kubelet_average(
    sample: &ContainerSample,
    at: Timestamp,
    eval: &Evaluation<'_>,
) -> Option<(CpuUsage, Duration)> {
    let usage = sample.cpu_now.filter(|_| is_recent(at, eval))?;
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
