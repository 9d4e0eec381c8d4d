//! The files of a log: names, order, opening.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat, openat2};

/// The maximum number of rotated files that are read; a kubelet keeps four.
const MAX_ROTATED: usize = 64;

/// The maximum number of folder entries that are looked at.
const MAX_ENTRIES: usize = 4096;

/// The log of one instance of a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogPath {
    folder: PathBuf,
    instance: u32,
    root: PathBuf,
}

/// A rotated file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rotated {
    /// `YYYYMMDD-hhmmss`, which sorts by time.
    pub(crate) stamp: String,
    pub(crate) is_compressed: bool,
    pub(crate) path: PathBuf,
}

/// The identity of an open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileId {
    device: u64,
    inode: u64,
}

impl LogPath {
    /// The log of the n-th instance of the container whose logs are in `folder`.
    pub fn new(folder: impl Into<PathBuf>, instance: u32) -> Self {
        Self {
            folder: folder.into(),
            instance,
            root: PathBuf::from("/"),
        }
    }

    /// Sets the folder in which the file system of the host is mounted. Docker's logs are links,
    /// which are followed inside of it.
    #[must_use]
    pub fn with_root(mut self, root: impl Into<PathBuf>) -> Self {
        self.root = root.into();
        self
    }

    /// The instances that have a log in `folder`, the newest last.
    pub fn instances(folder: &Path) -> io::Result<Vec<u32>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(folder)?.take(MAX_ENTRIES) {
            let name = entry?.file_name();
            let number = name.to_str().and_then(|name| name.strip_suffix(".log"));
            found.extend(number.and_then(|number| number.parse::<u32>().ok()));
        }
        found.sort_unstable();
        Ok(found)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file that is being written.
    pub fn current(&self) -> PathBuf {
        self.folder.join(format!("{}.log", self.instance))
    }

    /// The name of the current file after a rotation.
    pub(crate) fn rotated_name(&self, stamp: &str) -> PathBuf {
        self.folder.join(format!("{}.log.{stamp}", self.instance))
    }

    /// Opens the current file. A link is followed if it is one of Docker's: who can write links
    /// into the folder of logs must not be able to read other files through us.
    pub(crate) fn open_current(&self) -> io::Result<File> {
        let path = self.current();
        match open_regular(&path) {
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error()) => {
                let target = fs::read_link(&path)?;
                let name = target.file_name().and_then(|name| name.to_str());
                if !name.is_some_and(|name| name.ends_with("-json.log")) {
                    let message = format!("{} is a link, which is not followed", path.display());
                    return Err(io::Error::new(ErrorKind::InvalidInput, message));
                }
                let root = openat(
                    CWD,
                    &self.root,
                    OFlags::PATH | OFlags::CLOEXEC,
                    Mode::empty(),
                )?;
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
                let file = openat2(&root, &target, flags, Mode::empty(), ResolveFlags::IN_ROOT)?;
                require_regular(File::from(file), &target)
            }
            other => other,
        }
    }

    /// Lists the rotated files, the oldest first. A file that is being compressed is listed once.
    pub(crate) fn rotated(&self) -> io::Result<Vec<Rotated>> {
        let prefix = format!("{}.log.", self.instance);
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.folder)?.take(MAX_ENTRIES) {
            let entry = entry?;
            let name = entry.file_name();
            let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(&prefix)) else {
                continue;
            };
            let stamp = rest.strip_suffix(".gz");
            let is_compressed = stamp.is_some();
            let stamp = stamp.unwrap_or(rest);
            if is_stamp(stamp) {
                found.push(Rotated {
                    stamp: stamp.to_owned(),
                    is_compressed,
                    path: entry.path(),
                });
            }
        }
        found.sort_unstable();
        // The plain file comes first, and is complete until it is removed.
        found.dedup_by(|second, first| second.stamp == first.stamp);
        let excess = found.len().saturating_sub(MAX_ROTATED);
        found.drain(..excess);
        Ok(found)
    }
}

impl FileId {
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        Ok(Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        })
    }
}

/// Opens a regular file, without following a link and without waiting for a writer of a pipe.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = openat(CWD, path, flags, Mode::empty())?;
    require_regular(File::from(file), path)
}

fn require_regular(file: File, path: &Path) -> io::Result<File> {
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    let message = format!("{} is not a regular file", path.display());
    Err(io::Error::new(ErrorKind::InvalidInput, message))
}

/// Whether a suffix is `YYYYMMDD-hhmmss`.
fn is_stamp(text: &str) -> bool {
    text.len() == 15
        && text.bytes().enumerate().all(|(index, byte)| match index {
            8 => byte == b'-',
            _ => byte.is_ascii_digit(),
        })
}
