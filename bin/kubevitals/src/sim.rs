//! `kubevitals sim`: a simulated cluster to point programs at, from a handful of nodes to
//! thousands.

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use kubevitals_cli::{InvalidSetting, ResultExt as _, RunError};
use kubevitals_sim::api::{HistoryLimits, Rule, SimApiConfig};
use kubevitals_sim::cluster::{ClusterError, Progress, SimCluster, SimClusterConfig};
use kubevitals_sim::faults::FaultSpec;
use kubevitals_sim::kubelet::Binding;
use kubevitals_sim::node_set::MAX_NODES;
use kubevitals_sim::objects::Resource;
use kubevitals_sim::workload::{ChurnRate, WorkloadConfig};
use kubevitals_telemetry::{Probe, Status};

use self::kubeconfig::KubeconfigFile;
use crate::process::{Context, ProcessFlags, TaskSet};

pub(crate) mod kubeconfig;
mod metrics;

/// Upper limit of pods: more do not fit into the memory of the machines that this is meant for.
const MAX_PODS: usize = 2_000_000;

/// Flags of the simulated cluster.
#[derive(Debug, Clone, Args)]
pub struct SimFlags {
    /// Number of nodes, each with its own kubelet
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub nodes: usize,

    /// Pods that run on each node from the start
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub pods_per_node: usize,

    /// Containers in each of these pods
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub containers_per_pod: usize,

    /// Rate at which further pods are created and deleted: COUNT/s, COUNT/min or COUNT/h
    #[arg(long, value_name = "RATE", default_value = "0/s")]
    pub churn: ChurnRate,

    /// Rate at which nodes are replaced by new ones, oldest first: COUNT/s, COUNT/min or COUNT/h
    #[arg(long, value_name = "RATE", default_value = "0/s")]
    pub replace_nodes: ChurnRate,

    /// Inject a fault into nodes: FAULT=1%, FAULT=3, FAULT=NODE or FAULT=all (may be repeated)
    ///
    /// Faults: slow:5s, hang, reset, 401, 403, 404, 500, garbage, truncated, huge:100Mi, duplicate,
    /// skew:-30s, expired, wrong-name, malformed, unlabelled, missing-sibling, zero-cpu. While the
    /// cluster runs, the key `faults` of the ConfigMap kube-system/kubevitals-sim adds more.
    #[arg(long = "fault", value_name = "FAULT=NODES")]
    pub faults: Vec<FaultSpec>,

    /// Number of changes of each resource in the watch history [default: 50000, limited to 64 MiB]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub watch_history: Option<u32>,

    /// Seed of the random generator; the same seed gives the same cluster
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Address that the API server listens on; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub api_bind_address: SocketAddr,

    /// Port of all kubelets, on 127.x.y.z; 0 picks a free port
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub kubelet_port: u16,

    /// Write an administrator's kubeconfig to this file, and remove it on exit
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) process: ProcessFlags,
}

/// A simulated cluster that is configured but not started.
pub struct Sim {
    pub(crate) cluster: SimClusterConfig,
    pub(crate) kubeconfig: Option<PathBuf>,
}

impl Sim {
    /// Validates the flags.
    pub fn configure(flags: &SimFlags) -> Result<Self, InvalidSetting> {
        let too_many = |flag, value: usize, max: usize| InvalidSetting {
            flag,
            value: value.to_string(),
            problem: "too many to simulate".to_owned(),
            advice: format!("use at most {max}"),
        };
        if flags.nodes > MAX_NODES.min(100_000) {
            return Err(too_many("nodes", flags.nodes, 100_000));
        }
        if flags.nodes.saturating_mul(flags.pods_per_node) > MAX_PODS {
            let max = MAX_PODS / flags.nodes.max(1);
            return Err(too_many("pods-per-node", flags.pods_per_node, max));
        }
        if !(1..=50).contains(&flags.containers_per_pod) {
            return Err(InvalidSetting {
                flag: "containers-per-pod",
                value: flags.containers_per_pod.to_string(),
                problem: "must be between 1 and 50".to_owned(),
                advice: "use a number from 1 to 50".to_owned(),
            });
        }
        Ok(Self {
            cluster: SimClusterConfig {
                nodes: flags.nodes,
                workload: WorkloadConfig {
                    pods_per_node: flags.pods_per_node,
                    containers_per_pod: flags.containers_per_pod,
                    churn: flags.churn,
                    replacements: flags.replace_nodes,
                    ..WorkloadConfig::default()
                },
                api: SimApiConfig {
                    address: flags.api_bind_address,
                    rules: vec![reader_rule()],
                    history: flags.watch_history.map(history_limits).unwrap_or_default(),
                    ..SimApiConfig::default()
                },
                binding: Binding::Wildcard(flags.kubelet_port),
                faults: flags.faults.clone(),
                seed: flags.seed,
                ..SimClusterConfig::default()
            },
            kubeconfig: flags.write_kubeconfig.clone(),
        })
    }

