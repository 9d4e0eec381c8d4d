//! What goes on in a connection, for its watchdog.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::connection::Terms;

/// What goes on in one connection. Requests of HTTP/2 run in tasks of their own, so that all of it is atomic; none of it
/// must be exact to the moment.
pub(crate) struct Activity {
    since: Instant,
    answers: AtomicUsize,
    watches: AtomicUsize,
    /// When something last went on, in milliseconds.
    progress: AtomicU64,
    /// When the head of a request began to arrive, in milliseconds and one; zero if none does.
    head: AtomicU64,
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
    pub(super) fn new() -> Self {
        Self {
            since: Instant::now(),
            answers: AtomicUsize::new(0),
            watches: AtomicUsize::new(0),
            progress: AtomicU64::new(0),
            head: AtomicU64::new(1),
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
        self.progress();
    }

    /// Something goes on.
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
        if self.head.load(Ordering::Relaxed) == 0 && self.is_idle() {
            self.head.store(self.now() + 1, Ordering::Relaxed);
        }
    }

    /// A head is complete.
    pub(super) fn head_read(&self) {
        self.head.store(0, Ordering::Relaxed);
        self.progress();
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
                self.progress.load(Ordering::Relaxed),
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
