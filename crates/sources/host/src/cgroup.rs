//! One cgroup: its open folders and files, and what was read of it before.

use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use kubevitals_model::Clock;
use kubevitals_model::node_stats::{CpuQuota, RateBase};
use rustix::fs::statfs;
use rustix::io::Errno;

use crate::error::{Fault, Faults, HostError};
use crate::file::{Buffer, Folder, Reads};

/// The type of the file system of cgroup v2.
const CGROUP2_MAGIC: u64 = 0x6367_7270;

/// The hierarchies of cgroup v1; version 2 has one.
const HIERARCHIES: usize = 5;

const CPUACCT: usize = 0;
const CPU: usize = 1;
const MEMORY: usize = 2;
const PIDS: usize = 3;
const BLKIO: usize = 4;

/// How often limits are read, in samples: they change with a resize of the pod only.
const LIMITS_INTERVAL: u32 = 6;

/// The version of the cgroup file system. Hybrid counts as version 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    V1,
    V2,
}

/// The mounted hierarchies.
#[derive(Debug)]
pub(crate) struct Hierarchies {
    pub(crate) version: CgroupVersion,
    roots: [Option<Folder>; HIERARCHIES],
}

/// An open cgroup.
#[derive(Debug)]
pub(crate) struct Cgroup {
    /// The path below the root.
    pub(crate) path: String,
    folders: [Option<Folder>; HIERARCHIES],
    /// The cgroup that crun makes inside that of a container: it has the limits and the processes.
    inner: Option<Folder>,
    slots: [Slot; Item::COUNT],
    /// The number of files that are kept open.
    pub(crate) kept: usize,
    pub(crate) limits: Limits,
    limits_due: u32,
    pub(crate) cpu: RateBase,
    /// Whether a file that was open is gone: the cgroup was removed, and perhaps made again.
    pub(crate) is_stale: bool,
    /// One of its processes, if its id is known in this pid namespace.
    pub(crate) process: Option<u32>,
}

/// What changes rarely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Limits {
    pub(crate) quota: Option<CpuQuota>,
    pub(crate) shares: Option<u64>,
    pub(crate) memory: Option<u64>,
    /// Of swap alone.
    pub(crate) swap: Option<u64>,
    pub(crate) threads: Option<u64>,
    /// Whether cgroup v1 counts descendants.
    pub(crate) is_hierarchy: bool,
}

/// A file of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Item {
    CpuStat,
    CpuUsage,
    CpuTicks,
    MemoryUsage,
    MemoryStat,
    SwapUsage,
    MemoryEvents,
    MemoryPeak,
    MemoryFailures,
    Threads,
    Processes,
    Io,
    IoOperations,
    CpuPressure,
    MemoryPressure,
    IoPressure,
    CpuMax,
    CpuPeriod,
    CpuWeight,
    MemoryLimit,
    SwapLimit,
    ThreadsLimit,
    UseHierarchy,
}

#[derive(Debug)]
enum Slot {
    Untried,
    Open(OwnedFd),
    Absent,
}

/// Where an item is.
struct Place {
    hierarchy: usize,
    /// The first that exists.
    names: &'static [&'static CStr],
    reads: Reads,
}

/// What reading cgroups needs besides the cgroup.
pub(crate) struct Context {
    pub(crate) version: CgroupVersion,
    pub(crate) clock: Clock,
    pub(crate) buffer: Buffer,
    pub(crate) faults: Faults,
    /// The number of cgroups that were read.
    pub(crate) cgroups: u64,
    /// The number of files that may be kept open, and that are.
    pub(crate) keep_files: usize,
    pub(crate) kept: usize,
}

impl Hierarchies {
    pub(crate) fn open(root: &Path) -> Result<Self, HostError> {
        let failed = |error: Errno| HostError::Cgroups {
            path: root.to_owned(),
            source: error.into(),
        };
        let folder = Folder::open(root).map_err(failed)?;
        let kind = statfs(root).map_err(failed)?.f_type;
        // A copy of a tree on another file system is told by its files.
        let is_v2 = u64::try_from(kind) == Ok(CGROUP2_MAGIC)
            || folder.open_file(c"cgroup.controllers").is_ok();
        if is_v2 {
            return Ok(Self {
                version: CgroupVersion::V2,
                roots: [Some(folder), None, None, None, None],
            });
        }
        let first = |names: &[&str]| {
            names
                .iter()
                .find_map(|name| Folder::open(&root.join(name)).ok())
        };
        let roots = [
            first(&["cpuacct", "cpu,cpuacct"]),
            first(&["cpu", "cpu,cpuacct"]),
            first(&["memory"]),
            first(&["pids"]),
            first(&["blkio"]),
        ];
        if roots.get(CPUACCT).is_none_or(Option::is_none)
            && roots.get(MEMORY).is_none_or(Option::is_none)
        {
            return Err(HostError::NoHierarchy {
                path: root.to_owned(),
            });
        }
        Ok(Self {
            version: CgroupVersion::V1,
            roots,
        })
    }

