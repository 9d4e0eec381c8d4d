//! Reading files again, renewing what is due, and saying so once.
//!
//! Files are compared by content. Secret and `ConfigMap` volumes swap a symbolic link to a directory,
//! so that neither modification times nor file notifications tell the truth.

use std::future::{self, Future};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use tokio::time::{Interval, MissedTickBehavior};
use tracing::{error, info, warn};

use crate::TlsError;
use crate::pem::PemSource;
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

/// Contents parsed from sources, replaced as a whole when the sources change.
pub(crate) struct Reloadable<T> {
    what: &'static str,
    sources: Vec<PemSource>,
    parse: fn(&[Contents]) -> Result<Parsed<T>, TlsError>,
    /// Keyed at random, so that no contents can be made to look like others.
    hasher: RandomState,
    current: ArcSwap<T>,
    status: ArcSwap<RefreshStatus>,
    /// The fingerprint of the contents in use. Held for a whole refresh: one at a time.
    loaded: Mutex<u64>,
}

/// One source's text.
pub(crate) struct Contents {
    pub(crate) origin: String,
    pub(crate) pem: Vec<u8>,
}

/// What a parser made of the sources.
pub(crate) struct Parsed<T> {
    pub(crate) value: T,
    pub(crate) not_after: Option<SystemTime>,
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

impl<T> Reloadable<T> {
    /// Loads for the first time; there is nothing to fall back to yet, so any error is final.
    pub(crate) fn load(
        what: &'static str,
        sources: Vec<PemSource>,
        parse: fn(&[Contents]) -> Result<Parsed<T>, TlsError>,
        now: SystemTime,
    ) -> Result<Self, TlsError> {
        let hasher = RandomState::new();
        let (contents, fingerprint) = read_stable(&sources, &hasher, None)?;
        let Parsed { value, not_after } = parse(&contents)?;
        Ok(Self {
            what,
            sources,
            parse,
            hasher,
            current: ArcSwap::from_pointee(value),
            status: ArcSwap::from_pointee(RefreshStatus::first(now, not_after)),
            loaded: Mutex::new(fingerprint),
        })
    }

    pub(crate) fn current(&self) -> Arc<T> {
        self.current.load_full()
    }

    pub(crate) fn sources(&self) -> &[PemSource] {
        &self.sources
    }

    fn read_again(&self, loaded: u64) -> Result<Option<(Parsed<T>, u64)>, TlsError> {
        let (contents, fingerprint) = read_stable(&self.sources, &self.hasher, Some(loaded))?;
        if fingerprint == loaded {
            return Ok(None);
        }
        Ok(Some(((self.parse)(&contents)?, fingerprint)))
    }
}

impl<T: Send + Sync> Refresh for Reloadable<T> {
    fn what(&self) -> &'static str {
        self.what
    }

    fn refresh(&self, now: SystemTime) -> Result<Refreshed, TlsError> {
        // A panic of an earlier refresh cannot have left the fingerprint half written.
        let mut loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let status = self.status.load();
        match self.read_again(*loaded) {
            Ok(None) => {
                if status.last_error.is_some() {
                    self.status.store(Arc::new(status.after_success()));
                }
                Ok(Refreshed::Unchanged)
            }
            Ok(Some((Parsed { value, not_after }, fingerprint))) => {
                self.current.store(Arc::new(value));
                self.status
                    .store(Arc::new(status.after_replacement(now, not_after)));
                *loaded = fingerprint;
                Ok(Refreshed::Replaced)
            }
            Err(error) => {
                self.status
                    .store(Arc::new(status.after_failure(now, &error)));
                Err(error)
            }
        }
    }

    fn status(&self) -> Arc<RefreshStatus> {
        self.status.load_full()
    }
}

/// Reads all sources as of one moment: a volume may be swapped between two of its files, and
/// certificate and key must come from the same side of that.
fn read_stable(
    sources: &[PemSource],
    hasher: &RandomState,
    known: Option<u64>,
) -> Result<(Vec<Contents>, u64), TlsError> {
    const ATTEMPTS: usize = 4;
    let mut previous = known;
    for _ in 0..ATTEMPTS {
        let contents = read_all(sources)?;
        let fingerprint = fingerprint(&contents, hasher);
        if previous == Some(fingerprint) {
            return Ok((contents, fingerprint));
        }
        previous = Some(fingerprint);
    }
    let origin = sources
        .iter()
        .map(PemSource::origin)
        .collect::<Vec<_>>()
        .join(", ");
    Err(TlsError::Unstable { origin })
}

fn read_all(sources: &[PemSource]) -> Result<Vec<Contents>, TlsError> {
    let read = |source: &PemSource| {
        Ok(Contents {
            origin: source.origin(),
            pem: source.read()?,
        })
    };
    sources.iter().map(read).collect()
}

fn fingerprint(contents: &[Contents], hasher: &RandomState) -> u64 {
    let mut state = hasher.build_hasher();
    for Contents { pem, .. } in contents {
        state.write_usize(pem.len());
        state.write(pem);
    }
    state.finish()
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
