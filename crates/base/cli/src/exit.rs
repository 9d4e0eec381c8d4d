//! Exit codes: 0 success, 1 failure at run time, 64 invalid configuration. A command that checks
//! something exits with 2 if the check failed, and with 3 if there is no verdict.

use std::borrow::Cow;
use std::error::Error;
use std::io::Write;
use std::process::ExitCode;

use crate::error::{CliError, InvalidSetting, error_chain};

/// A failure at run time.
pub const EXIT_FAILURE: u8 = 1;

/// The command ran, and its check failed.
pub const EXIT_CHECK_FAILED: u8 = 2;

/// The command ran, and its check has no verdict.
pub const EXIT_NO_VERDICT: u8 = 3;

/// An invalid configuration: a restart does not help (`EX_USAGE` of sysexits).
pub const EXIT_USAGE: u8 = 64;

/// The error that ended a command.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(transparent)]
    Cli(#[from] CliError),

    #[error(transparent)]
    Setting(#[from] InvalidSetting),

    /// A failure while the role started or ran.
    #[error("{0}")]
    Runtime(#[source] Box<dyn Error + Send + Sync>),

    /// The same, with what was being done.
    #[error("{context}: {source}")]
    Context {
        context: Cow<'static, str>,
        #[source]
        source: Box<dyn Error + Send + Sync>,
    },

    /// A check did not pass, with the exit code for it.
    #[error("{message}")]
    Check { code: u8, message: String },
}

impl RunError {
    /// A failure at run time whose error says by itself what failed.
    pub fn runtime(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Runtime(error.into())
    }

    /// A failure at run time, with what failed: `failed to bind the admin server`.
    pub fn context(
        context: impl Into<Cow<'static, str>>,
        error: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::Context {
            context: context.into(),
            source: error.into(),
        }
    }
}

/// Adds what failed to an error, as `anyhow` does.
pub trait ResultExt<T> {
    /// Turns an error into [`RunError::Context`].
    fn context(self, context: impl Into<Cow<'static, str>>) -> Result<T, RunError>;
}

impl<T, E: Into<Box<dyn Error + Send + Sync>>> ResultExt<T> for Result<T, E> {
    fn context(self, context: impl Into<Cow<'static, str>>) -> Result<T, RunError> {
        self.map_err(|error| RunError::context(context, error))
    }
}

/// Prints the error with all its causes and returns the exit code.
pub fn exit_code(result: &Result<(), RunError>) -> ExitCode {
    let code = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(RunError::Cli(error)) => {
            // There is nowhere to report a closed standard error.
            let _ = error.print();
            error.exit_code()
        }
        Err(error @ RunError::Setting(_)) => {
            report(error);
            EXIT_USAGE
        }
        Err(error @ (RunError::Runtime(_) | RunError::Context { .. })) => {
            report(error);
            EXIT_FAILURE
        }
        Err(error @ RunError::Check { code, .. }) => {
            report(error);
            *code
        }
    };
    ExitCode::from(code)
}

fn report(error: &RunError) {
    let _ = writeln!(std::io::stderr().lock(), "error: {}", error_chain(error));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_names_what_failed_and_keeps_the_cause() {
        let cause = std::io::Error::other("address in use");
        let error = RunError::context("failed to bind the admin server", cause);
        assert_eq!(
            error_chain(&error),
            "failed to bind the admin server: address in use"
        );
        assert!(error.source().is_some());
    }
}
