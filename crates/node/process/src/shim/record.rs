//! The files by which the runtime and a shim tell each other what they do.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::cgroup::Cgroup;

/// The launch configuration in the folder of an instance; it holds secrets and has mode 0600.
pub(crate) const LAUNCH_FILE: &str = "launch.json";
/// Written by the shim once the program runs.
pub(crate) const PROCESS_FILE: &str = "process.json";
/// Written by the shim once the program has ended.
pub(crate) const EXIT_FILE: &str = "exit.json";
/// The socket of the shim.
pub(crate) const SOCKET_FILE: &str = "shim.sock";
/// The pipe to the standard input of the program.
pub(crate) const STDIN_FILE: &str = "stdin";
/// Records are small; a larger file is not one.
const MAX_RECORD_BYTES: u64 = 4 << 20;

/// How to run a program.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "options of Kubernetes, each on its own"
)]
pub(crate) struct Launch {
    pub id: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    pub env: Vec<(String, String)>,
    pub cwd: PathBuf,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub groups: Option<Vec<u32>>,
    pub oom_score_adj: Option<i32>,
    pub no_new_privileges: bool,
    /// Capabilities to drop, as Kubernetes names them; `ALL` is all.
    pub drop_capabilities: Vec<String>,
    pub cgroup: Option<Cgroup>,
    /// The cgroup of shims, apart from those of pods.
    pub shim_cgroup: Option<Cgroup>,
    pub stdin: bool,
    pub stdin_once: bool,
    pub tty: bool,
    pub log: Option<LogPlan>,
    pub mounts: Vec<MountPlan>,
    /// A folder of the instance for the new root, if mounts are used.
    pub scratch: PathBuf,
    /// Joins the mount namespace of this process, for exec.
    pub join: Option<i32>,
    /// The terminal, for exec; the shim sets it for main processes.
    pub terminal: Option<PathBuf>,
    /// Whether standard input is the channel for start errors.
    pub reports: bool,
}

/// Where the shim writes the log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct LogPlan {
    pub folder: PathBuf,
    pub instance: u32,
    pub max_bytes: u64,
    pub max_files: usize,
}

/// A folder or a file that appears at another path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MountPlan {
    pub source: PathBuf,
    pub target: PathBuf,
    pub read_only: bool,
}

/// A process that cannot be confused with a later one of the same pid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub pid: i32,
    /// Field 22 of `/proc/<pid>/stat`.
    pub start_ticks: u64,
    pub boot_id: String,
}

/// A running container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ProcessRecord {
    pub main: Identity,
    pub shim: Identity,
    pub started_ms: i64,
}

/// The end of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ExitRecord {
    pub code: i32,
    pub signal: Option<i32>,
    pub oom: bool,
    /// Absent if the program never ran.
    pub started_ms: Option<i64>,
    pub finished_ms: i64,
    /// Why the program could not be started.
    pub start_error: Option<String>,
}

impl Identity {
    /// The identity of a process that exists.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        Some(Self {
            pid,
            start_ticks: start_ticks(pid)?,
            boot_id: boot_id(),
        })
    }

    /// Whether the process still exists.
    pub(crate) fn is_alive(&self) -> bool {
        self.boot_id == boot_id() && start_ticks(self.pid) == Some(self.start_ticks)
    }
}

impl Identity {
    /// Kills the process, if it is still this one.
    pub(crate) fn kill(&self) {
        // The descriptor keeps the number from being used again between the check and the signal.
        if let Some(pid) = Pid::from_raw(self.pid)
            && let Ok(process) = pidfd_open(pid, PidfdFlags::empty())
            && self.is_alive()
        {
            let _ = pidfd_send_signal(&process, Signal::KILL);
        }
    }
}

/// The wall clock in milliseconds.
pub(crate) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX))
}

/// Identifies the boot of the kernel.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|id| id.trim().to_owned())
        .unwrap_or_default()
}

/// The start time of a process, if it exists and is no zombie.
fn start_ticks(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may hold any character.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Writes a file so that a reader sees the old or the new content.
pub(crate) fn write_atomically(path: &Path, content: &[u8], sync: bool) -> io::Result<()> {
    use std::os::unix::fs::OpenOptionsExt as _;
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let temporary = path.with_file_name(name);
    let mut file = File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(content)?;
    if sync {
        file.sync_all()?;
    }
    drop(file);
    fs::rename(&temporary, path)?;
    if sync && let Some(folder) = path.parent() {
        // Shims use names in their working directory.
        let folder = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// Writes a record.
pub(crate) fn write_record<T: Serialize>(path: &Path, record: &T, sync: bool) -> io::Result<()> {
    write_atomically(path, &serde_json::to_vec(record)?, sync)
}

/// Reads a record; `None` if there is none.
pub(crate) fn read_record<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match fs::metadata(path) {
        Ok(metadata) if metadata.len() > MAX_RECORD_BYTES => {
            return Err(io::Error::other("the record is too large"));
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    Ok(Some(serde_json::from_slice(&fs::read(path)?)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_tells_processes_apart() {
        let own = i32::try_from(std::process::id()).expect("pids are 32 bits");
        let identity = Identity::of(own).expect("this process exists");
        assert!(identity.is_alive());
        let reused = Identity {
            start_ticks: identity.start_ticks + 1,
            ..identity.clone()
        };
        assert!(!reused.is_alive(), "another process of the same pid");
        let earlier_boot = Identity {
            boot_id: "other".to_owned(),
            ..identity
        };
        assert!(!earlier_boot.is_alive());
    }

    #[test]
    fn a_record_that_is_absent_garbage_or_huge_is_not_read() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("r.json");
        assert!(read_record::<ExitRecord>(&path).expect("absent").is_none());
        fs::write(&path, b"{\"code\":").expect("write");
        assert!(read_record::<ExitRecord>(&path).is_err());
        let file = File::create(&path).expect("create");
        file.set_len(MAX_RECORD_BYTES + 1).expect("sparse file");
        assert!(read_record::<ExitRecord>(&path).is_err());
    }
}
