//! The state of a connection, for its watchdog and for the connection table.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::limits::Limits;
use crate::source::Source;

/// The state of one connection. Requests of HTTP/2 run in tasks of their own, so every field is
/// atomic; none must be exact to the moment.
#[derive(Debug)]
pub struct ConnState {
    source: Source,
    since: Instant,
    responses: AtomicUsize,
    watches: AtomicUsize,
    /// When part of a response was last produced or written, in milliseconds since `since`.
    progress_at: AtomicU64,
    /// When the last response ended, in milliseconds since `since`.
    idle_at: AtomicU64,
    /// When the head of a request began to arrive, in milliseconds since `since` plus one; zero
    /// between heads.
    head_at: AtomicU64,
    /// Bytes of HTTP/2 may be any frame, and hyper limits its heads.
    is_http2: AtomicBool,
    close: Notify,
}

/// Whether a response is expected to end by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseKind {
    /// Ends as soon as its body is written.
    Ordinary,
    /// Continues until its client or the server ends it, with pauses of any length.
    Watch,
}

/// Counts a request as in flight until it is dropped.
#[derive(Debug)]
pub struct InFlight {
    state: Arc<ConnState>,
    kind: ResponseKind,
}

/// The timeout that a connection exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expired {
    Head,
    Idle,
    Stalled,
}

impl ConnState {
    pub(crate) fn new(source: Source) -> Arc<Self> {
        Arc::new(Self {
            source,
            since: Instant::now(),
            responses: AtomicUsize::new(0),
            watches: AtomicUsize::new(0),
            progress_at: AtomicU64::new(0),
            idle_at: AtomicU64::new(0),
            head_at: AtomicU64::new(0),
            is_http2: AtomicBool::new(false),
            close: Notify::new(),
        })
    }

    pub(crate) const fn source(&self) -> Source {
        self.source
    }

    /// Counts a request as in flight.
    pub fn in_flight(self: &Arc<Self>, kind: ResponseKind) -> InFlight {
        self.counter(kind).fetch_add(1, Ordering::Relaxed);
        self.progress();
        InFlight {
            state: Arc::clone(self),
            kind,
        }
    }

    /// Records that part of a response was produced or written.
    pub fn progress(&self) {
        self.progress_at.store(self.now(), Ordering::Relaxed);
    }

    /// Closes the connection after the responses in flight.
    pub fn close(&self) {
        self.close.notify_one();
    }

    pub(crate) async fn closed(&self) {
        self.close.notified().await;
    }

    /// Records the end of the handshake; from here on the first head is awaited.
    pub(crate) fn established(&self, is_http2: bool) {
        self.is_http2.store(is_http2, Ordering::Relaxed);
        self.head_at.store(self.now() + 1, Ordering::Relaxed);
    }

    /// Records received bytes.
    pub(crate) fn received(&self) {
        if self.head_at.load(Ordering::Relaxed) == 0
            && !self.is_http2.load(Ordering::Relaxed)
            && self.is_idle()
        {
            self.head_at.store(self.now() + 1, Ordering::Relaxed);
        }
    }

    /// Records the end of a head.
    pub(crate) fn head_received(&self) {
        self.head_at.store(0, Ordering::Relaxed);
    }

    /// Whether no request is in flight. A connection in its handshake is not idle.
    pub(crate) fn is_idle(&self) -> bool {
        self.responses.load(Ordering::Relaxed) == 0 && self.watches.load(Ordering::Relaxed) == 0
    }

    /// Returns the time of the next check, or the timeout that is exceeded.
    pub(crate) fn check(&self, limits: &Limits) -> Result<Instant, Expired> {
        let head_at = self.head_at.load(Ordering::Relaxed);
        let (from, timeout, expired) = if head_at > 0 && self.is_idle() {
            (head_at - 1, limits.header_timeout, Expired::Head)
        } else if self.is_idle() {
            let idle_at = self.idle_at.load(Ordering::Relaxed);
            (idle_at, limits.idle_timeout, Expired::Idle)
        } else if self.watches.load(Ordering::Relaxed) == 0 {
            let progress_at = self.progress_at.load(Ordering::Relaxed);
            (progress_at, limits.stall_timeout, Expired::Stalled)
        } else {
            // A quiet watch is not stalled.
            return Ok(Instant::now() + limits.idle_timeout);
        };
        let end = self.since + Duration::from_millis(from) + timeout;
        if end <= Instant::now() {
            Err(expired)
        } else {
            Ok(end)
        }
    }

    const fn counter(&self, kind: ResponseKind) -> &AtomicUsize {
        match kind {
            ResponseKind::Ordinary => &self.responses,
            ResponseKind::Watch => &self.watches,
        }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let state = &self.state;
        state.counter(self.kind).fetch_sub(1, Ordering::Relaxed);
        state.idle_at.store(state.now(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;

    async fn advance(seconds: u64) {
        tokio::time::advance(Duration::from_secs(seconds)).await;
    }

    fn established(is_http2: bool) -> Arc<ConnState> {
        let state = ConnState::new(Source::from(IpAddr::from([10, 0, 0, 1])));
        state.established(is_http2);
        state
    }

    #[tokio::test(start_paused = true)]
    async fn heads_are_timed_from_their_first_byte() {
        let limits = Limits::default();
        let state = established(false);
        advance(10).await;
        assert_eq!(
            state.check(&limits),
            Err(Expired::Head),
            "a client that connects must send a request"
        );
        state.head_received();
        drop(state.in_flight(ResponseKind::Ordinary));
        advance(80).await;
        assert!(state.check(&limits).is_ok(), "idle");
        state.received();
        advance(5).await;
        state.received();
        advance(5).await;
        assert_eq!(
            state.check(&limits),
            Err(Expired::Head),
            "single bytes do not extend the timeout"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn pings_are_neither_heads_nor_progress() {
        let limits = Limits::default();
        let state = established(true);
        state.head_received();
        drop(state.in_flight(ResponseKind::Ordinary));
        for _ in 0..8 {
            advance(11).await;
            state.received();
            assert!(state.check(&limits).is_ok());
        }
        advance(2).await;
        assert_eq!(state.check(&limits), Err(Expired::Idle));
    }

    #[tokio::test(start_paused = true)]
    async fn stalled_responses_expire_and_quiet_watches_do_not() {
        let limits = Limits::default();
        let state = established(true);
        state.head_received();
        let response = state.in_flight(ResponseKind::Ordinary);
        advance(149).await;
        assert!(state.check(&limits).is_ok());
        state.progress();
        advance(149).await;
        assert!(state.check(&limits).is_ok());
        advance(1).await;
        assert_eq!(state.check(&limits), Err(Expired::Stalled));
        drop(response);
        let _watch = state.in_flight(ResponseKind::Watch);
        advance(7200).await;
        assert!(state.check(&limits).is_ok());
    }
}
