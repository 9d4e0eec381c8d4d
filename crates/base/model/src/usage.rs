//! From cumulative samples to usage.
//!
//! A rate needs two distinct readings of the same counter. Where it would have to be guessed there
//! is none, and [`NoRate`] says why. Timestamps are the CPU samples' own: metrics-server divides by
//! the distance of the memory samples instead, which is another number whenever the two are not
//! read together.

use std::cmp::Ordering;
use std::fmt;
use std::time::Duration;

use crate::amount::{Bytes, CpuUsage};
use crate::sample::CpuSample;
use crate::timestamp::Timestamp;

/// The usage of a node or a container, as served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// CPU in use over the window.
    pub cpu: CpuUsage,
    /// The working set.
    pub memory: Bytes,
    /// Swap in use, where the kubelet reports it.
    pub swap: Option<Bytes>,
    /// Ephemeral storage in use, where it is enabled.
    pub ephemeral_storage: Option<Bytes>,
    /// The end of the window: the time of the last CPU sample.
    pub timestamp: Timestamp,
    /// The time over which the CPU usage is averaged.
    pub window: Duration,
}

/// CPU in use, averaged over a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuRate {
    /// The average.
    pub usage: CpuUsage,
    /// The time between the two readings; never zero.
    pub window: Duration,
}

/// The range of ages at which the CPU time of a container since its start is used as a rate, if
/// there is no earlier sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FirstWindow {
    /// Below, the rate would be that of the start alone: a burst that misleads an autoscaler.
    pub shortest: Duration,
    /// Above, the average since the start no longer shows the current usage.
    pub longest: Duration,
}

/// The reason why there is no rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NoRate {
    /// There is no earlier sample yet, and the container is too old for its average since the
    /// start.
    FirstSample,
    /// The sample has the same time as the one before: the kubelet repeated it.
    SameSample,
    /// The sample is older than the one before.
    OlderSample,
    /// The counter was reset, at an unknown time.
    CounterDecreased,
    /// The container started too recently, so that a rate since its start would mislead.
    StartedTooRecently,
    /// The sample was read before the container started: it belongs to an earlier one.
    StartedAfterSample,
    /// The rate does not fit 64 bits of nanocores (18 billion cores): one of the samples is wrong.
    TooFast,
}

/// The rate between two readings of a counter of which no start is known, such as a node's: that it
/// began anew shows only in that it went backwards.
///
/// Rounded down to whole nanocores, as metrics-server does.
pub fn rate_between(previous: CpuSample, current: CpuSample) -> Result<CpuRate, NoRate> {
    distinct(previous, current)?;
    let used = current
        .total
        .get()
        .checked_sub(previous.total.get())
        .ok_or(NoRate::CounterDecreased)?;
    average(used, previous.at, current.at)
}

/// The rate of a container, of which the previous sample and the start may be known.
///
/// A container that restarted after the previous sample has a new counter, which began at zero when
/// it started: the rate since then is as true as one between two samples. The same goes for a
/// container that is seen for the first time soon after its start. `first` says what is soon, and
/// how long to wait in both cases.
pub fn container_rate(
    previous: Option<CpuSample>,
    current: CpuSample,
    started: Option<Timestamp>,
    first: FirstWindow,
) -> Result<CpuRate, NoRate> {
    if let Some(previous) = previous {
        distinct(previous, current)?;
    }
    let Some(started) = started else {
        return rate_between(previous.ok_or(NoRate::FirstSample)?, current);
    };
    let age = current
        .at
        .since(started)
        .ok_or(NoRate::StartedAfterSample)?;
    match previous {
        Some(previous) if started < previous.at => rate_between(previous, current),
        None if age > first.longest => Err(NoRate::FirstSample),
        _ if age.is_zero() || age < first.shortest => Err(NoRate::StartedTooRecently),
        _ => average(current.total.get(), started, current.at),
    }
}

impl NoRate {
    /// A short name for a metric's label.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::FirstSample => "first_sample",
            Self::SameSample => "same_sample",
            Self::OlderSample => "older_sample",
            Self::CounterDecreased => "counter_decreased",
            Self::StartedTooRecently => "started_too_recently",
            Self::StartedAfterSample => "started_after_sample",
            Self::TooFast => "too_fast",
        }
    }
}

impl fmt::Display for NoRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::FirstSample => "only one sample so far",
            Self::SameSample => "the kubelet repeated its last sample",
            Self::OlderSample => "the sample is older than the one before",
            Self::CounterDecreased => "the counter of cpu time went backwards",
            Self::StartedTooRecently => "the container started too recently",
            Self::StartedAfterSample => "the container started after the sample was taken",
            Self::TooFast => "the cpu time grew faster than any machine can count",
        })
    }
}

impl std::error::Error for NoRate {}

/// Refuses two readings between which no time has passed.
fn distinct(previous: CpuSample, current: CpuSample) -> Result<(), NoRate> {
    match current.at.cmp(&previous.at) {
        Ordering::Less => Err(NoRate::OlderSample),
        Ordering::Equal => Err(NoRate::SameSample),
        Ordering::Greater => Ok(()),
    }
}

