//! Hooks of requests and their attempts.

use std::time::Duration;

use super::{bundle::Nobody, hook};
use crate::{Call, Code};

hook! {
    /// Once per logical request that is no stream: from the call to the end of the body, with all
    /// attempts and waits.
    ///
    /// client-go: `RequestLatency`.
    RequestLatency::observe(call: &Call, latency: Duration)
}

hook! {
    /// Each wait for a client-side rate limiter. client-go: `RateLimiterLatency`.
    RateLimiterLatency::observe(call: &Call, waited: Duration)
}

hook! {
    /// The size in bytes of each attempt's request body, where it is known. client-go:
    /// `RequestSize`.
    RequestSize::observe(call: &Call, bytes: u64)
}

hook! {
    /// The size in bytes of the body of an answer that is no stream, decompressed. client-go:
    /// `ResponseSize`.
    ResponseSize::observe(call: &Call, bytes: u64)
}

hook! {
    /// Each attempt, streams and upgrades too. client-go: `RequestResult`.
    RequestResult::increment(call: &Call, code: Code)
}

hook! {
    /// Each attempt after the first of a logical request. client-go: `RequestRetry`.
    RequestRetry::increment(call: &Call, code: Code)
}

hook! {
    /// Once per logical request that is no stream, however it ends. client-go has no such hook.
    RequestEnd::observe(call: &Call, report: &RequestReport)
}

/// Watches, followed logs and upgraded connections. client-go has no such hook.
pub trait Streams: Send + Sync + 'static {
    /// A stream was answered with its head.
    fn opened(&self, call: &Call, kind: StreamKind);

    /// A piece of the body arrived, which ended this many lines: events of a watch, lines of a log.
    fn received(&self, call: &Call, kind: StreamKind, events: u64, bytes: u64);

    /// A stream ended. Not told of upgraded connections, which leave the client's sight.
    fn ended(&self, call: &Call, report: &StreamReport);
}

impl Streams for Nobody {
    fn opened(&self, _: &Call, _: StreamKind) {}
    fn received(&self, _: &Call, _: StreamKind, _: u64, _: u64) {}
    fn ended(&self, _: &Call, _: &StreamReport) {}
}

/// How a logical request went.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RequestReport {
    /// The answer of the last attempt.
    pub code: Code,
    /// Why it ended.
    pub outcome: Outcome,
    /// How often it was sent; none if it was dropped before.
    pub attempts: u32,
    /// From the call to the end of the body.
    pub duration: Duration,
    /// Bytes of the answer's body, decompressed.
    pub bytes: u64,
}

/// Why a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The body was read to its end. What the server said is in the code.
    Completed,
    /// No answer came, or its body broke off.
    Failed,
    /// The caller dropped the future or the body first.
    Cancelled,
}

/// How a stream went.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamReport {
    /// What was streamed.
    pub kind: StreamKind,
    /// Why it ended.
    pub end: StreamEnd,
    /// From the head of the answer to the end.
    pub duration: Duration,
    /// Lines that were received whole: events of a watch, lines of a log.
    pub events: u64,
    /// Bytes of the body, decompressed.
    pub bytes: u64,
}

/// What is streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamKind {
    /// Events of a watch.
    Watch,
    /// Lines of a log that is followed.
    Log,
    /// Another protocol after `101 Switching Protocols`.
    Upgrade,
}

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StreamEnd {
    /// The server ended it.
    Server,
    /// It broke off.
    Error,
    /// The caller dropped it.
    Client,
}

impl Outcome {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

impl StreamKind {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Watch => "watch",
            Self::Log => "log",
            Self::Upgrade => "upgrade",
        }
    }
}

impl StreamEnd {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Error => "error",
            Self::Client => "client",
        }
    }
}
