//! The first process of a cluster's PID namespace.
//!
//! Every process of the cluster descends from it, so that the kernel ends them all when it ends. It
//! prepares the mounts, starts components when it is asked to, and collects what has ended. Until
//! it is released it holds on to whoever started it: a bring-up that is killed leaves nothing
//! running.

use std::fs;
use std::io::{Read, Stdin};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount, mount_bind};
use rustix::process::{
    Pid, Signal, WaitOptions, WaitStatus, kill_process, kill_process_group, wait,
};

use crate::cgroups;
use crate::control::{self, ComponentState, Launch, Reply, Request};
use crate::layout::Layout;

/// Places that programs insist on, and that a cluster has for itself. They are made on the host,
/// empty, where missing.
const PRIVATE_FOLDERS: [&str; 4] = [
    "/var/log",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/cni",
];

/// Settings of the whole machine that a kubelet writes at its start. It is given copies: they are
/// not a test's to change.
const MACHINE_SETTINGS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

struct Holder {
    components: Vec<Held>,
    /// Readable when whoever started us is gone. Absent once we were released.
    leash: Option<Stdin>,
}

struct Held {
    launch: Launch,
    pid: Pid,
    ended: Option<String>,
}

/// Holds the cluster until its starter goes before it has released us. Otherwise only a kill ends
/// it.
pub(crate) fn hold(layout: &Layout) -> Result<()> {
    if std::process::id() != 1 {
        bail!("`cluster hold` is started by `cluster up`, in namespaces of its own");
    }
    prepare_mounts(layout).context("preparing the mounts")?;
    let listener = control::listen(&layout.folder)?;
    listener.set_nonblocking(true)?;
    let mut holder = Holder {
        components: Vec::new(),
        leash: Some(std::io::stdin()),
    };
    holder.run(&listener)?;
    end_all()?;
    cgroups::remove(&layout.cgroup())
}

impl Holder {
    /// Until the leash is torn.
    fn run(&mut self, listener: &UnixListener) -> Result<()> {
        // Also how long an orphan may stay uncollected.
        let tick = Timespec {
            tv_sec: 0,
            tv_nsec: 200_000_000,
        };
        loop {
            let mut sources = vec![PollFd::new(listener, PollFlags::IN)];
            if let Some(leash) = &self.leash {
                sources.push(PollFd::new(leash, PollFlags::IN));
            }
            match poll(&mut sources, Some(&tick)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error).context("waiting for requests"),
            }
            let torn = sources
                .get(1)
                .is_some_and(|leash| !leash.revents().is_empty());
            drop(sources);
            if torn && self.leash_is_torn() {
                return Ok(());
            }
            self.collect();
            if let Ok((stream, _)) = listener.accept() {
                // A caller that goes away before it has its answer is not our failure.
                let _ = control::serve(stream, |request| self.answer(request));
            }
        }
    }

    fn leash_is_torn(&mut self) -> bool {
        let mut byte = [0];
        self.leash
            .as_mut()
            .is_some_and(|leash| !matches!(leash.read(&mut byte), Ok(1)))
    }

    fn answer(&mut self, request: Request) -> Reply {
        self.collect();
        let result = match request {
            Request::List => Ok(()),
            Request::Start(launch) => self.start(launch),
            Request::Again(name) => self
                .find(&name)
                .map(|held| held.launch.clone())
                .and_then(|it| self.start(it)),
            Request::Stop { name, at_once } => {
                self.stop(&name, if at_once { Signal::KILL } else { Signal::TERM })
            }
            Request::Release => {
                self.leash = None;
                Ok(())
            }
        };
        Reply {
            error: result.err().map(|error| format!("{error:#}")),
            components: self.components.iter().map(Held::state).collect(),
        }
    }

    fn find(&self, name: &str) -> Result<&Held> {
        let held = self.components.iter().find(|held| held.launch.name == name);
        held.with_context(|| format!("{name} was never started"))
    }

    fn start(&mut self, launch: Launch) -> Result<()> {
        if self
            .find(&launch.name)
            .is_ok_and(|held| held.ended.is_none())
        {
            bail!("{} runs already", launch.name);
        }
        let pid =
            spawn(&launch).with_context(|| format!("starting {}", launch.program.display()))?;
        self.components
            .retain(|held| held.launch.name != launch.name);
        self.components.push(Held {
            launch,
            pid,
            ended: None,
        });
        Ok(())
    }

    fn stop(&self, name: &str, signal: Signal) -> Result<()> {
        let held = self.find(name)?;
        // Collected ones are never signalled: their number may be another's by now.
        if held.ended.is_none() {
            kill_process(held.pid, signal).with_context(|| format!("stopping {name}"))?;
        }
        Ok(())
    }

    /// Takes note of components that have ended; orphans of theirs are only collected.
    fn collect(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let Some(held) = self.components.iter_mut().find(|held| held.pid == pid) {
                held.ended = Some(ending(status));
            }
        }
    }
}

impl Held {
    fn state(&self) -> ComponentState {
        ComponentState {
            name: self.launch.name.clone(),
            pid: self.pid.as_raw_nonzero().get().unsigned_abs(),
            ended: self.ended.clone(),
            log: self.launch.log.clone(),
        }
    }
}

fn spawn(launch: &Launch) -> Result<Pid> {
    let log = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(&launch.log)?;
    // Not waited for here but in `collect`, together with what it may leave behind.
    let child = Command::new(&launch.program)
        .args(&launch.arguments)
        .env_clear()
        .envs(launch.environment.iter().map(|(name, value)| (name, value)))
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    pid.context("the new process has no number")
}

fn ending(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "for an unknown reason".to_owned(),
    }
}

/// Ends all other processes of the namespace, and waits for them.
fn end_all() -> Result<()> {
    // Minus one, the negative of the first process's number, means every process that we may
    // signal, except ourselves.
    match kill_process_group(Pid::INIT, Signal::KILL) {
        Ok(()) | Err(Errno::SRCH) => {}
        Err(error) => return Err(error).context("ending the cluster's processes"),
    }
    while wait(WaitOptions::empty()).is_ok() {}
    Ok(())
}

fn prepare_mounts(layout: &Layout) -> Result<()> {
    for folder in PRIVATE_FOLDERS {
        let ours = node_folder(layout, folder);
        fs::create_dir_all(&ours)?;
        fs::create_dir_all(folder).with_context(|| format!("making {folder}"))?;
        mount_bind(&ours, folder).with_context(|| format!("mounting {folder}"))?;
    }
    for setting in MACHINE_SETTINGS {
        let original = Path::new("/proc/sys").join(setting);
        // Kernels are built without one or another of them.
        let Ok(value) = fs::read(&original) else {
            continue;
        };
        let copy = layout.path("settings").join(setting.replace('/', "."));
        fs::create_dir_all(layout.path("settings"))?;
        fs::write(&copy, value)?;
        mount_bind(&copy, &original)
            .with_context(|| format!("mounting over {}", original.display()))?;
    }
    mount(
        "tmpfs",
        "/run",
        "tmpfs",
        MountFlags::NOSUID | MountFlags::NODEV,
        Some(c"mode=755"),
    )
    .context("mounting /run")?;
    Ok(())
}

/// Where a cluster keeps what its processes see at one of the [`PRIVATE_FOLDERS`].
pub(crate) fn node_folder(layout: &Layout, seen_at: &str) -> PathBuf {
    layout
        .path("node")
        .join(seen_at.trim_start_matches('/').replace('/', "-"))
}
