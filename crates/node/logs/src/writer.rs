//! Writes a log and rotates it.

use std::borrow::Cow;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use kubevitals_model::Timestamp;
use memchr::memchr;

use crate::files::LogPath;
use crate::line::{LogLine, Stream};

/// The length at which a line is split, as containerd does.
const MAX_TEXT: usize = 16 << 10;

/// When a log is rotated, and how much of it is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogLimits {
    /// The size at which a file is rotated.
    pub max_bytes: u64,
    /// The maximum number of files, the current one included; at least one.
    pub max_files: usize,
}

/// Writes what a container writes as lines of CRI, and rotates at a size. It holds at most one
/// incomplete line of 16 KiB for each stream.
pub struct LogWriter {
    path: LogPath,
    limits: LogLimits,
    file: File,
    size: u64,
    /// The size at which the next rotation is due.
    rotate_at: u64,
    /// Incomplete lines of `stdout` and `stderr`.
    incomplete: [Vec<u8>; 2],
    /// Lines that are not written yet.
    pending: Vec<u8>,
    /// Whether the file may end in the middle of a line.
    is_torn: bool,
    last_rotation: Option<Timestamp>,
    cleanup: Option<JoinHandle<io::Result<()>>>,
    now: Box<dyn FnMut() -> SystemTime + Send>,
}

impl Default for LogLimits {
    /// The kubelet's: 10 MiB, 5 files.
    fn default() -> Self {
        Self {
            max_bytes: 10 << 20,
            max_files: 5,
        }
    }
}

impl LogWriter {
    /// Opens the current file of `path`, and appends to it if it exists. Creates the folder.
    pub fn open(path: LogPath, limits: LogLimits) -> io::Result<Self> {
        Self::open_with_clock(path, limits, SystemTime::now)
    }

    /// The same with another clock.
    pub fn open_with_clock(
        path: LogPath,
        limits: LogLimits,
        now: impl FnMut() -> SystemTime + Send + 'static,
    ) -> io::Result<Self> {
        fs::create_dir_all(path.folder())?;
        let mut file = create(&path)?;
        let size = file.seek(SeekFrom::End(0))?;
        let mut last = [b'\n'];
        if size > 0 {
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
        }
        Ok(Self {
            path,
            limits,
            file,
            size,
            rotate_at: limits.max_bytes,
            incomplete: [Vec::new(), Vec::new()],
            pending: Vec::new(),
            is_torn: last != [b'\n'],
            last_rotation: None,
            cleanup: None,
            now: Box::new(now),
        })
    }

    /// Writes what a container wrote to a stream, in parts of any size. After an error, such as a
    /// full disk, the lines of this call may be lost; the next call can succeed.
    pub fn write(&mut self, stream: Stream, bytes: &[u8]) -> io::Result<()> {
        let mut incomplete = std::mem::take(self.incomplete_mut(stream));
        let result = self.split(stream, bytes, &mut incomplete);
        *self.incomplete_mut(stream) = incomplete;
        result?;
        self.flush()
    }

    /// Writes incomplete lines, as partial ones, and waits for the compression of rotated files.
    pub fn finish(mut self) -> io::Result<()> {
        for stream in [Stream::Stdout, Stream::Stderr] {
            let rest = std::mem::take(self.incomplete_mut(stream));
            if !rest.is_empty() {
                self.line(stream, &rest, true)?;
            }
        }
        self.flush()?;
        self.join_cleanup()
    }

    fn incomplete_mut(&mut self, stream: Stream) -> &mut Vec<u8> {
        let [stdout, stderr] = &mut self.incomplete;
        match stream {
            Stream::Stdout => stdout,
            Stream::Stderr => stderr,
        }
    }

    fn split(
        &mut self,
        stream: Stream,
        mut bytes: &[u8],
        incomplete: &mut Vec<u8>,
    ) -> io::Result<()> {
        while !bytes.is_empty() {
            let end = memchr(b'\n', bytes);
            let part = bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(bytes);
            let room = MAX_TEXT - incomplete.len();
            if part.len() > room {
                let (now, later) = bytes.split_at(room);
                incomplete.extend_from_slice(now);
                bytes = later;
                let result = self.line(stream, incomplete, true);
                incomplete.clear();
                result?;
            } else if end.is_some() {
                bytes = bytes.get(part.len() + 1..).unwrap_or_default();
                if incomplete.is_empty() {
                    self.line(stream, part, false)?;
                } else {
                    incomplete.extend_from_slice(part);
                    let result = self.line(stream, incomplete, false);
                    incomplete.clear();
                    result?;
                }
            } else {
                incomplete.extend_from_slice(part);
                bytes = &[];
            }
        }
        Ok(())
    }

