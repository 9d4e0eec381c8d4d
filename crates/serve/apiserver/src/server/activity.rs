//! What goes on in a connection, for its watchdog.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::connection::Terms;

/// What goes on in one connection. Requests of HTTP/2 run in tasks of their own, so that all of it
/// is atomic; none of it must be exact to the moment.
pub(crate) struct Activity {
    since: Instant,
    answers: AtomicUsize,
    watches: AtomicUsize,
    /// When part of an answer last went out, in milliseconds.
    progress: AtomicU64,
    /// When the last answer ended, in milliseconds.
    rested: AtomicU64,
    /// When the head of a request began to arrive, in milliseconds and one; zero if none does.
    head: AtomicU64,
    /// Whether bytes are heads: those of HTTP/2 may be anything, and it bounds its heads itself.
    is_http2: bool,
    close: Notify,
}

/// Why a connection must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Overdue {
    Head,
    Idle,
    Stuck,
}

impl Activity {
    pub(super) fn new(is_http2: bool) -> Self {
        Self {
            since: Instant::now(),
            answers: AtomicUsize::new(0),
            watches: AtomicUsize::new(0),
            progress: AtomicU64::new(0),
            rested: AtomicU64::new(0),
            // The first head is awaited from the start.
            head: AtomicU64::new(1),
            is_http2,
            close: Notify::new(),
        }
    }

    /// An answer begins.
    pub(crate) fn begin(&self, is_watch: bool) {
        self.counter(is_watch).fetch_add(1, Ordering::Relaxed);
        self.progress();
    }

    /// An answer has ended.
    pub(crate) fn end(&self, is_watch: bool) {
        self.counter(is_watch).fetch_sub(1, Ordering::Relaxed);
        self.rested.store(self.now(), Ordering::Relaxed);
    }

    /// Part of an answer has gone out.
    pub(crate) fn progress(&self) {
        self.progress.store(self.now(), Ordering::Relaxed);
    }

    /// The connection shall end after what it is doing.
    pub(crate) fn close(&self) {
        self.close.notify_one();
    }

    pub(super) async fn closed(&self) {
        self.close.notified().await;
    }

    /// Bytes have come.
    pub(super) fn received(&self) {
        if !self.is_http2 && self.head.load(Ordering::Relaxed) == 0 && self.is_idle() {
            self.head.store(self.now() + 1, Ordering::Relaxed);
        }
    }

    /// A head is complete.
    pub(super) fn head_read(&self) {
        self.head.store(0, Ordering::Relaxed);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.answers.load(Ordering::Relaxed) == 0 && self.watches.load(Ordering::Relaxed) == 0
    }

    /// When to look again, or why not to.
    pub(super) fn check(&self, terms: &Terms) -> Result<Instant, Overdue> {
        let head = self.head.load(Ordering::Relaxed);
        let (from, allowed, overdue) = if head > 0 && self.is_idle() {
            (head - 1, terms.header_timeout, Overdue::Head)
        } else if self.is_idle() {
            (
                self.rested.load(Ordering::Relaxed),
                terms.idle_timeout,
                Overdue::Idle,
            )
        } else if self.watches.load(Ordering::Relaxed) == 0 {
            // Answers that nobody takes. A quiet watch is no sign of anything.
            let allowed = terms.request_timeout + terms.idle_timeout;
            (
                self.progress.load(Ordering::Relaxed),
                allowed,
                Overdue::Stuck,
            )
        } else {
            return Ok(Instant::now() + terms.idle_timeout);
        };
        let end = self.since + Duration::from_millis(from) + allowed;
        if end <= Instant::now() {
            Err(overdue)
        } else {
            Ok(end)
        }
    }

    fn counter(&self, is_watch: bool) -> &AtomicUsize {
        if is_watch {
            &self.watches
        } else {
            &self.answers
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Limits;

    async fn later(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn heads_are_timed_from_their_first_byte() {
        let terms = Terms::new(&Limits::default());
        let activity = Activity::new(false);
        later(10).await;
        assert_eq!(
            activity.check(&terms),
            Err(Overdue::Head),
            "who connects must ask"
        );
        activity.head_read();
        activity.begin(false);
        activity.end(false);
        later(80).await;
        assert!(activity.check(&terms).is_ok(), "rests");
        activity.received();
        later(5).await;
        activity.received();
        later(5).await;
        assert_eq!(
            activity.check(&terms),
            Err(Overdue::Head),
            "a byte now and then is no progress"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn pings_are_neither_heads_nor_progress() {
        let terms = Terms::new(&Limits::default());
        let activity = Activity::new(true);
        activity.head_read();
        activity.begin(false);
        activity.end(false);
        for _ in 0..8 {
            later(11).await;
            activity.received();
            assert!(activity.check(&terms).is_ok());
        }
        later(2).await;
        assert_eq!(activity.check(&terms), Err(Overdue::Idle));
    }

    #[tokio::test(start_paused = true)]
    async fn answers_that_nobody_takes_end_the_connection_and_quiet_watches_do_not() {
        let terms = Terms::new(&Limits::default());
        let activity = Activity::new(true);
        activity.head_read();
        activity.begin(false);
        later(149).await;
        assert!(activity.check(&terms).is_ok());
        activity.progress();
        later(149).await;
        assert!(activity.check(&terms).is_ok());
        later(1).await;
        assert_eq!(activity.check(&terms), Err(Overdue::Stuck));
        activity.end(false);
        activity.begin(true);
        later(7200).await;
        assert!(activity.check(&terms).is_ok());
    }
}
