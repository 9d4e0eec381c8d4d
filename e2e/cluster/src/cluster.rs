//! `cargo xtask cluster`: a real control plane and one real node, in namespaces of their own.
//!
//! All processes of a cluster descend from one holder, the first process of a PID namespace that
//! has its own mounts and network. When the holder goes, the kernel takes the processes, the mounts
//! and the interfaces with it: a crash can leave behind a folder and empty cgroups, and the next
//! `up` or `down` removes both.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};

use crate::bring_up::{BringUp, Leash, Stopwatch};
use crate::components::Component;
use crate::control::Request;
use crate::layout::Layout;
use crate::programs::{KubeletVersion, Programs};
use crate::ready::Probe;
use crate::state::{ClusterState, Description};
use crate::status::Status;
use crate::{bring_up, config, control, holder, images, interrupt, take_down};

/// A cluster and an action on it
#[derive(Debug, Args)]
pub(crate) struct ClusterFlags {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Bring it up; a healthy cluster is kept, a broken one is replaced
    Up {
        #[command(flatten)]
        name: Name,
        /// Minor version of the kubelet; a cluster with another one is replaced [default: 1.37]
        #[arg(long)]
        kubelet_version: Option<KubeletVersion>,
    },
    /// Remove all of it
    Down {
        #[command(flatten)]
        name: Name,
        /// Every cluster in the cache
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Show its components, its node and its problems
    Status {
        #[command(flatten)]
        name: Name,
        /// Output format
        #[arg(short, long, default_value = "text")]
        output: Output,
    },
    /// Print the kubeconfig of an administrator
    Kubeconfig {
        #[command(flatten)]
        name: Name,
        /// Print its path instead
        #[arg(long)]
        path: bool,
    },
    /// Stop a component, wait until it is gone, and start it again
    Restart {
        /// etcd, containerd, kube-apiserver, kube-controller-manager, kube-scheduler, kube-proxy or
        /// kubelet
        component: String,
        #[command(flatten)]
        name: Name,
        /// Send SIGKILL instead of SIGTERM
        #[arg(long)]
        kill: bool,
    },
    /// Let a component answer nothing, with its connections open, until `resume`
    Pause {
        /// As for `restart`
        component: String,
        #[command(flatten)]
        name: Name,
    },
    /// Continue a paused component
    Resume {
        /// As for `restart`
        component: String,
        #[command(flatten)]
        name: Name,
    },
    /// Run a program in the cluster's network, with its kubectl and kubeconfig
    Exec {
        #[command(flatten)]
        name: Name,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Build the image of our own program and import it as kubevitals.test/kubevitals:dev
    Image {
        #[command(flatten)]
        name: Name,
        /// Profile of Cargo.toml to compile with; `dist` is what is shipped
        #[arg(long, default_value = images::PROFILE)]
        profile: String,
    },
    /// Hold a cluster's processes (started by `up`)
    #[command(hide = true, name = HOLD)]
    Hold { folder: PathBuf },
}

#[derive(Debug, Args)]
struct Name {
    /// Name of the cluster; clusters of different names run side by side
    #[arg(long, default_value = "dev")]
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Options of [`up`].
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Lowercase letters, digits and dashes: part of file and node names.
    pub(crate) name: String,
    /// Replaces a cluster with another kubelet; none is for any.
    pub(crate) kubelet: Option<KubeletVersion>,
    /// Removes the cluster when this process ends, for any reason, unless it was up before.
    pub(crate) tied: bool,
}

/// A cluster that was ready when [`up`] returned.
#[derive(Debug)]
pub(crate) struct Running {
    /// The kubeconfig of a user in `system:masters`; works on the host and inside.
    pub(crate) kubeconfig: PathBuf,
    /// All files of the cluster: certificates, logs, state.
    pub(crate) folder: PathBuf,
    /// Paths, names and addresses as JSON, for programs that read `KUBEVITALS_E2E_CLUSTER`.
    pub(crate) description: PathBuf,
    /// The one Node.
    pub(crate) node_name: String,
    /// Reachable from the host, from pods and from inside.
    pub(crate) node_address: Ipv4Addr,
    /// The kubectl of the cluster's version.
    pub(crate) kubectl: PathBuf,
    holder: u32,
    _leash: Option<Leash>,
}

/// The hidden subcommand of a holder, by which it is found among all processes.
pub(crate) const HOLD: &str = "hold";

impl Running {
    fn new(
        layout: &Layout,
        state: &ClusterState,
        description: Description,
        leash: Option<Leash>,
    ) -> Self {
        Self {
            kubeconfig: description.kubeconfig,
            folder: layout.folder.clone(),
            description: Description::file(layout),
            node_name: description.node_name,
            node_address: description.node_address,
            kubectl: description
                .programs
                .get("kubectl")
                .cloned()
                .unwrap_or_else(|| "kubectl".into()),
            holder: state.holder.pid,
            _leash: leash,
        }
    }

    /// Returns a command that runs `program` in the cluster's network, where it reaches pods and
    /// Services; files and processes are the host's. It ends with the cluster.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/proc/{}/ns/net", self.holder))
            .arg("--")
            .arg(program)
            .env(take_down::GUEST_VARIABLE, &self.folder)
            .env("KUBEVITALS_E2E_CLUSTER", &self.description)
            .env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// Imports an image into the cluster; one of the same name is replaced.
    pub(crate) fn import(&self, archive: &[u8]) -> Result<()> {
        let mounts = format!("/proc/{}/ns/mnt", self.holder);
        images::import(Path::new(&mounts), archive)
    }
}

pub(crate) fn run(flags: &ClusterFlags) -> Result<()> {
    match &flags.command {
        ClusterCommand::Up {
            name,
            kubelet_version,
        } => {
            let running = up(&Options {
                name: name.name.clone(),
                kubelet: *kubelet_version,
                tied: false,
            })?;
            println!(
                "node {} at {}; {}",
                running.node_name,
                running.node_address,
                running.kubectl.display()
            );
            println!("export KUBECONFIG={}", running.kubeconfig.display());
            Ok(())
        }
        ClusterCommand::Down { all: true, .. } => down_all(),
        ClusterCommand::Down { name, .. } => down(&name.name),
        ClusterCommand::Status { name, output } => status(&name.name, *output),
        ClusterCommand::Kubeconfig { name, path } => {
            let file = config::kubeconfig(&Layout::of(&name.name)?, "admin");
            let text = fs::read_to_string(&file).with_context(|| no_cluster(&name.name))?;
            if *path {
                println!("{}", file.display());
            } else {
                print!("{text}");
            }
            Ok(())
        }
        ClusterCommand::Restart {
            component,
            name,
            kill,
        } => restart(&name.name, component, *kill),
        ClusterCommand::Pause { component, name } => signal(&name.name, component, Request::Pause),
        ClusterCommand::Resume { component, name } => {
            signal(&name.name, component, Request::Resume)
        }
        ClusterCommand::Exec { name, words } => exec(&attach(&name.name)?, words),
        ClusterCommand::Image { name, profile } => {
            let running = attach(&name.name)?;
            running.import(&images::kubevitals(profile)?)
        }
        ClusterCommand::Hold { folder } => holder::hold(&Layout::at(folder)?),
    }
}

/// Brings the cluster up, or attaches to it if it is healthy. A broken one is removed first.
pub(crate) fn up(options: &Options) -> Result<Running> {
    let layout = Layout::of(&options.name)?;
    require_root()?;
    interrupt::listen()?;
    let stopwatch = Stopwatch::start();
    let _lock = lock(&layout)?;
    if take_down::exists(&layout)? {
        let status = Status::of(&layout);
        let problem = if status.is_healthy() {
            let description = Description::load(&layout)?;
            if options
                .kubelet
                .is_none_or(|wanted| description.has_kubelet(wanted))
            {
                stopwatch.log(&format!("cluster {} is up", layout.name));
                return attach_to(&layout);
            }
            "has another kubelet".to_owned()
        } else {
            format!("is broken ({})", status.problems().join("; "))
        };
        stopwatch.log(&format!("cluster {} {problem}: removing it", layout.name));
        take_down::remove(&layout)?;
    }
    let programs = Programs::fetch(options.kubelet.unwrap_or_default())?;
    let stopwatch = Stopwatch::start();
    let bring_up = BringUp {
        layout: &layout,
        programs: &programs,
        stopwatch,
    };
    let up = match bring_up.run() {
        Err(error) if !is_interrupt(&error) => {
            println!("error: {error:#}");
            clean_after(&error, &layout)?;
            stopwatch.log("retrying from the start");
            bring_up.run()
        }
        first => first,
    };
    let up = match up {
        Ok(up) => up,
        Err(error) => {
            clean_after(&error, &layout)?;
            return Err(error);
        }
    };
    stopwatch.log(&format!("cluster {} is up", layout.name));
    let leash = if options.tied {
        Some(up.leash)
    } else {
        control::send_request(&layout.folder, &Request::Release)?;
        None
    };
    Ok(Running::new(&layout, &up.state, up.description, leash))
}

/// Removes all that is left of the cluster.
pub(crate) fn down(name: &str) -> Result<()> {
    remove(&Layout::of(name)?)
}

fn down_all() -> Result<()> {
    for layout in Layout::all()? {
        remove(&layout)?;
    }
    Ok(())
}

fn remove(layout: &Layout) -> Result<()> {
    require_root()?;
    let stopwatch = Stopwatch::start();
    let _lock = lock(layout)?;
    let was_there = take_down::exists(layout)?;
    take_down::remove(layout).with_context(|| format!("removing cluster {}", layout.name))?;
    let _ = fs::remove_dir_all(layout.failed_logs());
    let done = if was_there {
        "is removed"
    } else {
        "does not exist"
    };
    stopwatch.log(&format!("cluster {} {done}", layout.name));
    Ok(())
}

/// Restarts a component and waits until it is ready.
fn restart(name: &str, component: &str, kill: bool) -> Result<()> {
    /// An API server finishes open requests first, watches among them.
    const GRACE: Duration = Duration::from_secs(90);
    let layout = Layout::of(name)?;
    let component = component_named(component)?;
    require_root()?;
    interrupt::listen()?;
    let stopwatch = Stopwatch::start();
    let _lock = lock(&layout)?;
    let state = ClusterState::load(&layout).with_context(|| no_cluster(name))?;
    let stop = |kill| Request::Stop {
        name: component.name().to_owned(),
        kill,
    };
    control::send_request(&layout.folder, &stop(kill))?;
    let requested_at = Instant::now();
    let mut killed = kill;
    while is_running(&layout, component)? {
        if !killed && requested_at.elapsed() > GRACE {
            stopwatch.log(&format!(
                "{} did not stop in time: killing it",
                component.name()
            ));
            control::send_request(&layout.folder, &stop(true))?;
            killed = true;
        }
        interrupt::pause(Duration::from_millis(50))?;
    }
    stopwatch.log(&format!("{} is stopped", component.name()));
    control::send_request(
        &layout.folder,
        &Request::Restart(component.name().to_owned()),
    )?;
    let description = Description::load(&layout)?;
    let kubectl = description
        .programs
        .get("kubectl")
        .context("cluster.json names no kubectl")?;
    let probe = Probe {
        layout: &layout,
        addresses: state.addresses(),
        kubectl,
        holder: state.holder.pid,
    };
    bring_up::wait_ready(&probe, component)?;
    stopwatch.log(&format!("{} is ready", component.name()));
    Ok(())
}

/// Pauses or resumes a component.
fn signal(name: &str, component: &str, request: fn(String) -> Request) -> Result<()> {
    let component = component_named(component)?.name().to_owned();
    let layout = Layout::of(name)?;
    let sent = control::send_request(&layout.folder, &request(component));
    sent.map(drop).with_context(|| no_cluster(name))
}

fn component_named(name: &str) -> Result<Component> {
    Component::named(name).with_context(|| {
        let known = Component::ALL.map(Component::name).join(", ");
        format!("no component `{name}`; there are: {known}")
    })
}

/// Replaces this process by that program. Returns only on failure.
fn exec(running: &Running, words: &[OsString]) -> Result<()> {
    let (program, arguments) = words.split_first().context("no program given")?;
    let mut command = running.command(program);
    let own = running.kubectl.parent().map(Path::to_path_buf);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own.into_iter().chain(std::env::split_paths(&path));
    command
        .args(arguments)
        .env("PATH", std::env::join_paths(folders)?);
    Err(command.exec()).context("cannot start nsenter")
}

/// Attaches to a cluster that is up.
pub(crate) fn attach(name: &str) -> Result<Running> {
    attach_to(&Layout::of(name)?)
}

fn attach_to(layout: &Layout) -> Result<Running> {
    let state = ClusterState::load(layout).filter(|state| state.holder.is_alive());
    let state = state.with_context(|| no_cluster(&layout.name))?;
    Ok(Running::new(
        layout,
        &state,
        Description::load(layout)?,
        None,
    ))
}

fn status(name: &str, output: Output) -> Result<()> {
    let layout = Layout::of(name)?;
    if !layout.folder.exists() {
        bail!(no_cluster(name));
    }
    let status = Status::of(&layout);
    match output {
        Output::Text => print!("{}", status.text()),
        Output::Json => println!("{}", serde_json::to_string_pretty(&status)?),
    }
    if !status.is_healthy() {
        bail!("cluster {name} is not healthy: `cargo xtask cluster up --name {name}` replaces it");
    }
    Ok(())
}

fn is_running(layout: &Layout, component: Component) -> Result<bool> {
    let reply = control::send_request(&layout.folder, &Request::List)?;
    Ok(reply
        .components
        .iter()
        .any(|one| one.name == component.name() && one.ended.is_none()))
}

/// Removes a failed cluster. Its logs stay beside its folder until the next failure or `down`.
fn clean_after(failure: &anyhow::Error, layout: &Layout) -> Result<()> {
    let kept = layout.failed_logs();
    let _ = fs::remove_dir_all(&kept);
    if !is_interrupt(failure) && fs::rename(layout.path("logs"), &kept).is_ok() {
        println!("logs are kept in {}", kept.display());
    }
    take_down::remove(layout).context("removing the failed cluster")
}

/// Locks the cluster until the file is dropped or this process ends.
fn lock(layout: &Layout) -> Result<File> {
    let path = layout.lock_file();
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    let file = File::create(&path).with_context(|| format!("opening {}", path.display()))?;
    let mut reported = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error).context("locking"),
            Err(TryLockError::WouldBlock) => {}
        }
        if !reported {
            println!("waiting for another command on cluster {}", layout.name);
            reported = true;
        }
        interrupt::pause(Duration::from_millis(100))?;
    }
}

fn require_root() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("a real cluster needs root for its namespaces, mounts and cgroups");
    }
    Ok(())
}

fn is_interrupt(error: &anyhow::Error) -> bool {
    error.root_cause().to_string() == interrupt::INTERRUPTED
}

fn no_cluster(name: &str) -> String {
    format!("no cluster `{name}` is up: `cargo xtask cluster up --name {name}`")
}