    /// Runs until shutdown is requested.
    pub async fn run(
        self,
        mut context: Context,
        out: &mut (dyn Write + Send),
    ) -> Result<(), RunError> {
        let metrics = metrics::SimMetrics::register(context.metrics.sub("kubevitals_sim"));
        let waiting = Status::warming_up("creating the initial pods");
        let populated = context.health.cell("population", Probe::READINESS, waiting);
        let populated = populated.map_err(RunError::runtime)?;
        let mut shutdown = context.shutdown.clone();
        let tasks = TaskSet::new(&context.health, shutdown.clone())?;
        let admin = context.start_admin(&tasks).await?;

        let cluster = start(self.cluster, &mut shutdown).await?;
        let Some(cluster) = cluster else {
            admin.stop().await;
            return Ok(());
        };
        let kubeconfig = match &self.kubeconfig {
            Some(path) => Some(write_kubeconfig(path, &cluster)?),
            None => None,
        };
        populated.set_ok();
        let printed = print_summary(out, &cluster, kubeconfig.as_ref(), admin.address);
        tokio::select! {
            () = metrics.follow(&cluster) => {}
            () = shutdown.requested() => {}
        }
        cluster.shutdown().await;
        admin.stop().await;
        printed.context("cannot write to standard output")
    }
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim")
            .field("nodes", &self.cluster.nodes)
            .finish_non_exhaustive()
    }
}

/// Limits the watch history by the number of changes alone.
fn history_limits(changes: u32) -> HistoryLimits {
    HistoryLimits {
        changes: usize::try_from(changes).unwrap_or(usize::MAX),
        bytes: usize::MAX,
    }
}

/// Allows members of the group `sim:readers` to read metrics and nothing else, like a dashboard.
fn reader_rule() -> Rule {
    let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    Rule {
        groups: owned(&["sim:readers"]),
        verbs: owned(&["get", "list", "watch"]),
        api_groups: owned(&["metrics.k8s.io"]),
        resources: owned(&["*"]),
        ..Rule::default()
    }
}

/// Starts the cluster and shows progress on a terminal. Returns `None` if shutdown is requested
/// before the cluster is up.
pub(crate) async fn start(
    config: SimClusterConfig,
    shutdown: &mut kubevitals_cli::Shutdown,
) -> Result<Option<SimCluster>, RunError> {
    let mut line = ProgressLine::on_terminal();
    let started = tokio::select! {
        started = SimCluster::start(config, |progress| line.show(progress)) => started,
        () = shutdown.requested() => return Ok(None),
    };
    line.clear();
    match started {
        Ok(cluster) => Ok(Some(cluster)),
        Err(ClusterError::NoSuchNode(spec)) => Err(RunError::Setting(InvalidSetting {
            flag: "fault",
            value: spec.to_string(),
            problem: "no node matches".to_owned(),
            advice: "node names are node-00000 and so on".to_owned(),
        })),
        Err(error) => Err(RunError::runtime(error)),
    }
}

pub(crate) fn write_kubeconfig(
    path: &Path,
    cluster: &SimCluster,
) -> Result<KubeconfigFile, RunError> {
    KubeconfigFile::create(path, &cluster.api().kubeconfig()).map_err(|error| {
        RunError::runtime(format!(
            "cannot write the kubeconfig {}: {error}",
            path.display()
        ))
    })
}

fn print_summary(
    out: &mut (dyn Write + Send),
    cluster: &SimCluster,
    kubeconfig: Option<&KubeconfigFile>,
    admin: SocketAddr,
) -> std::io::Result<()> {
    let api = cluster.api();
    writeln!(
        out,
        "{} nodes and {} pods; API server {}",
        api.count(Resource::Nodes),
        api.count(Resource::Pods),
        api.url()
    )?;
    if let Some(kubeconfig) = kubeconfig {
        let path = kubeconfig.path().display();
        writeln!(out, "  kubectl --kubeconfig {path} get nodes")?;
        writeln!(
            out,
            "  kubectl --kubeconfig {path} -n kube-system create configmap kubevitals-sim \
             --from-literal=faults=hang=1"
        )?;
    } else {
        writeln!(out, "  add --write-kubeconfig FILE to connect with kubectl")?;
    }
    writeln!(out, "  curl http://{admin}/metrics\nstop with Ctrl-C")?;
    out.flush()
}

/// A progress line on standard error that overwrites itself; disabled if that is not a terminal.
struct ProgressLine {
    shown: bool,
}

impl ProgressLine {
    fn on_terminal() -> Self {
        Self {
            shown: std::io::stderr().is_terminal(),
        }
    }

    fn show(&mut self, progress: Progress) {
        if self.shown {
            let Progress { pods, expected } = progress;
            let _ = write!(
                std::io::stderr(),
                "\rstarting: {pods} of {expected} pods\u{1b}[K"
            );
        }
    }

    fn clear(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}
