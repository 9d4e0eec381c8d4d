//! The state of a watch: whether it is connected and synced, and what it has counted.

use std::collections::BTreeMap;
use std::time::Duration;

use kubevitals_model::ResourceVersion;
use kubevitals_telemetry::{RequestFailure, Status};
use tokio::time::Instant;

use crate::error::DecodeError;

/// The state of a watch at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchState {
    /// Whether the first list is complete.
    pub synced: bool,
    /// The age of the current connection; `None` between connections.
    pub connected: Option<Duration>,
    /// The time since the server last sent an event, a bookmark or a page of a list.
    pub idle: Duration,
    /// The time since the last list was complete.
    pub since_sync: Option<Duration>,
    pub resource_version: Option<ResourceVersion>,
    /// The number of objects in the cache.
    pub objects: usize,
    /// The number of ended connections, by reason.
    pub restarts: BTreeMap<RestartReason, u64>,
    /// The reason and message of the last disconnect; `None` while connected.
    pub last_error: Option<(RestartReason, String)>,
    /// The number of connections in a row that failed.
    pub consecutive_failures: u32,
    /// The number of object events sent to subscribers.
    pub events: u64,
    /// The number of bytes received.
    pub bytes: u64,
    /// The number of events and objects that could not be decoded and were skipped.
    pub decode_errors: u64,
    pub last_decode_error: Option<String>,
    pub subscribers: usize,
    /// The number of subscribers whose queue was full and that have not resynced yet.
    pub lagging: usize,
    /// The number of times that the queue of a subscriber was full.
    pub lags: u64,
    /// The number of events queued for the slowest subscriber.
    pub queue_depth: usize,
    /// The time for which an event watcher was blocked on a full queue.
    pub blocked: Duration,
    /// The number of lists that an event watcher did not read to the end.
    pub truncated_lists: u64,
}

/// The reason why a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RestartReason {
    /// The server closed the watch, as it does every few minutes.
    Ended,
    /// The server could not be reached.
    Unreachable,
    /// The server did not respond in time.
    Timeout,
    /// The connection was lost in the middle of a response.
    ConnectionLost,
    /// No data arrived for so long that the connection must be dead.
    Idle,
    /// The resource version is too old (410): a relist follows.
    Expired,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    NotFound,
    /// 429.
    Throttled,
    /// 5xx.
    ServerError,
    /// Any other 4xx.
    Rejected,
    /// The response was not a list or a watch.
    InvalidResponse,
    /// The server does not support streaming lists: paged lists are used instead.
    NoStreamingLists,
}

/// The counters of a watch, which its engine updates.
#[derive(Debug)]
pub(crate) struct WatchStats {
    connected: Option<Instant>,
    last_received: Option<Instant>,
    synced: Option<Instant>,
    pub(crate) resource_version: Option<ResourceVersion>,
    restarts: BTreeMap<RestartReason, u64>,
    last_error: Option<(RestartReason, String)>,
    consecutive_failures: u32,
    events: u64,
    bytes: u64,
    decode_errors: u64,
    last_decode_error: Option<String>,
    lags: u64,
    blocked: Duration,
    truncated_lists: u64,
    started: Instant,
    healthy_after: Duration,
}

/// The part of [`WatchState`] that a sink contributes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SinkStats {
    pub(crate) objects: usize,
    pub(crate) subscribers: usize,
    pub(crate) lagging: usize,
    pub(crate) queue_depth: usize,
}

impl RestartReason {
    /// All reasons, for metrics that must exist before anything happened.
    pub const ALL: [Self; 14] = [
        Self::Ended,
        Self::Unreachable,
        Self::Timeout,
        Self::ConnectionLost,
        Self::Idle,
        Self::Expired,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::Throttled,
        Self::ServerError,
        Self::Rejected,
        Self::InvalidResponse,
        Self::NoStreamingLists,
    ];

