//! Folders and files, read relative to open folders into one buffer.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, SeekFrom, StatxFlags, openat, seek, statat, statx,
};
use rustix::io::{Errno, pread};

use crate::error::Fault;

/// The first size of the buffer; what the kernel writes for a cgroup fits.
const BUFFER: usize = 64 << 10;

/// The largest file that is read: `net/dev` of a node with many thousand interfaces.
const MAX_FILE: usize = 4 << 20;

/// A part of a file of many records that is shorter than this is the last one: the kernel fills a
/// page with as many records as fit, and none is longer than half of it.
const SHORT: usize = 2048;

/// The buffer for entries of folders.
const ENTRIES: usize = 32 << 10;

/// What files are read into.
pub(crate) struct Buffer {
    content: Vec<u8>,
    entries: Box<[MaybeUninit<u8>]>,
}

/// An open folder.
#[derive(Debug)]
pub(crate) struct Folder(OwnedFd);

/// A state of a folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FolderVersion {
    links: u32,
    seconds: i64,
    nanos: u32,
}

/// How a file is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reads {
    /// The kernel returns all of it at once.
    One,
    /// The kernel returns it in parts: files of many records.
    Many,
}

impl Buffer {
    pub(crate) fn new() -> Self {
        Self {
            content: vec![0; BUFFER],
            entries: Box::new_uninit_slice(ENTRIES),
        }
    }

    /// Reads an open file from its start.
    pub(crate) fn read(&mut self, file: BorrowedFd<'_>, reads: Reads) -> Result<&[u8], Fault> {
        let mut length = 0;
        loop {
            let Some(room) = self.content.get_mut(length..) else {
                return Err(Fault::TooLarge);
            };
            let count = match pread(file, room, length as u64) {
                Ok(count) => count,
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            length += count;
            let is_full = length == self.content.len();
            let is_short = reads == Reads::One || count < SHORT;
            if count == 0 || (is_short && !is_full) {
                break;
            }
            if is_full {
                if length >= MAX_FILE {
                    return Err(Fault::TooLarge);
                }
                self.content.resize((length * 4).min(MAX_FILE), 0);
            }
        }
        Ok(self.content.get(..length).unwrap_or_default())
    }

    /// Opens, reads and closes a file.
    pub(crate) fn read_at(
        &mut self,
        folder: &Folder,
        name: &CStr,
        reads: Reads,
    ) -> Result<&[u8], Fault> {
        let file = folder.open_file(name)?;
        self.read(file.as_fd(), reads)
    }

    /// Calls a function for each folder in a folder. Links are left out.
    pub(crate) fn subfolders(
        &mut self,
        folder: &Folder,
        mut each: impl FnMut(&CStr),
    ) -> Result<(), Fault> {
        self.entries(folder, |name, kind| match kind {
            FileType::Directory => each(name),
            // Some file systems do not say. The name is opened as a folder only.
            FileType::Unknown if !name.to_bytes().starts_with(b".") => each(name),
            _ => {}
        })
    }

    /// Calls a function for each entry of a folder.
    pub(crate) fn entries(
        &mut self,
        folder: &Folder,
        mut each: impl FnMut(&CStr, FileType),
    ) -> Result<(), Fault> {
        seek(&folder.0, SeekFrom::Start(0))?;
        let mut entries = RawDir::new(&folder.0, &mut self.entries);
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name();
            if !matches!(name.to_bytes(), b"." | b"..") {
                each(name, entry.file_type());
            }
        }
        Ok(())
    }
}

impl Folder {
    /// Opens a folder by its path, following links: the roots are given by the operator.
    pub(crate) fn open(path: &Path) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, path, flags, Mode::empty()).map(Self)
    }

    /// Opens a folder in this one, without following links.
    pub(crate) fn open_folder(&self, name: &CStr) -> Result<Self, Errno> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        openat(&self.0, name, flags, Mode::empty()).map(Self)
    }

    /// Opens a file in this folder, without following links and without waiting for a pipe.
    pub(crate) fn open_file(&self, name: &CStr) -> Result<OwnedFd, Errno> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        openat(&self.0, name, flags, Mode::empty())
    }

    /// The time of the last modification of an entry, or of the folder itself (`.`), in
    /// milliseconds since the epoch.
    pub(crate) fn modified_millis(&self, name: &CStr) -> Option<i64> {
        let stat = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let nanos = i64::try_from(stat.st_mtime_nsec).ok()?;
        stat.st_mtime
            .checked_mul(1000)?
            .checked_add(nanos / 1_000_000)
    }

    /// What changes when a folder is made or removed in this one: the number of links, which the
    /// kernel counts, and on most file systems the time of the last modification. `None` where
    /// links are not counted.
    pub(crate) fn version(&self) -> Option<FolderVersion> {
        let wanted = StatxFlags::NLINK | StatxFlags::MTIME;
        let stat = statx(&self.0, c"", AtFlags::EMPTY_PATH, wanted).ok()?;
        let version = FolderVersion {
            links: stat.stx_nlink,
            seconds: stat.stx_mtime.tv_sec,
            nanos: stat.stx_mtime.tv_nsec,
        };
        (version.links >= 2).then_some(version)
    }

    /// The size of an entry, if it is a regular file.
    pub(crate) fn file_size(&self, name: &CStr) -> Option<u64> {
        let stat = statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_file = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
        is_file.then(|| u64::try_from(stat.st_size).ok()).flatten()
    }
}

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
