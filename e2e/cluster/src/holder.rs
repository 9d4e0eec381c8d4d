//! The first process of a cluster's PID namespace.
//!
//! Every process of the cluster descends from it, so that the kernel ends them all when it ends. It
//! prepares the mounts, starts components on request, and reaps processes. Until it is released it
//! ends with the process that started it: a bring-up that is killed leaves nothing running.

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

/// Fixed paths of the components, of which every cluster has its own. Missing ones are created on
/// the host, empty.
const PRIVATE_FOLDERS: [&str; 4] = [
    "/var/log",
    "/var/lib/containerd",
    "/var/lib/kubelet",
    "/var/lib/cni",
];

/// Settings of the machine that a kubelet writes at its start. It writes copies of them: a test
/// must not change the machine.
const MACHINE_SETTINGS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

struct Holder {
    components: Vec<Child>,
    /// Readable when the process that started us has ended. None once we were released.
    leash: Option<Stdin>,
}

struct Child {
    launch: Launch,
    pid: Pid,
    ended: Option<String>,
}

/// Runs the cluster until the process that started it ends without having released us. After a
/// release only a kill ends it.
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
    /// Handles requests until the leash is closed.
    fn run(&mut self, listener: &UnixListener) -> Result<()> {
        // Also the interval at which orphans are reaped.
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
            let readable = sources
                .get(1)
                .is_some_and(|leash| !leash.revents().is_empty());
            drop(sources);
            if readable && self.leash_is_closed() {
                return Ok(());
            }
            self.reap();
            if let Ok((stream, _)) = listener.accept() {
                // A client that disconnects before its response is not our failure.
                let _ = control::serve(stream, |request| self.handle(request));
            }
        }
    }

    fn leash_is_closed(&mut self) -> bool {
        let mut byte = [0];
        self.leash
            .as_mut()
            .is_some_and(|leash| !matches!(leash.read(&mut byte), Ok(1)))
    }

    fn handle(&mut self, request: Request) -> Reply {
        self.reap();
        let result = match request {
            Request::List => Ok(()),
            Request::Start(launch) => self.start(launch),
            Request::Restart(name) => self
                .find(&name)
                .map(|child| child.launch.clone())
                .and_then(|launch| self.start(launch)),
            Request::Stop { name, kill } => {
                self.signal(&name, if kill { Signal::KILL } else { Signal::TERM })
            }
            Request::Pause(name) => self.signal(&name, Signal::STOP),
            Request::Resume(name) => self.signal(&name, Signal::CONT),
            Request::Release => {
                self.leash = None;
                Ok(())
            }
        };
        Reply {
            error: result.err().map(|error| format!("{error:#}")),
            components: self.components.iter().map(Child::state).collect(),
        }
    }

    fn find(&self, name: &str) -> Result<&Child> {
        let child = self
            .components
            .iter()
            .find(|child| child.launch.name == name);
        child.with_context(|| format!("{name} was never started"))
    }

    fn start(&mut self, launch: Launch) -> Result<()> {
        if self
            .find(&launch.name)
            .is_ok_and(|child| child.ended.is_none())
        {
            bail!("{} is already running", launch.name);
        }
        let pid =
            spawn(&launch).with_context(|| format!("starting {}", launch.program.display()))?;
        self.components
            .retain(|child| child.launch.name != launch.name);
        self.components.push(Child {
            launch,
            pid,
            ended: None,
        });
        Ok(())
    }

    fn signal(&self, name: &str, signal: Signal) -> Result<()> {
        let child = self.find(name)?;
        // One that was reaped is never signalled: its PID may have been reused.
        if child.ended.is_none() {
            kill_process(child.pid, signal).with_context(|| format!("signalling {name}"))?;
        }
        Ok(())
    }

    /// Reaps processes, and records which components have ended.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if let Some(child) = self.components.iter_mut().find(|child| child.pid == pid) {
                child.ended = Some(ending(status));
            }
        }
    }
}

impl Child {
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
    // Waited for in `reap`, together with its orphans.
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
    pid.context("the new process has no PID")
}

fn ending(status: WaitStatus) -> String {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => format!("exit code {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => "for an unknown reason".to_owned(),
    }
}

/// Kills all other processes of the namespace and waits for them.
fn end_all() -> Result<()> {
    // Minus one, the negative of the PID of init, means every process except ourselves.
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
        // Kernels are built without some of them.
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

/// Returns the folder that is mounted on one of the [`PRIVATE_FOLDERS`].
pub(crate) fn node_folder(layout: &Layout, mount_point: &str) -> PathBuf {
    layout
        .path("node")
        .join(mount_point.trim_start_matches('/').replace('/', "-"))
}
