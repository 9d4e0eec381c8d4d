//! The state of a connection, for its watchdog and for the connection table.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::task::Waker;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::exchange::{Exchange, Verdict};
use crate::limits::Limits;
use crate::source::Source;
use crate::upgrade::Upgrade;

/// Time that an idle connection has to end by itself after it was asked to close.
pub(crate) const CLOSE_GRACE: Duration = Duration::from_secs(1);

/// No check is due.
const NEVER: u64 = u64::MAX;

/// The state of one connection. Requests of HTTP/2 run in tasks of their own, so every field is
/// atomic; none must be exact to the moment. Times are in milliseconds since `since`.
#[derive(Debug)]
pub struct ConnState {
    source: Source,
    since: Instant,
    stall_timeout: Duration,
    /// The exchanges that are not over, and some that are.
    exchanges: Mutex<Vec<Weak<Exchange>>>,
    /// The number of exchanges that are not over.
    active: AtomicUsize,
    /// When an exchange must be checked.
    next_check: AtomicU64,
    /// When the last exchange ended.
    idle_at: AtomicU64,
    /// When the head of a request began to arrive, plus one; zero between heads.
    head_at: AtomicU64,
    /// The number of heads that were received.
    heads: AtomicU64,
    /// When the connection was asked to close, plus one; zero before.
    closing_at: AtomicU64,
    /// Bytes of HTTP/2 may be any frame, and hyper limits its heads.
    is_http2: AtomicBool,
    is_established: AtomicBool,
    /// Whether a response was written.
    has_completed: AtomicBool,
    is_authenticated: AtomicBool,
    close: watch::Sender<bool>,
    /// What became of the stream after the last response, if that was an upgrade.
    upgrade: Upgrade,
    /// The task of the connection, which checks when it is due.
    watchdog: Mutex<Option<Waker>>,
    /// Counts aborted responses.
    aborted: Counter,
}

/// What the connection table may do with a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has not sent a request yet: a client that is silent, slow or just connecting.
    Silent,
    /// Its first request is in flight, and not authenticated.
    Unproven,
    /// No request is in flight, since this time.
    Idle {
        since: Instant,
        authenticated: bool,
    },
    Busy,
    Closing,
}

/// The timeout that a connection exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expired {
    Head,
    Idle,
    Closing,
    /// A response was not written in time.
    Response,
}

impl ConnState {
    pub(crate) fn new(source: Source, limits: &Limits, aborted: Counter) -> Arc<Self> {
        Arc::new(Self {
            source,
            since: Instant::now(),
            stall_timeout: limits.stall_timeout,
            exchanges: Mutex::default(),
            active: AtomicUsize::new(0),
            next_check: AtomicU64::new(NEVER),
            idle_at: AtomicU64::new(0),
            head_at: AtomicU64::new(0),
            heads: AtomicU64::new(0),
            closing_at: AtomicU64::new(0),
            is_http2: AtomicBool::new(false),
            is_established: AtomicBool::new(false),
            has_completed: AtomicBool::new(false),
            is_authenticated: AtomicBool::new(false),
            close: watch::Sender::new(false),
            upgrade: Upgrade::default(),
            watchdog: Mutex::default(),
            aborted,
        })
    }

    pub(crate) const fn source(&self) -> Source {
        self.source
    }

    /// When the connection was accepted.
    pub(crate) const fn since(&self) -> Instant {
        self.since
    }

    /// Records that a request was authenticated: when connections run out, those of anonymous
    /// clients are closed first.
    pub fn authenticated(&self) {
        self.is_authenticated.store(true, Ordering::Relaxed);
    }

    /// Closes the connection after the responses in flight.
    pub fn close(&self) {
        let now = self.now() + 1;
        let _first = self
            .closing_at
            .compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        self.close.send_replace(true);
    }

    /// Waits until the connection is asked to close.
    pub(crate) async fn closed(&self) {
        let mut close = self.close.subscribe();
        // The sender is in `self`: it is not dropped meanwhile.
        let _closed = close.wait_for(|close| *close).await;
    }

    /// What became of the stream after an upgrade.
    pub(crate) const fn upgrade(&self) -> &Upgrade {
        &self.upgrade
    }

