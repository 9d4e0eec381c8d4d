//! `cargo xtask cluster`: a real control plane and one real node, in namespaces of their own.
//!
//! All processes of a cluster live below one holder, the first process of a PID namespace that has
//! its own mounts and network. When the holder goes, the kernel takes the processes, the mounts and
//! the interfaces with it: what a crash could leave behind is a folder and empty cgroups, and the
//! next `up` or `down` removes both.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand, ValueEnum};

use crate::bring_up::{BringUp, Clock, Leash};
use crate::components::Component;
use crate::control::Request;
use crate::layout::Layout;
use crate::programs::Programs;
use crate::ready::Asker;
use crate::state::{Description, State};
use crate::status::Status;
use crate::{bring_up, config, control, holder, images, interrupt, take_down};

/// What to do with which cluster
#[derive(Debug, Args)]
pub(crate) struct ClusterFlags {
    #[command(subcommand)]
    command: ClusterCommand,
}

#[derive(Debug, Subcommand)]
enum ClusterCommand {
    /// Bring it up; says so if it is up, and starts afresh if it is broken
    Up(Name),
    /// Remove everything of it
    Down {
        #[command(flatten)]
        name: Name,
        /// Every cluster in the cache
        #[arg(long, conflicts_with = "name")]
        all: bool,
    },
    /// Its components, its node, and what is wrong with it
    Status {
        #[command(flatten)]
        name: Name,
        /// How to print it
        #[arg(short, long, default_value = "text")]
        output: Output,
    },
    /// Print the kubeconfig of an administrator
    Kubeconfig {
        #[command(flatten)]
        name: Name,
        /// Print where it is instead
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
        /// Kill it instead of asking it to end
        #[arg(long)]
        kill: bool,
    },
    /// Run a program in the cluster's network, with its kubectl and kubeconfig
    Exec {
        #[command(flatten)]
        name: Name,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
    /// Build our own program statically and import it as kubevitals.test/kubevitals:dev
    Image(Name),
    /// Hold a cluster's processes (started by `up`)
    #[command(hide = true, name = HOLD)]
    Hold { folder: PathBuf },
}

#[derive(Debug, Args)]
struct Name {
    /// Clusters of different names stand side by side
    #[arg(long, default_value = "dev")]
    name: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

/// Which cluster, and how it is kept.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Lowercase letters, digits and dashes: part of file and node names.
    pub(crate) name: String,
    /// The cluster ends with this process, however it ends, unless it was up before.
    pub(crate) tied: bool,
}

/// A cluster that was ready when [`up`] returned.
#[derive(Debug)]
pub(crate) struct Running {
    /// Of a user in `system:masters`; works on the host and inside.
    pub(crate) kubeconfig: PathBuf,
    /// Everything that the cluster keeps: certificates, logs, state.
    pub(crate) folder: PathBuf,
    /// Paths, names and addresses as JSON, for programs that are told `KUBEVITALS_E2E_CLUSTER`.
    pub(crate) description: PathBuf,
    /// The one Node.
    pub(crate) node_name: String,
    /// Reachable from the host, from pods and from inside.
    pub(crate) node_address: Ipv4Addr,
    /// The cluster's own version of it.
    pub(crate) kubectl: PathBuf,
    holder: u32,
    _leash: Option<Leash>,
}

/// The hidden subcommand that a holder is, and by which it is found.
pub(crate) const HOLD: &str = "hold";

impl Running {
    fn new(layout: &Layout, state: &State, description: Description, leash: Option<Leash>) -> Self {
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

    /// `program` in the cluster's network, where pods and Services can be reached; files and
    /// processes stay the host's. It is ended with the cluster.
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

    /// Builds our program as it is in the work tree and gives its image to the cluster.
    pub(crate) fn import_kubevitals(&self) -> Result<()> {
        let archive = images::kubevitals()?;
        images::import(
            Path::new(&format!("/proc/{}/ns/mnt", self.holder)),
            &archive,
        )
    }
}

pub(crate) fn run(flags: &ClusterFlags) -> Result<()> {
    match &flags.command {
        ClusterCommand::Up(name) => {
            let running = up(&Options {
                name: name.name.clone(),
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
        ClusterCommand::Exec { name, words } => exec(&attach(&name.name)?, words),
        ClusterCommand::Image(name) => attach(&name.name)?.import_kubevitals(),
        ClusterCommand::Hold { folder } => holder::hold(&Layout::at(folder)?),
    }
}

/// Brings the cluster up: at once if it is healthy, from nothing if it is absent or broken.
pub(crate) fn up(options: &Options) -> Result<Running> {
    let layout = Layout::of(&options.name)?;
    require_root()?;
    interrupt::listen()?;
    let clock = Clock::start();
    let _lock = lock(&layout)?;
    if take_down::is_there(&layout)? {
        let status = Status::of(&layout);
        if status.is_healthy() {
            clock.tell(&format!("cluster {} is up", layout.name));
            return attach_to(&layout);
        }
        clock.tell(&format!(
            "cluster {} is broken ({}): removing it",
            layout.name,
            status.problems().join("; ")
        ));
        take_down::remove(&layout)?;
    }
    let programs = Programs::fetch()?;
    let clock = Clock::start();
    let bring_up = BringUp {
        layout: &layout,
        programs: &programs,
        clock,
    };
    let up = match bring_up.run() {
        Err(error) if !is_interrupt(&error) => {
            println!("error: {error:#}");
            clean_after(&error, &layout)?;
            clock.tell("once more, from the start");
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
    clock.tell(&format!("cluster {} is up", layout.name));
    let leash = if options.tied {
        Some(up.leash)
    } else {
        control::ask(&layout.folder, &Request::Release)?;
        None
    };
    Ok(Running::new(&layout, &up.state, up.description, leash))
}

/// Removes whatever there is of the cluster.
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
    let clock = Clock::start();
    let _lock = lock(layout)?;
    let was_there = take_down::is_there(layout)?;
    take_down::remove(layout).with_context(|| format!("removing cluster {}", layout.name))?;
    let _ = fs::remove_dir_all(layout.failed_logs());
    let done = if was_there {
        "is removed"
    } else {
        "is not there"
    };
    clock.tell(&format!("cluster {} {done}", layout.name));
    Ok(())
}

/// Stops a component, waits until it is gone, starts it again and waits until it answers.
fn restart(name: &str, component: &str, kill: bool) -> Result<()> {
    /// An API server finishes open requests first, watches among them.
    const GRACE: Duration = Duration::from_secs(90);
    let layout = Layout::of(name)?;
    let Some(component) = Component::named(component) else {
        let known = Component::ALL.map(Component::name).join(", ");
        bail!("no component `{component}`; there are: {known}");
    };
    require_root()?;
    interrupt::listen()?;
    let clock = Clock::start();
    let _lock = lock(&layout)?;
    let state = State::load(&layout).with_context(|| no_cluster(name))?;
    let stop = |at_once| Request::Stop {
        name: component.name().to_owned(),
        at_once,
    };
    control::ask(&layout.folder, &stop(kill))?;
    let asked = Instant::now();
    let mut killed = kill;
    while runs(&layout, component)? {
        if !killed && asked.elapsed() > GRACE {
            clock.tell(&format!("{} does not end: killing it", component.name()));
            control::ask(&layout.folder, &stop(true))?;
            killed = true;
        }
        interrupt::pause(Duration::from_millis(50))?;
    }
    clock.tell(&format!("{} is stopped", component.name()));
    control::ask(&layout.folder, &Request::Again(component.name().to_owned()))?;
    let description = Description::load(&layout)?;
    let kubectl = description
        .programs
        .get("kubectl")
        .context("cluster.json names no kubectl")?;
    let asker = Asker {
        layout: &layout,
        addresses: state.addresses(),
        kubectl,
        holder: state.holder.pid,
    };
    bring_up::wait_ready(&asker, component)?;
    clock.tell(&format!("{} is ready", component.name()));
    Ok(())
}

/// Becomes that program. Returns only if it cannot.
fn exec(running: &Running, words: &[OsString]) -> Result<()> {
    let (program, arguments) = words.split_first().context("no program was named")?;
    let mut command = running.command(program);
    let own = running.kubectl.parent().map(Path::to_path_buf);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own.into_iter().chain(std::env::split_paths(&path));
    command
        .args(arguments)
        .env("PATH", std::env::join_paths(folders)?);
    Err(command.exec()).context("cannot start nsenter")
}

/// A cluster that is up already.
pub(crate) fn attach(name: &str) -> Result<Running> {
    attach_to(&Layout::of(name)?)
}

fn attach_to(layout: &Layout) -> Result<Running> {
    let state = State::load(layout).filter(|state| state.holder.is_alive());
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
        bail!(
            "cluster {name} is not healthy: `cargo xtask cluster up --name {name}` starts it afresh"
        );
    }
    Ok(())
}

fn runs(layout: &Layout, component: Component) -> Result<bool> {
    let reply = control::ask(&layout.folder, &Request::List)?;
    Ok(reply
        .components
        .iter()
        .any(|one| one.name == component.name() && one.ended.is_none()))
}

/// The logs stay, beside the folder, until the next failure or a `down`.
fn clean_after(failure: &anyhow::Error, layout: &Layout) -> Result<()> {
    let kept = layout.failed_logs();
    let _ = fs::remove_dir_all(&kept);
    if !is_interrupt(failure) && fs::rename(layout.path("logs"), &kept).is_ok() {
        println!("the logs are kept in {}", kept.display());
    }
    take_down::remove(layout).context("removing what had been started")
}

/// Held until it is dropped, or this process ends.
fn lock(layout: &Layout) -> Result<File> {
    let path = layout.lock_file();
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    let file = File::create(&path).with_context(|| format!("opening {}", path.display()))?;
    let mut told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::Error(error)) => return Err(error).context("locking"),
            Err(TryLockError::WouldBlock) => {}
        }
        if !told {
            println!(
                "another command is at work on cluster {}: waiting for it",
                layout.name
            );
            told = true;
        }
        interrupt::pause(Duration::from_millis(100))?;
    }
}

fn require_root() -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("a real cluster needs root: namespaces, mounts and cgroups are made");
    }
    Ok(())
}

fn is_interrupt(error: &anyhow::Error) -> bool {
    error.root_cause().to_string() == interrupt::INTERRUPTED
}

fn no_cluster(name: &str) -> String {
    format!("no cluster `{name}` is up: `cargo xtask cluster up --name {name}`")
}
