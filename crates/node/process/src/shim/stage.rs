//! The stage between a shim and the program: it sets up the process that it is, and becomes the
//! program.
//!
//! It is a process of its own because a closure between fork and exec needs unsafe code.

use std::fs;
use std::io::{self, Write};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use rustix::process::{Gid, Uid, setsid};

use super::mounts;
use super::record::{Launch, STDIN_FILE};

/// The exit code of a container that did not start, as containerd reports it.
pub(crate) const START_ERROR: u8 = 128;
/// As shells: not found, and not executable.
const NOT_FOUND: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;

/// Becomes the program, or reports why not.
pub(super) fn run(path: &Path) -> ExitCode {
    let launch = match read(path) {
        Ok(launch) => launch,
        Err(error) => {
            return fail(
                None,
                &format!("read launch configuration: {error}"),
                START_ERROR,
            );
        }
    };
    // The copy closes when the program starts: that is how the shim knows.
    let channel = if launch.reports {
        match rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3) {
            Ok(channel) => Some(fs::File::from(channel)),
            Err(error) => return fail(None, &error.to_string(), START_ERROR),
        }
    } else {
        None
    };
    let mut command = match prepare(&launch, path) {
        Ok(command) => command,
        Err(message) => return fail(channel, &message, START_ERROR),
    };
    let error = command.exec();
    let program = launch.command.first().map_or("", String::as_str);
    let code = match error.kind() {
        _ if launch.reports => START_ERROR,
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => NOT_EXECUTABLE,
    };
    let text = match error.kind() {
        io::ErrorKind::NotFound if !program.contains('/') => {
            format!("exec: {program:?}: executable file not found in $PATH")
        }
        io::ErrorKind::NotFound => format!("exec: {program:?}: no such file or directory"),
        io::ErrorKind::PermissionDenied => format!("exec: {program:?}: permission denied"),
        _ => format!("exec: {program:?}: {error}"),
    };
    fail(channel, &text, code)
}

fn read(path: &Path) -> io::Result<Launch> {
    let launch: Launch = serde_json::from_slice(&fs::read(path)?)?;
    if !launch.reports {
        // The request of an exec; it has the environment of the container.
        fs::remove_file(path)?;
    }
    Ok(launch)
}

fn prepare(launch: &Launch, path: &Path) -> Result<Command, String> {
    let step = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| format!("{what}: {error}")
    };
    let errno = |what: &str| {
        let what = what.to_owned();
        move |error: rustix::io::Errno| format!("{what}: {error}")
    };
    let (program, arguments) = launch
        .command
        .split_first()
        .ok_or_else(|| "no command specified".to_owned())?;
    // Fails only for the leader of a process group, which this is not.
    let _ = setsid();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .envs(launch.env.iter().map(|(k, v)| (k, v)));
    let mut owned_terminal = None;
    if let Some(terminal) = &launch.terminal {
        let file = fs::File::options()
            .read(true)
            .write(true)
            .open(terminal)
            .map_err(step("open terminal"))?;
        // Opening it has made it the controlling terminal already.
        let _ = rustix::process::ioctl_tiocsctty(&file);
        let copy = || file.try_clone().map_err(step("open terminal"));
        command.stdin(copy()?).stdout(copy()?).stderr(copy()?);
        owned_terminal = Some(file);
    } else if launch.reports {
        if launch.stdin {
            let pipe =
                fs::File::open(path.with_file_name(STDIN_FILE)).map_err(step("open stdin"))?;
            command.stdin(pipe);
        } else {
            command.stdin(Stdio::null());
        }
    }
    if let Some(cgroup) = &launch.cgroup {
        cgroup.join().map_err(step("join cgroup"))?;
    }
    if let Some(score) = launch.oom_score_adj {
        let result = fs::write("/proc/self/oom_score_adj", score.to_string());
        // Only root may lower it.
        if rustix::process::geteuid().is_root() || score >= 0 {
            result.map_err(step("set oom_score_adj"))?;
        }
    }
    if let Some(pid) = launch.join {
        mounts::join(pid).map_err(step("join mount namespace"))?;
    } else if !launch.mounts.is_empty() {
        mounts::set_up(&launch.scratch, &launch.mounts)?;
    }
    if let Some(uid) = launch.uid
        && let Some(terminal) = &owned_terminal
    {
        let _ = std::os::unix::fs::fchown(terminal, Some(uid), launch.gid);
    }
    if !launch.drop_capabilities.is_empty() {
        drop_capabilities(&launch.drop_capabilities).map_err(errno("drop capabilities"))?;
    }
    if let Some(groups) = &launch.groups {
        let groups: Vec<Gid> = groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        rustix::thread::set_thread_groups(&groups).map_err(errno("set groups"))?;
    }
    if let Some(gid) = launch.gid {
        rustix::thread::set_thread_gid(Gid::from_raw(gid)).map_err(errno("set group"))?;
    }
    if let Some(uid) = launch.uid {
        rustix::thread::set_thread_uid(Uid::from_raw(uid)).map_err(errno("set user"))?;
    }
    if launch.no_new_privileges {
        rustix::thread::set_no_new_privs(true).map_err(errno("set no_new_privs"))?;
    }
    std::env::set_current_dir(&launch.cwd)
        .map_err(step(&format!("chdir to {}", launch.cwd.display())))?;
    Ok(command)
}

/// Capabilities by number, as the kernel has them.
const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// Removes capabilities from the bounding set: the program cannot get them, not even as root.
fn drop_capabilities(names: &[String]) -> Result<(), rustix::io::Errno> {
    use rustix::thread::{CapabilitySet, remove_capability_from_bounding_set};
    for (bit, name) in CAPABILITIES.iter().enumerate() {
        let is_named = names.iter().any(|one| {
            let one = one.strip_prefix("CAP_").unwrap_or(one);
            one == "ALL" || one == *name
        });
        // Users and groups are set after this: these two go with the exec.
        if is_named {
            let capability = CapabilitySet::from_bits_retain(1 << bit);
            match remove_capability_from_bounding_set(capability) {
                // Not known to this kernel, or not ours to drop.
                Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::PERM) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

fn fail(channel: Option<fs::File>, message: &str, code: u8) -> ExitCode {
    match channel {
        Some(mut channel) => {
            let _ = channel.write_all(message.as_bytes());
        }
        None => {
            let _ = writeln!(io::stderr(), "{message}");
        }
    }
    ExitCode::from(code)
}
