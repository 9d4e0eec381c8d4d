//! The log of a container in the format of the CRI, with rotation.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::record::LogPlan;

/// As containerd: longer lines are written in parts.
const MAX_LINE_BYTES: usize = 16 << 10;

/// A stream of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// Writes lines as `2026-01-02T03:04:05.000000006Z stdout F text`.
#[derive(Debug)]
pub(crate) struct LogWriter {
    plan: LogPlan,
    file: Option<File>,
    bytes: u64,
    /// The unfinished lines of both streams.
    pending: [Vec<u8>; 2],
}

impl LogWriter {
    /// Opens the log for appending.
    pub(crate) fn open(plan: LogPlan) -> io::Result<Self> {
        if let Some(folder) = plan.path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = append(&plan.path)?;
        Ok(Self {
            bytes: file.metadata()?.len(),
            plan,
            file: Some(file),
            pending: [Vec::new(), Vec::new()],
        })
    }

    /// Writes output. Complete lines are written at once, an unfinished one is held up to its
    /// limit.
    pub(crate) fn write(&mut self, stream: Stream, mut data: &[u8]) -> io::Result<()> {
        let mut lines = Vec::with_capacity(data.len() + 64);
        let time = jiff::Timestamp::now();
        let [stdout, stderr] = &mut self.pending;
        let pending = match stream {
            Stream::Stdout => stdout,
            Stream::Stderr => stderr,
        };
        while !data.is_empty() {
            let room = MAX_LINE_BYTES.saturating_sub(pending.len());
            let window = data.get(..data.len().min(room)).unwrap_or(data);
            if let Some(end) = window.iter().position(|byte| *byte == b'\n') {
                pending.extend_from_slice(window.get(..end).unwrap_or_default());
                line(&mut lines, time, stream, "F", pending);
                pending.clear();
                data = data.get(end + 1..).unwrap_or_default();
            } else {
                pending.extend_from_slice(window);
                data = data.get(window.len()..).unwrap_or_default();
                // A line that ends exactly here is complete.
                if pending.len() == MAX_LINE_BYTES && data.first() != Some(&b'\n') {
                    line(&mut lines, time, stream, "P", pending);
                    pending.clear();
                } else if pending.len() == MAX_LINE_BYTES {
                    line(&mut lines, time, stream, "F", pending);
                    pending.clear();
                    data = data.get(1..).unwrap_or_default();
                }
            }
        }
        self.append(&lines)
    }

    /// Writes what is unfinished, at the end of the output.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let mut lines = Vec::new();
        let time = jiff::Timestamp::now();
        for (stream, pending) in [Stream::Stdout, Stream::Stderr]
            .into_iter()
            .zip(&mut self.pending)
        {
            if !pending.is_empty() {
                // As containerd: the rest is a partial line.
                line(&mut lines, time, stream, "P", pending);
                pending.clear();
            }
        }
        self.append(&lines)
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        if lines.is_empty() {
            return Ok(());
        }
        if self.bytes > 0 && self.bytes.saturating_add(lines.len() as u64) > self.plan.max_bytes {
            // A log that cannot be rotated grows: losing output is worse.
            let _ = self.rotate();
        }
        if self.file.is_none() {
            self.file = Some(append(&self.plan.path)?);
        }
        if let Some(file) = &mut self.file {
            file.write_all(lines)?;
            self.bytes = self.bytes.saturating_add(lines.len() as u64);
        }
        Ok(())
    }

    fn rotate(&mut self) -> io::Result<()> {
        let now = jiff::Timestamp::now().strftime("%Y%m%d-%H%M%S").to_string();
        let mut target = with_suffix(&self.plan.path, &format!(".{now}"));
        let mut count = 1;
        while target.exists() {
            target = with_suffix(&self.plan.path, &format!(".{now}.{count}"));
            count += 1;
        }
        fs::rename(&self.plan.path, target)?;
        self.file = None;
        self.bytes = 0;
        let mut rotated = rotated_files(&self.plan.path)?;
        let excess = (rotated.len() + 1).saturating_sub(self.plan.max_files.max(2));
        for old in rotated.drain(..excess.min(rotated.len())) {
            fs::remove_file(old)?;
        }
        Ok(())
    }
}

/// The rotated files of a log, the oldest first.
pub(crate) fn rotated_files(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(Vec::new());
    };
    let mut prefix = name.to_owned();
    prefix.push(".");
    let mut found: Vec<PathBuf> = fs::read_dir(folder)?
        .flatten()
        .filter(|entry| {
            entry
                .file_name()
                .as_encoded_bytes()
                .starts_with(prefix.as_encoded_bytes())
        })
        .map(|entry| entry.path())
        .collect();
    found.sort();
    Ok(found)
}

fn append(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    File::options().append(true).create(true).mode(0o640).open(path)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(suffix);
    PathBuf::from(name)
}

fn line(out: &mut Vec<u8>, time: jiff::Timestamp, stream: Stream, tag: &str, text: &[u8]) {
    let stream = match stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    out.extend_from_slice(format!("{time:.9} {stream} {tag} ").as_bytes());
    out.extend_from_slice(text);
    out.push(b'\n');
}
