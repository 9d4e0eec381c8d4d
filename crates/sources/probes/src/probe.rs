//! What runs: a probe, one of its targets, and who is told of the results.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::Timestamp;

use crate::module::Module;
use crate::outcome::Outcome;
use crate::state::Verdict;
use crate::target::Target;

/// Label names and values, sorted by name.
pub type LabelPairs = Vec<(Arc<str>, Arc<str>)>;

/// A probe, as it is configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeInfo {
    pub name: Arc<str>,
    /// The name of its module.
    pub module: Arc<str>,
    /// The kind of its prober: `http`, `tcp`, ….
    pub kind: &'static str,
    /// Labels of all its series, besides `probe` and `target`.
    pub labels: LabelPairs,
    pub interval: Duration,
    /// Each run is late by a random time up to this one.
    pub jitter: Duration,
    /// Maximum duration of a run.
    pub timeout: Duration,
    pub threshold: Threshold,
}

/// How many consecutive results change the verdict about a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threshold {
    /// Consecutive failures before a target is down, at least 1.
    pub failures: u32,
    /// Consecutive successes before it is up, at least 1.
    pub successes: u32,
}

/// A probe of one target: what a task of the scheduler repeats.
#[derive(Debug, Clone)]
pub struct Job {
    pub probe: Arc<ProbeInfo>,
    pub module: Arc<Module>,
    pub target: Target,
}

/// A run that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Completed {
    pub probe: Arc<ProbeInfo>,
    pub target: Arc<str>,
    /// When the run was due, by the wall clock.
    pub scheduled: Timestamp,
    /// From when it was due to its start. It is ours, not the target's.
    pub lag: Duration,
    pub outcome: Outcome,
    /// The verdict about the target, with this result.
    pub verdict: Verdict,
    /// The verdict before, if this result changed it.
    pub previous: Option<Verdict>,
}

/// Receives the results of all probes. Calls must not wait: they hold the lock of their target.
pub trait OutcomeSink: Send + Sync {
    /// A run has ended.
    fn completed(&self, completed: &Completed);

    /// A target is no longer probed: its series end. No result of it follows.
    fn removed(&self, probe: &ProbeInfo, target: &str) {
        let _ = (probe, target);
    }
}

/// A run in progress.
pub type Run<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// Runs a job once. Tests replace the one that opens connections.
pub trait Executor: Send + Sync {
    fn execute<'a>(&'a self, job: &'a Job) -> Run<'a>;
}

impl Default for Threshold {
    fn default() -> Self {
        Self {
            failures: 3,
            successes: 1,
        }
    }
}
