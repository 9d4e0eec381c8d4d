//! The record: what each path took when somebody last looked, and with what it was built and
//! counted.

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::callgrind;
use crate::BenchError;

/// The file in the source tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Record {
    /// With what it was built and counted.
    pub made_with: Tools,
    /// In the order in which they are counted.
    pub paths: Vec<Count>,
}

/// What a count depends on besides our own code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Tools {
    /// The compiler.
    pub rustc: String,
    /// The counter.
    pub valgrind: String,
    /// Where copies, comparisons and the allocator come from.
    pub libc: String,
    /// The instruction set, and the widest of its extensions for which there is code.
    pub cpu: String,
}

/// What one path takes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    /// Its name.
    pub path: String,
    /// What is done once.
    pub what: String,
    /// Instructions to do it once.
    pub instructions: u64,
}

impl Record {
    /// Reads the file. One that is not there records nothing.
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

    /// What was recorded of a path.
    pub fn of(&self, path: &str) -> Option<&Count> {
        self.paths.iter().find(|count| count.path == path)
    }

    /// The record after these were counted: `order` names all paths there are, and what was not
    /// counted stays.
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
    /// Those of this machine. What does not say its version is called unknown.
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

    /// What differs from what a record was made with, in words.
    pub fn differences(&self, recorded: &Self) -> Vec<String> {
        [
            ("rustc", &recorded.rustc, &self.rustc),
            ("valgrind", &recorded.valgrind, &self.valgrind),
            ("libc", &recorded.libc, &self.libc),
            ("cpu", &recorded.cpu, &self.cpu),
        ]
        .into_iter()
        .filter(|(_, then, now)| then != now)
        .map(|(what, then, now)| format!("{what}: recorded with {then}, now {now}"))
        .collect()
    }
}

fn first_line(command: &mut Command) -> String {
    let output = command.output().ok().filter(|told| told.status.success());
    let line = output.and_then(|told| {
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        text.lines().next().map(str::to_owned)
    });
    line.unwrap_or_else(|| "unknown".to_owned())
}

/// Valgrind passes AVX2 on and nothing wider: libraries choose their code by it.
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
            what: "one".to_owned(),
            instructions,
        }
    }

    #[test]
    fn a_record_survives_its_file_and_none_is_empty() {
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
    fn a_file_that_is_no_record_is_an_error_and_not_an_empty_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("instructions.json");
        std::fs::write(&path, "{").unwrap();
        assert!(matches!(Record::read(&path), Err(BenchError::Json(_))));
    }

    #[test]
    fn what_was_not_counted_stays_and_what_is_no_path_goes() {
        let record = Record {
            made_with: Tools::default(),
            paths: vec![count("gone", 1), count("b", 2), count("c", 3)],
        };
        let updated = record.updated(Tools::default(), &[count("b", 9)], &["a", "b", "c"]);
        assert_eq!(updated.paths, [count("b", 9), count("c", 3)]);
    }

    #[test]
    fn other_tools_are_told() {
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