/// Core-nanoseconds over time. An empty time has no average.
fn average(used: u64, from: Timestamp, to: Timestamp) -> Result<CpuRate, NoRate> {
    let window = to
        .since(from)
        .filter(|window| !window.is_zero())
        .ok_or(NoRate::SameSample)?;
    let nanocores = u128::from(used) * 1_000 / window.as_millis();
    let nanocores = u64::try_from(nanocores).map_err(|_| NoRate::TooFast)?;
    Ok(CpuRate {
        usage: CpuUsage::from_nanocores(nanocores),
        window,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount::CoreNanos;

    const FIRST: FirstWindow = FirstWindow {
        shortest: Duration::from_secs(10),
        longest: Duration::from_mins(1),
    };

    fn sample(milliseconds: i64, total: u64) -> CpuSample {
        CpuSample {
            at: at(milliseconds),
            total: CoreNanos::new(total),
        }
    }

    fn at(milliseconds: i64) -> Timestamp {
        Timestamp::from_unix_millis(milliseconds)
    }

    fn rate(nanocores: u64, milliseconds: u64) -> CpuRate {
        CpuRate {
            usage: CpuUsage::from_nanocores(nanocores),
            window: Duration::from_millis(milliseconds),
        }
    }

    #[test]
    fn a_rate_is_the_growth_over_the_time_between() {
        assert_eq!(
            rate_between(sample(1_000, 5), sample(16_000, 15_000_000_005)),
            Ok(rate(1_000_000_000, 15_000))
        );
        assert_eq!(
            rate_between(sample(0, 0), sample(3_000, 2)),
            Ok(rate(0, 3_000))
        );
        assert_eq!(
            rate_between(sample(0, 7), sample(15_000, 7)),
            Ok(rate(0, 15_000))
        );
    }

    #[test]
    fn a_repeated_or_older_sample_has_no_rate() {
        assert_eq!(
            rate_between(sample(5, 1), sample(5, 2)),
            Err(NoRate::SameSample)
        );
        assert_eq!(
            rate_between(sample(5, 1), sample(4, 2)),
            Err(NoRate::OlderSample)
        );
        let of_container =
            |current| container_rate(Some(sample(5, 1)), current, Some(at(9)), FIRST);
        assert_eq!(of_container(sample(5, 2)), Err(NoRate::SameSample));
        assert_eq!(of_container(sample(4, 2)), Err(NoRate::OlderSample));
    }

    #[test]
    fn a_counter_that_went_backwards_has_no_rate() {
        assert_eq!(
            rate_between(sample(0, 9), sample(15_000, 8)),
            Err(NoRate::CounterDecreased)
        );
        assert_eq!(
            container_rate(Some(sample(0, 9)), sample(15_000, 8), Some(at(-1)), FIRST),
            Err(NoRate::CounterDecreased)
        );
    }

    #[test]
    fn a_restarted_container_has_the_rate_since_its_start() {
        let previous = Some(sample(0, 900_000_000_000));
        let current = sample(15_000, 3_000_000_000);
        assert_eq!(
            container_rate(previous, current, Some(at(3_000)), FIRST),
            Ok(rate(250_000_000, 12_000))
        );
        assert_eq!(
            container_rate(previous, current, Some(at(5_001)), FIRST),
            Err(NoRate::StartedTooRecently)
        );
        assert_eq!(
            container_rate(previous, current, Some(at(15_001)), FIRST),
            Err(NoRate::StartedAfterSample)
        );
    }

    #[test]
    fn a_restart_is_seen_although_the_counter_has_grown() {
        let current = sample(15_000, 3_000_000_000);
        assert_eq!(
            container_rate(Some(sample(0, 1)), current, Some(at(0)), FIRST),
            Ok(rate(200_000_000, 15_000))
        );
    }

    #[test]
    fn a_container_that_kept_running_has_the_rate_between_samples() {
        let of = |start| {
            container_rate(
                Some(sample(0, 1_000_000)),
                sample(10_000, 11_000_000),
                start,
                FIRST,
            )
        };
        assert_eq!(of(Some(at(-1))), Ok(rate(1_000_000, 10_000)));
        assert_eq!(of(None), Ok(rate(1_000_000, 10_000)));
    }

    #[test]
    fn a_first_sample_has_a_rate_only_soon_after_the_start() {
        let seen_at = |milliseconds| {
            container_rate(
                None,
                sample(milliseconds, 1_000_000_000),
                Some(at(0)),
                FIRST,
            )
        };
        assert_eq!(seen_at(9_999), Err(NoRate::StartedTooRecently));
        assert_eq!(seen_at(10_000), Ok(rate(100_000_000, 10_000)));
        assert_eq!(seen_at(60_000), Ok(rate(16_666_666, 60_000)));
        assert_eq!(seen_at(60_001), Err(NoRate::FirstSample));
        assert_eq!(
            container_rate(None, sample(0, 1), None, FIRST),
            Err(NoRate::FirstSample)
        );
    }

    #[test]
    fn an_impossible_rate_is_rejected() {
        assert_eq!(
            rate_between(sample(0, 0), sample(1, u64::MAX)),
            Err(NoRate::TooFast)
        );
        assert_eq!(
            rate_between(sample(i64::MIN, 0), sample(i64::MAX, u64::MAX)),
            Ok(rate(1_000, u64::MAX))
        );
        let no_wait = FirstWindow {
            shortest: Duration::ZERO,
            longest: Duration::MAX,
        };
        assert_eq!(
            container_rate(None, sample(3, 9), Some(at(3)), no_wait),
            Err(NoRate::StartedTooRecently)
        );
    }
}
