//! Hooks of connections and transports.

use std::time::Duration;

use super::hook;

hook! {
    /// The duration of a name resolution. client-go: `ResolverLatency`.
    ResolverLatency::observe(host: &str, latency: Duration)
}

hook! {
    /// The duration of a connection attempt, including name resolution and the TLS handshake.
    /// client-go has no such hook.
    ConnectLatency::observe(host: &str, outcome: ConnectOutcome, latency: Duration)
}

hook! {
    /// The number of cached transports. client-go: `TransportCacheEntries`.
    TransportCacheEntries::observe(entries: u64)
}

hook! {
    /// Requests for a transport. client-go: `TransportCreateCalls`.
    TransportCreateCalls::increment(result: TransportCreate)
}

hook! {
    /// Checks of a CA file for changes. client-go: `TransportCAReloads`.
    TransportCaReloads::increment(reload: CaReload)
}

hook! {
    /// Transports that were dropped together with their certificate rotation. client-go:
    /// `TransportCertRotationGCCalls`.
    TransportCertRotationGcCalls::increment()
}

hook! {
    /// Entries that were checked by garbage collection of the transport cache. client-go:
    /// `TransportCacheGCCalls`.
    TransportCacheGcCalls::increment(result: TransportCacheGc)
}

/// The result of a connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are named like what they mean")]
pub enum ConnectOutcome {
    Connected,
    Failed,
}

/// The origin of a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransportCreate {
    /// Found in the cache.
    Hit,
    /// Created and cached.
    Miss,
    /// Created again after garbage collection.
    MissGc,
    /// Created and not cacheable.
    Uncacheable,
}

/// The result of a check of a CA file: client-go's `result` and `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaReload {
    /// Success: unchanged.
    Unchanged,
    /// Success: a new bundle is in use.
    Updated,
    /// Failure: the file cannot be read.
    ReadError,
    /// Failure: the file is empty.
    Empty,
    /// Failure: the file has no certificates.
    ParseError,
}

/// The result of garbage collection for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are named like what they mean")]
pub enum TransportCacheGc {
    Deleted,
    Skipped,
}

impl ConnectOutcome {
    /// Returns the label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Failed => "failed",
        }
    }
}

impl TransportCreate {
    /// Returns the label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Miss => "miss",
            Self::MissGc => "miss-gc",
            Self::Uncacheable => "uncacheable",
        }
    }
}

impl CaReload {
    /// Returns the value of the label `result`.
    pub const fn result(self) -> &'static str {
        match self {
            Self::Unchanged | Self::Updated => "success",
            Self::ReadError | Self::Empty | Self::ParseError => "failure",
        }
    }

    /// Returns the value of the label `reason`.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Unchanged => "unchanged",
            Self::Updated => "updated",
            Self::ReadError => "read_error",
            Self::Empty => "empty",
            Self::ParseError => "ca_parse_error",
        }
    }
}

impl TransportCacheGc {
    /// Returns the label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Skipped => "skipped",
        }
    }
}
