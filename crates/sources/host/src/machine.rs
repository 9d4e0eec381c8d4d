//! The machine: memory, processes, file systems, network, identity.

use std::ffi::CString;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use kubevitals_model::node_stats::{FsStats, MachineInfo, NetworkStats, ProcessLimits};
use kubevitals_model::{Bytes, Clock, Timestamp};
use rustix::fs::statvfs;

use crate::error::HostError;
use crate::file::{Buffer, Folder, Reads};
use crate::parse::{self, MemInfo};

/// The largest file about the machine.
const MAX_FILE: u64 = 64 << 10;

/// Where the file systems of a host are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPaths {
    /// `/sys/fs/cgroup`.
    pub cgroup: PathBuf,
    /// `/proc`, of the pid namespace of the host.
    pub proc: PathBuf,
    /// `/var/log`.
    pub log: PathBuf,
    /// `/etc`.
    pub etc: PathBuf,
    /// A folder on the file system of the files of pods.
    pub kubelet: PathBuf,
    /// Folders on the file system of images; the first that exists.
    pub images: Vec<PathBuf>,
}

/// `/proc` and the file systems.
pub(crate) struct Machine {
    proc: Folder,
    paths: HostPaths,
    pub(crate) info: MachineInfo,
    pub(crate) booted: Option<Timestamp>,
}

impl HostPaths {
    /// The usual paths below the folder in which the root of the host is mounted: `/` on the host
    /// itself, `/host` in a container.
    pub fn below(root: &Path) -> Self {
        Self {
            cgroup: root.join("sys/fs/cgroup"),
            proc: root.join("proc"),
            log: root.join("var/log"),
            etc: root.join("etc"),
            kubelet: root.join("var/lib/kubelet"),
            images: ["containerd", "containers/storage", "docker"]
                .map(|name| root.join("var/lib").join(name))
                .to_vec(),
        }
    }
}

impl Machine {
    pub(crate) fn open(paths: HostPaths, buffer: &mut Buffer) -> Result<Self, HostError> {
        let proc = Folder::open(&paths.proc).map_err(|error| HostError::Proc {
            path: paths.proc.clone(),
            source: error.into(),
        })?;
        let stat = buffer
            .read_at(&proc, c"stat", Reads::Many)
            .unwrap_or_default();
        let booted = parse::boot_time(stat)
            .and_then(|seconds| i64::try_from(seconds).ok()?.checked_mul(1000))
            .map(Timestamp::from_unix_millis);
        let cores = parse::core_count(stat);
        let memory = read_meminfo(&proc, buffer);
        let mut line = |name| {
            let content = buffer.read_at(&proc, name, Reads::One).unwrap_or_default();
            String::from_utf8_lossy(content.trim_ascii()).into_owned()
        };
        let os_release = read_small(&paths.etc.join("os-release"));
        let info = MachineInfo {
            cores,
            memory: memory.total.map(Bytes::new),
            swap: memory.swap_total.map(Bytes::new),
            boot_id: line(c"sys/kernel/random/boot_id"),
            kernel_version: line(c"sys/kernel/osrelease"),
            machine_id: read_small(&paths.etc.join("machine-id"))
                .map(|id| String::from_utf8_lossy(id.trim_ascii()).into_owned())
                .unwrap_or_default(),
            os_image: os_release
                .and_then(|content| parse::os_name(&content))
                .unwrap_or_default(),
        };
        Ok(Self {
            proc,
            paths,
            info,
            booted,
        })
    }

    pub(crate) fn meminfo(&self, buffer: &mut Buffer) -> MemInfo {
        read_meminfo(&self.proc, buffer)
    }

    pub(crate) fn processes(&self, buffer: &mut Buffer, clock: &Clock) -> Option<ProcessLimits> {
        let mut value = |name| {
            let content = buffer.read_at(&self.proc, name, Reads::One).ok()?;
            parse::value(content)
        };
        let pids = value(c"sys/kernel/pid_max");
        let threads = value(c"sys/kernel/threads-max");
        let load = buffer.read_at(&self.proc, c"loadavg", Reads::One).ok()?;
        Some(ProcessLimits {
            current: parse::thread_count(load)?,
            max: [pids, threads].into_iter().flatten().min()?,
            at: clock.now(),
        })
    }

    /// The network of a process.
    pub(crate) fn network(
        &self,
        process: u32,
        buffer: &mut Buffer,
        clock: &Clock,
    ) -> Option<NetworkStats> {
        let name = CString::new(format!("{process}/net/dev")).ok()?;
        let content = buffer.read_at(&self.proc, &name, Reads::Many).ok()?;
        Some(NetworkStats {
            interfaces: parse::net_dev(content)?,
            at: clock.now(),
        })
    }

    /// The file system of the files of pods.
    pub(crate) fn kubelet_fs(&self, clock: &Clock) -> Option<FsStats> {
        file_system(&self.paths.kubelet, clock)
    }

    /// The file system of images.
    pub(crate) fn image_fs(&self, clock: &Clock) -> Option<FsStats> {
        let mut paths = self.paths.images.iter();
        paths.find_map(|path| file_system(path, clock))
    }

    /// The file system of logs.
    pub(crate) fn log_fs(&self, clock: &Clock) -> Option<FsStats> {
        file_system(&self.paths.log, clock)
    }

    /// The size of the log files of a container.
    pub(crate) fn log_bytes(
        &self,
        pod_folder: &str,
        container: &str,
        buffer: &mut Buffer,
    ) -> Option<u64> {
        let path = self.paths.log.join("pods").join(pod_folder).join(container);
        let folder = Folder::open(&path).ok()?;
        let mut bytes: u64 = 0;
        buffer
            .entries(&folder, |name, _| {
                bytes = bytes.saturating_add(folder.file_size(name).unwrap_or(0));
            })
            .ok()?;
        Some(bytes)
    }
}

fn read_meminfo(proc: &Folder, buffer: &mut Buffer) -> MemInfo {
    let content = buffer.read_at(proc, c"meminfo", Reads::Many);
    content.map(parse::meminfo).unwrap_or_default()
}

fn file_system(path: &Path, clock: &Clock) -> Option<FsStats> {
    let stat = statvfs(path).ok()?;
    let bytes = |blocks: u64| blocks.checked_mul(stat.f_frsize).map(Bytes::new);
    Some(FsStats {
        available: bytes(stat.f_bavail),
        capacity: bytes(stat.f_blocks),
        used: bytes(stat.f_blocks.saturating_sub(stat.f_bfree)),
        inodes_free: Some(stat.f_ffree),
        inodes: Some(stat.f_files),
        inodes_used: Some(stat.f_files.saturating_sub(stat.f_ffree)),
        at: clock.now(),
    })
}

fn read_small(path: &Path) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    let file = File::open(path).ok()?;
    file.take(MAX_FILE).read_to_end(&mut content).ok()?;
    Some(content)
}
