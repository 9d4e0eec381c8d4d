//! Processes of the host, distinguished from later ones with the same PID.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::interrupt;

/// The identity of a process: its PID and its start time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    /// In the host's PID namespace.
    pub(crate) pid: u32,
    /// In clock ticks since boot.
    pub(crate) started: u64,
}

impl Process {
    /// The process that has this PID now.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let started = stat(pid)?.started;
        Some(Self { pid, started })
    }

    /// Returns whether it is running. A zombie is not.
    pub(crate) fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.started == self.started && !stat.ended)
    }

    /// Kills it, through a pidfd: the PID may be reused at any time.
    pub(crate) fn kill(self) -> Result<()> {
        let Some(pid) = i32::try_from(self.pid).ok().and_then(Pid::from_raw) else {
            return Ok(());
        };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else {
            return Ok(());
        };
        if !self.is_alive() {
            return Ok(());
        }
        match pidfd_send_signal(&handle, Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(error).with_context(|| format!("ending process {}", self.pid)),
        }
    }
}

/// Longer than the kernel takes to write back the dirty pages of a killed process.
const KILL_TIMEOUT: Duration = Duration::from_mins(1);

/// Kills all of them and waits until they have ended.
pub(crate) fn kill_all(processes: &[Process]) -> Result<()> {
    for process in processes {
        process.kill()?;
    }
    match await_end(processes, KILL_TIMEOUT) {
        Some(left) => bail!(
            "process {} is still running {} s after it was killed",
            left.pid,
            KILL_TIMEOUT.as_secs()
        ),
        None => Ok(()),
    }
}

/// Waits until all of them have ended; returns one that has not ended in time.
pub(crate) fn await_end(processes: &[Process], timeout: Duration) -> Option<Process> {
    let started = Instant::now();
    loop {
        let left = processes.iter().find(|process| process.is_alive());
        if left.is_none() || started.elapsed() > timeout {
            return left.copied();
        }
        interrupt::settle(Duration::from_millis(20));
    }
}

/// Returns every process whose PID `matches` accepts.
pub(crate) fn find(matches: impl Fn(u32) -> bool) -> Result<Vec<Process>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("listing processes")? {
        let name = entry?.file_name();
        if let Some(pid) = name.to_str().and_then(|name| name.parse().ok())
            && matches(pid)
            && let Some(process) = Process::of(pid)
        {
            found.push(process);
        }
    }
    Ok(found)
}

/// Returns the arguments of a process.
pub(crate) fn arguments(pid: u32) -> Vec<Vec<u8>> {
    zero_separated(&format!("/proc/{pid}/cmdline"))
}

/// Returns the initial environment of a process, as `NAME=value`.
pub(crate) fn environment(pid: u32) -> Vec<Vec<u8>> {
    zero_separated(&format!("/proc/{pid}/environ"))
}

/// Returns the identity of one of its namespaces.
pub(crate) fn namespace(pid: impl std::fmt::Display, kind: &str) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok()
}

/// Returns the kernel's ID of this boot: PIDs of another mean nothing.
pub(crate) fn boot() -> Result<String> {
    let text =
        fs::read_to_string("/proc/sys/kernel/random/boot_id").context("reading the boot id")?;
    Ok(text.trim().to_owned())
}

/// Returns a path as the bytes of an argument.
pub(crate) fn bytes(path: &Path) -> &[u8] {
    OsStr::as_bytes(path.as_os_str())
}

struct Stat {
    started: u64,
    ended: bool,
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses `/proc/PID/stat`. The name of the program is in parentheses and may contain parentheses
/// and spaces: fields count from the last one.
fn parse_stat(text: &str) -> Option<Stat> {
    let (_, fields) = text.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    // The state is the third field of the line, the start the twenty-second.
    let started = fields.nth(18)?.parse().ok()?;
    Some(Stat {
        started,
        ended: matches!(state, "Z" | "X"),
    })
}

fn zero_separated(file: &str) -> Vec<Vec<u8>> {
    let bytes = fs::read(file).unwrap_or_default();
    bytes
        .split(|byte| *byte == 0)
        .filter(|part| !part.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let line = "42 (a) b (c)) S 1 42 42 0 -1 4194560 1 0 0 0 3 4 0 0 20 0 1 0 98765 1000 10\n";
        let stat = parse_stat(line).unwrap();
        assert_eq!(stat.started, 98765);
        assert!(!stat.ended);
        assert!(parse_stat(&line.replace(" S ", " Z ")).unwrap().ended);
        assert!(parse_stat("42 (short) S 1").is_none());
    }

    #[test]
    fn another_process_with_the_same_pid_is_not_killed() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let this = Process::of(child.id()).unwrap();
        let other = Process {
            started: this.started + 1,
            ..this
        };
        assert!(!other.is_alive());
        kill_all(&[other]).unwrap();
        assert!(
            child.try_wait().unwrap().is_none(),
            "it was killed in place of another"
        );
        kill_all(&[this]).unwrap();
        // It is a zombie until we wait for it.
        assert!(!this.is_alive());
        assert!(!child.wait().unwrap().success());
    }
}
