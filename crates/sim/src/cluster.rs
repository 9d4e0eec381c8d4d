//! A whole cluster in one process: API server, kubelets and workload.
//!
//! The cluster's CA signs the kubelets' certificates. Kubelets authenticate and authorize requests
//! with the users, tokens and rules of the API server, as kubelets with webhook authentication do.
//!
//! Faults of nodes can be changed at run time by anyone who may write ConfigMaps: the key `faults`
//! of the ConfigMap `kube-system/kubevitals-sim` holds values of `--fault`, separated by commas,
//! spaces or newlines, in addition to the configured ones. Deleting it removes its faults.

mod fault_config;
mod kubelet_auth;
mod logs;

use std::sync::Arc;
use std::time::Duration;

use kubevitals_model::Clock;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::kubelet_auth::ClusterAuth;
use self::logs::SimulatedLogs;
use crate::api::{SimApi, SimApiConfig, SimApiHandle, SimError};
use crate::faults::FaultSpec;
use crate::kubelet::{Binding, Fleet, FleetConfig, FleetError};
use crate::node_set::NodeSet;
use crate::objects::Resource;
use crate::seed::Seed;
use crate::workload::{Workload, WorkloadConfig, WorkloadHandle, drive};

/// Interval of progress reports while the cluster is populated.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);

/// Configuration of a simulated cluster.
pub struct SimClusterConfig {
    /// Number of nodes.
    pub nodes: usize,
    /// Configuration of the pods.
    pub workload: WorkloadConfig,
    /// The API server. Its clock is replaced by the cluster's.
    pub api: SimApiConfig,
    /// Addresses of the kubelets.
    pub binding: Binding,
    /// Faults from the start.
    pub faults: Vec<FaultSpec>,
    /// The same seed gives the same cluster.
    pub seed: u64,
    /// Clock of the cluster.
    pub clock: Clock,
}

/// A running cluster. Dropping it stops it without waiting.
pub struct SimCluster {
    api: SimApiHandle,
    fleet: Fleet,
    workload: WorkloadHandle,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

/// Progress of the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Pods created so far.
    pub pods: usize,
    /// Pods to create, DaemonSets excluded.
    pub expected: usize,
}

/// An error while starting a cluster.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    #[error("the API server did not start")]
    Api(#[from] SimError),
    #[error("the kubelets did not start")]
    Kubelets(#[from] FleetError),
    /// A fault names a node that does not exist.
    #[error("no node matches the fault `{0}`")]
    NoSuchNode(FaultSpec),
    /// The task that populates the cluster panicked or was cancelled.
    #[error("failed to populate the cluster")]
    Populate(#[source] tokio::task::JoinError),
}

impl Default for SimClusterConfig {
    /// Three nodes with ten pods each, without churn.
    fn default() -> Self {
        Self {
            nodes: 3,
            workload: WorkloadConfig {
                pods_per_node: 10,
                ..WorkloadConfig::default()
            },
            api: SimApiConfig::default(),
            binding: Binding::Wildcard(0),
            faults: Vec::new(),
            seed: 1,
            clock: Clock::system(),
        }
    }
}

impl SimCluster {
    /// Starts everything, and calls `progress` while pods are created.
    pub async fn start(
        mut config: SimClusterConfig,
        mut progress: impl FnMut(Progress),
    ) -> Result<Self, ClusterError> {
        let seed = Seed::new(config.seed);
        let clock = config.clock.clone();
        config.api.clock = clock.clone();
        config.api.seed = config.seed;
        let api = SimApi::start(config.api).await?;

        // As many spares as nodes: a name is reused only after all other names were in use.
        let spares = if config.workload.replacements.is_none() {
            0
        } else {
            config.nodes
        };
        let node_set = NodeSet::with_spares(config.nodes, spares, "node", seed);
        let fleet = FleetConfig {
            binding: config.binding,
            authority: Some(api.kubelet_authority()?),
            auth: Arc::new(ClusterAuth::new(api.context())),
            ..FleetConfig::default()
        };
        let fleet = Fleet::start(fleet, Arc::clone(&node_set), clock.clone()).await?;
        for spec in &config.faults {
            if fleet.faults().apply(spec, seed).is_empty() && spec.requires_node() {
                return Err(ClusterError::NoSuchNode(spec.clone()));
            }
        }

        let expected = config.nodes.saturating_mul(config.workload.pods_per_node);
        let mut workload = Workload::new(config.workload, node_set, seed);
        let writer = api.writer();
        let populated = {
            let (writer, now) = (Arc::clone(&writer), clock.now());
            tokio::task::spawn_blocking(move || {
                workload.populate(now, &*writer);
                workload
            })
        };
        let workload = report_progress(populated, || {
            progress(Progress {
                pods: api.count(Resource::Pods),
                expected,
            });
        })
        .await
        .map_err(ClusterError::Populate)?;

        let (stop, stopped) = watch::channel(false);
        let workload = WorkloadHandle::new(workload);
        let mut tasks = JoinSet::new();
        tasks.spawn(drive(workload.clone(), clock.clone(), writer, stopped));
        tasks.spawn(fault_config::follow(
            api.context(),
            fleet.faults().clone(),
            config.faults,
            seed,
        ));
        api.set_pod_logs(Arc::new(SimulatedLogs::new(api.context(), clock)));
        Ok(Self {
            api,
            fleet,
            workload,
            stop,
            tasks,
        })
    }

    /// The API server.
    pub fn api(&self) -> &SimApiHandle {
        &self.api
    }

    /// Returns the API server, to stop and restart it.
    pub fn api_mut(&mut self) -> &mut SimApiHandle {
        &mut self.api
    }

    /// The kubelets.
    pub fn fleet(&self) -> &Fleet {
        &self.fleet
    }

    /// Returns the pods and their controllers.
    pub fn workload(&self) -> &WorkloadHandle {
        &self.workload
    }

    /// Stops everything and waits until it has ended.
    pub async fn shutdown(mut self) {
        self.stop.send_replace(true);
        self.tasks.shutdown().await;
        self.fleet.shutdown().await;
        self.api.shutdown().await;
    }
}

impl std::fmt::Debug for SimCluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimCluster")
            .field("api", &self.api.url())
            .finish_non_exhaustive()
    }
}

/// Waits for a task, and reports progress meanwhile and once at its end.
async fn report_progress<T>(
    mut task: tokio::task::JoinHandle<T>,
    mut progress: impl FnMut(),
) -> Result<T, tokio::task::JoinError> {
    let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
    loop {
        tokio::select! {
            done = &mut task => {
                progress();
                return done;
            }
            _ = ticks.tick() => progress(),
        }
    }
}
