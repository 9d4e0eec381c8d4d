//! What is remembered of a cluster, and what is told of it to the programs that use it.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::components::Component;
use crate::config::{API_PORT, kubeconfig};
use crate::layout::{Addresses, Layout};
use crate::pki::Pki;
use crate::process::{self, Process};
use crate::programs::Programs;

/// What is needed to find the cluster again: written as soon as there is anything to find.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct State {
    /// Processes of an earlier boot are not looked for.
    pub(crate) boot: String,
    /// The first process of the cluster's PID namespace.
    pub(crate) holder: Process,
    /// Chooses the interface and the subnets.
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
    /// What `nsenter --net=` takes.
    pub(crate) network_namespace: PathBuf,
    /// A folder with a log for each component.
    pub(crate) logs: PathBuf,
    /// By name: the components' programs, and `kubectl`.
    pub(crate) programs: BTreeMap<String, PathBuf>,
}

impl State {
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

    /// None if there is none that can be understood: what it would have told is then found by other
    /// means.
    pub(crate) fn load(layout: &Layout) -> Option<Self> {
        let state: Self = read(&layout.path("state.json")).ok()?;
        (process::boot().ok()? == state.boot).then_some(state)
    }

    pub(crate) fn save(&self, layout: &Layout) -> Result<()> {
        write(&layout.path("state.json"), self)
    }
}

impl Description {
    pub(crate) fn new(layout: &Layout, state: &State, programs: &Programs) -> Self {
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
            programs: paths,
        }
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

/// Under another name first: whoever reads sees the old one or the new one, never half of it.
fn write(path: &Path, value: &impl Serialize) -> Result<()> {
    let unfinished = path.with_extension("json.new");
    let mut text = serde_json::to_vec_pretty(value)?;
    text.push(b'\n');
    fs::write(&unfinished, text)
        .and_then(|()| fs::rename(&unfinished, path))
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
    fn a_state_is_found_again_but_not_after_a_reboot() {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(folder.path());
        assert_eq!(State::load(&layout), None);
        let holder = Process {
            pid: 42,
            started: 4711,
        };
        let state = State::new(holder, Addresses::new(7)).unwrap();
        state.save(&layout).unwrap();
        assert_eq!(State::load(&layout), Some(state.clone()));
        State {
            boot: "another".to_owned(),
            ..state
        }
        .save(&layout)
        .unwrap();
        assert_eq!(State::load(&layout), None);
    }

    #[test]
    fn a_torn_state_is_no_state() {
        let folder = tempfile::tempdir().unwrap();
        let layout = layout(folder.path());
        fs::write(layout.path("state.json"), "{\"boot\":").unwrap();
        assert_eq!(State::load(&layout), None);
    }
}
