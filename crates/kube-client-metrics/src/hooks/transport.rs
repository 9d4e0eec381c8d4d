//! Hooks of connections and transports.

use std::time::Duration;

use super::hook;

hook! {
    /// The duration of a name resolution. client-go: `ResolverLatency`.
    resolver_latency: ResolverLatency::observe(host: &str, latency: Duration)
}

hook! {
    /// The duration of a connection attempt, including name resolution and the TLS handshake.
    /// client-go has no such hook.
    connect_latency: ConnectLatency::observe(host: &str, outcome: ConnectOutcome, latency: Duration)
}

hook! {
    /// Checks of a CA file for changes. client-go: `TransportCAReloads`.
    transport_ca_reloads: TransportCaReloads::increment(reload: CaReload)
}

/// The result of a connection attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "they are named like what they mean")]
pub enum ConnectOutcome {
    Connected,
    Failed,
}

/// The result of a check of a CA file: client-go's `result` and `reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
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

impl ConnectOutcome {
    /// Returns the label value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Failed => "failed",
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
