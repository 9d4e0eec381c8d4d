//! The real cluster of one node: made for the run and taken down with it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use kubevitals_bench::BenchError;
use kubevitals_bench::https::Client;
use kubevitals_bench::kubeconfig::Kubeconfig;
use kubevitals_bench::session::print_line;
use kubevitals_bench::sim::poll_until;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;

/// Name of the cluster.
const NAME: &str = "bench";

/// Timeout of pods and nodes that become ready.
const READY_TIMEOUT: Duration = Duration::from_mins(3);

/// Interval of polls for them.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The image of pods, which the cluster has.
const IMAGE: &str = "kubevitals.test/busybox:1";

/// Connections of a client.
const CONNECTIONS: usize = 4;

/// A running cluster. Dropping it takes it down, unless it was there before.
#[derive(Debug)]
pub(crate) struct RealCluster {
    description: Description,
    /// An administrator's, with everything embedded.
    kubeconfig: PathBuf,
    identity: Kubeconfig,
    /// PIDs of components by name, in our own PID namespace.
    components: BTreeMap<String, u32>,
    _owned: Option<Owned>,
}

/// The fields of `cluster.json` that are needed.
#[derive(Debug, Deserialize)]
struct Description {
    node_name: String,
    node_address: IpAddr,
    certificate_authority: PathBuf,
    network_namespace: PathBuf,
    /// Of the pods, in every hierarchy.
    cgroup: String,
    programs: BTreeMap<String, PathBuf>,
}

#[derive(Debug, Deserialize)]
struct Status {
    components: Vec<Component>,
}

#[derive(Debug, Deserialize)]
struct Component {
    name: String,
    pid: Option<u32>,
}

/// Takes the cluster down at its end, also on an error or a signal.
#[derive(Debug)]
struct Owned {
    manifest: PathBuf,
}

impl RealCluster {
    /// Brings up a cluster, and files for the run in `folder`.
    pub(crate) async fn up(bench: &Path, folder: &Path, keep: bool) -> Result<Self, BenchError> {
        let manifest = bench.join("../e2e/cluster/Cargo.toml");
        let owned = (!keep).then(|| Owned {
            manifest: manifest.clone(),
        });
        let tool = async |arguments: &[&str]| {
            let mut command = Command::new(cargo());
            command.args(tool_arguments(&manifest)).args(arguments);
            output(command).await
        };
        print_line("starting a cluster of one real node");
        tool(&["cluster", "up", "--name", NAME]).await?;
        let path = tool(&["cluster", "kubeconfig", "--name", NAME, "--path"]).await?;
        let status = tool(&["cluster", "status", "--name", NAME, "-o", "json"]).await?;
        let status: Status = serde_json::from_str(&status)?;
        let own = PathBuf::from(path.trim_end());
        let file = own.with_file_name("cluster.json");
        let text = std::fs::read(&file).map_err(BenchError::file("read", &file))?;
        let description: Description = serde_json::from_slice(&text)?;
        // Paths in it become data.
        let mut flatten = Command::new(program(&description, "kubectl")?);
        flatten.arg(format!("--kubeconfig={}", own.display()));
        flatten.args(["config", "view", "--raw", "--flatten"]);
        let kubeconfig = folder.join("admin.kubeconfig");
        std::fs::write(&kubeconfig, output(flatten).await?)
            .map_err(BenchError::file("write", &kubeconfig))?;
        let components = status.components.into_iter();
        Ok(Self {
            identity: Kubeconfig::read(&kubeconfig)?,
            description,
            kubeconfig,
            components: components
                .filter_map(|component| Some((component.name, component.pid?)))
                .collect(),
            _owned: owned,
        })
    }

    pub(crate) fn node_name(&self) -> &str {
        &self.description.node_name
    }

    pub(crate) fn node_address(&self) -> IpAddr {
        self.description.node_address
    }

