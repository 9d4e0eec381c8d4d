//! The state file of a cluster, and its description for the programs that use it.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::components::Component;
use crate::config::{API_PORT, STATIC_PODS, kubeconfig};
use crate::layout::{Addresses, Layout};
use crate::pki::Pki;
use crate::process::{self, Process};
use crate::programs::{KubeletVersion, Programs};

/// The state that finds a running cluster again: written as soon as its holder runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ClusterState {
    /// PIDs of an earlier boot mean nothing.
    pub(crate) boot: String,
    /// The first process of the cluster's PID namespace.
    pub(crate) holder: Process,
    /// Determines the interface and the subnets.
    pub(crate) index: u8,
}

/// `cluster.json`: for test programs, which find it through `KUBEVITALS_E2E_CLUSTER`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Description {
    pub(crate) name: String,
    pub(crate) folder: PathBuf,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) node_name: String,
    pub(crate) node_address: Ipv4Addr,
    /// The host as the cluster sees it.
    pub(crate) host_address: Ipv4Addr,
    pub(crate) api_server: String,
    pub(crate) kubelet: String,
    /// Signs the serving certificates of API server and kubelet.
    pub(crate) certificate_authority: PathBuf,
    /// Signs the aggregator's client certificate.
    pub(crate) front_proxy_authority: PathBuf,
    pub(crate) pod_subnet: String,
    pub(crate) service_subnet: String,
    /// A path for `nsenter --net=`.
    pub(crate) network_namespace: PathBuf,
    /// A folder with a log for each component.
    pub(crate) logs: PathBuf,
    /// The folder from which the kubelet reads static pods.
    pub(crate) static_pods: PathBuf,
    /// The cgroup of the pods, in every hierarchy.
    pub(crate) cgroup: String,
    /// By name: the components' programs, and `kubectl`.
    pub(crate) programs: BTreeMap<String, PathBuf>,
}

impl ClusterState {
    pub(crate) fn new(holder: Process, addresses: Addresses) -> Result<Self> {
        Ok(Self {
            boot: process::boot()?,
            holder,
            index: addresses.index(),
        })
    }

    pub(crate) fn addresses(&self) -> Addresses {
        Addresses::new(self.index)
    }

    /// Returns None if the file is missing, unreadable or of an earlier boot: the cluster is then
    /// found by its processes.
    pub(crate) fn load(layout: &Layout) -> Option<Self> {
        let state: Self = read(&layout.path("state.json")).ok()?;
        (process::boot().ok()? == state.boot).then_some(state)
    }

    pub(crate) fn save(&self, layout: &Layout) -> Result<()> {
        write(&layout.path("state.json"), self)
    }
}

impl Description {
    pub(crate) fn new(layout: &Layout, state: &ClusterState, programs: &Programs) -> Self {
        let addresses = state.addresses();
        let pki = Pki::new(layout);
        let mut paths = BTreeMap::from([("kubectl".to_owned(), programs.kubectl.clone())]);
        for component in Component::ALL {
            paths.insert(
                component.name().to_owned(),
                programs.of(component).to_owned(),
            );
        }
        Self {
            name: layout.name.clone(),
            folder: layout.folder.clone(),
            kubeconfig: kubeconfig(layout, "admin"),
            node_name: layout.node_name(),
            node_address: addresses.node(),
            host_address: addresses.host(),
            api_server: format!("https://{}:{API_PORT}", addresses.node()),
            kubelet: format!("https://{}:10250", addresses.node()),
            certificate_authority: pki.certificate("ca"),
            front_proxy_authority: pki.certificate("front-proxy-ca"),
            pod_subnet: addresses.pods().to_string(),
            service_subnet: addresses.services().to_string(),
            network_namespace: PathBuf::from(format!("/proc/{}/ns/net", state.holder.pid)),
            logs: layout.path("logs"),
            static_pods: layout.path(STATIC_PODS),
            cgroup: layout.cgroup(),
            programs: paths,
        }
    }

    /// Whether its kubelet is of this version.
    pub(crate) fn has_kubelet(&self, version: KubeletVersion) -> bool {
        let kubelet = self.programs.get(Component::Kubelet.name());
        kubelet.is_some_and(|path| path.ends_with(version.program().name()))
    }

    pub(crate) fn file(layout: &Layout) -> PathBuf {
        layout.path("cluster.json")
    }

    pub(crate) fn load(layout: &Layout) -> Result<Self> {
        read(&Self::file(layout))
    }

    pub(crate) fn save(&self, layout: &Layout) -> Result<()> {
        write(&Self::file(layout), self)
    }
}

fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Result<T> {
    let text = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))
}

/// Replaces the file atomically.
fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    let temporary = path.with_extension("json.new");
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    fs::write(&temporary, text)
        .and_then(|()| fs::rename(&temporary, path))
        .with_context(|| format!("writing {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(folder: &Path) -> Layout {
        Layout {
            name: "dev".to_owned(),
            folder: folder.to_owned(),
        }
    }

    #[test]
    fn a_state_is_ignored_after_a_reboot() {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(folder.path());
        assert_eq!(ClusterState::load(&layout), None);
        let holder = Process {
            pid: 42,
            started: 4711,
        };
        let state = ClusterState::new(holder, Addresses::new(7)).unwrap();
        state.save(&layout).unwrap();
        assert_eq!(ClusterState::load(&layout), Some(state.clone()));
        ClusterState {
            boot: "another".to_owned(),
            ..state
        }
        .save(&layout)
        .unwrap();
        assert_eq!(ClusterState::load(&layout), None);
    }

    #[test]
    fn a_truncated_state_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(folder.path());
        fs::write(layout.path("state.json"), "{\"boot\":").unwrap();
        assert_eq!(ClusterState::load(&layout), None);
    }
}
