//! The health of a cluster.

use std::fmt::Write;
use std::fs;

use anyhow::Result;
use serde::Serialize;

use crate::components::Component;
use crate::control::{self, ComponentState, Request};
use crate::layout::Layout;
use crate::process;
use crate::ready::Probe;
use crate::state::{ClusterState, Description};

/// A cluster as `status` shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Status {
    name: String,
    folder: String,
    /// True if there are no problems.
    healthy: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kubeconfig: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<NodeLine>,
    components: Vec<ComponentLine>,
    problems: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeLine {
    name: String,
    address: String,
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    kubernetes: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kubelet: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    runtime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct ComponentLine {
    name: String,
    /// `up`, or the reason why it ended.
    state: String,
    /// In the host's PID namespace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resident_bytes: Option<u64>,
}

impl Status {
    /// Checks every component once.
    pub(crate) fn of(layout: &Layout) -> Self {
        let mut status = Self {
            name: layout.name.clone(),
            folder: layout.folder.display().to_string(),
            healthy: false,
            api_server: None,
            kubeconfig: None,
            node: None,
            components: Vec::new(),
            problems: Vec::new(),
        };
        if let Err(problem) = status.check(layout) {
            status.problems.push(format!("{problem:#}"));
        }
        status.healthy = status.problems.is_empty();
        status
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.healthy
    }

    pub(crate) fn problems(&self) -> &[String] {
        &self.problems
    }

    fn check(&mut self, layout: &Layout) -> Result<()> {
        let Some(state) = ClusterState::load(layout).filter(|state| state.holder.is_alive()) else {
            anyhow::bail!("it is not running");
        };
        let reply = control::send_request(&layout.folder, &Request::List)?;
        for component in Component::ALL {
            let found = reply
                .components
                .iter()
                .find(|found| found.name == component.name());
            self.components
                .push(ComponentLine::of(component, found, &state));
            match found.map(|found| &found.ended) {
                Some(None) => {}
                Some(Some(how)) => self
                    .problems
                    .push(format!("{} ended: {how}", component.name())),
                None => self
                    .problems
                    .push(format!("{} was not started", component.name())),
            }
        }
        // Without one component the checks of the others would only time out.
        if !self.problems.is_empty() {
            return Ok(());
        }
        let description = Description::load(layout)?;
        self.api_server = Some(description.api_server.clone());
        self.kubeconfig = Some(description.kubeconfig.display().to_string());
        let Some(kubectl) = description.programs.get("kubectl") else {
            anyhow::bail!("cluster.json names no kubectl");
        };
        let probe = Probe {
            layout,
            addresses: state.addresses(),
            kubectl,
            holder: state.holder.pid,
        };
        let version = probe.version();
        let node = probe.node();
        for problem in [version.as_ref().err(), node.as_ref().err()]
            .into_iter()
            .flatten()
        {
            self.problems.push(format!("{problem:#}"));
        }
        let (ready, info) = (node.is_ok(), node.ok());
        self.node = Some(NodeLine {
            name: description.node_name,
            address: description.node_address.to_string(),
            ready,
            kubernetes: version.ok(),
            kubelet: info.as_ref().map(|info| info.kubelet.clone()),
            runtime: info.as_ref().map(|info| info.container_runtime.clone()),
            kernel: info.map(|info| info.kernel),
        });
        // A Node stays Ready for a while after its kubelet or its runtime has ended.
        for component in [Component::Kubelet, Component::Containerd] {
            if let Err(problem) = probe.check(component) {
                self.problems
                    .push(format!("{}: {problem:#}", component.name()));
            }
        }
        Ok(())
    }

    /// Returns the status as text.
    pub(crate) fn text(&self) -> String {
        let mut text = format!(
            "cluster {}: {}\n",
            self.name,
            if self.healthy {
                "healthy"
            } else {
                "not healthy"
            }
        );
        let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".to_owned());
        // Writing to a string cannot fail.
        let _ = writeln!(text, "folder      {}", self.folder);
        if self.api_server.is_some() {
            let _ = writeln!(text, "API server  {}", known(&self.api_server));
            let _ = writeln!(text, "kubeconfig  {}", known(&self.kubeconfig));
        }
        if let Some(node) = &self.node {
            let ready = if node.ready { "Ready" } else { "NotReady" };
            let _ = writeln!(text, "node        {} {} {ready}", node.name, node.address);
            let (kubernetes, kubelet) = (known(&node.kubernetes), known(&node.kubelet));
            let (runtime, kernel) = (known(&node.runtime), known(&node.kernel));
            let _ = writeln!(
                text,
                "versions    kubernetes {kubernetes}, kubelet {kubelet}, {runtime}, Linux {kernel}"
            );
        }
        for line in &self.components {
            let pid = line
                .pid
                .map_or_else(|| "-".to_owned(), |pid| pid.to_string());
            let resident = line
                .resident_bytes
                .map_or_else(|| "-".to_owned(), |bytes| format!("{} MiB", bytes >> 20));
            let _ = writeln!(
                text,
                "  {:<24} {pid:>8} {resident:>9}  {}",
                line.name, line.state
            );
        }
        for problem in &self.problems {
            let _ = writeln!(text, "problem: {problem}");
        }
        text
    }
}

impl ComponentLine {
    fn of(component: Component, found: Option<&ComponentState>, state: &ClusterState) -> Self {
        let running = found.filter(|found| found.ended.is_none());
        let pid = running.and_then(|found| host_pid(found.pid, state.holder.pid));
        Self {
            name: component.name().to_owned(),
            state: match found.map(|found| &found.ended) {
                Some(None) => "up".to_owned(),
                Some(Some(how)) => format!("down: {how}"),
                None => "never started".to_owned(),
            },
            pid,
            resident_bytes: pid.and_then(resident_bytes),
        }
    }
}

/// Returns the PID on the host of a process of the cluster.
fn host_pid(inside: u32, holder: u32) -> Option<u32> {
    let namespace = process::namespace(holder, "pid")?;
    let found = process::find(|pid| {
        field(pid, "NSpid:")
            .is_some_and(|numbers| numbers.split_whitespace().last() == Some(&inside.to_string()))
            && process::namespace(pid, "pid").as_ref() == Some(&namespace)
    });
    found.ok()?.first().map(|process| process.pid)
}

fn resident_bytes(pid: u32) -> Option<u64> {
    let kibibytes: u64 = field(pid, "VmRSS:")?
        .split_whitespace()
        .next()?
        .parse()
        .ok()?;
    Some(kibibytes << 10)
}

fn field(pid: u32, name: &str) -> Option<String> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_come_last_in_the_text() {
        let status = Status {
            name: "dev".to_owned(),
            folder: "/cache/clusters/dev".to_owned(),
            healthy: false,
            api_server: Some("https://10.213.7.2:6443".to_owned()),
            kubeconfig: Some("/cache/clusters/dev/admin.kubeconfig".to_owned()),
            node: Some(NodeLine {
                name: "dev-node".to_owned(),
                address: "10.213.7.2".to_owned(),
                ready: true,
                kubernetes: Some("v1.37.1".to_owned()),
                kubelet: Some("v1.37.1".to_owned()),
                runtime: Some("containerd://1.6.20".to_owned()),
                kernel: None,
            }),
            components: vec![
                ComponentLine {
                    name: "etcd".to_owned(),
                    state: "down: signal 9".to_owned(),
                    pid: None,
                    resident_bytes: None,
                },
                ComponentLine {
                    name: "kube-controller-manager".to_owned(),
                    state: "up".to_owned(),
                    pid: Some(4711),
                    resident_bytes: Some(99 << 20),
                },
            ],
            problems: vec!["etcd ended: signal 9".to_owned()],
        };
        insta::assert_snapshot!(status.text());
        insta::assert_snapshot!(
            "status_as_json",
            serde_json::to_string_pretty(&status).unwrap()
        );
    }

    #[test]
    fn resident_memory_of_this_process_is_read() {
        assert!(resident_bytes(std::process::id()).unwrap() > 1 << 20);
    }
}
