//! Hooks of requests and their attempts.

use std::time::Duration;

use super::{bundle::Noop, hook};
use crate::{Call, Code};

hook! {
    /// The duration of a logical request that is not a stream: from the call to the end of the
    /// body, with all attempts and waits.
    ///
    /// client-go: `RequestLatency`.
    RequestLatency::observe(call: &Call, latency: Duration)
}

hook! {
    /// The time spent waiting for a client-side rate limiter. client-go: `RateLimiterLatency`.
    RateLimiterLatency::observe(call: &Call, waited: Duration)
}

hook! {
    /// The size in bytes of each attempt's request body, if it is known. client-go:
    /// `RequestSize`.
    RequestSize::observe(call: &Call, bytes: u64)
}

hook! {
    /// The decompressed size in bytes of the body of a response that is not a stream. client-go:
    /// `ResponseSize`.
    ResponseSize::observe(call: &Call, bytes: u64)
}

hook! {
    /// The result of each attempt, including streams and upgrades. client-go: `RequestResult`.
    RequestResult::increment(call: &Call, code: Code)
}

hook! {
    /// Attempts after the first of a logical request. client-go: `RequestRetry`.
    RequestRetry::increment(call: &Call, code: Code)
}

hook! {
    /// The end of a logical request that is not a stream. client-go has no such hook.
    RequestEnd::observe(call: &Call, report: &RequestReport)
}

/// Watches, followed logs and upgraded connections. client-go has no such hook.
pub trait Streams: Send + Sync + 'static {
    /// The response head of a stream arrived.
    fn opened(&self, call: &Call, kind: StreamKind);

    /// A chunk of the body arrived, which completed this many lines: events of a watch, lines of a
    /// log.
    fn received(&self, call: &Call, kind: StreamKind, events: u64, bytes: u64);

    /// A stream ended. Not called for upgraded connections, which leave the client.
    fn ended(&self, call: &Call, report: &StreamReport);
}

impl Streams for Noop {
    fn opened(&self, _: &Call, _: StreamKind) {}
    fn received(&self, _: &Call, _: StreamKind, _: u64, _: u64) {}
    fn ended(&self, _: &Call, _: &StreamReport) {}
}

/// The result of a logical request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestReport {
    /// The status of the last attempt.
    pub code: Code,
    /// How it ended.
    pub outcome: Outcome,
    /// The number of attempts; zero if it was dropped before the first.
    pub attempts: u32,
    /// From the call to the end of the body.
    pub duration: Duration,
    /// The decompressed size of the response body in bytes.
    pub bytes: u64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The body was read to its end. The code has the server's status.
    Completed,
    /// There was no response, or its body failed.
    Failed,
    /// The caller dropped the future or the body.
    Cancelled,
}

/// The result of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamReport {
    /// The kind of the stream.
    pub kind: StreamKind,
    /// How it ended.
    pub end: StreamEnd,
    /// From the response head to the end.
    pub duration: Duration,
    /// The number of complete lines: events of a watch, lines of a log.
    pub events: u64,
    /// The decompressed size of the body in bytes.
    pub bytes: u64,
}

/// The kind of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// Events of a watch.
    Watch,
    /// Lines of a followed log.
    Log,
    /// Another protocol after `101 Switching Protocols`.
    Upgrade,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamEnd {
    /// The server ended it.
    Server,
    /// The connection failed.
    Error,
    /// The caller dropped it.
    Client,
}

impl Outcome {
    /// Returns the label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl StreamKind {
    /// Returns the label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::Log => "log",
            Self::Upgrade => "upgrade",
        }
    }
}

impl StreamEnd {
    /// Returns the label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Error => "error",
            Self::Client => "client",
        }
    }
}
