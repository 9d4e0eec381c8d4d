//! Readiness checks of a cluster's components.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::components::{
    CONTROLLER_MANAGER_PORT, Component, ETCD_HEALTH_PORT, PROXY_HEALTH_PORT, SCHEDULER_PORT,
};
use crate::config::kubeconfig;
use crate::layout::{Addresses, Layout};

/// Checks the components of one cluster.
#[derive(Debug, Clone)]
pub(crate) struct Probe<'a> {
    pub(crate) layout: &'a Layout,
    pub(crate) addresses: Addresses,
    pub(crate) kubectl: &'a Path,
    /// The PID of the holder on the host.
    pub(crate) holder: u32,
}

/// The fields of a Node that are checked.
#[derive(Debug, Deserialize)]
struct Node {
    status: NodeStatus,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct NodeStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
    node_info: NodeInfo,
}

#[derive(Debug, Deserialize)]
struct Condition {
    r#type: String,
    status: String,
}

/// The versions that a node reports.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct NodeInfo {
    #[serde(rename = "kubeletVersion")]
    pub(crate) kubelet: String,
    #[serde(rename = "containerRuntimeVersion")]
    pub(crate) container_runtime: String,
    #[serde(rename = "kernelVersion")]
    pub(crate) kernel: String,
}

/// Timeout of one check; callers repeat it.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);

impl Probe<'_> {
    /// Fails with the reason if the component is not ready.
    pub(crate) fn check(&self, component: Component) -> Result<()> {
        let node = self.addresses.node();
        match component {
            Component::Etcd => http_ok(node, ETCD_HEALTH_PORT, "/health"),
            Component::Containerd => self.containerd(),
            Component::ApiServer => self.api("/readyz").map(drop),
            Component::ControllerManager => {
                listens(node, CONTROLLER_MANAGER_PORT).map(drop)?;
                // No pod can be created without it, and its controller starts late.
                self.api("/api/v1/namespaces/default/serviceaccounts/default")
                    .map(drop)
            }
            Component::Scheduler => listens(node, SCHEDULER_PORT).map(drop),
            Component::Proxy => http_ok(node, PROXY_HEALTH_PORT, "/healthz"),
            Component::Kubelet => {
                self.node()?;
                // A Node stays Ready for a while after its kubelet has ended.
                self.api(&format!(
                    "/api/v1/nodes/{}/proxy/healthz",
                    self.layout.node_name()
                ))
                .map(drop)
            }
        }
    }

    /// Returns the Node's versions, if it is Ready.
    pub(crate) fn node(&self) -> Result<NodeInfo> {
        let name = self.layout.node_name();
        let text = self.api(&format!("/api/v1/nodes/{name}"))?;
        let node: Node = serde_json::from_slice(&text).context("reading the Node")?;
        let ready = node
            .status
            .conditions
            .iter()
            .find(|condition| condition.r#type == "Ready");
        match ready.map(|condition| condition.status.as_str()) {
            Some("True") => Ok(node.status.node_info),
            other => bail!("Node {name} has Ready={}", other.unwrap_or("unset")),
        }
    }

    /// Returns the version of the API server.
    pub(crate) fn version(&self) -> Result<String> {
        let version: Value = serde_json::from_slice(&self.api("/version")?)?;
        let version = version.get("gitVersion").and_then(Value::as_str);
        Ok(version
            .context("the API server reports no version")?
            .to_owned())
    }

    fn api(&self, path: &str) -> Result<Vec<u8>> {
        let mut kubectl = Command::new(self.kubectl);
        kubectl
            .arg("--kubeconfig")
            .arg(kubeconfig(self.layout, "admin"))
            .arg(format!("--request-timeout={}s", PROBE_TIMEOUT.as_secs()))
            .args(["get", &format!("--raw={path}")]);
        let done = kubectl
            .stdin(Stdio::null())
            .output()
            .context("cannot start kubectl")?;
        if !done.status.success() {
            bail!("{path}: {}", String::from_utf8_lossy(&done.stderr).trim());
        }
        Ok(done.stdout)
    }

    fn containerd(&self) -> Result<()> {
        let mut ctr = Command::new("nsenter");
        ctr.arg(format!("--mount=/proc/{}/ns/mnt", self.holder))
            .args([
                "--",
                "ctr",
                &format!("--timeout={}s", PROBE_TIMEOUT.as_secs()),
                "version",
            ]);
        crate::network::output(&mut ctr).map(drop)
    }
}

fn listens(address: Ipv4Addr, port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&SocketAddr::from((address, port)), PROBE_TIMEOUT)
        .with_context(|| format!("nothing listens on {address}:{port}"))?;
    Ok(stream)
}

fn http_ok(address: Ipv4Addr, port: u16, path: &str) -> Result<()> {
    let mut stream = listens(address, port)?;
    stream.set_read_timeout(Some(PROBE_TIMEOUT))?;
    stream.set_write_timeout(Some(PROBE_TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n")?;
    let mut head = String::new();
    // Only the status line is needed.
    stream.take(64).read_to_string(&mut head).ok();
    let status = head.split(' ').nth(1).unwrap_or("no response");
    if status != "200" {
        bail!("http://{address}:{port}{path}: {status}");
    }
    Ok(())
}
