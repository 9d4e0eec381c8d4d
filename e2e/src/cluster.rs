//! The cluster that the tests of this process run against.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use kube::config::{KubeConfigOptions, Kubeconfig};
use serde::Deserialize;
use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::error::{E2eError, tail};
use crate::namespace::TestNamespace;
use crate::run;

/// Names the file that describes the cluster; `cargo xtask e2e` sets it.
pub const CLUSTER_VARIABLE: &str = "KUBEVITALS_E2E_CLUSTER";

/// The default port of kubelets.
const KUBELET_PORT: u16 = 10250;

/// Timeout of `kubectl` and of restarts.
const PROGRAM_TIMEOUT: Duration = Duration::from_mins(3);

/// Bytes of a program's output that are kept in an error.
const MAX_STDERR: usize = 4 << 10;

/// The components that watch the API server.
const WATCHERS: [&str; 4] = [
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
];

/// Held exclusively to restart components. It needs no runtime: each test has its own.
static CLUSTER_LOCK: RwLock<()> = RwLock::const_new(());

/// A real cluster of one node. Cheap to clone; each test creates its own, because clients belong to
/// a runtime.
#[derive(Clone)]
pub struct Cluster {
    description: Arc<Description>,
    config: kube::Config,
    client: kube::Client,
}

/// A guard for use of the cluster beside other tests, during which no component is restarted.
#[derive(Debug)]
pub struct SharedUse {
    _guard: RwLockReadGuard<'static, ()>,
}

/// A guard for exclusive use of the cluster, which permits restarts of components.
#[derive(Debug)]
pub struct ExclusiveUse {
    _guard: RwLockWriteGuard<'static, ()>,
}

/// How a component is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// By SIGTERM: it shuts down gracefully.
    Terminate,
    /// By SIGKILL.
    Kill,
}

/// A component that answers nothing until this is dropped.
#[derive(Debug)]
pub struct Paused {
    tool: PathBuf,
    arguments: [String; 5],
}

/// The result of a `kubectl` or `helm` command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubectlOutput {
    /// The program and its arguments.
    pub command: String,
    /// Its exit status: `exit status: 0`.
    pub status: String,
    /// Whether the exit status is zero.
    pub success: bool,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

/// The fields of the cluster's description that tests use.
#[derive(Debug, Deserialize)]
struct Description {
    name: String,
    kubeconfig: PathBuf,
    node_name: String,
    node_address: IpAddr,
    certificate_authority: PathBuf,
    logs: PathBuf,
    static_pods: PathBuf,
    cgroup: String,
    programs: BTreeMap<String, PathBuf>,
}

impl Cluster {
    /// Returns the cluster that `cargo xtask e2e` brought up. The first call of a process deletes
    /// what earlier runs that were killed left behind.
    pub async fn from_env() -> Result<Self, E2eError> {
        let cluster =
            Self::described_by(std::env::var_os(CLUSTER_VARIABLE).map(PathBuf::from)).await?;
        run::sweep(&cluster).await?;
        Ok(cluster)
    }

    async fn described_by(file: Option<PathBuf>) -> Result<Self, E2eError> {
        kubevitals_tls::install_crypto_provider();
        let description = Description::read(file)?;
        let config = configuration(&description.kubeconfig).await?;
        let client =
            kube::Client::try_from(config.clone()).map_err(|source| E2eError::Kubeconfig {
                path: description.kubeconfig.clone(),
                source: source.into(),
            })?;
        Ok(Self {
            description: Arc::new(description),
            config,
            client,
        })
    }

    /// Its name in `cargo xtask cluster`.
    pub fn name(&self) -> &str {
        &self.description.name
    }

    /// The name of its node.
    pub fn node_name(&self) -> &str {
        &self.description.node_name
    }

    /// The address of its node, which is also where processes of a test can listen for the API
    /// server.
    pub fn node_address(&self) -> IpAddr {
        self.description.node_address
    }

    /// The address of the kubelet.
    pub fn kubelet_address(&self) -> SocketAddr {
        SocketAddr::new(self.description.node_address, KUBELET_PORT)
    }

    /// The authority that signed the serving certificates of the API server and the kubelet.
    pub fn authority(&self) -> &Path {
        &self.description.certificate_authority
    }

    /// An administrator's configuration: for other clients than [`client`](Self::client), such as
    /// those of watches.
    pub fn config(&self) -> kube::Config {
        self.config.clone()
    }

