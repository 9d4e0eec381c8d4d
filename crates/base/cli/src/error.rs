//! Errors of the configuration. All exit with 64, except a request for help.

use std::fmt;
use std::path::PathBuf;

use crate::exit::EXIT_USAGE;

/// An error of the command line, the environment or the configuration file.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// Help or the version, rendered by clap; no failure.
    #[error("{0}")]
    Display(#[source] Box<clap::Error>),

    /// A flag that clap rejected.
    #[error("{0}")]
    Usage(#[source] Box<clap::Error>),

    /// A value of the environment or the configuration file that clap rejected.
    #[error("{problem}\n  the value comes from {origin}")]
    Layer {
        /// The variable, or the file and line.
        origin: String,
        problem: String,
    },

    #[error("failed to read the configuration file {}: {source}", path.display())]
    ReadFile {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },

    #[error("the configuration file {} is larger than {limit} bytes; is it the right file?", path.display())]
    FileTooLarge { path: PathBuf, limit: u64 },

    #[error("failed to parse the configuration file {}: {problem}", path.display())]
    ParseFile { path: PathBuf, problem: String },

    /// A key of the configuration file that is no setting.
    #[error("{}:{line}: unknown setting `{key}`{}", path.display(), hint(suggestion.as_deref()))]
    UnknownKey {
        path: PathBuf,
        line: u64,
        key: String,
        /// The nearest known name.
        suggestion: Option<String>,
    },
}

/// A setting that is well-formed but invalid, found by a role before it opens a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSetting {
    /// The flag without its dashes.
    pub flag: &'static str,
    pub value: String,
    /// What is wrong: `must be greater than zero`.
    pub problem: String,
    /// What to do: `write a duration such as 15s`.
    pub advice: String,
}

impl CliError {
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Display(_) => 0,
            _ => EXIT_USAGE,
        }
    }

    /// Writes help to standard output and errors to standard error.
    pub fn print(&self) -> std::io::Result<()> {
        match self {
            Self::Display(error) | Self::Usage(error) => error.print(),
            other => {
                use std::io::Write;
                writeln!(std::io::stderr().lock(), "error: {other}")
            }
        }
    }
}

impl fmt::Display for InvalidSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "invalid value '{}' for '--{}': {}; {}",
            self.value, self.flag, self.problem, self.advice
        )
    }
}

impl std::error::Error for InvalidSetting {}

fn hint(suggestion: Option<&str>) -> String {
    suggestion.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// Returns the message of an error with those of its sources, each once.
pub fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let message = error.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        source = error.source();
    }
    text
}
