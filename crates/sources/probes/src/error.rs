//! Errors of the configuration.

use std::fmt;
use std::path::PathBuf;

/// Maximum number of problems that are kept of one configuration.
const MAX_PROBLEMS: usize = 20;

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// There are too many files in a folder, or they are too large.
    #[error("{path}: {problem}", path = path.display())]
    Files { path: PathBuf, problem: String },
    #[error("{0}")]
    Invalid(Problems),
}

/// What is wrong in a configuration, in the order of the files: at least one problem.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Problems {
    list: Vec<Problem>,
    /// Number of problems that are not in the list.
    more: usize,
}

/// One thing that is wrong in a configuration, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The name of the file, if the text came from one.
    pub file: Option<String>,
    /// The line where the value begins, from 1.
    pub line: u64,
    /// The path of the key, such as `modules.http_2xx.http.method`; empty for the whole document.
    pub path: String,
    pub text: String,
}

impl Problems {
    pub(crate) fn push(&mut self, problem: Problem) {
        if self.list.len() < MAX_PROBLEMS {
            self.list.push(problem);
        } else {
            self.more = self.more.saturating_add(1);
        }
    }

    pub(crate) fn append(&mut self, other: Self) {
        for problem in other.list {
            self.push(problem);
        }
        self.more = self.more.saturating_add(other.more);
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The first problems.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.list.iter()
    }

    pub(crate) fn into_result(self) -> Result<(), ConfigError> {
        if self.is_empty() {
            Ok(())
        } else {
            Err(ConfigError::Invalid(self))
        }
    }
}

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.list.iter().enumerate() {
            if index > 0 {
                f.write_str("\n")?;
            }
            problem.fmt(f)?;
        }
        if self.more > 0 {
            write!(f, "\nand {} more", self.more)?;
        }
        Ok(())
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{file}:")?;
        } else {
            f.write_str("line ")?;
        }
        write!(f, "{}: ", self.line)?;
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.text)
    }
}
