//! Running other programs, each as a step with a name and a duration.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Steps done so far, for the summary at the end.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    done: Vec<(String, Duration)>,
}

/// The root of the repository.
///
/// Asked of the cargo that runs us: clones that share a target folder can share this program too, and where it was
/// compiled is then not where it runs.
pub(crate) fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from);
    let manifest = manifest.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    manifest.parent().map(Path::to_path_buf).unwrap_or_default()
}

/// The cargo that runs us, in the root of the repository.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // Set by the cargo that started us for this package alone; a cargo below us must not see it.
    for name in [
        "CARGO_MANIFEST_DIR",
        "CARGO_MANIFEST_PATH",
        "CARGO_PKG_NAME",
    ] {
        command.env_remove(name);
    }
    command
}

/// Runs a command with its output going where ours goes.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {}", shown(command)))?;
    if !status.success() {
        bail!("{} failed ({status})", shown(command));
    }
    Ok(())
}

/// A command as a person would type it.
pub(crate) fn shown(command: &Command) -> String {
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
    /// Does `work` under a heading and keeps its duration.
    pub(crate) fn step<T>(&mut self, name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
        println!("=== {name}");
        let started = Instant::now();
        let result = work().with_context(|| format!("step `{name}`"));
        self.done.push((name.to_owned(), started.elapsed()));
        result
    }

    /// Where the time went.
    pub(crate) fn print(&self) {
        println!("=== steps");
        for (name, took) in &self.done {
            println!("{:>8.1} s  {name}", took.as_secs_f64());
        }
    }
}
