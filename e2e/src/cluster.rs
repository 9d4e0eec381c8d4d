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

/// Where kubelets answer, by convention.
const KUBELET_PORT: u16 = 10250;

/// `kubectl` and restarts hang at most this long.
const PROGRAM_DEADLINE: Duration = Duration::from_mins(3);

/// What is kept of the output of a program in an error.
const MAX_STDERR: usize = 4 << 10;

/// The components that watch the API server.
const WATCHERS: [&str; 4] = [
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubelet",
];

/// Who restarts components must be alone. Tests have runtimes of their own; this lock needs none.
static TURNS: RwLock<()> = RwLock::const_new(());

/// A real cluster of one node. Cheap to clone; each test makes its own, because clients belong to a
/// runtime.
#[derive(Clone)]
pub struct Cluster {
    facts: Arc<Facts>,
    config: kube::Config,
    client: kube::Client,
}

/// The right to use the cluster beside other tests, while nobody restarts parts of it.
#[derive(Debug)]
pub struct Shared {
    _turn: RwLockReadGuard<'static, ()>,
}

/// The right to use the cluster alone, and to restart parts of it.
#[derive(Debug)]
pub struct Exclusive {
    _turn: RwLockWriteGuard<'static, ()>,
}

/// How a component is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// It is asked to, and finishes what it is at.
    Ask,
    /// It has no time to finish anything.
    Kill,
}

/// What `kubectl` said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KubectlOutput {
    /// The program and its arguments.
    pub command: String,
    /// How it ended: `exit status: 0`.
    pub status: String,
    /// Whether it ended well.
    pub success: bool,
    /// Its output.
    pub stdout: String,
    /// Its complaints.
    pub stderr: String,
}

/// What is used of the description that `cargo xtask cluster up` leaves in the cluster's folder.
#[derive(Debug, Deserialize)]
struct Facts {
    name: String,
    kubeconfig: PathBuf,
    node_name: String,
    node_address: IpAddr,
    certificate_authority: PathBuf,
    logs: PathBuf,
    programs: BTreeMap<String, PathBuf>,
}

impl Cluster {
    /// The cluster that `cargo xtask e2e` brought up. The first call of a process deletes what
    /// earlier runs that were killed left behind.
    pub async fn from_env() -> Result<Self, E2eError> {
        let cluster =
            Self::described_by(std::env::var_os(CLUSTER_VARIABLE).map(PathBuf::from)).await?;
        run::sweep(&cluster).await?;
        Ok(cluster)
    }

    async fn described_by(file: Option<PathBuf>) -> Result<Self, E2eError> {
        kubevitals_tls::install_crypto_provider();
        let facts = Facts::read(file)?;
        let config = configuration(&facts.kubeconfig).await?;
        let client =
            kube::Client::try_from(config.clone()).map_err(|source| E2eError::Kubeconfig {
                path: facts.kubeconfig.clone(),
                source: source.into(),
            })?;
        Ok(Self {
            facts: Arc::new(facts),
            config,
            client,
        })
    }

    /// Its name, as `cargo xtask cluster` knows it.
    pub fn name(&self) -> &str {
        &self.facts.name
    }

    /// The name of its node.
    pub fn node_name(&self) -> &str {
        &self.facts.node_name
    }

    /// The address of its node, which is also where processes of a test can listen for the API
    /// server.
    pub fn node_address(&self) -> IpAddr {
        self.facts.node_address
    }

    /// Where the kubelet answers.
    pub fn kubelet_address(&self) -> SocketAddr {
        SocketAddr::new(self.facts.node_address, KUBELET_PORT)
    }

    /// The authority that signed the serving certificates of the API server and the kubelet.
    pub fn authority(&self) -> &Path {
        &self.facts.certificate_authority
    }

    /// An administrator's configuration: for other clients than [`client`](Self::client), such as
    /// those of watches.
    pub fn config(&self) -> kube::Config {
        self.config.clone()
    }

    /// An administrator's kubeconfig, for programs.
    pub fn kubeconfig(&self) -> &Path {
        &self.facts.kubeconfig
    }

    /// An administrator's client.
    pub fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// A program that was fetched for the tests: one of the cluster's own, such as `kubectl`, or a
    /// peer, such as `metrics-server`.
    pub fn program(&self, name: &str) -> Result<PathBuf, E2eError> {
        let variable = program_variable(name);
        let known = self.facts.programs.get(name).cloned();
        let known = known.or_else(|| std::env::var_os(&variable).map(PathBuf::from));
        known.ok_or(E2eError::NoProgram {
            name: name.to_owned(),
            variable,
        })
    }

    /// The folder of the log files of its components.
    pub(crate) fn log_folder(&self) -> &Path {
        &self.facts.logs
    }

    /// Makes a namespace for one test; `name` says which test in names that people see.
    pub async fn namespace(&self, name: &str) -> Result<TestNamespace, E2eError> {
        TestNamespace::create(self, name).await
    }

    /// Waits until nobody restarts parts of the cluster, and keeps them from it. Every test holds
    /// this or [`exclusive`](Self::exclusive).
    pub async fn shared(&self) -> Shared {
        Shared {
            _turn: TURNS.read().await,
        }
    }

    /// Waits until no other test uses the cluster, and keeps them from it.
    pub async fn exclusive(&self) -> Exclusive {
        Exclusive {
            _turn: TURNS.write().await,
        }
    }

    /// Stops a component (`kube-apiserver`, `kubelet`, …), starts it again and waits until it
    /// answers. Who asks must be alone.
    pub async fn restart(
        &self,
        _alone: &Exclusive,
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

    /// Restarts those who watch the API server. After it was away they wait up to a minute before
    /// they look again, and every test to come would wait with them: who restarts the API server
    /// ends with this.
    pub async fn reconnect(&self, alone: &Exclusive) -> Result<(), E2eError> {
        for component in WATCHERS {
            self.restart(alone, component, Stop::Ask).await?;
        }
        Ok(())
    }

    /// Runs `kubectl` as an administrator.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<KubectlOutput, E2eError> {
        let kubeconfig = self.facts.kubeconfig.display().to_string();
        let arguments = [&["--kubeconfig", kubeconfig.as_str()], arguments].concat();
        run_to_end(&self.program("kubectl")?, &arguments).await
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}

impl KubectlOutput {
    /// Its output, if it ended well.
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

impl Facts {
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

/// Names the path of a program that `cargo xtask e2e` has and the cluster's description has not.
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

/// Runs a program until it ends; a test that gives up takes it along.
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
    let Ok(output) = tokio::time::timeout(PROGRAM_DEADLINE, child.wait_with_output()).await else {
        return Err(E2eError::Deadline {
            what: command,
            waited: PROGRAM_DEADLINE,
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
    async fn without_a_cluster_the_command_is_named() {
        let error = Cluster::described_by(None).await.unwrap_err().to_string();
        assert!(error.contains("cargo xtask e2e"), "{error}");
    }

    #[tokio::test]
    async fn a_cluster_that_is_gone_is_named() {
        let file = PathBuf::from("/nonexistent/cluster.json");
        let error = Cluster::described_by(Some(file)).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot read the description of the cluster in /nonexistent/cluster.json"
        );
    }

    #[test]
    fn peers_are_named_by_variables() {
        let variable = program_variable("metrics-server");
        assert_eq!(variable, "KUBEVITALS_E2E_METRICS_SERVER");
    }

    #[tokio::test]
    async fn a_program_that_fails_says_why() {
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
