//! Hooks of connections and of what makes them.

use std::time::Duration;

use super::hook;

hook! {
    /// Each name that was resolved for a connection. client-go: `ResolverLatency`.
    ResolverLatency::observe(host: &str, latency: Duration)
}

hook! {
    /// Each connection that was dialled, the name and the TLS handshake included. client-go has no
    /// such hook.
    ConnectLatency::observe(host: &str, outcome: ConnectOutcome, latency: Duration)
}

hook! {
    /// How many transports are kept for reuse. client-go: `TransportCacheEntries`.
    TransportCacheEntries::observe(entries: u64)
}

hook! {
    /// Each transport that was asked for. client-go: `TransportCreateCalls`.
    TransportCreateCalls::increment(result: TransportCreate)
}

hook! {
    /// Each look at a CA file for a change. client-go: `TransportCAReloads`.
    TransportCaReloads::increment(reload: CaReload)
}

hook! {
    /// Each transport that was dropped together with its certificate rotation. client-go:
    /// `TransportCertRotationGCCalls`.
    TransportCertRotationGcCalls::increment()
}

hook! {
    /// Each entry that a clean-up of the transport cache looked at. client-go:
    /// `TransportCacheGCCalls`.
    TransportCacheGcCalls::increment(result: TransportCacheGc)
}

/// How a connection attempt went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are named like what they mean")]
pub enum ConnectOutcome {
    Connected,
    Failed,
}

/// Where a transport came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransportCreate {
    /// It was in the cache.
    Hit,
    /// It was made and kept.
    Miss,
    /// It was made again after the cache had dropped it.
    MissGc,
    /// It was made and cannot be kept.
    Uncacheable,
}

/// What came of a look at a CA file: client-go's `result` and `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CaReload {
    /// Success: as before.
    Unchanged,
    /// Success: a new bundle is in use.
    Updated,
    /// Failure: the file cannot be read.
    ReadError,
    /// Failure: the file is empty.
    Empty,
    /// Failure: the file holds no certificates.
    ParseError,
}

/// What came of a clean-up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "they are named like what they mean")]
pub enum TransportCacheGc {
    Deleted,
    Skipped,
}

impl ConnectOutcome {
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Failed => "failed",
        }
    }
}

impl TransportCreate {
    /// The label value.
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
    /// The value of the label `result`.
    pub const fn result(self) -> &'static str {
        match self {
            Self::Unchanged | Self::Updated => "success",
            Self::ReadError | Self::Empty | Self::ParseError => "failure",
        }
    }

    /// The value of the label `reason`.
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
    /// The label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Skipped => "skipped",
        }
    }
}