    /// An administrator's kubeconfig, for programs.
    pub fn kubeconfig(&self) -> &Path {
        &self.description.kubeconfig
    }

    /// An administrator's client.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Returns the path of a program for the tests: one of the cluster's own, such as `kubectl`, or
    /// a peer, such as `metrics-server`.
    pub fn program(&self, name: &str) -> Result<PathBuf, E2eError> {
        let variable = program_variable(name);
        let known = self.description.programs.get(name).cloned();
        let known = known.or_else(|| std::env::var_os(&variable).map(PathBuf::from));
        known.ok_or(E2eError::NoProgram {
            name: name.to_owned(),
            variable,
        })
    }

    /// The folder of the log files of its components.
    pub(crate) fn log_folder(&self) -> &Path {
        &self.description.logs
    }

    /// The cgroup of the cluster's pods, in every hierarchy. It is removed with the cluster, with
    /// all processes in it.
    pub fn cgroup(&self) -> &str {
        &self.description.cgroup
    }

    /// The folder from which the kubelet reads static pods.
    pub(crate) fn static_pod_folder(&self) -> &Path {
        &self.description.static_pods
    }

    /// Creates a namespace for one test; `name` is part of its name.
    pub async fn namespace(&self, name: &str) -> Result<TestNamespace, E2eError> {
        TestNamespace::create(self, name).await
    }

    /// Waits until no component is being restarted, and prevents restarts. Every test holds
    /// this or [`exclusive`](Self::exclusive).
    pub async fn shared(&self) -> SharedUse {
        SharedUse {
            _guard: CLUSTER_LOCK.read().await,
        }
    }

    /// Waits until no other test uses the cluster, and blocks other tests.
    pub async fn exclusive(&self) -> ExclusiveUse {
        ExclusiveUse {
            _guard: CLUSTER_LOCK.write().await,
        }
    }

    /// Restarts a component (`kube-apiserver`, `kubelet`, …) and waits until it is ready.
    pub async fn restart(
        &self,
        _guard: &ExclusiveUse,
        component: &str,
        how: Stop,
    ) -> Result<(), E2eError> {
        let mut arguments = vec!["cluster", "restart", component, "--name", self.name()];
        if how == Stop::Kill {
            arguments.push("--kill");
        }
        let output = run_to_end(&self.program("cluster-tool")?, &arguments).await?;
        output.succeeded().map(drop)
    }

    /// Stops the threads of a component, which keeps its connections open and answers nothing,
    /// until the result is dropped.
    pub async fn pause(
        &self,
        _guard: &ExclusiveUse,
        component: &'static str,
    ) -> Result<Paused, E2eError> {
        let tool = self.program("cluster-tool")?;
        let paused = Paused {
            tool: tool.clone(),
            arguments: ["cluster", "resume", component, "--name", self.name()].map(str::to_owned),
        };
        let arguments = ["cluster", "pause", component, "--name", self.name()];
        run_to_end(&tool, &arguments).await?.succeeded()?;
        Ok(paused)
    }

    /// Restarts the components that watch the API server. After an outage they back off for up to a
    /// minute, which would delay all later tests: call this last after a restart of the API server.
    pub async fn reconnect(&self, guard: &ExclusiveUse) -> Result<(), E2eError> {
        for component in WATCHERS {
            self.restart(guard, component, Stop::Terminate).await?;
        }
        Ok(())
    }

    /// Runs `kubectl` as an administrator.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<KubectlOutput, E2eError> {
        let kubeconfig = self.description.kubeconfig.display().to_string();
        let arguments = [&["--kubeconfig", kubeconfig.as_str()], arguments].concat();
        run_to_end(&self.program("kubectl")?, &arguments).await
    }

    /// Runs a script for bash as an administrator; `kubectl` in it uses this namespace.
    pub async fn shell(&self, namespace: &str, script: &str) -> Result<KubectlOutput, E2eError> {
        let kubectl = self.program("kubectl")?;
        let setup = format!(
            "export SHELL=/bin/bash KUBECONFIG='{}'; \
             kubectl() {{ '{}' --namespace='{namespace}' \"$@\"; }}; export -f kubectl; {script}",
            self.description.kubeconfig.display(),
            kubectl.display(),
        );
        run_to_end(Path::new("/bin/bash"), &["-euo", "pipefail", "-c", &setup]).await
    }

    /// Runs `helm` as an administrator.
    pub async fn helm(&self, arguments: &[&str]) -> Result<KubectlOutput, E2eError> {
        let kubeconfig = self.description.kubeconfig.display().to_string();
        let arguments = [arguments, &["--kubeconfig", kubeconfig.as_str()]].concat();
        run_to_end(&self.program("helm")?, &arguments).await
    }

    /// Runs the tool behind `cargo xtask`: `manifests --check`.
    pub async fn tool(&self, arguments: &[&str]) -> Result<KubectlOutput, E2eError> {
        run_to_end(&self.program("cluster-tool")?, arguments).await
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("description", &self.description)
            .finish_non_exhaustive()
    }
}

