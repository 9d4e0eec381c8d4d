//! Building a program once: concurrent runs wait for each other, and a program in the cache is
//! complete.

use std::collections::VecDeque;
use std::fs::{File, TryLockError};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::make;
use super::progress::Progress;
use super::table::Goal;

/// A program in the cache, and the arguments of its build.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The folder of the built program; its name depends on all inputs of the build.
    pub(crate) folder: PathBuf,
    pub(crate) goal: Goal,
    pub(crate) arguments: Vec<String>,
}

/// Lines that are shown of a failed build's output.
const MAX_TAIL_LINES: usize = 40;

/// Interval of progress updates without new output.
const TICK_INTERVAL: Duration = Duration::from_millis(500);

impl Entry {
    /// Returns the path of the program.
    pub(crate) fn program(&self) -> PathBuf {
        self.folder.join(&self.name)
    }

    fn title(&self) -> String {
        format!("{} {}", self.name, self.version)
    }

    fn folder_name(&self) -> String {
        self.folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    }

    /// Returns the folder that this process builds into, beside the final one.
    fn part(&self) -> PathBuf {
        let process = std::process::id();
        self.folder
            .with_file_name(format!(".part-{}-{process}", self.folder_name()))
    }
}

/// Returns the path of the program, built by `build` into the given folder if it is missing.
///
/// An existing program is complete: its folder is renamed as the last step.
pub(crate) fn ensure(
    entry: &Entry,
    build: &mut dyn FnMut(&Entry, &Path) -> Result<()>,
) -> Result<PathBuf> {
    let program = entry.program();
    if program.is_file() {
        return Ok(program);
    }
    let _lock = lock(entry)?;
    // The previous holder of the lock may have built it.
    if program.is_file() {
        return Ok(program);
    }
    remove_parts(entry)?;
    let part = entry.part();
    make(&part)?;
    let built = build(entry, &part).and_then(|()| {
        if !part.join(&entry.name).is_file() {
            bail!("the build of {} produced no program", entry.title());
        }
        // A folder without its program was not made here; it would block the rename.
        remove(&entry.folder)?;
        std::fs::rename(&part, &entry.folder)
            .with_context(|| format!("cannot create {}", entry.folder.display()))
    });
    if built.is_err() {
        // The error is the build's; the next run removes the folder if this fails.
        let _ = remove(&part);
    }
    built.map(|()| program)
}

/// Builds with Go from the module in `module`.
pub(crate) fn with_go(entry: &Entry, folder: &Path, module: &Path) -> Result<()> {
    let started = Instant::now();
    let mut progress = Progress::new(entry.title());
    if !installed() {
        bail!(
            "{} is built with Go, and there is no `go`: install Go 1.26 or newer",
            entry.title()
        );
    }
    println!("building {} into the cache", entry.title());
    let mut failed = None;
    // A proxy may be slow for a moment: fetching is retried once, compiling never.
    for _ in 0..2 {
        let mut list = go(module);
        list.args(["list", "-deps"]);
        if entry.goal == Goal::Tests {
            list.arg("-test");
        }
        list.args(&entry.arguments);
        list.stdout(Stdio::null());
        failed = run_with_progress(&mut list, &mut |lines| {
            progress.tick(started.elapsed(), &activity("fetching modules", lines));
        })?;
        if failed.is_none() {
            break;
        }
    }
    if failed.is_none() {
        let mut build = go(module);
        match entry.goal {
            Goal::Command => build.args(["build", "-v", "-o"]),
            Goal::Tests => build.args(["test", "-c", "-o"]),
        };
        build.arg(folder.join(&entry.name));
        build.args(&entry.arguments).stdout(Stdio::null());
        failed = run_with_progress(&mut build, &mut |lines| {
            progress.tick(started.elapsed(), &activity("compiling", lines));
        })?;
    }
    if let Some(output) = failed {
        progress.end(started.elapsed(), "failed");
        bail!("cannot build {}:\n{output}", entry.title());
    }
    progress.end(started.elapsed(), "built");
    Ok(())
}

fn installed() -> bool {
    let version = Command::new("go")
        .arg("version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    version.is_ok_and(|status| status.success())
}

/// Returns Go with the user's caches and proxy, and without other settings that would change the
/// build.
fn go(module: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(module)
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-mod=readonly")
        .env("GOWORK", "off")
        // The compiler collects garbage less often: a quarter less CPU for a quarter more memory
        // (k8s.io/api/core/v1: 7.8 s instead of 10.5, 584 MB instead of 461).
        .env("GOGC", "400")
        .env_remove("GOOS")
        .env_remove("GOARCH")
        .stdin(Stdio::null());
    go
}

/// Runs a command, calling `tick` regularly with the state of its standard error.
///
/// Returns the end of its output if it failed.
fn run_with_progress(
    command: &mut Command,
    tick: &mut dyn FnMut(Output<'_>),
) -> Result<Option<String>> {
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let lines = lines_of(&mut child);
    let mut tail = VecDeque::with_capacity(MAX_TAIL_LINES);
    let mut count = 0;
    loop {
        match lines.recv_timeout(TICK_INTERVAL) {
            Ok(line) => {
                count += 1;
                if tail.len() == MAX_TAIL_LINES {
                    tail.pop_front();
                }
                tail.push_back(line);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        tick(Output {
            lines: count,
            last: tail.back().map_or("", String::as_str),
        });
    }
    let status = child.wait().context("waiting for the build")?;
    if status.success() {
        return Ok(None);
    }
    tail.push_back(format!("({status})"));
    Ok(Some(tail.into_iter().collect::<Vec<_>>().join("\n")))
}

/// The output of a command so far.
#[derive(Debug, Clone, Copy)]
struct Output<'a> {
    lines: usize,
    last: &'a str,
}

fn activity(name: &str, output: Output<'_>) -> String {
    if output.lines == 0 {
        return name.to_owned();
    }
    format!("{name}, {}: {}", output.lines, output.last)
}

/// Returns the lines of the child's standard error, read by a thread that ends with them.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(64);
    if let Some(output) = child.stderr.take() {
        std::thread::spawn(move || {
            // Lines are limited in length.
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while (&mut output)
                .take(4096)
                .read_until(b'\n', &mut line)
                .is_ok_and(|read| read > 0)
            {
                let text = String::from_utf8_lossy(&line).trim_end().to_owned();
                if sender.send(text).is_err() {
                    break;
                }
                line.clear();
            }
        });
    }
    receiver
}

/// Locks this entry until the file is dropped or the process ends.
fn lock(entry: &Entry) -> Result<File> {
    let folder = entry.folder.with_file_name(".locks");
    make(&folder)?;
    let path = folder.join(entry.folder_name());
    let cannot = || format!("cannot lock {}", path.display());
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(&path)
        .with_context(cannot)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            println!("waiting for another build of {}", entry.title());
            file.lock().with_context(cannot)?;
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
    }
    Ok(file)
}

/// Removes the folders of runs that were killed. Called under the lock: nobody else builds this
/// entry now.
fn remove_parts(entry: &Entry) -> Result<()> {
    let prefix = format!(".part-{}-", entry.folder_name());
    let parent = entry.folder.parent().context("the program has no folder")?;
    for found in std::fs::read_dir(parent).context("reading the cache")? {
        let path = found?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(&prefix) {
            remove(&path)?;
        }
    }
    Ok(())
}

fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
