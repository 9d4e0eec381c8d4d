//! Looking again from time to time, and saying once what changed.

use std::future::{self, Future};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

use tokio::time::{Interval, MissedTickBehavior};
use tracing::{error, info, warn};

use crate::TlsError;
use crate::x509::rfc3339;

/// Something that must be looked at again from time to time.
pub trait Refresh: Send + Sync {
    /// What it is, for logs and metric labels.
    fn what(&self) -> &'static str;

    /// Looks for changes. It reads files, so that async code should leave it to [`refresh_loop`].
    ///
    /// On an error whatever was in use stays in use.
    fn refresh(&self, now: SystemTime) -> Result<Refreshed, TlsError>;

    /// How things stand. Never waits.
    fn status(&self) -> Arc<RefreshStatus>;
}

/// What a refresh did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refreshed {
    /// Nothing had changed or was due.
    Unchanged,
    /// New connections use something new.
    Replaced,
}

/// How things stand with something that is refreshed: plain data for metrics and readiness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefreshStatus {
    /// When the contents in use were loaded or made.
    pub loaded_at: SystemTime,
    /// When the certificate in use expires; `None` for CA bundles.
    pub not_after: Option<SystemTime>,
    /// What the last refresh complained about; `None` if it went well.
    pub last_error: Option<Arc<str>>,
    /// Since when refreshes have been failing.
    pub failing_since: Option<SystemTime>,
    /// How often contents were replaced since the start.
    pub replaced: u64,
    /// How often a refresh failed since the start.
    pub failed: u64,
}

/// When [`refresh_loop`] is to look, and what time it is then.
pub trait Ticks: Send {
    /// Waits for the next tick; `None` ends the loop. Called again once all work of the previous
    /// tick is done.
    fn next(&mut self) -> impl Future<Output = Option<SystemTime>> + Send;
}

/// Ticks of the system clock until told to stop.
pub struct Periodic {
    interval: Interval,
    stop: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// What is worth a line in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum News {
    Replaced,
    Recovered,
    Failing,
}

/// Keeps everything in `subjects` fresh until `ticks` ends.
///
/// Each tick looks at all of them in turn, off the async threads. It logs when
/// something was replaced, when a failure begins or changes, and when it ends; not at each tick.
/// A file system that hangs holds up the loop, but nothing else. Dropping the future is safe at any
/// time.
pub async fn refresh_loop(subjects: Vec<Arc<dyn Refresh>>, mut ticks: impl Ticks) {
    while let Some(now) = ticks.next().await {
        for subject in &subjects {
            let before = subject.status();
            let worker = Arc::clone(subject);
            let work = tokio::task::spawn_blocking(move || worker.refresh(now));
            let result = match work.await {
                Ok(result) => result,
                Err(panic) if panic.is_panic() => {
                    error!(what = subject.what(), %panic, "a refresh of TLS material panicked");
                    continue;
                }
                // The runtime is going down.
                Err(_) => return,
            };
            let after = subject.status();
            if let Some(news) = news(&before, &after, &result) {
                report(subject.what(), news, &after);
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
            // The same text again keeps its allocation.
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

/// Tells what is worth a line in the log: what changed, and not each time that it stays so.
fn news(
    before: &RefreshStatus,
    after: &RefreshStatus,
    result: &Result<Refreshed, TlsError>,
) -> Option<News> {
    match result {
        Ok(Refreshed::Replaced) => Some(News::Replaced),
        Ok(Refreshed::Unchanged) if before.last_error.is_some() => Some(News::Recovered),
        Err(_) if before.last_error != after.last_error => Some(News::Failing),
        Ok(Refreshed::Unchanged) | Err(_) => None,
    }
}

fn report(what: &'static str, news: News, after: &RefreshStatus) {
    let not_after = after.not_after.map(rfc3339);
    match news {
        News::Replaced => info!(what, not_after, "replaced TLS material"),
        News::Recovered => info!(what, not_after, "TLS material is readable again, unchanged"),
        News::Failing => {
            let error = after.last_error.as_deref();
            warn!(
                what,
                not_after, error, "cannot refresh TLS material, keeping what there is"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn only_changes_are_news() {
        let now = UNIX_EPOCH;
        let fine = RefreshStatus::first(now, None);
        let missing = || TlsError::NoTrustSources;
        let failing = fine.after_failure(now, &missing());
        let other = TlsError::NoSubjectNames;
        let failing_otherwise = failing.after_failure(now, &other);
        let still_failing = failing.after_failure(now, &missing());
        assert_eq!(still_failing.failed, 2);

        let unchanged = || Ok(Refreshed::Unchanged);
        assert_eq!(news(&fine, &fine, &unchanged()), None);
        assert_eq!(news(&fine, &failing, &Err(missing())), Some(News::Failing));
        assert_eq!(news(&failing, &still_failing, &Err(missing())), None);
        assert_eq!(
            news(&failing, &failing_otherwise, &Err(other)),
            Some(News::Failing)
        );
        let recovered = failing.after_success();
        assert_eq!(
            news(&failing, &recovered, &unchanged()),
            Some(News::Recovered)
        );
        let replaced = failing.after_replacement(now, None);
        assert_eq!(
            news(&failing, &replaced, &Ok(Refreshed::Replaced)),
            Some(News::Replaced)
        );
        assert_eq!(
            (replaced.replaced, replaced.failed, replaced.last_error),
            (1, 1, None)
        );
    }
}
