//! The simulated cluster in its own process, so that its cost is not part of any other.

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

/// Timeout of the start: thousands of nodes take some seconds.
const START_TIMEOUT: Duration = Duration::from_mins(2);

/// Interval of polls for the start of the cluster.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

const FAULTS: &str = "/api/v1/namespaces/kube-system/configmaps";
const FAULTS_NAME: &str = "kubevitals-sim";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";

/// Size of a simulated cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SimSize {
    pub nodes: u32,
    pub pods_per_node: u32,
    pub containers_per_pod: u32,
}

/// Error of parsing a size.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid size: expected NODESxPODS, such as 1000x30")]
pub struct SimSizeError;

/// A running cluster.
#[derive(Debug)]
pub struct SimProcess {
    running: Running,
    kubeconfig: PathBuf,
    /// Our client certificate.
    pub identity: Kubeconfig,
    /// Client of the harness, separate from any load.
    pub api: Client,
}

impl SimSize {
    /// Nodes with pods of two containers each.
    pub const fn new(nodes: u32, pods_per_node: u32) -> Self {
        Self {
            nodes,
            pods_per_node,
            containers_per_pod: 2,
        }
    }

    /// Number of all pods.
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
    /// Starts `kubevitals sim` and waits until it is ready; it writes files to `folder` only.
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
        let mut looks = interval(POLL_INTERVAL);
        // The file appears in one step, once the cluster is complete.
        while !kubeconfig.exists() {
            looks.tick().await;
            running.check()?;
            if running.age() > START_TIMEOUT {
                return Err(BenchError::Timeout {
                    event: "the start of the simulated cluster".to_owned(),
                    timeout: START_TIMEOUT,
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

    /// Path of an administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    pub fn cpu(&self) -> Result<Duration, BenchError> {
        self.running.cpu()
    }

    pub fn memory(&self) -> Result<Memory, BenchError> {
        self.running.memory()
    }

    /// Replaces the faults of an earlier call, in the syntax of `--fault`; none clears them.
    pub async fn set_fault(&self, fault: Option<&str>) -> Result<(), BenchError> {
        let path = format!("{FAULTS}/{FAULTS_NAME}");
        let (status, response) = self.api.send(Method::DELETE, &path, None).await?;
        if status != StatusCode::OK && status != StatusCode::NOT_FOUND {
            return Err(BenchError::unexpected_status(&path, status, &response));
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

    /// Registers a server with the simulated aggregation layer.
    pub async fn register_api_service(&self, address: SocketAddr) -> Result<(), BenchError> {
        self.remove_api_service().await?;
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

    /// Removes the registration.
    pub async fn remove_api_service(&self) -> Result<(), BenchError> {
        let path = format!("{API_SERVICES}/v1beta1.metrics.k8s.io");
        let (status, response) = self.api.send(Method::DELETE, &path, None).await?;
        if status == StatusCode::OK || status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        Err(BenchError::unexpected_status(&path, status, &response))
    }

    /// Stops it.
    pub async fn stop(self) {
        self.running.stop().await;
    }

    async fn create(&self, path: &str, object: &Value) -> Result<(), BenchError> {
        let (status, response) = self.api.send(Method::POST, path, Some(object)).await?;
        if status == StatusCode::CREATED {
            return Ok(());
        }
        Err(BenchError::unexpected_status(path, status, &response))
    }
}

/// Polls until `poll` returns a value, and returns that.
pub async fn poll_until<T>(
    event: &str,
    interval: Duration,
    timeout: Duration,
    mut poll: impl AsyncFnMut() -> Result<Option<T>, BenchError>,
) -> Result<T, BenchError> {
    let deadline = Instant::now() + timeout;
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Some(found) = poll().await? {
            return Ok(found);
        }
        if Instant::now() > deadline {
            return Err(BenchError::Timeout {
                event: event.to_owned(),
                timeout,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_parsed_and_printed() {
        let size: SimSize = "1000x30".parse().unwrap();
        assert_eq!((size, size.pods()), (SimSize::new(1_000, 30), 30_000));
        assert_eq!(size.to_string(), "1000x30");
        for text in ["", "10", "x", "0x3", "3x0", "-1x2", "1x2x3"] {
            assert_eq!(text.parse::<SimSize>(), Err(SimSizeError), "{text}");
        }
    }
}
