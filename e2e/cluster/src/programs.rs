//! The paths of a cluster's programs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::components::Component;
use crate::fetch::{self, Package, Program};

/// The paths of all programs that a cluster runs.
#[derive(Debug, Clone)]
pub(crate) struct Programs {
    components: Vec<(Component, PathBuf)>,
    pub(crate) kubectl: PathBuf,
    pub(crate) busybox: PathBuf,
    pub(crate) cni_plugins: PathBuf,
}

/// The `PATH` of components, in place of the caller's: containerd looks for runc, kubelet and proxy
/// for iptables.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Programs {
    /// Installs and builds missing programs.
    pub(crate) fn fetch() -> Result<Self> {
        fetch::debian(&Package::NODE)?;
        let components = Component::ALL
            .into_iter()
            .map(|component| Ok((component, fetched(component)?)))
            .collect::<Result<_>>()?;
        Ok(Self {
            components,
            kubectl: fetch::program(Program::Kubectl)?,
            busybox: installed("busybox")?,
            cni_plugins: PathBuf::from("/usr/lib/cni"),
        })
    }

    pub(crate) fn of(&self, component: Component) -> &Path {
        let found = self.components.iter().find(|(of, _)| *of == component);
        found
            .map(|(_, path)| path.as_path())
            .expect("every component has a program")
    }
}

fn fetched(component: Component) -> Result<PathBuf> {
    fetch::program(match component {
        Component::Containerd => return installed("containerd"),
        Component::Etcd => Program::Etcd,
        Component::ApiServer => Program::KubeApiserver,
        Component::ControllerManager => Program::KubeControllerManager,
        Component::Scheduler => Program::KubeScheduler,
        Component::Proxy => Program::KubeProxy,
        Component::Kubelet => Program::Kubelet,
    })
}

/// Finds a program of a Debian package.
pub(crate) fn installed(name: &str) -> Result<PathBuf> {
    PATH.split(':')
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not installed"))
}
