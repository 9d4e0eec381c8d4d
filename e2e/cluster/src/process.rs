//! Processes of the host, told apart from later ones that were given the same number.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::interrupt;

/// One process, for as long as it lives: its number, and when it was started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    /// As the host counts.
    pub(crate) pid: u32,
    /// In ticks since the machine was started.
    pub(crate) started: u64,
}

impl Process {
    /// The process that has this number now.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let started = stat(pid)?.started;
        Some(Self { pid, started })
    }

    /// Whether it runs still. What has ended and was not yet collected by its parent does not.
    pub(crate) fn is_alive(self) -> bool {
        stat(self.pid).is_some_and(|stat| stat.started == self.started && !stat.ended)
    }

    /// Ends it at once, and nothing else: the handle stays with the process, whoever gets its
    /// number.
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

/// Longer than the kernel takes to write back what a killed process has mapped.
const PATIENCE: Duration = Duration::from_mins(1);

/// Ends them all and waits until they are gone.
pub(crate) fn end(processes: &[Process]) -> Result<()> {
    for process in processes {
        process.kill()?;
    }
    match await_end(processes, PATIENCE) {
        Some(left) => bail!(
            "process {} is still there {} s after it was killed",
            left.pid,
            PATIENCE.as_secs()
        ),
        None => Ok(()),
    }
}

/// Waits until all of them have ended; one that has not in that time.
pub(crate) fn await_end(processes: &[Process], patience: Duration) -> Option<Process> {
    let started = Instant::now();
    loop {
        let left = processes.iter().find(|process| process.is_alive());
        if left.is_none() || started.elapsed() > patience {
            return left.copied();
        }
        interrupt::settle(Duration::from_millis(20));
    }
}

/// Every process of which `matches` says yes, given its number.
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

/// The arguments with which it was started.
pub(crate) fn arguments(pid: u32) -> Vec<Vec<u8>> {
    zero_separated(&format!("/proc/{pid}/cmdline"))
}

/// The environment with which it was started, as `NAME=value`.
pub(crate) fn environment(pid: u32) -> Vec<Vec<u8>> {
    zero_separated(&format!("/proc/{pid}/environ"))
}

/// The identity of one of its namespaces.
pub(crate) fn namespace(pid: impl std::fmt::Display, kind: &str) -> Option<std::path::PathBuf> {
    fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok()
}

/// What the kernel calls this boot: process numbers of another mean nothing.
pub(crate) fn boot() -> Result<String> {
    let text =
        fs::read_to_string("/proc/sys/kernel/random/boot_id").context("reading the boot id")?;
    Ok(text.trim().to_owned())
}

/// A path as it stands in an argument.
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

/// The name of the program stands in parentheses and may itself hold parentheses and spaces: fields
/// count from the last one.
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
    fn another_process_with_the_same_number_is_left_alone() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let this = Process::of(child.id()).unwrap();
        let other = Process {
            started: this.started + 1,
            ..this
        };
        assert!(!other.is_alive());
        end(&[other]).unwrap();
        assert!(
            child.try_wait().unwrap().is_none(),
            "it was killed in place of another"
        );
        end(&[this]).unwrap();
        // It has ended, and is only waiting for us to collect it.
        assert!(!this.is_alive());
        assert!(!child.wait().unwrap().success());
    }
}