    fn line(&mut self, stream: Stream, text: &[u8], is_partial: bool) -> io::Result<()> {
        let now = (self.now)();
        let line = LogLine {
            time: Cow::Owned(rfc3339_nanos(now)),
            at: Timestamp::from_system_time(now),
            stream,
            is_partial,
            text: Cow::Borrowed(text),
        };
        line.write_cri(&mut self.pending);
        if self.size + self.pending.len() as u64 >= self.rotate_at {
            self.flush()?;
            self.rotate(now)?;
        } else if self.pending.len() >= 4 * MAX_TEXT {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        if self.is_torn {
            self.pending.insert(0, b'\n');
        }
        // Until it is known that all was written.
        self.is_torn = true;
        let result = self.file.write_all(&self.pending);
        if result.is_ok() {
            self.is_torn = false;
            self.size += self.pending.len() as u64;
        }
        self.pending.clear();
        result
    }

    fn rotate(&mut self, now: SystemTime) -> io::Result<()> {
        // If the rotation fails, the next is tried after as much text again.
        self.rotate_at = self.size + self.limits.max_bytes;
        self.join_cleanup()?;
        let mut at = Timestamp::from_system_time(now);
        if let Some(last) = self.last_rotation {
            // Names have seconds only, and must sort.
            at = at.max(last.checked_add(Duration::from_secs(1)).unwrap_or(last));
        }
        let rotated = loop {
            let name = self.path.rotated_name(&stamp(at));
            let compressed = name.with_added_extension("gz");
            if !name.exists() && !compressed.exists() {
                break name;
            }
            at = at
                .checked_add(Duration::from_secs(1))
                .ok_or_else(|| io::Error::other("no name is left for a rotated log"))?;
        };
        self.last_rotation = Some(at);
        fs::rename(self.path.current(), rotated)?;
        self.file = create(&self.path)?;
        self.size = 0;
        self.rotate_at = self.limits.max_bytes;
        self.is_torn = false;
        let (path, max_files) = (self.path.clone(), self.limits.max_files);
        // On a thread of its own: the container must not wait for the compression.
        let cleanup = std::thread::Builder::new()
            .name("log-cleanup".to_owned())
            .spawn(move || clean_up(&path, max_files))?;
        self.cleanup = Some(cleanup);
        Ok(())
    }

    fn join_cleanup(&mut self) -> io::Result<()> {
        match self.cleanup.take().map(JoinHandle::join) {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(error),
            Some(Err(_)) => Err(io::Error::other("the cleanup of rotated logs panicked")),
        }
    }
}

fn create(path: &LogPath) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .append(true)
        .create(true)
        .open(path.current())
}

/// Removes the oldest rotated files beyond the limit, and compresses all but the newest.
fn clean_up(path: &LogPath, max_files: usize) -> io::Result<()> {
    let mut rotated = path.rotated()?;
    let excess = rotated.len().saturating_sub(max_files.saturating_sub(1));
    for file in rotated.drain(..excess) {
        fs::remove_file(&file.path)?;
    }
    rotated.pop();
    for file in rotated.iter().filter(|file| !file.is_compressed) {
        let partial = file.path.with_added_extension("tmp");
        let mut encoder = GzEncoder::new(File::create(&partial)?, Compression::default());
        io::copy(&mut File::open(&file.path)?, &mut encoder)?;
        encoder.finish()?;
        fs::rename(&partial, file.path.with_added_extension("gz"))?;
        fs::remove_file(&file.path)?;
    }
    Ok(())
}

/// RFC 3339 with nine digits of a second.
fn rfc3339_nanos(time: SystemTime) -> String {
    let millis = Timestamp::from_system_time(time).rfc3339_millis();
    let nanos = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| since.subsec_nanos() % 1_000_000);
    let millis = millis.as_str().trim_end_matches('Z');
    format!("{millis}{nanos:06}Z")
}

/// `YYYYMMDD-hhmmss`.
fn stamp(time: Timestamp) -> String {
    let text = time.rfc3339_seconds();
    let digits = text.as_str().bytes().filter_map(|byte| match byte {
        b'T' => Some('-'),
        b'0'..=b'9' => Some(char::from(byte)),
        _ => None,
    });
    digits.collect()
}
