//! The recorded counts, and the tools with which they were built and counted.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::callgrind;
use crate::BenchError;

/// The file in the source tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Record {
    /// Tools of the build and of the count.
    pub made_with: Tools,
    /// In the order in which they are counted.
    pub paths: Vec<Count>,
}

/// The environment that a count depends on, besides our own code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Tools {
    pub rustc: String,
    pub valgrind: String,
    /// Provides copies, comparisons and the allocator.
    pub libc: String,
    /// Instruction set, and the widest of its extensions that code is selected by.
    pub cpu: String,
}

/// Count of one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    pub path: String,
    /// The counted operation.
    #[serde(alias = "what")]
    pub operation: String,
    /// Instructions per operation.
    pub instructions: u64,
}

impl Record {
    /// Reads the file. A missing file is an empty record.
    pub fn read(path: &Path) -> Result<Self, BenchError> {
        match std::fs::read(path) {
            Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(BenchError::file("read", path)(error)),
        }
    }

    /// Writes the file.
    pub fn write(&self, path: &Path) -> Result<(), BenchError> {
        let mut text = serde_json::to_string_pretty(self)?;
        text.push('\n');
        std::fs::write(path, text).map_err(BenchError::file("write", path))
    }

    /// Returns the recorded count of a path.
    pub fn of(&self, path: &str) -> Option<&Count> {
        self.paths.iter().find(|count| count.path == path)
    }

    /// Updates the record with new counts: `order` has the names of all paths, and paths without a
    /// new count are unchanged.
    #[must_use]
    pub fn updated(&self, made_with: Tools, counted: &[Count], order: &[&str]) -> Self {
        let find = |name: &&str| {
            let new = counted.iter().find(|count| count.path == *name);
            new.or_else(|| self.of(name)).cloned()
        };
        Self {
            made_with,
            paths: order.iter().filter_map(find).collect(),
        }
    }
}

impl Tools {
    /// Reads those of this machine. Missing versions are `unknown`.
    pub fn here() -> Result<Self, BenchError> {
        let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let libc = first_line(Command::new("ldd").arg("--version"));
        Ok(Self {
            rustc: first_line(Command::new(rustc).arg("--version")),
            valgrind: callgrind::version()?,
            libc: libc.trim_start_matches("ldd ").to_owned(),
            cpu: cpu(),
        })
    }

    /// Describes the differences from the tools of a record.
    pub fn differences(&self, recorded: &Self) -> Vec<String> {
        [
            ("rustc", &recorded.rustc, &self.rustc),
            ("valgrind", &recorded.valgrind, &self.valgrind),
            ("libc", &recorded.libc, &self.libc),
            ("cpu", &recorded.cpu, &self.cpu),
        ]
        .into_iter()
        .filter(|(_, then, now)| then != now)
        .map(|(tool, then, now)| format!("{tool}: recorded with {then}, now {now}"))
        .collect()
    }
}

fn first_line(command: &mut Command) -> String {
    let output = command.output().ok().filter(|out| out.status.success());
    let line = output.and_then(|out| {
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        text.lines().next().map(str::to_owned)
    });
    line.unwrap_or_else(|| "unknown".to_owned())
}

/// Valgrind supports AVX2 and nothing wider: libraries select their code by it.
#[cfg(target_arch = "x86_64")]
fn cpu() -> String {
    let extension = if std::is_x86_feature_detected!("avx2") {
        "AVX2"
    } else {
        "SSE2"
    };
    format!("x86_64 with {extension}")
}

#[cfg(not(target_arch = "x86_64"))]
fn cpu() -> String {
    std::env::consts::ARCH.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(path: &str, instructions: u64) -> Count {
        Count {
            path: path.to_owned(),
            operation: "one".to_owned(),
            instructions,
        }
    }

    #[test]
    fn a_record_can_be_written_and_read_and_a_missing_one_is_empty() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("instructions.json");
        assert_eq!(Record::read(&path).unwrap(), Record::default());
        let record = Record {
            made_with: Tools {
                rustc: "rustc 1.95.0".to_owned(),
                ..Tools::default()
            },
            paths: vec![count("parse", 7)],
        };
        record.write(&path).unwrap();
        assert_eq!(Record::read(&path).unwrap(), record);
    }

    #[test]
    fn an_invalid_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("instructions.json");
        std::fs::write(&path, "{").unwrap();
        assert!(matches!(Record::read(&path), Err(BenchError::Json(_))));
    }

    #[test]
    fn paths_without_a_new_count_are_kept_and_unknown_paths_are_removed() {
        let record = Record {
            made_with: Tools::default(),
            paths: vec![count("gone", 1), count("b", 2), count("c", 3)],
        };
        let updated = record.updated(Tools::default(), &[count("b", 9)], &["a", "b", "c"]);
        assert_eq!(updated.paths, [count("b", 9), count("c", 3)]);
    }

    #[test]
    fn other_tools_are_reported() {
        let here = Tools {
            rustc: "rustc 2".to_owned(),
            ..Tools::default()
        };
        assert_eq!(
            here.differences(&Tools::default()),
            ["rustc: recorded with , now rustc 2"]
        );
        assert!(here.differences(&here).is_empty());
    }
}
