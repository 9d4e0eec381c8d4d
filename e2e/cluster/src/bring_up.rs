//! Bringing a cluster up, step by step.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cluster::HOLD;
use crate::components::Component;
use crate::control::{self, Request};
use crate::layout::{Addresses, Layout};
use crate::pki::Pki;
use crate::process::Process;
use crate::programs::{PATH, Programs};
use crate::ready::Probe;
use crate::state::{ClusterState, Description};
use crate::{cgroups, config, images, interrupt, network, take_down};

/// A cluster on its way up.
pub(crate) struct BringUp<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) programs: &'a Programs,
    pub(crate) stopwatch: Stopwatch,
}

/// Prints what was done, with the time since the start.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stopwatch {
    started: Instant,
}

/// A cluster that is up.
pub(crate) struct Up {
    pub(crate) state: ClusterState,
    pub(crate) description: Description,
    /// Keeps the cluster up while it is open; the kernel closes it when this process dies.
    pub(crate) leash: Leash,
}

/// The write end of the holder's standard input.
#[derive(Debug)]
pub(crate) struct Leash {
    _input: ChildStdin,
}

/// Enough for a control plane on a busy machine of two cores.
const READY_TIMEOUT: Duration = Duration::from_mins(2);

/// Lines of a log that are shown when its program has ended.
const MAX_TAIL_LINES: usize = 25;

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self {
            started: Instant::now(),
        }
    }

    pub(crate) fn log(self, message: &str) {
        println!("{:>7.1} s  {message}", self.started.elapsed().as_secs_f64());
    }
}

impl BringUp<'_> {
    /// Returns when the Node is ready. After a failure the caller removes the cluster.
    pub(crate) fn run(&self) -> Result<Up> {
        for folder in ["logs", "tmp"] {
            let folder = self.layout.path(folder);
            fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        }
        let (holder, leash) = self.start_holder()?;
        let addresses =
            network::connect(self.layout, holder).context("connecting the node with the host")?;
        let state = ClusterState::new(holder, addresses)?;
        state.save(self.layout)?;
        cgroups::make(&self.layout.cgroup())?;
        self.stopwatch.log(&format!(
            "namespaces, {} with {}",
            addresses.interface(),
            addresses.link()
        ));

        let pki = Pki::new(self.layout);
        pki.make(self.layout, addresses)
            .context("making certificates")?;
        config::write(self.layout, addresses, &pki, &self.programs.cni_plugins)?;
        self.stopwatch.log("certificates and configuration");

        for component in [Component::Etcd, Component::Containerd, Component::ApiServer] {
            self.start(component, addresses)?;
        }
        let probe = Probe {
            layout: self.layout,
            addresses,
            kubectl: &self.programs.kubectl,
            holder: holder.pid,
        };
        self.wait_ready(&probe, Component::Containerd)?;
        let mounts = PathBuf::from(format!("/proc/{}/ns/mnt", holder.pid));
        for image in images::standard(&self.programs.busybox)? {
            images::import(&mounts, &image)?;
        }
        self.stopwatch.log("images");
        self.wait_ready(&probe, Component::Etcd)?;
        self.wait_ready(&probe, Component::ApiServer)?;
        let others = [
            Component::ControllerManager,
            Component::Scheduler,
            Component::Proxy,
            Component::Kubelet,
        ];
        for component in others {
            self.start(component, addresses)?;
        }
        for component in others {
            self.wait_ready(&probe, component)?;
        }
        let description = Description::new(self.layout, &state, self.programs);
        description.save(self.layout)?;
        Ok(Up {
            state,
            description,
            leash,
        })
    }

    fn start_holder(&self) -> Result<(Process, Leash)> {
        let log = fs::File::create(self.layout.path("logs/holder.log"))?;
        let program = this_program()?;
        let mut unshare = Command::new("unshare")
            .args([
                "--pid",
                "--mount",
                "--net",
                "--fork",
                "--kill-child",
                "--mount-proc",
            ])
            .args(["--propagation", "private", "--"])
            .arg(program)
            .args(["cluster", HOLD])
            .arg(&self.layout.folder)
            // Ctrl-C must not reach it: we take the cluster down in order.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start unshare (from util-linux)")?;
        let leash = Leash {
            _input: unshare.stdin.take().context("the holder has an input")?,
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let ended = unshare.try_wait()?;
            if ended.is_none() && control::send_request(&self.layout.folder, &Request::List).is_ok()
            {
                break;
            }
            if ended.is_some() || Instant::now() > deadline {
                bail!(
                    "the holder is not running:\n{}",
                    tail(&self.layout.path("logs/holder.log"))
                );
            }
            interrupt::pause(Duration::from_millis(20))?;
        }
        let waiting = unshare.id();
        // Reaps it, in case this process outlives the cluster.
        std::thread::spawn(move || unshare.wait());
        let holder = take_down::holders(self.layout)?
            .into_iter()
            .find(|process| process.pid != waiting);
        Ok((holder.context("the holder is gone")?, leash))
    }

    fn start(&self, component: Component, addresses: Addresses) -> Result<()> {
        let launch = component.launch(self.layout, addresses, self.programs.of(component), PATH);
        control::send_request(&self.layout.folder, &Request::Start(launch)).map(drop)
    }

    fn wait_ready(&self, probe: &Probe<'_>, component: Component) -> Result<()> {
        wait_ready(probe, component)?;
        self.stopwatch.log(component.name());
        Ok(())
    }
}

