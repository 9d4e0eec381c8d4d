//! Structured logs on standard error, as text or JSON, with a filter that changes at run time.
//!
//! One event is one line, whatever bytes its fields hold: text lines get their inner line breaks
//! escaped, so that a node's answer quoted in a warning cannot forge a second line. Timestamps are
//! RFC 3339 in UTC. In JSON the fields of an event stand beside `timestamp`, `level`, `target` and
//! `message`, so fields do not take these names.

mod filter;
mod line;

use std::{
    ffi::OsStr,
    fmt, io,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};

use tracing::Dispatch;
use tracing_subscriber::{
    EnvFilter, Layer, Registry,
    fmt::{MakeWriter, writer::BoxMakeWriter},
    layer::SubscriberExt,
    reload,
};

pub use self::filter::LogFilter;
use self::line::OneLine;
use crate::TelemetryError;

/// How a line looks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// For people: `2026-11-15T21:29:00.123456Z  INFO target: message field=value`.
    #[default]
    Text,
    /// For collectors: one JSON object per line.
    Json,
}

/// What [`init`] needs to know, fully parsed.
#[derive(Clone, Debug, Default)]
pub struct LogOptions {
    /// How a line looks.
    pub format: LogFormat,
    /// Which events are written at the start.
    pub filter: LogFilter,
    /// Whether text may be coloured; see [`ansi_allowed`]. JSON never is.
    pub ansi: bool,
}

/// Reads and changes the filter of running logs. Clones share it.
#[derive(Clone)]
pub struct LogHandle {
    reload: reload::Handle<EnvFilter, Registry>,
    current: Arc<Mutex<LogFilter>>,
}

/// Says whether logs may be coloured: only on a terminal, and only without `NO_COLOR`.
///
/// `no_color` is the value of that environment variable; by its convention an empty one counts as
/// absent.
pub fn ansi_allowed(no_color: Option<&OsStr>, is_terminal: bool) -> bool {
    is_terminal && no_color.is_none_or(OsStr::is_empty)
}

/// Installs logs on standard error for the whole process.
///
/// Fails if a dispatcher is installed already. Tests do not call this: they take [`build`] and
/// `tracing::dispatcher::with_default`.
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
    // A failed write must not be reported: that goes to standard error by a macro which panics
    // when standard error is what is broken.
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
    /// The filter in force.
    pub fn filter(&self) -> LogFilter {
        self.current
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Puts another filter in force at once. On an error the old one stays.
    pub fn set(&self, filter: &LogFilter) -> Result<(), TelemetryError> {
        let compiled = filter.compile()?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
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
