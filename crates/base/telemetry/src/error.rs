//! The one error type of this crate.

use std::{fmt, io, net::SocketAddr};

use thiserror::Error;

/// What can go wrong while telemetry is set up or asked.
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
    LongLogFilter {
        /// Bytes given.
        length: usize,
        /// Bytes allowed.
        limit: usize,
    },

    /// One directive does not have the form `level` or `target=level`.
    #[error(
        "log filter directive `{directive}` is neither a level (off, error, warn, info, debug, trace) \
         nor of the form target=level"
    )]
    BadLogDirective {
        /// The directive as it was given.
        directive: String,
    },

    /// The directives look right one by one, yet the filter does not take them.
    #[error("log filter `{filter}` is not valid")]
    BadLogFilter {
        /// The whole filter.
        filter: String,
        /// What the filter said.
        #[source]
        source: tracing_subscriber::filter::ParseError,
    },

    /// A log format that is neither `text` nor `json`.
    #[error("log format `{0}` is not known; use `text` or `json`")]
    BadLogFormat(String),

    /// Another log dispatcher was installed before.
    #[error("a log dispatcher is installed already; initialise logging once, first thing in main")]
    LogsInstalled(#[source] tracing::dispatcher::SetGlobalDefaultError),

    /// The subscriber behind a [`LogHandle`](crate::LogHandle) no longer exists.
    #[error("log filter cannot be changed because its subscriber is gone")]
    LogsGone(#[source] tracing_subscriber::reload::Error),

    /// A health check name with a character or length that is not allowed.
    #[error(
        "health check name `{0}` is not valid; use 1 to 64 of a-z, 0-9, `-`, `_`, `.` and `/`, \
         beginning and ending with a letter or digit"
    )]
    BadCheckName(String),

    /// A health check name that is taken.
    #[error("health check `{0}` is registered already")]
    DuplicateCheck(String),

    /// More checks than [`Health::MAX_CHECKS`](crate::Health::MAX_CHECKS).
    #[error("health check `{name}` is one too many, at most {limit} can be registered")]
    TooManyChecks {
        /// The check that was refused.
        name: String,
        /// The bound.
        limit: usize,
    },

    /// A metric could not be written.
    #[error("metrics could not be encoded")]
    Encode(#[source] fmt::Error),

    /// The admin server could not listen.
    #[error("admin server cannot listen on {address}")]
    Bind {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}
