//! What can go wrong in a benchmark.

use std::path::PathBuf;
use std::time::Duration;

/// Why a benchmark ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// A program could not be started.
    #[error("cannot start {program}")]
    Start {
        /// The program's name or path.
        program: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A program ended while it was measured.
    #[error("{name} ended early ({status}); its last words are in {log}")]
    Ended {
        /// The contender.
        name: String,
        /// How it ended.
        status: String,
        /// Where its output went.
        log: PathBuf,
    },
    /// A program did not do in time what was waited for.
    #[error("{what} did not happen within {within:?}")]
    Late {
        /// What was waited for.
        what: String,
        /// How long.
        within: Duration,
    },
    /// A worker did not keep to the protocol.
    #[error("{name} answered {answer:?} instead of {expected}")]
    Protocol {
        /// The contender.
        name: String,
        /// What it said.
        answer: String,
        /// What it should have said.
        expected: &'static str,
    },
    /// Contenders found different things in the same input, so that their costs cannot be compared.
    #[error(
        "{name} found {found} where {reference} found {expected}: they did not do the same work"
    )]
    DifferentWork {
        /// The contender that differs.
        name: String,
        /// What it found.
        found: u64,
        /// The contender it was compared with.
        reference: String,
        /// What that one found.
        expected: u64,
    },
    /// A file of `/proc` was not what it should be.
    #[error("cannot read {path}: {problem}")]
    Proc {
        /// The file.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// A file or folder could not be read or written.
    #[error("cannot {doing} {path}")]
    File {
        /// Such as `write`.
        doing: &'static str,
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A kubeconfig lacks something or is none.
    #[error("the kubeconfig {path} is not usable: {problem}")]
    Kubeconfig {
        /// Which.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A TLS configuration could not be built.
    #[error("cannot set up TLS")]
    Tls(#[from] kubevitals_tls::TlsError),
    /// A request failed.
    #[error("GET {path}: {problem}")]
    Request {
        /// What was asked for.
        path: String,
        /// What went wrong.
        problem: String,
    },
    /// A result could not be made into JSON.
    #[error("cannot write the result as JSON")]
    Json(#[from] serde_json::Error),
    /// The counter of instructions is not there.
    #[error(
        "valgrind is not installed; get it with `apt-get install valgrind` or `dnf install valgrind`"
    )]
    NoValgrind,
    /// The counter of instructions failed, or wrote something that is not understood.
    #[error("callgrind did not count: {problem}")]
    Callgrind {
        /// What is wrong.
        problem: String,
    },
    /// There is nothing to measure.
    #[error("nothing to measure: {0}")]
    NoContender(String),
    /// Something was measured that must not be.
    #[error("not held: {0}")]
    Missed(String),
    /// The user asked for the end.
    #[error("interrupted")]
    Interrupted,
}

impl BenchError {
    /// For `map_err` at a file operation.
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

    /// The error and its causes in one line.
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
