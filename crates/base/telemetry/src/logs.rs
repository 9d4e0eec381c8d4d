//! Structured logs on standard error, as text or JSON, with a filter that changes at run time.
//!
//! Each event is one line, whatever bytes its fields hold: line breaks inside text lines are
//! escaped, so that a node's response quoted in a warning cannot forge a second line. Timestamps
//! are RFC 3339 in UTC. In JSON the fields of an event are siblings of `timestamp`, `level`,
//! `target` and `message`, so fields must not have these names.

#[cfg(any(test, feature = "test-util"))]
mod capture;
mod filter;
mod line;

use std::ffi::OsStr;
use std::str::FromStr;
use std::sync::Arc;
use std::{fmt, io};

use parking_lot::Mutex;
use tracing::Dispatch;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    fmt::{MakeWriter, writer::BoxMakeWriter},
    layer::SubscriberExt,
    reload,
};

#[cfg(any(test, feature = "test-util"))]
pub use self::capture::LogCapture;
pub use self::filter::LogFilter;
use self::line::OneLine;
use crate::TelemetryError;

/// The format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people: `2026-11-15T21:29:00.123456Z  INFO target: message field=value`.
    #[default]
    Text,
    /// For collectors: one JSON object per line.
    Json,
}

/// The parsed options of [`init`].
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    pub format: LogFormat,
    /// The initial filter.
    pub filter: LogFilter,
    /// Whether text may be coloured; see [`ansi_allowed`]. JSON never is.
    pub ansi: bool,
}

/// Reads and changes the filter at run time. Clones share it.
#[derive(Clone)]
pub struct LogHandle {
    reload: reload::Handle<EnvFilter, Registry>,
    current: Arc<Mutex<LogFilter>>,
}

/// Returns whether logs may be coloured: only on a terminal, and only without `NO_COLOR`.
///
/// `no_color` is the value of that environment variable; by its convention an empty one counts as
/// absent.
pub fn ansi_allowed(no_color: Option<&OsStr>, is_terminal: bool) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

/// Installs logs on standard error for the whole process.
///
/// Fails if a dispatcher is installed already. Tests use `LogCapture` instead.
///
/// ```standalone_crate
/// use kubevitals_telemetry::{LogOptions, logs};
///
/// let options = LogOptions { filter: "info,kubevitals=debug".parse()?, ..LogOptions::default() };
/// let handle = logs::init(&options)?;
/// handle.set(&"warn".parse()?)?;
/// assert!(logs::init(&options).is_err());
/// # Ok::<(), kubevitals_telemetry::TelemetryError>(())
/// ```
pub fn init(options: &LogOptions) -> Result<LogHandle, TelemetryError> {
    let (dispatch, handle) = build(options, io::stderr)?;
    tracing::dispatcher::set_global_default(dispatch).map_err(TelemetryError::LogsInstalled)?;
    Ok(handle)
}

/// Builds logs that write to `writer`, without installing them.
pub fn build<W>(options: &LogOptions, writer: W) -> Result<(Dispatch, LogHandle), TelemetryError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let (filter, reload) = reload::Layer::new(options.filter.compile()?);
    let writer = BoxMakeWriter::new(writer);
    // A failed write must not be reported: the macro that would report it on standard error panics
    // if standard error is broken.
    let layer = match options.format {
        LogFormat::Text => tracing_subscriber::fmt::layer()
            .with_writer(OneLine(writer))
            .with_ansi(options.ansi)
            .log_internal_errors(false)
            .boxed(),
        LogFormat::Json => tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .with_writer(writer)
            .log_internal_errors(false)
            .boxed(),
    };
    let subscriber = Registry::default().with(filter).with(layer);
    let current = Arc::new(Mutex::new(options.filter.clone()));
    Ok((Dispatch::new(subscriber), LogHandle { reload, current }))
}

impl LogHandle {
    /// Returns the current filter.
    pub fn filter(&self) -> LogFilter {
        self.current.lock().clone()
    }

    /// Replaces the filter at once. On an error the old one is kept.
    pub fn set(&self, filter: &LogFilter) -> Result<(), TelemetryError> {
        let compiled = filter.compile()?;
        let mut current = self.current.lock();
        self.reload
            .reload(compiled)
            .map_err(TelemetryError::LogsGone)?;
        let previous = std::mem::replace(&mut *current, filter.clone());
        drop(current);
        tracing::info!(%previous, %filter, "log filter changed");
        Ok(())
    }
}

impl fmt::Debug for LogHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogHandle")
            .field("filter", &self.filter())
            .finish_non_exhaustive()
    }
}

impl FromStr for LogFormat {
    type Err = TelemetryError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            other => Err(TelemetryError::BadLogFormat(other.to_owned())),
        }
    }
}

impl fmt::Display for LogFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "text",
            Self::Json => "json",
        })
    }
}

#[cfg(test)]
mod tests;
