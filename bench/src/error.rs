//! Errors of benchmarks.

use std::path::PathBuf;
use std::time::Duration;

use http::StatusCode;
use serde_json::Value;

/// The reason why a benchmark failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A program could not be started.
    #[error("cannot start {program}")]
    Start {
        /// The program's name or path.
        program: String,
        #[source]
        source: std::io::Error,
    },
    /// A program exited while it was measured.
    #[error("{name} exited early ({status}); see its log {log}")]
    Exited {
        /// The contender.
        name: String,
        status: String,
        log: PathBuf,
    },
    /// A command that prepares a measurement failed.
    #[error("{command} failed: {problem}")]
    Command { command: String, problem: String },
    /// A program did not do something in time.
    #[error("timed out after {timeout:?} waiting for {event}")]
    Timeout {
        /// The expected event, as a noun phrase.
        event: String,
        timeout: Duration,
    },
    /// A worker violated the protocol.
    #[error("{name} wrote {output:?}, expected {expected}")]
    Protocol {
        /// The contender.
        name: String,
        output: String,
        expected: &'static str,
    },
    /// Contenders found different items in the same input, so that costs cannot be compared.
    #[error(
        "{name} found {found} where {reference} found {expected}: they did not do the same work"
    )]
    DifferentWork {
        /// The contender that differs.
        name: String,
        found: u64,
        /// The contender it was compared with.
        reference: String,
        expected: u64,
    },
    /// A file of `/proc` could not be read or parsed.
    #[error("cannot read {path}: {problem}")]
    Proc { path: String, problem: String },
    /// A file or folder could not be read or written.
    #[error("cannot {doing} {path}")]
    File {
        /// The operation, such as `write`.
        doing: &'static str,
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// A kubeconfig is invalid.
    #[error("invalid kubeconfig {path}: {problem}")]
    Kubeconfig { path: PathBuf, problem: String },
    /// A TLS configuration could not be built.
    #[error("cannot set up TLS")]
    Tls(#[from] kubevitals_tls::TlsError),
    /// A request failed.
    #[error("request of {path}: {problem}")]
    Request { path: String, problem: String },
    /// A result could not be read or written as JSON.
    #[error("cannot read or write JSON")]
    Json(#[from] serde_json::Error),
    /// Valgrind is missing.
    #[error("valgrind is not installed: run `apt-get install valgrind` or `dnf install valgrind`")]
    NoValgrind,
    /// Callgrind failed, or its output could not be parsed.
    #[error("callgrind failed: {problem}")]
    Callgrind { problem: String },
    /// There is nothing to measure.
    #[error("nothing to measure: {0}")]
    NoContender(String),
    /// Conditions of a benchmark were not met.
    #[error("conditions not met: {0}")]
    ConditionsNotMet(String),
    /// The run was interrupted by a signal.
    #[error("interrupted")]
    Interrupted,
}

impl BenchError {
    /// Maps the error of a file operation.
    pub fn file(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            doing,
            path,
            source,
        }
    }

    /// An unexpected HTTP status, with the message of a `metav1.Status`.
    pub fn unexpected_status(path: &str, status: StatusCode, body: &Value) -> Self {
        let message = body.get("message").and_then(Value::as_str);
        Self::Request {
            path: path.to_owned(),
            problem: format!("{status} {}", message.unwrap_or_default()),
        }
    }

    /// Returns the error and its causes in one line.
    pub fn chain(&self) -> String {
        let mut text = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        text
    }
}