    pub(crate) fn standing(&self) -> Standing {
        let authenticated = self.is_authenticated.load(Ordering::Relaxed);
        if self.closing_at.load(Ordering::Relaxed) > 0 {
            Standing::Closing
        } else if self.upgrade.has_begun() {
            // Who upgraded it decides how long it lasts.
            Standing::Busy
        } else if !authenticated && !self.has_completed.load(Ordering::Relaxed) {
            if self.active.load(Ordering::Relaxed) == 0 {
                Standing::Silent
            } else {
                Standing::Unproven
            }
        } else if self.is_idle() {
            Standing::Idle {
                since: self.at(self.idle_at.load(Ordering::Relaxed)),
                authenticated,
            }
        } else {
            Standing::Busy
        }
    }

    /// Records the end of the handshake; from here on the first head is awaited.
    pub(crate) fn established(&self, is_http2: bool) {
        self.is_http2.store(is_http2, Ordering::Relaxed);
        self.is_established.store(true, Ordering::Relaxed);
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

    /// Returns the number of the head that is being received, if there is one.
    pub(crate) fn current_head(&self) -> Option<u64> {
        let is_receiving = self.head_at.load(Ordering::Relaxed) > 0;
        is_receiving.then(|| self.heads.load(Ordering::Relaxed))
    }

    /// Records the end of a head, with which an exchange begins.
    pub(crate) fn exchange_began(&self, exchange: &Arc<Exchange>) {
        self.head_at.store(0, Ordering::Relaxed);
        self.heads.fetch_add(1, Ordering::Relaxed);
        let active = self.active.fetch_add(1, Ordering::Relaxed) + 1;
        let mut exchanges = self.exchanges.lock();
        if exchanges.len() >= 2 * active + 16 {
            exchanges.retain(|exchange| exchange.strong_count() > 0);
        }
        exchanges.push(Arc::downgrade(exchange));
    }

    pub(crate) fn exchange_ended(&self, has_responded: bool) {
        if has_responded {
            self.has_completed.store(true, Ordering::Relaxed);
        }
        self.idle_at.store(self.now(), Ordering::Relaxed);
        self.active.fetch_sub(1, Ordering::Relaxed);
    }

    /// Requests a check at this time.
    pub(crate) fn check_at(&self, time: Instant) {
        let millis = self.millis(time);
        if self.next_check.fetch_min(millis, Ordering::Relaxed) > millis
            && let Some(watchdog) = &*self.watchdog.lock()
        {
            watchdog.wake_by_ref();
        }
    }

    /// Sets the task that is woken when a check becomes due earlier.
    pub(crate) fn set_watchdog(&self, waker: &Waker) {
        let mut watchdog = self.watchdog.lock();
        if !watchdog.as_ref().is_some_and(|own| own.will_wake(waker)) {
            *watchdog = Some(waker.clone());
        }
    }

    /// Requests a check of bytes that were produced at this time.
    pub(crate) fn stall_check_at(&self, produced: Instant) {
        self.check_at(produced + self.stall_timeout);
    }

    /// Whether no request is in flight. A connection in its handshake is not idle.
    pub(crate) fn is_idle(&self) -> bool {
        self.is_established.load(Ordering::Relaxed) && self.active.load(Ordering::Relaxed) == 0
    }

    /// Returns the time of the next check, or the timeout that is exceeded. Responses that exceed
    /// theirs are aborted, if they do not need the connection to be closed.
    pub(crate) fn check(&self, limits: &Limits) -> Result<Instant, Expired> {
        if !self.is_idle() {
            return self.check_exchanges(limits);
        }
        let (head_at, closing_at) = (
            self.head_at.load(Ordering::Relaxed),
            self.closing_at.load(Ordering::Relaxed),
        );
        let idle_at = self.idle_at.load(Ordering::Relaxed);
        let (from, timeout, expired) = if closing_at > 0 {
            (idle_at.max(closing_at - 1), CLOSE_GRACE, Expired::Closing)
        } else if head_at > 0 {
            (head_at - 1, limits.header_timeout, Expired::Head)
        } else {
            (idle_at, limits.idle_timeout, Expired::Idle)
        };
        let end = self.at(from) + timeout;
        if end <= Instant::now() {
            Err(expired)
        } else {
            Ok(end)
        }
    }

    fn check_exchanges(&self, limits: &Limits) -> Result<Instant, Expired> {
        let now = Instant::now();
        // A late check costs nothing: one is requested when it is due earlier.
        let latest = now + limits.idle_timeout;
        let due = |this: &Self| match this.next_check.load(Ordering::Relaxed) {
            NEVER => latest,
            millis => this.at(millis),
        };
        if due(self) > now {
            return Ok(due(self));
        }
        self.next_check.store(NEVER, Ordering::Relaxed);
        let exchanges: Vec<_> = {
            let mut exchanges = self.exchanges.lock();
            exchanges.retain(|exchange| exchange.strong_count() > 0);
            exchanges.iter().filter_map(Weak::upgrade).collect()
        };
        for exchange in exchanges {
            let next = match exchange.check(now, limits) {
                Verdict::Ok(next) => next,
                Verdict::Aborted(next) => {
                    self.aborted.inc();
                    next
                }
                Verdict::Close { was_aborted } => {
                    self.aborted.inc_by(u64::from(!was_aborted));
                    return Err(Expired::Response);
                }
            };
            let next = self.millis(next);
            self.next_check.fetch_min(next, Ordering::Relaxed);
        }
        Ok(due(self))
    }

    /// Converts a time, rounded up, so that the time has come at a check.
    fn millis(&self, time: Instant) -> u64 {
        let millis = time.saturating_duration_since(self.since).as_millis() + 1;
        u64::try_from(millis).unwrap_or(NEVER)
    }

    fn at(&self, millis: u64) -> Instant {
        self.since + Duration::from_millis(millis)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(NEVER - 1)
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
        let source = Source::from(IpAddr::from([10, 0, 0, 1]));
        let state = ConnState::new(source, &Limits::default(), Counter::default());
        state.established(is_http2);
        state
    }

    fn complete(state: &Arc<ConnState>) {
        let exchange = Exchange::begin(state, &Limits::default());
        exchange.responded(None);
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
        complete(&state);
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
    async fn pings_are_not_heads() {
        let limits = Limits::default();
        let state = established(true);
        complete(&state);
        for _ in 0..8 {
            advance(11).await;
            state.received();
            assert!(state.check(&limits).is_ok());
        }
        advance(2).await;
        assert_eq!(state.check(&limits), Err(Expired::Idle));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_proven_by_a_response_or_by_authentication() {
        let source = Source::from(IpAddr::from([10, 0, 0, 1]));
        let state = ConnState::new(source, &Limits::default(), Counter::default());
        assert_eq!(state.standing(), Standing::Silent, "in its handshake");
        state.established(false);
        assert_eq!(state.standing(), Standing::Silent, "without a request");
        let exchange = Exchange::begin(&state, &Limits::default());
        assert_eq!(state.standing(), Standing::Unproven, "without a response");
        state.authenticated();
        assert_eq!(state.standing(), Standing::Busy);
        drop(exchange);
        let since = state.since();
        let authenticated = true;
        assert_eq!(
            state.standing(),
            Standing::Idle {
                since,
                authenticated
            }
        );
        state.close();
        assert_eq!(state.standing(), Standing::Closing);
        let anonymous = established(true);
        complete(&anonymous);
        assert!(matches!(
            anonymous.standing(),
            Standing::Idle {
                authenticated: false,
                ..
            }
        ));
    }

    /// hyper closes a connection gracefully only while nothing of a request was received.
    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_that_does_not_close_by_itself_expires() {
        let limits = Limits::default();
        let state = established(false);
        state.close();
        assert!(state.check(&limits).is_ok());
        tokio::time::advance(CLOSE_GRACE).await;
        assert_eq!(state.check(&limits), Err(Expired::Closing));
    }

    #[tokio::test(start_paused = true)]
    async fn exchanges_that_are_over_are_forgotten() {
        let state = established(true);
        let _open = Exchange::begin(&state, &Limits::default());
        for _ in 0..1000 {
            complete(&state);
        }
        assert!(state.exchanges.lock().len() < 32);
    }
}
