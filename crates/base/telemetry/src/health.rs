//! Named health checks with reasons, liveness and readiness kept apart.
//!
//! A [`Health`] is handed to every part of the process that can be unwell. The part registers
//! either a [`HealthCell`], which it sets when its state changes, or a closure that is cheap to
//! call. The answers have the form of the Kubernetes API server's `/livez`, `/readyz` and
//! `/healthz`, with one difference: a failing check gives its reason instead of `reason withheld`.
//!
//! Two checks are always there, named as in Kubernetes: `ping` passes as long as the process
//! answers at all, and `shutdown` ends every readiness report and fails once the process drains.

mod report;

use std::{
    borrow::Cow,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

pub use self::report::{CheckOutcome, Report, Verdict};
use crate::TelemetryError;

const PING: &str = "ping";
const SHUTDOWN: &str = "shutdown";

/// A question that is asked about the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Probe {
    /// Must the process be restarted?
    Livez,
    /// May the process be sent requests?
    Readyz,
    /// The older form of [`Probe::Livez`], still found in manifests.
    Healthz,
}

/// The state of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// All is well.
    Ok,
    /// Not yet in service, and what is missing: "waiting for the first scrape".
    ///
    /// Fails readiness and passes liveness: a restart would only begin the wait again.
    WarmingUp(Cow<'static, str>),
    /// Something is wrong, and what.
    Failing(Cow<'static, str>),
}

/// The checks of one process. Clones share them.
#[derive(Clone)]
pub struct Health {
    inner: Arc<Inner>,
}

/// The state of one check, set by the part that the check is about. Clones share it.
#[derive(Clone, Debug)]
pub struct HealthCell {
    status: Arc<Mutex<Status>>,
}

struct Inner {
    checks: Mutex<Vec<Arc<Check>>>,
    shutting_down: AtomicBool,
    /// The failing checks that the last readiness line in the log told of.
    logged: Mutex<Option<Vec<String>>>,
}

struct Check {
    name: String,
    probes: Vec<Probe>,
    evaluate: Box<dyn Fn() -> Status + Send + Sync>,
}

impl Probe {
    /// For checks whose failure only a restart mends.
    pub const LIVENESS: &'static [Self] = &[Self::Livez, Self::Healthz];
    /// For checks whose failure means that requests must go elsewhere for now.
    pub const READINESS: &'static [Self] = &[Self::Readyz];
    /// For checks that matter to both.
    pub const ALL: &'static [Self] = &[Self::Livez, Self::Readyz, Self::Healthz];

    /// The name in paths and answers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Livez => "livez",
            Self::Readyz => "readyz",
            Self::Healthz => "healthz",
        }
    }
}

impl Health {
    /// The most checks one process can have.
    pub const MAX_CHECKS: usize = 64;
    /// The longest name of a check, in bytes.
    pub const MAX_NAME: usize = 64;

    /// Health with the checks `ping` and `shutdown` alone.
    pub fn new() -> Self {
        let ping = Check {
            name: PING.to_owned(),
            probes: Probe::ALL.to_vec(),
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

    /// Registers a check that is set from outside and begins as `initial`.
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

    /// Registers a check that is evaluated at every probe, so it must neither block nor be slow.
    pub fn check(
        &self,
        name: &str,
        probes: &[Probe],
        evaluate: impl Fn() -> Status + Send + Sync + 'static,
    ) -> Result<(), TelemetryError> {
        if !is_check_name(name) {
            return Err(TelemetryError::BadCheckName(name.to_owned()));
        }
        let mut checks = lock(&self.inner.checks);
        if name == SHUTDOWN || checks.iter().any(|check| check.name == name) {
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
            evaluate: Box::new(evaluate),
        }));
        Ok(())
    }

    /// Makes readiness fail for good, so that traffic goes elsewhere before the process ends.
    pub fn start_shutdown(&self) {
        if !self.inner.shutting_down.swap(true, Ordering::SeqCst) {
            self.report(Probe::Readyz, &[]);
        }
    }

    /// Evaluates all checks of a probe but those `excluded` by name, in the order of registration.
    ///
    /// The log gets one line whenever a full readiness report differs in its failing checks from
    /// the one before, not one per probe.
    pub fn report(&self, probe: Probe, excluded: &[String]) -> Report {
        let mut outcomes: Vec<CheckOutcome> = self
            .checks_of(probe)
            .iter()
            .map(|check| CheckOutcome {
                name: check.name.clone(),
                verdict: if excluded.contains(&check.name) {
                    Verdict::Excluded
                } else {
                    Verdict::from_status((check.evaluate)(), probe)
                },
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
        let checks = lock(&self.inner.checks);
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
        let mut logged = lock(&self.inner.logged);
        if logged.as_ref() == Some(&failing) {
            return;
        }
        if failing.is_empty() {
            tracing::info!("ready");
        } else {
            let reasons = report.reasons();
            // Neither a start nor an end is a reason to look.
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
        let checks = lock(&self.inner.checks);
        f.debug_list()
            .entries(checks.iter().map(|check| &check.name))
            .finish()
    }
}

impl HealthCell {
    /// All is well.
    pub fn set_ok(&self) {
        self.set(Status::Ok);
    }

    /// Not yet in service; `waits_for` says what is missing.
    pub fn set_warming_up(&self, waits_for: impl Into<Cow<'static, str>>) {
        self.set(Status::WarmingUp(waits_for.into()));
    }

    /// Something is wrong; `reason` says what.
    pub fn set_failing(&self, reason: impl Into<Cow<'static, str>>) {
        self.set(Status::Failing(reason.into()));
    }

    /// The state last set.
    pub fn status(&self) -> Status {
        lock(&self.status).clone()
    }

    fn set(&self, status: Status) {
        *lock(&self.status) = status;
    }
}

impl Status {
    /// Shorthand for [`Status::Failing`].
    pub fn failing(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Failing(reason.into())
    }

    /// Shorthand for [`Status::WarmingUp`].
    pub fn warming_up(waits_for: impl Into<Cow<'static, str>>) -> Self {
        Self::WarmingUp(waits_for.into())
    }
}

/// A poisoned lock is taken as it is: what it guards is replaced whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