    /// The hierarchy in which pods are looked for.
    pub(crate) fn main(&self) -> Option<&Folder> {
        let [cpuacct, _, memory, ..] = &self.roots;
        match self.version {
            CgroupVersion::V2 => cpuacct.as_ref(),
            CgroupVersion::V1 => memory.as_ref().or(cpuacct.as_ref()),
        }
    }

    /// Opens a cgroup by its path below the root. `stagger` spreads the reads of limits.
    pub(crate) fn cgroup(&self, path: &str, stagger: u32) -> Result<Cgroup, Errno> {
        let relative = std::ffi::CString::new(match path.trim_start_matches('/') {
            "" => ".",
            path => path,
        })
        .map_err(|_| Errno::INVAL)?;
        let mut error = Errno::NOENT;
        let folders = self.roots.each_ref().map(|root| {
            let opened = root.as_ref()?.open_folder(&relative);
            opened.map_err(|reason| error = reason).ok()
        });
        if folders.iter().all(Option::is_none) {
            return Err(error);
        }
        let [main, ..] = &folders;
        let inner = main
            .as_ref()
            .filter(|_| self.version == CgroupVersion::V2)
            .and_then(|folder| folder.open_folder(c"container").ok());
        Ok(Cgroup {
            path: path.to_owned(),
            folders,
            inner,
            slots: [const { Slot::Untried }; Item::COUNT],
            kept: 0,
            limits: Limits::default(),
            limits_due: stagger % LIMITS_INTERVAL,
            cpu: RateBase::default(),
            is_stale: false,
            process: None,
        })
    }
}

impl Cgroup {
    /// The folder in the hierarchy in which pods are looked for.
    pub(crate) fn main(&self) -> Option<&Folder> {
        let [first, _, memory, ..] = &self.folders;
        memory.as_ref().or(first.as_ref())
    }

    /// Whether limits are to be read now.
    pub(crate) fn limits_are_due(&mut self) -> bool {
        if !self.cpu.is_known() {
            return true;
        }
        if self.limits_due == 0 {
            self.limits_due = LIMITS_INTERVAL;
        }
        self.limits_due -= 1;
        self.limits_due == 0
    }

    /// The time at which it was created, in milliseconds: the older of two modification times,
    /// since the kernel makes them up when it forgets one.
    pub(crate) fn created_millis(&self) -> Option<i64> {
        let folders = self.folders.iter().flatten();
        folders
            .flat_map(|folder| {
                [c".", c"cgroup.events", c"cgroup.clone_children"]
                    .map(|name| folder.modified_millis(name))
            })
            .flatten()
            .min()
    }
}

impl Context {
    pub(crate) fn new(version: CgroupVersion, clock: Clock, keep_files: usize) -> Self {
        Self {
            version,
            clock,
            buffer: Buffer::new(),
            faults: Faults::default(),
            cgroups: 0,
            keep_files,
            kept: 0,
        }
    }

    /// Reads a file of a cgroup. A file that does not exist is not looked for again until limits
    /// are due.
    pub(crate) fn read(&mut self, cgroup: &mut Cgroup, item: Item) -> Option<&[u8]> {
        let place = item.place(self.version)?;
        let limits = item.is_limit();
        let folder = match &cgroup.inner {
            Some(inner) if limits => inner,
            _ => cgroup.folders.get(place.hierarchy)?.as_ref()?,
        };
        let slot = cgroup.slots.get_mut(item as usize)?;
        if matches!(slot, Slot::Absent) {
            return None;
        }
        let result = match slot {
            Slot::Open(file) => self.buffer.read(file.as_fd(), place.reads),
            _ => match open_first(folder, place.names) {
                Ok(Some(file)) if !limits && self.kept < self.keep_files => {
                    self.kept += 1;
                    cgroup.kept += 1;
                    *slot = Slot::Open(file);
                    let Slot::Open(file) = slot else { return None };
                    self.buffer.read(file.as_fd(), place.reads)
                }
                Ok(Some(file)) => self.buffer.read(file.as_fd(), place.reads),
                Ok(None) => {
                    *slot = Slot::Absent;
                    return None;
                }
                Err(error) => Err(error.into()),
            },
        };
        match result {
            Ok(content) => Some(content),
            Err(fault) => {
                // Some kernels have pressure files that cannot be read.
                if item.is_pressure() && fault == Fault::Io {
                    *slot = Slot::Absent;
                } else {
                    cgroup.is_stale |= fault == Fault::Vanished;
                    self.faults.add(fault);
                }
                None
            }
        }
    }

    /// Reads the processes in the inner cgroup of crun.
    pub(crate) fn read_inner_processes(&mut self, cgroup: &Cgroup) -> Option<&[u8]> {
        let inner = cgroup.inner.as_ref()?;
        self.buffer
            .read_at(inner, c"cgroup.procs", Reads::Many)
            .ok()
    }

