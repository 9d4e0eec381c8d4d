//! What is known about one target of one probe: verdict, counters, histograms.

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::Timestamp;
use parking_lot::Mutex;

use crate::histogram::Histogram;
use crate::outcome::{Facts, Failure, Outcome, Phase, Reason};
use crate::probe::{Completed, OutcomeSink, ProbeInfo, Threshold};

/// Whether a target is reachable, by the threshold of its probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Verdict {
    /// Too few results yet.
    #[default]
    Unknown,
    Up,
    Down,
}

/// A probe and a target, and its statistics. They survive a change of the probe's settings.
#[derive(Debug)]
pub struct TargetStatus {
    target: Arc<str>,
    inner: Mutex<Inner>,
}

/// Statistics of a target since it was added.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Statistics {
    pub verdict: Verdict,
    /// When the verdict became what it is.
    pub since: Option<Timestamp>,
    /// How often the verdict changed between up and down.
    pub transitions: u64,
    pub consecutive_failures: u32,
    pub consecutive_successes: u32,
    /// When the last run started.
    pub last_run: Option<Timestamp>,
    /// When the last run that succeeded started.
    pub last_success: Option<Timestamp>,
    /// Why the last run failed; `None` if it succeeded.
    pub last_failure: Option<Failure>,
    pub last_duration: Option<Duration>,
    /// The facts of the last run.
    pub facts: Facts,
    /// Number of runs.
    pub total: u64,
    pub success: u64,
    /// Number of runs that failed because time ran out.
    pub timeout: u64,
    /// Number of ticks without a run, because the previous run had not ended.
    pub missed: u64,
    pub duration: Histogram,
    failures: [u64; Reason::ALL.len()],
    phases: [Histogram; Phase::ALL.len()],
}

#[derive(Debug)]
struct Inner {
    probe: Arc<ProbeInfo>,
    statistics: Statistics,
    removed: bool,
}

impl Phase {
    /// All phases, in the order of a run.
    pub const ALL: [Self; 6] = [
        Self::Resolve,
        Self::Connect,
        Self::Tls,
        Self::Processing,
        Self::Transfer,
        Self::Request,
    ];

    const fn index(self) -> usize {
        self as usize
    }
}

impl Reason {
    const fn index(self) -> usize {
        self as usize
    }
}

impl Verdict {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

impl Statistics {
    /// Counts a run. Returns the previous verdict if this result changed it.
    pub fn record(&mut self, outcome: &Outcome, threshold: Threshold) -> Option<Verdict> {
        self.total = self.total.saturating_add(1);
        self.last_run = Some(outcome.started);
        self.last_duration = Some(outcome.duration);
        self.duration.observe(outcome.duration);
        self.last_failure.clone_from(&outcome.failure);
        self.facts.clone_from(&outcome.facts);
        for phase in &outcome.phases {
            if let Some(histogram) = self.phases.get_mut(phase.phase.index()) {
                histogram.observe(phase.duration);
            }
        }
        if let Some(failure) = &outcome.failure {
            self.consecutive_successes = 0;
            self.consecutive_failures = self.consecutive_failures.saturating_add(1);
            if failure.reason.is_timeout() {
                self.timeout = self.timeout.saturating_add(1);
            }
            if let Some(count) = self.failures.get_mut(failure.reason.index()) {
                *count = count.saturating_add(1);
            }
        } else {
            self.consecutive_failures = 0;
            self.consecutive_successes = self.consecutive_successes.saturating_add(1);
            self.success = self.success.saturating_add(1);
            self.last_success = Some(outcome.started);
        }
        self.judge(outcome.started, threshold)
    }

    fn judge(&mut self, now: Timestamp, threshold: Threshold) -> Option<Verdict> {
        let verdict = if self.consecutive_failures >= threshold.failures.max(1) {
            Verdict::Down
        } else if self.consecutive_successes >= threshold.successes.max(1) {
            Verdict::Up
        } else {
            self.verdict
        };
        if verdict == self.verdict {
            return None;
        }
        let previous = std::mem::replace(&mut self.verdict, verdict);
        self.since = Some(now);
        if previous != Verdict::Unknown {
            self.transitions = self.transitions.saturating_add(1);
        }
        Some(previous)
    }

    /// Number of failures with a reason.
    pub fn failures(&self, reason: Reason) -> u64 {
        self.failures.get(reason.index()).copied().unwrap_or(0)
    }

    /// The reasons that occurred, with their counts.
    pub fn failures_by_reason(&self) -> impl Iterator<Item = (Reason, u64)> {
        Reason::ALL
            .into_iter()
            .zip(self.failures)
            .filter(|(_, count)| *count > 0)
    }

    /// The phases that were entered, with their durations.
    pub fn phases(&self) -> impl Iterator<Item = (Phase, &Histogram)> {
        Phase::ALL
            .into_iter()
            .zip(&self.phases)
            .filter(|(_, histogram)| histogram.count() > 0)
    }
}

impl TargetStatus {
    pub(crate) fn new(probe: Arc<ProbeInfo>, target: Arc<str>) -> Self {
        Self {
            target,
            inner: Mutex::new(Inner {
                probe,
                statistics: Statistics::default(),
                removed: false,
            }),
        }
    }

    pub fn target(&self) -> &Arc<str> {
        &self.target
    }

    pub fn probe(&self) -> Arc<ProbeInfo> {
        Arc::clone(&self.inner.lock().probe)
    }

    /// A copy of the statistics.
    pub fn statistics(&self) -> Statistics {
        self.inner.lock().statistics.clone()
    }

    /// Reads the statistics in place, without a copy. The lock is held meanwhile.
    pub fn with_statistics<T>(&self, read: impl FnOnce(&ProbeInfo, &Statistics) -> T) -> T {
        let inner = self.inner.lock();
        read(&inner.probe, &inner.statistics)
    }

    pub(crate) fn set_probe(&self, probe: Arc<ProbeInfo>) {
        self.inner.lock().probe = probe;
    }

    pub(crate) fn add_missed(&self, ticks: u64) {
        let mut inner = self.inner.lock();
        inner.statistics.missed = inner.statistics.missed.saturating_add(ticks);
    }

    /// Counts a run and passes it on with the verdict, unless the target was removed meanwhile.
    /// Returns whether it did.
    pub(crate) fn record(&self, completed: &mut Completed, sink: &dyn OutcomeSink) -> bool {
        let mut inner = self.inner.lock();
        if inner.removed {
            return false;
        }
        let threshold = completed.probe.threshold;
        completed.previous = inner.statistics.record(&completed.outcome, threshold);
        completed.verdict = inner.statistics.verdict;
        sink.completed(completed);
        true
    }

    /// Ends the target: nothing is recorded any more. The lock orders this behind the last result
    /// that was passed on.
    pub(crate) fn remove(&self, sink: &dyn OutcomeSink) {
        let mut inner = self.inner.lock();
        inner.removed = true;
        sink.removed(&inner.probe, &self.target);
    }
}

#[cfg(test)]
mod tests;
