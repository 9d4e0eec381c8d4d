//! The targets that a release is built for, and whether this machine can build them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;
use xtask::step::root;

use crate::image::Architecture;
use crate::source::output;

/// A platform to build for. All binaries are static, so that they run on any Linux.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Target {
    #[value(name = "x86_64-unknown-linux-gnu")]
    Amd64Gnu,
    #[value(name = "aarch64-unknown-linux-gnu")]
    Arm64Gnu,
    #[value(name = "x86_64-unknown-linux-musl")]
    Amd64Musl,
    #[value(name = "aarch64-unknown-linux-musl")]
    Arm64Musl,
}

impl Target {
    pub const ALL: [Self; 4] = [
        Self::Amd64Gnu,
        Self::Arm64Gnu,
        Self::Amd64Musl,
        Self::Arm64Musl,
    ];

    /// The target of the image of this architecture.
    pub fn of_image(architecture: Architecture) -> Self {
        match architecture {
            Architecture::Amd64 => Self::Amd64Gnu,
            Architecture::Arm64 => Self::Arm64Gnu,
        }
    }

    /// The name that rustc uses.
    pub fn triple(self) -> &'static str {
        match self {
            Self::Amd64Gnu => "x86_64-unknown-linux-gnu",
            Self::Arm64Gnu => "aarch64-unknown-linux-gnu",
            Self::Amd64Musl => "x86_64-unknown-linux-musl",
            Self::Arm64Musl => "aarch64-unknown-linux-musl",
        }
    }

    pub fn architecture(self) -> Architecture {
        match self {
            Self::Amd64Gnu | Self::Amd64Musl => Architecture::Amd64,
            Self::Arm64Gnu | Self::Arm64Musl => Architecture::Arm64,
        }
    }

    /// Whether programs of this target run here.
    pub fn runs_here(self) -> bool {
        Architecture::of_host().is_ok_and(|host| host == self.architecture())
    }

    /// The C library that is linked.
    pub fn c_library(self) -> &'static str {
        match self {
            Self::Amd64Gnu | Self::Arm64Gnu => "glibc",
            Self::Amd64Musl | Self::Arm64Musl => "musl",
        }
    }

    /// The C compiler, under the name that the `cc` crate looks for too. It also links.
    pub(crate) fn c_compiler(self) -> &'static str {
        match self {
            Self::Amd64Gnu | Self::Arm64Gnu if self.runs_here() => "cc",
            Self::Amd64Musl | Self::Arm64Musl if self.runs_here() => "musl-gcc",
            Self::Amd64Gnu => "x86_64-linux-gnu-gcc",
            Self::Arm64Gnu => "aarch64-linux-gnu-gcc",
            Self::Amd64Musl => "x86_64-linux-musl-gcc",
            Self::Arm64Musl => "aarch64-linux-musl-gcc",
        }
    }

    /// Says what this machine lacks to build for the target.
    pub fn missing(self) -> Result<Option<String>> {
        Ok(self.missing_parts(&libraries(self)?, &search_path()))
    }

    fn missing_parts(self, libraries: &Path, path: &[PathBuf]) -> Option<String> {
        let triple = self.triple();
        if !has_standard_library(libraries) {
            return Some(format!(
                "Rust's standard library for {triple} is not installed: rustup target add {triple}"
            ));
        }
        let compiler = self.c_compiler();
        if !path.iter().any(|folder| folder.join(compiler).is_file()) {
            let package = match compiler {
                "musl-gcc" => " (Debian: musl-tools)",
                "aarch64-linux-gnu-gcc" => " (Debian: gcc-aarch64-linux-gnu libc6-dev-arm64-cross)",
                "x86_64-linux-gnu-gcc" => " (Debian: gcc-x86-64-linux-gnu libc6-dev-amd64-cross)",
                _ => "",
            };
            return Some(format!("no C compiler {compiler}{package}"));
        }
        None
    }
}

/// Returns the folder in which rustc looks for the libraries of a target.
fn libraries(target: Target) -> Result<PathBuf> {
    let mut rustc = rustc();
    rustc.args(["--print", "target-libdir", "--target", target.triple()]);
    Ok(PathBuf::from(output(&mut rustc)?.trim()))
}

fn has_standard_library(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return false;
    };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        name.starts_with("libstd-") && name.ends_with(".rlib")
    })
}

/// The rustc of the toolchain that the repository pins.
pub(crate) fn rustc() -> Command {
    let mut rustc = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    rustc.current_dir(root());
    rustc
}

/// Returns what rustc says about itself, by field: `release`, `commit-hash` and others.
pub(crate) fn rustc_field(name: &str) -> Result<String> {
    let text = output(rustc().args(["--version", "--verbose"]))?;
    let mut lines = text.lines().filter_map(|line| line.split_once(": "));
    let found = lines.find(|(field, _)| *field == name);
    let (_, value) = found.with_context(|| format!("rustc does not say its {name}"))?;
    Ok(value.to_owned())
}

fn search_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_on_the_command_line_are_those_of_rustc() {
        for target in Target::ALL {
            let value = target.to_possible_value().unwrap();
            assert_eq!(value.get_name(), target.triple());
        }
    }

    #[test]
    fn a_missing_part_is_named_with_what_to_install() {
        let folder = tempfile::tempdir().unwrap();
        let path = [folder.path().to_owned()];
        let missing = |target: Target| target.missing_parts(folder.path(), &path);
        let target = if Target::Arm64Gnu.runs_here() {
            Target::Amd64Gnu
        } else {
            Target::Arm64Gnu
        };
        let text = missing(target).unwrap();
        assert!(text.ends_with(&format!("rustup target add {}", target.triple())));
        std::fs::write(folder.path().join("libstd-0a1b.rlib"), "").unwrap();
        let text = missing(target).unwrap();
        assert!(
            text.contains("no C compiler") && text.contains("Debian: gcc-"),
            "{text}"
        );
        std::fs::write(folder.path().join(target.c_compiler()), "").unwrap();
        assert_eq!(missing(target), None);
    }

    #[test]
    fn this_machine_builds_for_itself() {
        let host = Target::of_image(Architecture::of_host().unwrap());
        assert_eq!(host.missing().unwrap(), None);
    }
}