/// Also when a test fails: all that follows needs the component.
impl Drop for Paused {
    fn drop(&mut self) {
        let resumed = std::process::Command::new(&self.tool)
            .args(&self.arguments)
            .stdin(Stdio::null())
            .output();
        debug_assert!(
            resumed.is_ok_and(|output| output.status.success()),
            "a paused component was not resumed"
        );
    }
}

impl KubectlOutput {
    /// Returns its output, or an error if it failed.
    pub fn succeeded(self) -> Result<String, E2eError> {
        if self.success {
            return Ok(self.stdout);
        }
        Err(E2eError::Failed {
            command: self.command,
            status: self.status,
            stderr: tail(&self.stderr, MAX_STDERR),
        })
    }
}

impl Description {
    fn read(file: Option<PathBuf>) -> Result<Self, E2eError> {
        let path = file.ok_or(E2eError::NoCluster {
            variable: CLUSTER_VARIABLE,
        })?;
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(E2eError::Description { path, source }),
        };
        serde_json::from_str(&text).map_err(|source| E2eError::DescriptionFormat { path, source })
    }
}

/// Returns the variable with the path of a program that is not in the cluster's description.
fn program_variable(name: &str) -> String {
    format!("KUBEVITALS_E2E_{}", name.replace('-', "_").to_uppercase())
}

async fn configuration(kubeconfig: &Path) -> Result<kube::Config, E2eError> {
    let unusable = |source: kube::config::KubeconfigError| E2eError::Kubeconfig {
        path: kubeconfig.to_owned(),
        source: source.into(),
    };
    let read = Kubeconfig::read_from(kubeconfig).map_err(unusable)?;
    kube::Config::from_custom_kubeconfig(read, &KubeConfigOptions::default())
        .await
        .map_err(unusable)
}

/// Runs a program until it ends; it is killed if the test gives up.
async fn run_to_end(program: &Path, arguments: &[&str]) -> Result<KubectlOutput, E2eError> {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let command = format!("{name} {}", arguments.join(" "));
    let failed = |source| E2eError::Program {
        program: program.display().to_string(),
        source,
    };
    let child = tokio::process::Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let Ok(output) = tokio::time::timeout(PROGRAM_TIMEOUT, child.wait_with_output()).await else {
        return Err(E2eError::Deadline {
            what: command,
            waited: PROGRAM_TIMEOUT,
            last_seen: "still running".to_owned(),
        });
    };
    let output = output.map_err(failed)?;
    Ok(KubectlOutput {
        command,
        status: output.status.to_string(),
        success: output.status.success(),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_error_without_a_cluster_names_the_command() {
        let error = Cluster::described_by(None).await.unwrap_err().to_string();
        assert!(error.contains("cargo xtask e2e"), "{error}");
    }

    #[tokio::test]
    async fn the_error_of_a_missing_description_names_the_file() {
        let file = PathBuf::from("/nonexistent/cluster.json");
        let error = Cluster::described_by(Some(file)).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot read the description of the cluster in /nonexistent/cluster.json"
        );
    }

    #[test]
    fn programs_have_variables() {
        let variable = program_variable("metrics-server");
        assert_eq!(variable, "KUBEVITALS_E2E_METRICS_SERVER");
    }

    #[tokio::test]
    async fn the_error_of_a_program_has_its_standard_error() {
        let output = run_to_end(
            Path::new("/bin/sh"),
            &["-c", "echo fine; echo bad >&2; exit 3"],
        )
        .await
        .unwrap();
        assert_eq!(output.stdout, "fine\n");
        let error = output.succeeded().unwrap_err().to_string();
        assert_eq!(
            error,
            "sh -c echo fine; echo bad >&2; exit 3 ended with exit status: 3: bad\n"
        );
    }
}
