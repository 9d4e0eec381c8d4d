//! How fresh a stream is, as plain data.

use std::collections::BTreeMap;
use std::time::Duration;

use kubevitals_telemetry::Status;
use tokio::time::Instant;

use crate::error::DecodeError;
use kubevitals_model::ResourceVersion;

/// How a stream is at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamState {
    /// Whether a whole list was ever taken over, so that the view is worth looking at.
    pub synced: bool,
    /// For how long the current connection has been open; none between connections.
    pub connected: Option<Duration>,
    /// How long ago the server last sent what was asked for: an event, a bookmark, a page of a
    /// list.
    pub silent: Duration,
    /// How long ago the last whole list was taken over.
    pub since_sync: Option<Duration>,
    /// Up to where everything has been seen.
    pub resource_version: Option<ResourceVersion>,
    /// Objects in the view.
    pub objects: usize,
    /// How connections ended, and how often.
    pub restarts: BTreeMap<Restart, u64>,
    /// Why the stream is not connected: how the last connection ended, and in words. None while
    /// connected.
    pub trouble: Option<(Restart, String)>,
    /// Connections that ended one after another without one that worked.
    pub failures: u32,
    /// Changes of objects that were told to subscribers.
    pub changes: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Events and objects that could not be read, and were skipped.
    pub decode_errors: u64,
    /// The last of them.
    pub last_decode_error: Option<String>,
    /// Subscribers.
    pub subscribers: usize,
    /// Subscribers that are too slow and have not yet taken their snapshot.
    pub lagging: usize,
    /// How often a subscriber was too slow.
    pub lagged: u64,
    /// Changes that wait for the subscriber that is furthest behind.
    pub queued: usize,
    /// For how long in all a tail did not read on because nobody took what it had.
    pub waited: Duration,
    /// Lists of a tail that were left before their end.
    pub cut_lists: u64,
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Restart {
    /// The server ended it in good order, as it does every few minutes.
    Ended,
    /// The server could not be reached.
    Unreachable,
    /// The server did not answer in time.
    NoAnswer,
    /// The connection broke.
    Broken,
    /// Nothing came for so long that the connection must be dead.
    Silent,
    /// The server no longer has the states asked for (410): everything is listed again.
    Expired,
    /// The server does not know who asks (401).
    Unauthorized,
    /// The server does not allow it (403).
    Forbidden,
    /// The server has no such resource (404).
    NotFound,
    /// The server has too much to do (429).
    Throttled,
    /// The server failed (5xx).
    ServerError,
    /// The server refused it for another reason (4xx).
    Refused,
    /// What came was not what a watch or list consists of.
    Garbage,
    /// The server does not do streaming lists: paged lists are used instead.
    NoStreamingLists,
}

/// What the engine notes down.
#[derive(Debug)]
pub(crate) struct Record {
    connected: Option<Instant>,
    heard: Option<Instant>,
    synced: Option<Instant>,
    pub(crate) resource_version: Option<ResourceVersion>,
    restarts: BTreeMap<Restart, u64>,
    trouble: Option<(Restart, String)>,
    failures: u32,
    changes: u64,
    bytes: u64,
    decode_errors: u64,
    last_decode_error: Option<String>,
    lagged: u64,
    waited: Duration,
    cut_lists: u64,
    started: Instant,
    healthy_after: Duration,
}

/// What the sink of a stream knows of itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OfSink {
    pub(crate) objects: usize,
    pub(crate) subscribers: usize,
    pub(crate) lagging: usize,
    pub(crate) queued: usize,
}

impl Restart {
    /// All there are, for metrics that must exist before anything happened.
    pub const ALL: [Self; 14] = [
        Self::Ended,
        Self::Unreachable,
        Self::NoAnswer,
        Self::Broken,
        Self::Silent,
        Self::Expired,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::Throttled,
        Self::ServerError,
        Self::Refused,
        Self::Garbage,
        Self::NoStreamingLists,
    ];

