//! The error type of this crate.

use std::net::SocketAddr;
use std::{fmt, io};

use thiserror::Error;

/// An error in the setup or use of telemetry.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TelemetryError {
    /// The filter has no directive at all.
    #[error(
        "log filter is empty; write a level such as `info` or directives such as `info,kubevitals=debug`"
    )]
    EmptyLogFilter,

    /// The filter is longer than [`LogFilter::MAX_LENGTH`](crate::LogFilter::MAX_LENGTH).
    #[error("log filter has {length} bytes, at most {limit} are allowed")]
    LongLogFilter { length: usize, limit: usize },

    /// One directive does not have the form `level` or `target=level`.
    #[error(
        "log filter directive `{directive}` is neither a level (off, error, warn, info, debug, trace) \
         nor of the form target=level"
    )]
    BadLogDirective { directive: String },

    /// Each directive looks valid, but the filter does not parse.
    #[error("log filter `{filter}` is not valid")]
    BadLogFilter {
        filter: String,
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },

    /// A log format that is neither `text` nor `json`.
    #[error("unknown log format `{0}`; use `text` or `json`")]
    BadLogFormat(String),

    /// Another log dispatcher was installed before.
    #[error("a log dispatcher is already installed; initialise logging once, at the start of main")]
    LogsInstalled(#[source] tracing::dispatcher::SetGlobalDefaultError),

    /// The subscriber behind a [`LogHandle`](crate::LogHandle) no longer exists.
    #[error("failed to change the log filter: its subscriber no longer exists")]
    LogsGone(#[source] tracing_subscriber::reload::Error),

    /// A health check name with a character or length that is not allowed.
    #[error(
        "health check name `{0}` is not valid; use 1 to 64 of a-z, 0-9, `-`, `_`, `.` and `/`, \
         starting and ending with a letter or digit"
    )]
    BadCheckName(String),

    /// A health check name that is already registered.
    #[error("health check `{0}` is already registered")]
    DuplicateCheck(String),

    /// More checks than [`Health::MAX_CHECKS`](crate::Health::MAX_CHECKS).
    #[error("cannot register health check `{name}`: at most {limit} are allowed")]
    TooManyChecks { name: String, limit: usize },

    /// A metric could not be written.
    #[error("failed to encode metrics")]
    Encode(#[source] fmt::Error),

    /// The admin server could not listen.
    #[error("admin server cannot listen on {address}")]
    Bind {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
}
