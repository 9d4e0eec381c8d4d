//! Errors of reading a host.

use std::io;
use std::path::PathBuf;

use rustix::io::Errno;

/// Why a host cannot be read at all. What fails for one cgroup is a [`Fault`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// The cgroup file system is missing, or not visible.
    #[error("cannot open {path}: {source}; mount the cgroup file system of the host there")]
    Cgroups {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// `/proc` is missing.
    #[error("cannot open {path}: {source}; mount /proc of the host there")]
    Proc {
        /// The folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Cgroup v1 without the hierarchies that are needed.
    #[error("no cgroup hierarchy for cpuacct and memory below {path}")]
    NoHierarchy {
        /// The folder.
        path: PathBuf,
    },
    /// The sampler has ended.
    #[error("the sampler has stopped")]
    Stopped,
    /// A sample did not end, because the sampler panicked.
    #[error("a sample of the host failed: {0}")]
    Failed(String),
}

/// Why one value, file or cgroup is missing from a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The cgroup was removed while it was read.
    Vanished,
    /// This process may not read it.
    Permission,
    /// The file is larger than any that the kernel writes.
    TooLarge,
    /// The content is not what the kernel writes.
    Malformed,
    /// There are more cgroups than the limit.
    TooMany,
    /// Another cgroup, nearer to the root, has the UID of the same pod.
    Duplicate,
    /// Too many files are open.
    OpenFiles,
    /// Another error of the operating system.
    Io,
}

/// The number of faults of each kind in one sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults([u64; Fault::ALL.len()]);

impl Fault {
    pub const ALL: [Self; 8] = [
        Self::Vanished,
        Self::Permission,
        Self::TooLarge,
        Self::Malformed,
        Self::TooMany,
        Self::Duplicate,
        Self::OpenFiles,
        Self::Io,
    ];

    /// The value of the label `reason`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Vanished => "vanished",
            Self::Permission => "permission",
            Self::TooLarge => "too_large",
            Self::Malformed => "malformed",
            Self::TooMany => "too_many",
            Self::Duplicate => "duplicate",
            Self::OpenFiles => "open_files",
            Self::Io => "io",
        }
    }
}

impl From<Errno> for Fault {
    fn from(error: Errno) -> Self {
        match error {
            Errno::NOENT | Errno::NODEV | Errno::SRCH => Self::Vanished,
            Errno::ACCESS | Errno::PERM => Self::Permission,
            Errno::MFILE | Errno::NFILE => Self::OpenFiles,
            _ => Self::Io,
        }
    }
}

impl Faults {
    pub(crate) fn add(&mut self, fault: Fault) {
        if let Some(count) = self.0.get_mut(fault as usize) {
            *count += 1;
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }

    /// The number of faults of a kind.
    pub fn count(&self, fault: Fault) -> u64 {
        self.0.get(fault as usize).copied().unwrap_or(0)
    }

    /// The number of all faults.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}