    /// In metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ended => "ended",
            Self::Unreachable => "unreachable",
            Self::NoAnswer => "no_answer",
            Self::Broken => "broken",
            Self::Silent => "silent",
            Self::Expired => "expired",
            Self::Unauthorized => "unauthorized",
            Self::Forbidden => "forbidden",
            Self::NotFound => "not_found",
            Self::Throttled => "throttled",
            Self::ServerError => "server_error",
            Self::Refused => "refused",
            Self::Garbage => "garbage",
            Self::NoStreamingLists => "no_streaming_lists",
        }
    }

    /// Whether it belongs to the ordinary life of a stream.
    pub const fn is_ordinary(self) -> bool {
        matches!(self, Self::Ended | Self::Expired | Self::NoStreamingLists)
    }
}

impl StreamState {
    /// For a readiness check: whether the stream can be relied on, if a connection that is lost
    /// must be back within `patience`, and if not, why not.
    ///
    /// An open connection is fresh however little happens: one that is silent for too long is
    /// closed by the stream.
    pub fn health(&self, patience: Duration) -> Status {
        let trouble = match &self.trouble {
            Some((_, words)) => words.as_str(),
            None => "waiting for the first list",
        };
        if !self.synced {
            return Status::warming_up(trouble.to_owned());
        }
        if self.connected.is_some() || self.silent <= patience {
            return Status::Ok;
        }
        let seconds = self.silent.as_secs();
        Status::failing(format!("nothing heard for {seconds} s: {trouble}"))
    }
}

impl Record {
    pub(crate) fn new(now: Instant, healthy_after: Duration) -> Self {
        Self {
            connected: None,
            heard: None,
            synced: None,
            resource_version: None,
            restarts: BTreeMap::new(),
            trouble: None,
            failures: 0,
            changes: 0,
            bytes: 0,
            decode_errors: 0,
            last_decode_error: None,
            lagged: 0,
            waited: Duration::ZERO,
            cut_lists: 0,
            started: now,
            healthy_after,
        }
    }

    pub(crate) fn connected(&mut self, now: Instant) {
        self.connected = Some(now);
        self.heard = Some(now);
        // Not only once something comes: on a quiet stream that can take a minute.
        self.trouble = None;
    }

    pub(crate) fn received(&mut self, bytes: usize, now: Instant) {
        self.bytes += bytes as u64;
        self.heard = Some(now);
        self.trouble = None;
    }

    pub(crate) fn synced(&mut self, now: Instant) {
        self.synced = Some(now);
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.synced.is_some()
    }

    pub(crate) fn ended(&mut self, why: Restart, words: String, failures: u32) {
        self.connected = None;
        *self.restarts.entry(why).or_default() += 1;
        self.trouble = Some((why, words));
        self.failures = failures;
    }

    pub(crate) fn changed(&mut self) {
        self.changes += 1;
    }

    pub(crate) fn handed_over(&mut self, objects: usize) {
        self.changes += objects as u64;
    }

    pub(crate) fn waited(&mut self, time: Duration) {
        self.waited += time;
    }

    pub(crate) fn cut_short(&mut self) {
        self.cut_lists += 1;
    }

    pub(crate) fn lagged(&mut self) {
        self.lagged += 1;
    }

    /// Counts what could not be read; gives how many there are now.
    pub(crate) fn unreadable(&mut self, error: &DecodeError) -> u64 {
        self.decode_errors += 1;
        self.last_decode_error = Some(error.to_string());
        self.decode_errors
    }

    pub(crate) fn state(&self, now: Instant, of_sink: OfSink) -> StreamState {
        let since = |at: Instant| now.saturating_duration_since(at);
        let connected = self.connected.map(since);
        let is_healthy = connected.is_some_and(|lasted| lasted >= self.healthy_after);
        StreamState {
            synced: self.synced.is_some(),
            connected,
            silent: since(self.heard.unwrap_or(self.started)),
            since_sync: self.synced.map(since),
            resource_version: self.resource_version.clone(),
            objects: of_sink.objects,
            restarts: self.restarts.clone(),
            trouble: self.trouble.clone(),
            failures: if is_healthy { 0 } else { self.failures },
            changes: self.changes,
            bytes: self.bytes,
            decode_errors: self.decode_errors,
            last_decode_error: self.last_decode_error.clone(),
            subscribers: of_sink.subscribers,
            lagging: of_sink.lagging,
            lagged: self.lagged,
            queued: of_sink.queued,
            waited: self.waited,
            cut_lists: self.cut_lists,
        }
    }
}
