//! `cargo xtask cluster`: a real control plane and one real node, in namespaces of their own.
//!
//! All processes of a cluster live below one holder, the first process of a PID namespace that has its own mounts and
//! network. When the holder goes, the kernel takes the processes, the mounts and the interfaces with it: what a crash
//! could leave behind is a folder and empty cgroups, and the next `up` or `down` removes both.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, bail};

/// Which cluster, and how it is kept.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Lowercase letters, digits and dashes: part of file and node names.
    pub(crate) name: String,
    /// The cluster ends with this process, however it ends, unless [`down`] ended it before.
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
    holder: u32,
}

impl Running {
    /// `program` in the cluster's network, where pods and Services can be reached; files and processes stay the host's.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/proc/{}/ns/net", self.holder))
            .arg("--")
            .arg(program);
        command
    }
}

/// Brings the cluster up: at once if it is healthy, from nothing if it is absent or broken.
pub(crate) fn up(options: &Options) -> Result<Running> {
    bail!("not yet: {options:?}")
}

/// Removes whatever there is of the cluster.
pub(crate) fn down(name: &str) -> Result<()> {
    bail!("not yet: {name}")
}

/// Stops a component, waits until it is gone, starts it again and waits until it answers.
pub(crate) fn restart(name: &str, component: &str) -> Result<()> {
    bail!("not yet: {name} {component}")
}
