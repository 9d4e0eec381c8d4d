//! Named health checks for liveness and readiness, with reasons.
//!
//! A [`Health`] is passed to every component that can fail. The component registers either a
//! [`HealthCell`], which it sets when its state changes, or a closure that is cheap to call.
//! Responses have the format of the Kubernetes API server's `/livez`, `/readyz` and `/healthz`,
//! with one difference: a failing check shows its reason instead of `reason withheld`.
//!
//! Two checks always exist, named as in Kubernetes: `ping` always passes, and `shutdown` comes last
//! in every readiness report and fails once the process drains.

mod report;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

pub use self::report::{CheckOutcome, Report, Verdict};
use crate::TelemetryError;

const PING: &str = "ping";
const SHUTDOWN: &str = "shutdown";

/// A health endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// Liveness: whether the process must be restarted.
    Livez,
    /// Readiness: whether the process may receive requests.
    Readyz,
    /// The older form of [`Probe::Livez`], still found in manifests.
    Healthz,
}

/// The state of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    Ok,
    /// Passes, with something that an operator should know.
    Warning(Cow<'static, str>),
    /// Not ready yet, with the reason, such as "waiting for the first scrape".
    ///
    /// Fails readiness and passes liveness: a restart would only start the wait again.
    WarmingUp(Cow<'static, str>),
    /// Failing, with the reason.
    Failing(Cow<'static, str>),
}

/// The checks of one process. Clones share them.
#[derive(Clone)]
pub struct Health {
    inner: Arc<Inner>,
}

/// The state of one check, set by the component that it is about. Clones share it.
#[derive(Clone, Debug)]
pub struct HealthCell {
    status: Arc<Mutex<Status>>,
}

struct Inner {
    checks: Mutex<Vec<Arc<Check>>>,
    shutting_down: AtomicBool,
    /// The failing checks in the last log message about readiness.
    logged: Mutex<Option<Vec<String>>>,
}

struct Check {
    name: String,
    probes: Vec<Probe>,
    listing: Listing,
    evaluate: Box<dyn Fn() -> Status + Send + Sync>,
}

/// When a check is a line of a report.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Listing {
    Always,
    /// Only while it does not pass.
    Failures,
}

impl Probe {
    /// For checks whose failure requires a restart.
    pub const LIVENESS: &'static [Self] = &[Self::Livez, Self::Healthz];
    /// For checks whose failure only means that the process must not receive requests.
    pub const READINESS: &'static [Self] = &[Self::Readyz];
    /// For checks of both.
    pub const ALL: &'static [Self] = &[Self::Livez, Self::Readyz, Self::Healthz];

    /// Returns the name in paths and responses.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Livez => "livez",
            Self::Readyz => "readyz",
            Self::Healthz => "healthz",
        }
    }
}

impl Health {
    /// The maximum number of checks.
    pub const MAX_CHECKS: usize = 64;
    /// The maximum length of a check's name in bytes.
    pub const MAX_NAME: usize = 64;

    /// Creates the checks `ping` and `shutdown`.
    pub fn new() -> Self {
        let ping = Check {
            name: PING.to_owned(),
            probes: Probe::ALL.to_vec(),
            listing: Listing::Always,
            evaluate: Box::new(|| Status::Ok),
        };
        Self {
            inner: Arc::new(Inner {
                checks: Mutex::new(vec![Arc::new(ping)]),
                shutting_down: AtomicBool::new(false),
                logged: Mutex::new(None),
            }),
        }
    }

    /// Registers a check that is set through the returned cell and starts as `initial`.
    pub fn cell(
        &self,
        name: &str,
        probes: &[Probe],
        initial: Status,
    ) -> Result<HealthCell, TelemetryError> {
        let cell = HealthCell {
            status: Arc::new(Mutex::new(initial)),
        };
        let read = cell.clone();
        self.check(name, probes, move || read.status())?;
        Ok(cell)
    }

    /// Registers a check as [`Health::check`] does, which is listed only while it does not pass:
    /// tests of programs that we replace compare the whole list.
    pub fn failure_check(
        &self,
        name: &str,
        probes: &[Probe],
        evaluate: impl Fn() -> Status + Send + Sync + 'static,
    ) -> Result<(), TelemetryError> {
        self.add(name, probes, Listing::Failures, Box::new(evaluate))
    }

    /// The same as a cell, which starts as passing.
    pub fn failure_cell(&self, name: &str, probes: &[Probe]) -> Result<HealthCell, TelemetryError> {
        let cell = HealthCell {
            status: Arc::new(Mutex::new(Status::Ok)),
        };
        let read = cell.clone();
        self.failure_check(name, probes, move || read.status())?;
        Ok(cell)
    }

    /// Registers a check that is evaluated for every probe, so it must neither block nor be slow.
    ///
    /// A name is unique within a probe: liveness and readiness may have checks of the same name.
    pub fn check(
        &self,
        name: &str,
        probes: &[Probe],
        evaluate: impl Fn() -> Status + Send + Sync + 'static,
    ) -> Result<(), TelemetryError> {
        self.add(name, probes, Listing::Always, Box::new(evaluate))
    }

