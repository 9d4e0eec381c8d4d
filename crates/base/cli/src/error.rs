//! What can be wrong with what the user asked for. All of it exits 64, except a request for help.

use std::fmt;
use std::path::PathBuf;

use crate::exit::EXIT_USAGE;

/// Why a command line did not become a configuration.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The user asked for help or the version: clap has rendered it, and it is no failure.
    #[error("{0}")]
    Display(#[source] Box<clap::Error>),

    /// clap refused a flag.
    #[error("{0}")]
    Usage(#[source] Box<clap::Error>),

    /// A value from the environment or the configuration file was refused.
    #[error("{problem}\n  the value comes from {origin}")]
    Layer {
        /// Where the value stands.
        origin: String,
        /// What is wrong with it.
        problem: String,
    },

    /// The configuration file could not be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    ReadFile {
        /// The file that was asked for.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },

    /// The configuration file is larger than any configuration can be.
    #[error("the configuration file {} is larger than {limit} bytes; is it the right file?", path.display())]
    FileTooLarge {
        /// The file that was asked for.
        path: PathBuf,
        /// The bound, in bytes.
        limit: u64,
    },

    /// The configuration file is not the YAML that we understand.
    #[error("the configuration file {} cannot be understood: {problem}", path.display())]
    ParseFile {
        /// The file that was asked for.
        path: PathBuf,
        /// What is wrong, and at which line.
        problem: String,
    },

    /// The configuration file sets something that does not exist.
    #[error("{}:{line}: unknown setting `{key}`{}", path.display(), hint(suggestion.as_deref()))]
    UnknownKey {
        /// The file that was asked for.
        path: PathBuf,
        /// The line of the key's value.
        line: u64,
        /// The key as written.
        key: String,
        /// The nearest name that exists.
        suggestion: Option<String>,
    },
}

/// A setting that is well-formed but cannot work, found by a role before it opens a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidSetting {
    /// The flag without its dashes.
    pub flag: &'static str,
    /// The value as given.
    pub value: String,
    /// Why it cannot work.
    pub problem: String,
    /// What to write instead.
    pub advice: String,
}

// === impl CliError ===

impl CliError {
    /// The process's exit code for this error.
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Display(_) => 0,
            _ => EXIT_USAGE,
        }
    }

    /// Writes the message where the user expects it: help to standard output, errors to standard
    /// error.
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

// === impl InvalidSetting ===

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
