//! The paths of a cluster's programs.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::ValueEnum;

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

/// The minor version of a cluster's kubelet. The control plane is always the newest: it supports
/// kubelets that are up to three minor versions older.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(crate) enum KubeletVersion {
    /// That of the control plane.
    #[default]
    #[value(name = "1.37")]
    Newest,
    /// The last one that reports `PodReadyToStartContainers` after the image pulls.
    #[value(name = "1.35")]
    V135,
}

/// The `PATH` of components, in place of the caller's: containerd looks for runc, kubelet and proxy
/// for iptables.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

impl Programs {
    /// Installs and builds missing programs.
    pub(crate) fn fetch(kubelet: KubeletVersion) -> Result<Self> {
        fetch::debian(&Package::NODE)?;
        let components = Component::ALL
            .into_iter()
            .map(|component| Ok((component, fetched(component, kubelet)?)))
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

impl KubeletVersion {
    pub(crate) const fn program(self) -> Program {
        match self {
            Self::Newest => Program::Kubelet,
            Self::V135 => Program::Kubelet135,
        }
    }
}

fn fetched(component: Component, kubelet: KubeletVersion) -> Result<PathBuf> {
    fetch::program(match component {
        Component::Containerd => return installed("containerd"),
        Component::Etcd => Program::Etcd,
        Component::ApiServer => Program::KubeApiserver,
        Component::ControllerManager => Program::KubeControllerManager,
        Component::Scheduler => Program::KubeScheduler,
        Component::Proxy => Program::KubeProxy,
        Component::Kubelet => kubelet.program(),
    })
}

/// Finds a program of a Debian package.
pub(crate) fn installed(name: &str) -> Result<PathBuf> {
    PATH.split(':')
        .map(|folder| Path::new(folder).join(name))
        .find(|path| path.is_file())
        .with_context(|| format!("{name} is not installed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_kubelets_are_those_of_their_programs() {
        for version in KubeletVersion::value_variants() {
            let value = version.to_possible_value().unwrap();
            let pinned = fetch::version(version.program()).unwrap();
            let prefix = format!("v{}.", value.get_name());
            assert!(pinned.starts_with(&prefix), "{pinned} is not {prefix}");
        }
    }
}
