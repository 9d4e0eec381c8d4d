//! Building a program once: two runs never build the same at once, and half a program is never
//! seen.

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

/// Where a program belongs in the cache, and how it is built.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The folder that holds the program once it is built; its name changes with all that goes into
    /// the build.
    pub(crate) folder: PathBuf,
    pub(crate) arguments: Vec<String>,
}

/// How much of a failed build's output is shown.
const TAIL: usize = 40;

/// How often the progress is looked at while nothing else happens.
const TICK: Duration = Duration::from_millis(500);

impl Entry {
    /// The program's file.
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

    /// The folder that is built into: of this process alone, next to the place that it is moved to.
    fn part(&self) -> PathBuf {
        let process = std::process::id();
        self.folder
            .with_file_name(format!(".part-{}-{process}", self.folder_name()))
    }
}

/// The program, built by `build` into a folder that it is given unless it is there already.
///
/// A program that is there is complete: its folder is moved into place as the last step.
pub(crate) fn ensure(
    entry: &Entry,
    build: &mut dyn FnMut(&Entry, &Path) -> Result<()>,
) -> Result<PathBuf> {
    let program = entry.program();
    if program.is_file() {
        return Ok(program);
    }
    let _lock = lock(entry)?;
    // Whoever had the lock before us has built it, perhaps.
    if program.is_file() {
        return Ok(program);
    }
    remove_parts(entry)?;
    let part = entry.part();
    make(&part)?;
    let built = build(entry, &part).and_then(|()| {
        if !part.join(&entry.name).is_file() {
            bail!("the build of {} left no program", entry.title());
        }
        // A folder without its program is nothing that `ensure` made; it must not stand in the way.
        remove(&entry.folder)?;
        std::fs::rename(&part, &entry.folder)
            .with_context(|| format!("cannot make {}", entry.folder.display()))
    });
    if built.is_err() {
        // The reason is the build's; a folder that stays is removed by the next run.
        let _ = remove(&part);
    }
    built.map(|()| program)
}

/// Builds with Go, from the module in `module`.
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
    // A proxy that is slow for a moment is no finding: fetching may be tried twice, compiling
    // never.
    for _ in 0..2 {
        let mut list = go(module);
        list.args(["list", "-deps"]).args(&entry.arguments);
        list.stdout(Stdio::null());
        failed = watched(&mut list, &mut |lines| {
            progress.tick(started.elapsed(), &doing("fetching modules", lines));
        })?;
        if failed.is_none() {
            break;
        }
    }
    if failed.is_none() {
        let mut build = go(module);
        build
            .args(["build", "-v", "-o"])
            .arg(folder.join(&entry.name));
        build.args(&entry.arguments).stdout(Stdio::null());
        failed = watched(&mut build, &mut |lines| {
            progress.tick(started.elapsed(), &doing("compiling", lines));
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

/// Go with the user's own caches and proxy, and with nothing else of theirs that would change what
/// is built.
fn go(module: &Path) -> Command {
    let mut go = Command::new("go");
    go.current_dir(module)
        .env("CGO_ENABLED", "0")
        .env("GOFLAGS", "-mod=readonly")
        .env("GOWORK", "off")
        .env_remove("GOOS")
        .env_remove("GOARCH")
        .stdin(Stdio::null());
    go
}

/// Runs a command to its end, telling `tick` every so often how many lines it has said and which
/// was the last.
///
/// Gives the end of its output if it failed.
fn watched(command: &mut Command, tick: &mut dyn FnMut(Said<'_>)) -> Result<Option<String>> {
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {}", command.get_program().display()))?;
    let lines = lines_of(&mut child);
    let mut tail = VecDeque::with_capacity(TAIL);
    let mut count = 0;
    loop {
        match lines.recv_timeout(TICK) {
            Ok(line) => {
                count += 1;
                if tail.len() == TAIL {
                    tail.pop_front();
                }
                tail.push_back(line);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        tick(Said {
            count,
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

/// What a command has said so far.
#[derive(Debug, Clone, Copy)]
struct Said<'a> {
    count: usize,
    last: &'a str,
}

fn doing(what: &str, said: Said<'_>) -> String {
    if said.count == 0 {
        return what.to_owned();
    }
    format!("{what}, {}: {}", said.count, said.last)
}

/// The lines of the child's standard error, read by a thread that ends with them.
fn lines_of(child: &mut Child) -> Receiver<String> {
    let (sender, receiver) = mpsc::sync_channel(64);
    if let Some(output) = child.stderr.take() {
        std::thread::spawn(move || {
            // A line without end is cut: whatever it is, its beginning says enough.
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

/// Held while this entry is built. The system lets go of it when the process ends, however it ends.
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
            println!("waiting for another run that builds {}", entry.title());
            file.lock().with_context(cannot)?;
        }
        Err(TryLockError::Error(error)) => return Err(error).with_context(cannot),
    }
    Ok(file)
}

/// What runs that were killed left behind. Called under the lock: nobody else builds this entry
/// now.
fn remove_parts(entry: &Entry) -> Result<()> {
    let prefix = format!(".part-{}-", entry.folder_name());
    let parent = entry
        .folder
        .parent()
        .context("a program without a folder")?;
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