/// Returns the path of this program. If it was rebuilt while it ran, the kernel marks the path of
/// the old file as deleted.
fn this_program() -> Result<PathBuf> {
    let path = std::env::current_exe().context("finding this program")?;
    let text = path.to_string_lossy();
    Ok(text
        .strip_suffix(" (deleted)")
        .map_or_else(|| path.clone(), PathBuf::from))
}

/// Waits until the component is ready. Fails at once when any component has ended.
pub(crate) fn wait_ready(probe: &Probe<'_>, component: Component) -> Result<()> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        check_running(probe.layout)?;
        let Err(reason) = probe.check(component) else {
            return Ok(());
        };
        if Instant::now() > deadline {
            bail!(
                "{} is not ready after {} s: {reason:#}\n{}",
                component.name(),
                READY_TIMEOUT.as_secs(),
                tail(&component.log(probe.layout))
            );
        }
        interrupt::pause(Duration::from_millis(100))?;
    }
}

/// Fails with the last log lines of a component that has ended.
pub(crate) fn check_running(layout: &Layout) -> Result<()> {
    let reply = control::send_request(&layout.folder, &Request::List)?;
    match reply
        .components
        .iter()
        .find(|component| component.ended.is_some())
    {
        Some(ended) => bail!(
            "{} ended ({}):\n{}",
            ended.name,
            ended.ended.as_deref().unwrap_or_default(),
            tail(&ended.log)
        ),
        None => Ok(()),
    }
}

fn tail(log: &Path) -> String {
    /// Some programs log their whole configuration in one line.
    const MAX_LINE: usize = 400;
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let last = lines
        .iter()
        .skip(lines.len().saturating_sub(MAX_TAIL_LINES));
    let mut shown = format!("  last lines of {}:", log.display());
    for line in last {
        shown.push_str("\n    ");
        shown.extend(line.chars().take(MAX_LINE));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_limited_in_lines_and_in_their_length() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("a.log");
        let lines: Vec<String> = (1..=100).map(|line| format!("line {line}")).collect();
        fs::write(
            &log,
            format!("{}\n{}", lines.join("\n"), "x".repeat(10_000)),
        )
        .unwrap();
        let shown = tail(&log);
        assert!(
            shown.contains("line 77\n") && !shown.contains("line 76\n"),
            "{shown}"
        );
        assert!(shown.len() < 2_000);
        assert!(tail(&folder.path().join("missing.log")).contains("missing.log"));
    }
}
