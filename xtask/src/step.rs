//! Running other programs, each as a step with a name and a duration.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Names a file that steps are also written to: `.ci/run` tells the slowest of several commands.
const STEPS_VARIABLE: &str = "KUBEVITALS_STEPS";

/// Steps done so far, for the summary at the end.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    done: Vec<(String, Duration)>,
}

/// The root of the repository.
///
/// Asked of the cargo that runs us: clones that share a target folder can share this program too,
/// and where it was compiled is then not where it runs.
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

    /// Keeps the duration of something that was part of a step.
    pub(crate) fn note(&mut self, name: &str, took: Duration) {
        self.done.push((format!("  {name}"), took));
    }

    /// Where the time went; also for who runs several commands and wants to know at the end.
    pub(crate) fn print(&self) {
        println!("=== steps");
        for line in self.lines() {
            println!("{line}");
        }
        if let Some(file) = std::env::var_os(STEPS_VARIABLE)
            && let Err(error) = self.append(Path::new(&file))
        {
            println!("cannot note the steps: {error}");
        }
    }

    fn append(&self, file: &Path) -> std::io::Result<()> {
        let mut text = self.lines().collect::<Vec<_>>().join("\n");
        text.push('\n');
        let file = OpenOptions::new().create(true).append(true).open(file);
        file?.write_all(text.as_bytes())
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        let line =
            |(name, took): &(String, Duration)| format!("{:>8.1} s  {name}", took.as_secs_f64());
        self.done.iter().map(line)
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
        second.note("test usage::cpu", Duration::from_millis(12_340));
        second.append(&file).unwrap();
        assert_eq!(
            std::fs::read_to_string(&file).unwrap(),
            "     0.0 s  lints\n    12.3 s    test usage::cpu\n"
        );
    }
}