    /// The CA of all serving and client certificates.
    pub(crate) fn authority(&self) -> &Path {
        &self.description.certificate_authority
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// A path for `nsenter --net`.
    pub(crate) fn network_namespace(&self) -> &Path {
        &self.description.network_namespace
    }

    /// A cgroup that is removed with the cluster, with all processes in it.
    pub(crate) fn cgroup(&self) -> &str {
        &self.description.cgroup
    }

    pub(crate) fn program(&self, name: &str) -> Result<&Path, BenchError> {
        program(&self.description, name)
    }

    /// PID of a component.
    pub(crate) fn pid(&self, component: &str) -> Result<u32, BenchError> {
        let pid = self.components.get(component).copied();
        pid.ok_or_else(|| BenchError::NoContender(format!("{component} does not run")))
    }

    /// An administrator's client of a server that has a certificate of the cluster.
    pub(crate) fn client(&self, port: u16) -> Result<Client, BenchError> {
        let address = (self.node_address(), port).into();
        Ok(Client::new(address, self.identity.api_tls()?, CONNECTIONS))
    }

    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<String, BenchError> {
        output(self.kubectl_command(arguments)?).await
    }

    pub(crate) fn kubectl_command(&self, arguments: &[&str]) -> Result<Command, BenchError> {
        let mut command = Command::new(self.program("kubectl")?);
        command.env("KUBECONFIG", &self.kubeconfig).args(arguments);
        Ok(command)
    }

    /// Creates pods that sleep on a node, and waits until they are ready.
    pub(crate) async fn create_pods(
        &self,
        names: &[String],
        node: &str,
        folder: &Path,
    ) -> Result<(), BenchError> {
        let pods: Vec<Value> = names.iter().map(|name| pod(name, node)).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": pods});
        let file = folder.join("pods.json");
        std::fs::write(&file, list.to_string()).map_err(BenchError::file("write", &file))?;
        let file = file.display().to_string();
        // The account appears a moment after the cluster is up.
        poll_until(
            "pods to be created",
            POLL_INTERVAL,
            READY_TIMEOUT,
            async || Ok(self.kubectl(&["apply", "-f", &file]).await.ok()),
        )
        .await?;
        let mut wait = vec!["wait", "--for=condition=Ready", "--timeout=180s", "pod"];
        wait.extend(names.iter().map(String::as_str));
        self.kubectl(&wait).await.map(drop)
    }

    /// Deletes pods and waits until they are gone.
    pub(crate) async fn delete_pods(&self, names: &[String]) -> Result<(), BenchError> {
        let mut delete = vec!["delete", "pod", "--timeout=60s"];
        delete.extend(names.iter().map(String::as_str));
        self.kubectl(&delete).await.map(drop)
    }

    /// Waits until a Node is ready.
    pub(crate) async fn until_ready(&self, node: &str) -> Result<(), BenchError> {
        let path = format!(
            "-o=jsonpath={}",
            "{.status.conditions[?(@.type==\"Ready\")].status}"
        );
        let event = format!("the node {node} to be ready");
        poll_until(&event, POLL_INTERVAL, READY_TIMEOUT, async || {
            // It may not be registered yet.
            let ready = self.kubectl(&["get", "node", node, &path]).await;
            Ok(ready.ok().filter(|ready| ready == "True").map(drop))
        })
        .await
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let down = std::process::Command::new(cargo())
            .args(tool_arguments(&self.manifest))
            .args(["cluster", "down", "--name", NAME])
            .stdin(Stdio::null())
            .output();
        if !down.is_ok_and(|down| down.status.success()) {
            print_line("the cluster is left: run `cargo xtask cluster down --name bench`");
        }
    }
}

/// The cargo that runs us.
fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

/// What `cargo xtask` calls.
fn tool_arguments(manifest: &Path) -> [OsString; 6] {
    let words = ["run", "--quiet", "--locked", "--manifest-path"].map(OsString::from);
    let [run, quiet, locked, path] = words;
    [run, quiet, locked, path, manifest.into(), "--".into()]
}

fn program<'a>(description: &'a Description, name: &str) -> Result<&'a Path, BenchError> {
    let path = description.programs.get(name).map(PathBuf::as_path);
    path.ok_or_else(|| BenchError::NoContender(format!("the cluster has no {name}")))
}

/// A pod that the scheduler does not decide about.
fn pod(name: &str, node: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeName": node,
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "terminationGracePeriodSeconds": 1,
            "containers": [{
                "name": "app",
                "image": IMAGE,
                "imagePullPolicy": "Never",
                "command": ["busybox", "sleep", "86400"],
            }],
        },
    })
}

/// Runs a command to its end and returns what it printed.
pub(crate) async fn output(mut command: Command) -> Result<String, BenchError> {
    let name = command
        .as_std()
        .get_program()
        .to_string_lossy()
        .into_owned();
    let output = command
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .map_err(|source| BenchError::Start {
            program: name.clone(),
            source,
        })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let text = [output.stdout, output.stderr].concat();
    Err(BenchError::Command {
        command: format!("{:?}", command.as_std()),
        problem: format!("{}: {}", output.status, String::from_utf8_lossy(&text)),
    })
}
