//! Periodic refresh of certificates and bundles, with a log message for each change.

use std::future::{self, Future};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use tokio::time::{Interval, MissedTickBehavior};
use tracing::{error, info, warn};

use crate::TlsError;
use crate::x509::rfc3339;

/// Certificates, keys or bundles that are refreshed periodically.
pub trait Refresh: Send + Sync {
    /// Returns the name for logs and metric labels.
    fn name(&self) -> &'static str;

    /// Reloads or renews what has changed or is due. It reads files, so that async code should
    /// leave it to [`refresh_loop`].
    ///
    /// On an error the previous contents stay in use.
    fn refresh(&self, now: SystemTime) -> Result<Refreshed, TlsError>;

    /// Returns the status. Never blocks.
    fn status(&self) -> Arc<RefreshStatus>;
}

/// The outcome of a refresh.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refreshed {
    /// Nothing had changed or was due.
    Unchanged,
    /// New connections use new contents.
    Replaced,
}

/// The status of a refreshed object, for metrics and readiness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefreshStatus {
    /// The time at which the current contents were loaded or generated.
    pub loaded_at: SystemTime,
    /// The expiry of the current certificate; `None` for CA bundles.
    pub not_after: Option<SystemTime>,
    /// The error of the last refresh, if it failed.
    pub last_error: Option<Arc<str>>,
    /// The time of the first failure since the last success.
    pub failing_since: Option<SystemTime>,
    /// Number of replacements since the start.
    pub replaced: u64,
    /// Number of failed refreshes since the start.
    pub failed: u64,
}

/// The ticks of a [`refresh_loop`], with their times.
pub trait Ticks: Send {
    /// Waits for the next tick; `None` ends the loop. Called again once all work of the previous
    /// tick is done.
    fn next(&mut self) -> impl Future<Output = Option<SystemTime>> + Send;
}

/// Ticks of the system clock until a shutdown signal.
pub struct Periodic {
    interval: Interval,
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// A change of the status that is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatusChange {
    Replaced,
    Recovered,
    Failing,
}

/// Refreshes all `subjects` until `ticks` ends.
///
/// Each tick refreshes them one after the other, on blocking threads. Replacements and the begin,
/// change and end of failures are logged, not each tick. A file system that hangs blocks the loop,
/// but nothing else. The future can be dropped at any time.
pub async fn refresh_loop(subjects: Vec<Arc<dyn Refresh>>, mut ticks: impl Ticks) {
    while let Some(now) = ticks.next().await {
        for subject in &subjects {
            let before = subject.status();
            let worker = Arc::clone(subject);
            let work = tokio::task::spawn_blocking(move || worker.refresh(now));
            let result = match work.await {
                Ok(result) => result,
                Err(panic) if panic.is_panic() => {
                    error!(name = subject.name(), %panic, "refresh of TLS material panicked");
                    continue;
                }
                // The runtime is shutting down.
                Err(_) => return,
            };
            let after = subject.status();
            if let Some(change) = status_change(&before, &after, &result) {
                log_change(subject.name(), change, &after);
            }
        }
    }
}

impl RefreshStatus {
    pub(crate) fn first(now: SystemTime, not_after: Option<SystemTime>) -> Self {
        Self {
            loaded_at: now,
            not_after,
            last_error: None,
            failing_since: None,
            replaced: 0,
            failed: 0,
        }
    }

    pub(crate) fn after_replacement(&self, now: SystemTime, not_after: Option<SystemTime>) -> Self {
        Self {
            replaced: self.replaced.saturating_add(1),
            failed: self.failed,
            ..Self::first(now, not_after)
        }
    }

    pub(crate) fn after_success(&self) -> Self {
        Self {
            last_error: None,
            failing_since: None,
            ..self.clone()
        }
    }

    pub(crate) fn after_failure(&self, now: SystemTime, error: &TlsError) -> Self {
        let text = error.chain();
        Self {
            // Reuses the allocation of an equal text.
            last_error: match &self.last_error {
                Some(last) if **last == text => Some(Arc::clone(last)),
                _ => Some(text.into()),
            },
            failing_since: self.failing_since.or(Some(now)),
            failed: self.failed.saturating_add(1),
            ..self.clone()
        }
    }
}

impl Periodic {
    /// Ticks each `period` (at least a millisecond), the first time after one period, until `stop`
    /// completes. Must be called within a tokio runtime.
    pub fn new(period: Duration, stop: impl Future<Output = ()> + Send + 'static) -> Self {
        let period = period.max(Duration::from_millis(1));
        let mut interval = tokio::time::interval(period);
        interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        interval.reset();
        Self {
            interval,
            stop: Box::pin(stop),
        }
    }
}

impl Ticks for Periodic {
    async fn next(&mut self) -> Option<SystemTime> {
        future::poll_fn(|context| {
            if self.stop.as_mut().poll(context).is_ready() {
                return Poll::Ready(None);
            }
            self.interval
                .poll_tick(context)
                .map(|_| Some(SystemTime::now()))
        })
        .await
    }
}

/// Returns the change to log, if there is one.
fn status_change(
    before: &RefreshStatus,
    after: &RefreshStatus,
    result: &Result<Refreshed, TlsError>,
) -> Option<StatusChange> {
    match result {
        Ok(Refreshed::Replaced) => Some(StatusChange::Replaced),
        Ok(Refreshed::Unchanged) if before.last_error.is_some() => Some(StatusChange::Recovered),
        Err(_) if before.last_error != after.last_error => Some(StatusChange::Failing),
        Ok(Refreshed::Unchanged) | Err(_) => None,
    }
}

fn log_change(name: &'static str, change: StatusChange, after: &RefreshStatus) {
    let not_after = after.not_after.map(rfc3339);
    match change {
        StatusChange::Replaced => info!(name, not_after, "replaced TLS material"),
        StatusChange::Recovered => info!(name, not_after, "refreshes of TLS material recovered"),
        StatusChange::Failing => {
            let error = after.last_error.as_deref();
            warn!(
                name,
                not_after, error, "failed to refresh TLS material, keeping the previous one"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn only_changes_are_logged() {
        let now = UNIX_EPOCH;
        let fine = RefreshStatus::first(now, None);
        let missing = || TlsError::NoTrustSources;
        let failing = fine.after_failure(now, &missing());
        let other = TlsError::NoSubjectNames;
        let failing_otherwise = failing.after_failure(now, &other);
        let still_failing = failing.after_failure(now, &missing());
        assert_eq!(still_failing.failed, 2);

        let unchanged = || Ok(Refreshed::Unchanged);
        assert_eq!(status_change(&fine, &fine, &unchanged()), None);
        assert_eq!(
            status_change(&fine, &failing, &Err(missing())),
            Some(StatusChange::Failing)
        );
        assert_eq!(
            status_change(&failing, &still_failing, &Err(missing())),
            None
        );
        assert_eq!(
            status_change(&failing, &failing_otherwise, &Err(other)),
            Some(StatusChange::Failing)
        );
        let recovered = failing.after_success();
        assert_eq!(
            status_change(&failing, &recovered, &unchanged()),
            Some(StatusChange::Recovered)
        );
        let replaced = failing.after_replacement(now, None);
        assert_eq!(
            status_change(&failing, &replaced, &Ok(Refreshed::Replaced)),
            Some(StatusChange::Replaced)
        );
        assert_eq!(
            (replaced.replaced, replaced.failed, replaced.last_error),
            (1, 1, None)
        );
    }
}