    /// Counts a value that is present but not what the kernel writes.
    pub(crate) fn require<T>(&mut self, value: Option<T>) -> Option<T> {
        if value.is_none() {
            self.faults.add(Fault::Malformed);
        }
        value
    }
}

impl Cgroup {
    /// Looks for absent files again.
    pub(crate) fn forget_absent(&mut self) {
        for slot in &mut self.slots {
            if matches!(slot, Slot::Absent) {
                *slot = Slot::Untried;
            }
        }
    }
}

impl Item {
    const COUNT: usize = Self::UseHierarchy as usize + 1;

    fn is_limit(self) -> bool {
        self as usize >= Self::CpuMax as usize
    }

    fn is_pressure(self) -> bool {
        matches!(
            self,
            Self::CpuPressure | Self::MemoryPressure | Self::IoPressure
        )
    }

    fn place(self, version: CgroupVersion) -> Option<Place> {
        let reads = match self {
            Self::Processes => Reads::Many,
            _ => Reads::One,
        };
        let (hierarchy, names): (usize, &'static [&'static CStr]) = match version {
            CgroupVersion::V2 => (0, self.v2()?),
            CgroupVersion::V1 => self.v1()?,
        };
        Some(Place {
            hierarchy,
            names,
            reads,
        })
    }

    fn v2(self) -> Option<&'static [&'static CStr]> {
        Some(match self {
            Self::CpuStat => &[c"cpu.stat"],
            Self::MemoryUsage => &[c"memory.current"],
            Self::MemoryStat => &[c"memory.stat"],
            Self::SwapUsage => &[c"memory.swap.current"],
            Self::MemoryEvents => &[c"memory.events"],
            Self::MemoryPeak => &[c"memory.peak"],
            Self::Threads => &[c"pids.current"],
            Self::Processes => &[c"cgroup.procs"],
            Self::Io => &[c"io.stat"],
            Self::CpuPressure => &[c"cpu.pressure"],
            Self::MemoryPressure => &[c"memory.pressure"],
            Self::IoPressure => &[c"io.pressure"],
            Self::CpuMax => &[c"cpu.max"],
            Self::CpuWeight => &[c"cpu.weight"],
            Self::MemoryLimit => &[c"memory.max"],
            Self::SwapLimit => &[c"memory.swap.max"],
            Self::ThreadsLimit => &[c"pids.max"],
            Self::CpuUsage
            | Self::CpuTicks
            | Self::MemoryFailures
            | Self::IoOperations
            | Self::CpuPeriod
            | Self::UseHierarchy => return None,
        })
    }

    fn v1(self) -> Option<(usize, &'static [&'static CStr])> {
        Some(match self {
            Self::CpuStat => (CPU, &[c"cpu.stat"]),
            Self::CpuUsage => (CPUACCT, &[c"cpuacct.usage"]),
            Self::CpuTicks => (CPUACCT, &[c"cpuacct.stat"]),
            Self::MemoryUsage => (MEMORY, &[c"memory.usage_in_bytes"]),
            Self::MemoryStat => (MEMORY, &[c"memory.stat"]),
            Self::MemoryEvents => (MEMORY, &[c"memory.oom_control"]),
            Self::MemoryPeak => (MEMORY, &[c"memory.max_usage_in_bytes"]),
            Self::MemoryFailures => (MEMORY, &[c"memory.failcnt"]),
            Self::Threads => (PIDS, &[c"pids.current"]),
            Self::Processes => (CPUACCT, &[c"cgroup.procs"]),
            Self::Io => (
                BLKIO,
                &[
                    c"blkio.bfq.io_service_bytes_recursive",
                    c"blkio.io_service_bytes_recursive",
                    c"blkio.throttle.io_service_bytes_recursive",
                ],
            ),
            Self::IoOperations => (
                BLKIO,
                &[
                    c"blkio.bfq.io_serviced_recursive",
                    c"blkio.io_serviced_recursive",
                    c"blkio.throttle.io_serviced_recursive",
                ],
            ),
            Self::CpuMax => (CPU, &[c"cpu.cfs_quota_us"]),
            Self::CpuPeriod => (CPU, &[c"cpu.cfs_period_us"]),
            Self::CpuWeight => (CPU, &[c"cpu.shares"]),
            Self::MemoryLimit => (MEMORY, &[c"memory.limit_in_bytes"]),
            Self::SwapLimit => (MEMORY, &[c"memory.memsw.limit_in_bytes"]),
            Self::ThreadsLimit => (PIDS, &[c"pids.max"]),
            Self::UseHierarchy => (MEMORY, &[c"memory.use_hierarchy"]),
            Self::SwapUsage | Self::CpuPressure | Self::MemoryPressure | Self::IoPressure => {
                return None;
            }
        })
    }
}

fn open_first(folder: &Folder, names: &[&CStr]) -> Result<Option<OwnedFd>, Errno> {
    for name in names {
        match folder.open_file(name) {
            Ok(file) => return Ok(Some(file)),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}
