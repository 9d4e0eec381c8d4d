//! The simulated cluster in a process of its own, so that its cost is nobody else's.

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::time::{Instant, interval};

use crate::BenchError;
use crate::contender::{Contender, Running};
use crate::https::Client;
use crate::kubeconfig::Kubeconfig;
use crate::proc::Memory;

/// Thousands of nodes take some seconds.
const START: Duration = Duration::from_mins(2);

/// How often it is looked whether the cluster is there.
const LOOK: Duration = Duration::from_millis(50);

const FAULTS: &str = "/api/v1/namespaces/kube-system/configmaps";
const FAULTS_NAME: &str = "kubevitals-sim";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// How large it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimSize {
    /// Nodes.
    pub nodes: u32,
    /// Pods on each.
    pub pods_per_node: u32,
    /// Containers of each pod.
    pub containers_per_pod: u32,
}

/// Why a text is not a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("write NODESxPODS, such as 1000x30")]
pub struct SimSizeError;

/// A cluster that runs.
#[derive(Debug)]
pub struct SimProcess {
    running: Running,
    kubeconfig: PathBuf,
    /// Who we are in it.
    pub identity: Kubeconfig,
    /// For questions of our own, apart from any load.
    pub api: Client,
}

impl SimSize {
    /// So many nodes with so many pods of two containers each.
    pub const fn new(nodes: u32, pods_per_node: u32) -> Self {
        Self {
            nodes,
            pods_per_node,
            containers_per_pod: 2,
        }
    }

    /// All pods.
    pub fn pods(self) -> usize {
        let pods = usize::try_from(self.nodes.saturating_mul(self.pods_per_node));
        pods.unwrap_or(usize::MAX)
    }
}

impl fmt::Display for SimSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.nodes, self.pods_per_node)
    }
}

impl FromStr for SimSize {
    type Err = SimSizeError;

    fn from_str(text: &str) -> Result<Self, SimSizeError> {
        let (nodes, pods) = text.split_once(['x', '×']).ok_or(SimSizeError)?;
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
        let size = number(nodes).zip(number(pods));
        let (nodes, pods) = size.ok_or(SimSizeError)?;
        Ok(Self::new(nodes, pods))
    }
}

impl SimProcess {
    /// Starts `kubevitals sim` and waits until it answers; everything it writes is in `folder`.
    /// `more` are further flags.
    pub async fn start(
        program: &Path,
        size: SimSize,
        more: &[String],
        folder: &Path,
    ) -> Result<Self, BenchError> {
        let kubeconfig = folder.join("sim.kubeconfig");
        let flag = |name: &str, value: u32| format!("--{name}={value}");
        let mut arguments = vec![
            "sim".to_owned(),
            flag("nodes", size.nodes),
            flag("pods-per-node", size.pods_per_node),
            flag("containers-per-pod", size.containers_per_pod),
            format!("--write-kubeconfig={}", kubeconfig.display()),
            "--admin-bind-address=127.0.0.1:0".to_owned(),
        ];
        arguments.extend_from_slice(more);
        let contender = Contender {
            name: "kubevitals sim".to_owned(),
            program: program.to_owned(),
            arguments,
            environment: Vec::new(),
            log: folder.join("sim.log"),
        };
        let mut running = contender.start()?;
        let mut looks = interval(LOOK);
        // The file appears in one step, once the cluster is complete.
        while !kubeconfig.exists() {
            looks.tick().await;
            running.check()?;
            if running.age() > START {
                return Err(BenchError::Late {
                    what: "the start of the simulated cluster".to_owned(),
                    within: START,
                });
            }
        }
        let identity = Kubeconfig::read(&kubeconfig)?;
        let api = Client::new(identity.server, identity.api_tls()?, 4);
        Ok(Self {
            running,
            kubeconfig,
            identity,
            api,
        })
    }

    /// An administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Processor time that it has used.
    pub fn cpu(&self) -> Result<Duration, BenchError> {
        self.running.cpu()
    }

    /// Its memory now.
    pub fn memory(&self) -> Result<Memory, BenchError> {
        self.running.memory()
    }

    /// Switches faults on, as `--fault` names them, in place of those of an earlier call; none
    /// heals.
    pub async fn set_fault(&self, fault: Option<&str>) -> Result<(), BenchError> {
        let path = format!("{FAULTS}/{FAULTS_NAME}");
        let (status, answer) = self.api.send(Method::DELETE, &path, None).await?;
        if status != StatusCode::OK && status != StatusCode::NOT_FOUND {
            return Err(refused(&path, status, &answer));
        }
        let Some(fault) = fault else { return Ok(()) };
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": FAULTS_NAME, "namespace": "kube-system"},
            "data": {"faults": fault},
        });
        self.create(FAULTS, &object).await
    }

    /// Puts a server behind the simulated aggregation layer, and waits until it is called
    /// available.
    pub async fn aggregate(&self, address: SocketAddr) -> Result<(), BenchError> {
        self.leave_aggregation().await?;
        let object = json!({
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {
                "name": "v1beta1.metrics.k8s.io",
                "annotations": {"sim.kubevitals.dev/address": address.to_string()},
            },
            "spec": {
                "group": "metrics.k8s.io",
                "version": "v1beta1",
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
                "insecureSkipTLSVerify": true,
                "service": {"name": "metrics-server", "namespace": "kube-system", "port": 443},
            },
        });
        self.create(API_SERVICES, &object).await
    }

    /// Takes it away again.
    pub async fn leave_aggregation(&self) -> Result<(), BenchError> {
        let path = format!("{API_SERVICES}/v1beta1.metrics.k8s.io");
        let (status, answer) = self.api.send(Method::DELETE, &path, None).await?;
        if status == StatusCode::OK || status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        Err(refused(&path, status, &answer))
    }

    /// Ends it.
    pub async fn stop(self) {
        self.running.stop().await;
    }

    async fn create(&self, path: &str, object: &Value) -> Result<(), BenchError> {
        let (status, answer) = self.api.send(Method::POST, path, Some(object)).await?;
        if status == StatusCode::CREATED {
            return Ok(());
        }
        Err(refused(path, status, &answer))
    }
}

/// Asks again and again until an answer is what is wanted, and says when that was.
pub async fn until<T>(
    what: &str,
    every: Duration,
    within: Duration,
    mut look: impl AsyncFnMut() -> Result<Option<T>, BenchError>,
) -> Result<T, BenchError> {
    let deadline = Instant::now() + within;
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Some(found) = look().await? {
            return Ok(found);
        }
        if Instant::now() > deadline {
            return Err(BenchError::Late {
                what: what.to_owned(),
                within,
            });
        }
    }
}

fn refused(path: &str, status: StatusCode, answer: &Value) -> BenchError {
    let message = answer
        .get("message")
        .and_then(Value::as_str)
        .unwrap_or_default();
    BenchError::Request {
        path: path.to_owned(),
        problem: format!("{status} {message}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_printed() {
        let size: SimSize = "1000x30".parse().unwrap();
        assert_eq!((size, size.pods()), (SimSize::new(1_000, 30), 30_000));
        assert_eq!(size.to_string(), "1000x30");
        for text in ["", "10", "x", "0x3", "3x0", "-1x2", "1x2x3"] {
            assert_eq!(text.parse::<SimSize>(), Err(SimSizeError), "{text}");
        }
    }
}