    fn add(
        &self,
        name: &str,
        probes: &[Probe],
        listing: Listing,
        evaluate: Box<dyn Fn() -> Status + Send + Sync>,
    ) -> Result<(), TelemetryError> {
        if !is_check_name(name) {
            return Err(TelemetryError::BadCheckName(name.to_owned()));
        }
        let mut checks = self.inner.checks.lock();
        let is_taken = |check: &Arc<Check>| {
            check.name == name && check.probes.iter().any(|probe| probes.contains(probe))
        };
        if name == SHUTDOWN || checks.iter().any(is_taken) {
            return Err(TelemetryError::DuplicateCheck(name.to_owned()));
        }
        if checks.len() >= Self::MAX_CHECKS {
            return Err(TelemetryError::TooManyChecks {
                name: name.to_owned(),
                limit: Self::MAX_CHECKS,
            });
        }
        checks.push(Arc::new(Check {
            name: name.to_owned(),
            probes: probes.to_vec(),
            listing,
            evaluate,
        }));
        Ok(())
    }

    /// Makes readiness fail from now on, so that traffic goes elsewhere before the process ends.
    pub fn start_shutdown(&self) {
        if !self.inner.shutting_down.swap(true, Ordering::SeqCst) {
            self.report(Probe::Readyz, &[]);
        }
    }

    /// Evaluates all checks of a probe but those `excluded` by name, in the order of registration.
    ///
    /// Logs one message whenever the failing checks of a full readiness report change, not one per
    /// probe.
    pub fn report(&self, probe: Probe, excluded: &[String]) -> Report {
        let mut outcomes: Vec<CheckOutcome> = self
            .checks_of(probe)
            .iter()
            .filter_map(|check| {
                let verdict = if excluded.contains(&check.name) {
                    Verdict::Excluded
                } else {
                    Verdict::from_status((check.evaluate)(), probe)
                };
                let is_listed = check.listing == Listing::Always || verdict != Verdict::Passed;
                is_listed.then(|| CheckOutcome {
                    name: check.name.clone(),
                    verdict,
                })
            })
            .collect();
        if probe == Probe::Readyz {
            outcomes.push(CheckOutcome {
                name: SHUTDOWN.to_owned(),
                verdict: if excluded.iter().any(|name| name == SHUTDOWN) {
                    Verdict::Excluded
                } else {
                    Verdict::from_status(self.shutdown_status(), probe)
                },
            });
        }
        let report = Report::new(probe, outcomes, excluded);
        if probe == Probe::Readyz && excluded.is_empty() {
            self.log_change(&report);
        }
        report
    }

    /// Evaluates one check of a probe by name; `None` if the probe has no such check.
    pub fn report_one(&self, probe: Probe, name: &str) -> Option<Verdict> {
        let status = if probe == Probe::Readyz && name == SHUTDOWN {
            self.shutdown_status()
        } else {
            let checks = self.checks_of(probe);
            (checks.iter().find(|check| check.name == name)?.evaluate)()
        };
        Some(Verdict::from_status(status, probe))
    }

    /// Copies the list, so that a check may itself register another.
    fn checks_of(&self, probe: Probe) -> Vec<Arc<Check>> {
        let checks = self.inner.checks.lock();
        checks
            .iter()
            .filter(|check| check.probes.contains(&probe))
            .map(Arc::clone)
            .collect()
    }

    fn shutdown_status(&self) -> Status {
        if self.inner.shutting_down.load(Ordering::SeqCst) {
            Status::failing("process is shutting down")
        } else {
            Status::Ok
        }
    }

    fn log_change(&self, report: &Report) {
        let failing: Vec<String> = report.failing().map(|check| check.name.clone()).collect();
        let mut logged = self.inner.logged.lock();
        if logged.as_ref() == Some(&failing) {
            return;
        }
        if failing.is_empty() {
            tracing::info!("ready");
        } else {
            let reasons = report.reasons();
            // A start or a shutdown needs no attention.
            if report
                .failing()
                .all(|check| check.verdict.is_warming_up() || check.name == SHUTDOWN)
            {
                tracing::info!(%reasons, "not ready");
            } else {
                tracing::warn!(%reasons, "not ready");
            }
        }
        *logged = Some(failing);
    }
}

impl Default for Health {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Health {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let checks = self.inner.checks.lock();
        f.debug_list()
            .entries(checks.iter().map(|check| &check.name))
            .finish()
    }
}

impl HealthCell {
    pub fn set_ok(&self) {
        self.set(Status::Ok);
    }

    /// Sets [`Status::WarmingUp`].
    pub fn set_warming_up(&self, waiting_for: impl Into<Cow<'static, str>>) {
        self.set(Status::WarmingUp(waiting_for.into()));
    }

    /// Sets [`Status::Failing`].
    pub fn set_failing(&self, reason: impl Into<Cow<'static, str>>) {
        self.set(Status::Failing(reason.into()));
    }

    /// Returns the current status.
    pub fn status(&self) -> Status {
        self.status.lock().clone()
    }

    fn set(&self, status: Status) {
        *self.status.lock() = status;
    }
}

impl Status {
    /// Shorthand for [`Status::Warning`].
    pub fn warning(text: impl Into<Cow<'static, str>>) -> Self {
        Self::Warning(text.into())
    }

    /// Shorthand for [`Status::Failing`].
    pub fn failing(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Failing(reason.into())
    }

    /// Shorthand for [`Status::WarmingUp`].
    pub fn warming_up(waiting_for: impl Into<Cow<'static, str>>) -> Self {
        Self::WarmingUp(waiting_for.into())
    }
}

fn is_check_name(name: &str) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_some_and(|byte| is_name_letter(*byte));
    let bytes = name.as_bytes();
    bytes.len() <= Health::MAX_NAME
        && is_edge(bytes.first())
        && is_edge(bytes.last())
        && bytes
            .iter()
            .all(|byte| is_name_letter(*byte) || b"-_./".contains(byte))
}

const fn is_name_letter(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

#[cfg(test)]
mod tests;
