//! Running other programs, each as a step with a name and a duration.

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Names a file that steps are appended to: `.ci/run` lists the slowest of several commands.
const STEPS_VARIABLE: &str = "KUBEVITALS_STEPS";

/// The features of the program that is shipped. Benchmarks measure it with them, on the simulated
/// cluster of the feature `sim`.
pub const SHIPPED_FEATURES: [&str; 2] = ["jemalloc", "pprof"];

/// Completed steps, for the summary at the end.
#[derive(Debug, Default)]
pub struct Steps {
    completed: Vec<(String, Duration)>,
}

/// Returns the root of the repository.
///
/// Read from the environment that cargo sets: clones that share a target folder can share this
/// program too, and where it was compiled is then not where it runs.
pub fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let manifest = manifest.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    let root = manifest
        .ancestors()
        .find(|folder| folder.join("Cargo.lock").is_file());
    root.map(Path::to_path_buf).unwrap_or_default()
}

/// Returns the cargo that runs this program, to be run in the root of the repository.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // Set for this package alone: a nested cargo must not inherit it.
    for name in [
        "CARGO_MANIFEST_DIR",
        "CARGO_MANIFEST_PATH",
        "CARGO_PKG_NAME",
    ] {
        command.env_remove(name);
    }
    command
}

/// Returns a cargo that lints what it compiles: clippy's compiler takes the place of rustc for the
/// packages of the workspace, so that a build for tests needs no second pass for lints. Builds that
/// are measured do not use it: it turns optimizations of MIR off.
pub fn linting_cargo() -> Command {
    let mut command = cargo();
    command.env("RUSTC_WORKSPACE_WRAPPER", "clippy-driver");
    command
}

/// Makes warnings errors, lints included.
pub fn deny_warnings(command: &mut Command) -> &mut Command {
    command.env("CARGO_BUILD_WARNINGS", "deny")
}

/// Runs a command that inherits our output.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {}", command_line(command)))?;
    if !status.success() {
        bail!("{} failed ({status})", command_line(command));
    }
    Ok(())
}

/// Returns a command as a person would type it.
pub fn command_line(command: &Command) -> String {
    let program = Path::new(command.get_program())
        .file_name()
        .unwrap_or_default();
    std::iter::once(program)
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

impl Steps {
    /// Does `work`, then prints the steps it took, also after a failure, and its result last.
    pub fn report<T: Display>(work: impl FnOnce(&mut Self) -> Result<T>) -> Result<()> {
        let mut steps = Self::default();
        let result = work(&mut steps);
        steps.print();
        println!("{}", result?);
        Ok(())
    }

    /// Does `work` under a heading and records its duration.
    pub fn step<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("=== {name}");
        let started = Instant::now();
        let result = work().with_context(|| format!("step `{name}`"));
        self.completed.push((name.to_owned(), started.elapsed()));
        result
    }

    /// Records the duration of a part of a step.
    pub fn record(&mut self, name: &str, duration: Duration) {
        self.completed.push((format!("  {name}"), duration));
    }

    /// Prints the duration of each step, and appends it to the file of the environment variable.
    pub fn print(&self) {
        println!("=== steps");
        for line in self.lines() {
            println!("{line}");
        }
        if let Some(file) = std::env::var_os(STEPS_VARIABLE)
            && let Err(error) = self.append(Path::new(&file))
        {
            println!("cannot write the steps to {STEPS_VARIABLE}: {error}");
        }
    }

    fn append(&self, file: &Path) -> std::io::Result<()> {
        let mut text = self.lines().collect::<Vec<_>>().join("\n");
        text.push('\n');
        let file = OpenOptions::new().create(true).append(true).open(file);
        file?.write_all(text.as_bytes())
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        self.completed
            .iter()
            .map(|(name, duration)| format!("{:>8.1} s  {name}", duration.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_of_several_commands_add_up_in_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("steps");
        let mut first = Steps::default();
        first.step("lints", || Ok(())).unwrap();
        first.append(&file).unwrap();
        let mut second = Steps::default();
        second.record("test usage::cpu", Duration::from_millis(12_340));
        second.append(&file).unwrap();
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            "     0.0 s  lints\n    12.3 s    test usage::cpu\n"
        );
    }
}