    /// The label value in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Unreachable => "unreachable",
            Self::Timeout => "timeout",
            Self::ConnectionLost => "connection_lost",
            Self::Idle => "idle",
            Self::Expired => "expired",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Throttled => "throttled",
            Self::ServerError => "server_error",
            Self::Rejected => "rejected",
            Self::InvalidResponse => "invalid_response",
            Self::NoStreamingLists => "no_streaming_lists",
        }
    }

    /// Whether the server itself is away, or only this watch has failed.
    pub(crate) const fn failure(self) -> RequestFailure {
        match self {
            Self::Unreachable | Self::Timeout | Self::ConnectionLost | Self::Idle => {
                RequestFailure::Unavailable
            }
            _ => RequestFailure::Other,
        }
    }

    /// Whether it happens to every watch and is no failure.
    pub const fn is_expected(self) -> bool {
        matches!(self, Self::Ended | Self::Expired | Self::NoStreamingLists)
    }
}

impl WatchState {
    /// Returns the status for a readiness check: warming up until the first list is complete,
    /// failing once a lost connection is not back within `timeout`.
    ///
    /// An open connection is fresh however little happens: the watch closes one that is idle for
    /// too long.
    pub fn health(&self, timeout: Duration) -> Status {
        let error = match &self.last_error {
            Some((_, message)) => message.as_str(),
            None => "waiting for the first list",
        };
        if !self.synced {
            return Status::warming_up(error.to_owned());
        }
        if self.connected.is_some() || self.idle <= timeout {
            return Status::Ok;
        }
        let seconds = self.idle.as_secs();
        Status::failing(format!("no data for {seconds} s: {error}"))
    }
}

impl WatchStats {
    pub(crate) fn new(now: Instant, healthy_after: Duration) -> Self {
        Self {
            connected: None,
            last_received: None,
            synced: None,
            resource_version: None,
            restarts: BTreeMap::new(),
            last_error: None,
            consecutive_failures: 0,
            events: 0,
            bytes: 0,
            decode_errors: 0,
            last_decode_error: None,
            lags: 0,
            blocked: Duration::ZERO,
            truncated_lists: 0,
            started: now,
            healthy_after,
        }
    }

    pub(crate) fn connected(&mut self, now: Instant) {
        self.connected = Some(now);
        self.last_received = Some(now);
        // Not only with the first data: on a quiet watch that can take a minute.
        self.last_error = None;
    }

    pub(crate) fn received(&mut self, bytes: usize, now: Instant) {
        self.bytes += bytes as u64;
        self.last_received = Some(now);
        self.last_error = None;
    }

    pub(crate) fn synced(&mut self, now: Instant) {
        self.synced = Some(now);
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.synced.is_some()
    }

    pub(crate) fn disconnected(&mut self, reason: RestartReason, message: String, failures: u32) {
        self.connected = None;
        *self.restarts.entry(reason).or_default() += 1;
        self.last_error = Some((reason, message));
        self.consecutive_failures = failures;
    }

    pub(crate) fn sent(&mut self, events: usize) {
        self.events += events as u64;
    }

    pub(crate) fn blocked(&mut self, time: Duration) {
        self.blocked += time;
    }

    pub(crate) fn truncated(&mut self) {
        self.truncated_lists += 1;
    }

    pub(crate) fn lagged(&mut self) {
        self.lags += 1;
    }

    /// Counts a decode error and returns their number.
    pub(crate) fn decode_failed(&mut self, error: &DecodeError) -> u64 {
        self.decode_errors += 1;
        self.last_decode_error = Some(error.to_string());
        self.decode_errors
    }

    pub(crate) fn state(&self, now: Instant, sink: SinkStats) -> WatchState {
        let since = |at: Instant| now.saturating_duration_since(at);
        let connected = self.connected.map(since);
        let is_healthy = connected.is_some_and(|lasted| lasted >= self.healthy_after);
        WatchState {
            synced: self.synced.is_some(),
            connected,
            idle: since(self.last_received.unwrap_or(self.started)),
            since_sync: self.synced.map(since),
            resource_version: self.resource_version.clone(),
            objects: sink.objects,
            restarts: self.restarts.clone(),
            last_error: self.last_error.clone(),
            consecutive_failures: if is_healthy {
                0
            } else {
                self.consecutive_failures
            },
            events: self.events,
            bytes: self.bytes,
            decode_errors: self.decode_errors,
            last_decode_error: self.last_decode_error.clone(),
            subscribers: sink.subscribers,
            lagging: sink.lagging,
            lags: self.lags,
            queue_depth: sink.queue_depth,
            blocked: self.blocked,
            truncated_lists: self.truncated_lists,
        }
    }
}
