//! Exit codes: 0 done, 1 failed while running, 64 asked for something that cannot be.

use std::io::Write;
use std::process::ExitCode;

use crate::error::{CliError, InvalidSetting};

/// Something went wrong while running.
pub const EXIT_FAILURE: u8 = 1;

/// The configuration is wrong: restarting will not help (`EX_USAGE` of sysexits).
pub const EXIT_USAGE: u8 = 64;

/// Why a role ended without success.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The command line, the environment or the configuration file is wrong.
    #[error(transparent)]
    Cli(#[from] CliError),

    /// A setting cannot work.
    #[error(transparent)]
    Setting(#[from] InvalidSetting),

    /// The role failed while it started or ran.
    #[error("{0}")]
    Runtime(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl RunError {
    /// A failure while running, with its causes kept.
    pub fn runtime(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Runtime(error.into())
    }
}

/// Tells the user what went wrong, with every cause, and gives the code to exit with.
pub fn exit_code(result: &Result<(), RunError>) -> ExitCode {
    let code = match result {
        Ok(()) => return ExitCode::SUCCESS,
        Err(RunError::Cli(error)) => {
            // Nobody is left to tell when standard error itself is closed.
            let _ = error.print();
            error.exit_code()
        }
        Err(error @ RunError::Setting(_)) => {
            report(error);
            EXIT_USAGE
        }
        Err(error @ RunError::Runtime(_)) => {
            report(error);
            EXIT_FAILURE
        }
    };
    ExitCode::from(code)
}

fn report(error: &RunError) {
    let mut text = format!("error: {error}");
    let mut cause = std::error::Error::source(error).and_then(std::error::Error::source);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}
