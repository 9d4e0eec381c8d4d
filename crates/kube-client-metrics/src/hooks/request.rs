//! Hooks of requests and their attempts.

use std::time::Duration;

use super::{bundle::Noop, hook};
use crate::{Call, Code};

hook! {
    /// The duration of a logical request that is not a stream: from the call to the end of the
    /// body, with all attempts and waits.
    ///
    /// client-go: `RequestLatency`.
    request_latency: RequestLatency::observe(call: &Call, latency: Duration)
}

hook! {
    /// The time spent waiting for a client-side rate limiter. client-go: `RateLimiterLatency`.
    rate_limiter_latency: RateLimiterLatency::observe(call: &Call, waited: Duration)
}

hook! {
    /// The size in bytes of each attempt's request body, if it is known. client-go:
    /// `RequestSize`.
    request_size: RequestSize::observe(call: &Call, bytes: u64)
}

hook! {
    /// The decompressed size in bytes of the body of a response that is not a stream. client-go:
    /// `ResponseSize`.
    response_size: ResponseSize::observe(call: &Call, bytes: u64)
}

hook! {
    /// The result of each attempt, including streams and upgrades. client-go: `RequestResult`.
    request_result: RequestResult::increment(call: &Call, code: Code)
}

hook! {
    /// Attempts after the first of a logical request. client-go: `RequestRetry`.
    request_retry: RequestRetry::increment(call: &Call, code: Code)
}

hook! {
    /// The end of an attempt: when its response head arrived, or when it failed. client-go has no
    /// such hook.
    attempt_end: AttemptEnd::observe(call: &Call, report: &AttemptReport)
}

hook! {
    /// The end of a logical request that is not a stream. client-go has no such hook.
    request_end: RequestEnd::observe(call: &Call, report: &RequestReport)
}

/// Watches, followed logs and upgraded connections. client-go has no such hook.
pub trait Streams: Send + Sync + 'static {
    /// The response head of a stream arrived.
    fn opened(&self, call: &Call, kind: StreamKind) {
        let _ = (call, kind);
    }

    /// A chunk of the body arrived, which completed this many lines: events of a watch, lines of a
    /// log.
    fn received(&self, call: &Call, kind: StreamKind, events: u64, bytes: u64) {
        let _ = (call, kind, events, bytes);
    }

    /// A stream ended. Not called for upgraded connections, which leave the client.
    fn ended(&self, call: &Call, report: &StreamReport) {
        let _ = (call, report);
    }
}

impl Streams for Noop {}

/// The result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AttemptReport {
    /// The number of the attempt, from one.
    pub attempt: u32,
    /// Its status.
    pub code: Code,
    /// From its start to the response head.
    pub duration: Duration,
    /// The size of the request body in bytes, if it is known.
    pub sent: Option<u64>,
}

/// The result of a logical request.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestReport {
    /// The status of the last attempt.
    pub code: Code,
    /// How it ended.
    pub outcome: Outcome,
    /// The number of attempts.
    pub attempts: u32,
    /// From the call to the end of the body.
    pub duration: Duration,
    /// The decompressed size of the response body in bytes.
    pub bytes: u64,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
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
#[non_exhaustive]
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
#[non_exhaustive]
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
