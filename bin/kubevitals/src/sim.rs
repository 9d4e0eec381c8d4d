//! `kubevitals sim`: a simulated cluster to point programs at, from a handful of nodes to
//! thousands.

use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::Args;
use kubevitals_cli::{InvalidSetting, RunError};
use kubevitals_sim::api::{HistoryLimits, Rule, SimApiConfig};
use kubevitals_sim::cluster::{ClusterError, Progress, SimCluster, SimClusterConfig};
use kubevitals_sim::faults::FaultSpec;
use kubevitals_sim::kubelet::Binding;
use kubevitals_sim::objects::Resource;
use kubevitals_sim::roster::MAX_NODES;
use kubevitals_sim::workload::{ChurnRate, WorkloadConfig};
use kubevitals_telemetry::{Probe, Status};

use self::kubeconfig::KubeconfigFile;
use crate::process::{Context, ProcessFlags};

pub(crate) mod kubeconfig;
mod metrics;

/// More would not fit any machine that this is meant for.
const MAX_PODS: usize = 2_000_000;

/// Flags of the simulated cluster.
#[derive(Debug, Clone, Args)]
pub struct SimFlags {
    /// Nodes, each with a kubelet of its own
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub nodes: usize,

    /// Pods that run on each node from the start
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub pods_per_node: usize,

    /// Containers of each of these pods
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub containers_per_pod: usize,

    /// Pods that come and go on top: COUNT/s, COUNT/min or COUNT/h
    #[arg(long, value_name = "RATE", default_value = "0/s")]
    pub churn: ChurnRate,

    /// Nodes that are replaced by new ones, the oldest first: COUNT/s, COUNT/min or COUNT/h
    #[arg(long, value_name = "RATE", default_value = "0/s")]
    pub replace_nodes: ChurnRate,

    /// What is wrong with which nodes: FAULT=1%, FAULT=3, FAULT=NODE or FAULT=all (may be repeated)
    ///
    /// Faults: slow:5s, hang, reset, 401, 403, 404, 500, garbage, truncated, huge:100MB, duplicate,
    /// skew:-30s, expired, wrong-name, malformed, unlabelled, missing-sibling, zero-cpu. While the
    /// cluster runs, the key `faults` of the ConfigMap kube-system/kubevitals-sim adds more.
    #[arg(long = "fault", value_name = "FAULT=NODES")]
    pub faults: Vec<FaultSpec>,

    /// Changes of each resource that watches can go back [default: 50000, and no more than 64 MiB
    /// of them]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub watch_history: Option<u32>,

    /// The same seed gives the same cluster
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Where the API server listens; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    pub api_bind_address: SocketAddr,

    /// The port of all kubelets, on 127.x.y.z; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    pub kubelet_port: u16,

    /// Write an administrator's kubeconfig here, and remove it at the end
    #[arg(long, value_name = "FILE")]
    pub write_kubeconfig: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) process: ProcessFlags,
}

/// A simulated cluster that is configured and has opened nothing yet.
pub struct Sim {
    pub(crate) cluster: SimClusterConfig,
    pub(crate) kubeconfig: Option<PathBuf>,
}

impl Sim {
    /// Checks what the flags ask for.
    pub fn configure(flags: &SimFlags) -> Result<Self, InvalidSetting> {
        let limited = |flag, value: usize, most: usize| InvalidSetting {
            flag,
            value: value.to_string(),
            problem: "that is more than can be simulated".to_owned(),
            advice: format!("write {most} at most"),
        };
        if flags.nodes > MAX_NODES.min(100_000) {
            return Err(limited("nodes", flags.nodes, 100_000));
        }
        if flags.nodes.saturating_mul(flags.pods_per_node) > MAX_PODS {
            let most = MAX_PODS / flags.nodes.max(1);
            return Err(limited("pods-per-node", flags.pods_per_node, most));
        }
        if !(1..=50).contains(&flags.containers_per_pod) {
            return Err(InvalidSetting {
                flag: "containers-per-pod",
                value: flags.containers_per_pod.to_string(),
                problem: "a pod has some containers, but not hundreds".to_owned(),
                advice: "write a number from 1 to 50".to_owned(),
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
                    rules: vec![readers()],
                    history: flags.watch_history.map(history).unwrap_or_default(),
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

    /// Runs until the end is asked for.
    pub async fn run(
        self,
        mut context: Context,
        out: &mut (dyn Write + Send),
    ) -> Result<(), RunError> {
        let metrics = metrics::SimMetrics::register(context.metrics.sub("kubevitals_sim"));
        let waiting = Status::warming_up("the pods of the cluster are being created");
        let populated = context.health.cell("population", Probe::READINESS, waiting);
        let populated = populated.map_err(RunError::runtime)?;
        let mut shutdown = context.shutdown.clone();
        let admin = context.start_admin().await?;

        let cluster = start(self.cluster, &mut shutdown).await?;
        let Some(cluster) = cluster else {
            // Both end once the end is asked for.
            let _ = admin.task.await;
            return Ok(());
        };
        let kubeconfig = match &self.kubeconfig {
            Some(path) => Some(write_kubeconfig(path, &cluster)?),
            None => None,
        };
        populated.set_ok();
        let told = tell(out, &cluster, kubeconfig.as_ref(), admin.address);
        tokio::select! {
            () = metrics.follow(&cluster) => {}
            () = shutdown.requested() => {}
        }
        cluster.shutdown().await;
        let _ = admin.task.await;
        told.map_err(RunError::runtime)
    }
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim")
            .field("nodes", &self.cluster.nodes)
            .finish_non_exhaustive()
    }
}

/// So many changes, whatever their size.
fn history(changes: u32) -> HistoryLimits {
    HistoryLimits {
        changes: usize::try_from(changes).unwrap_or(usize::MAX),
        bytes: usize::MAX,
    }
}

/// Whoever acts as a member of this group may read metrics and nothing else, as a dashboard does.
fn readers() -> Rule {
    let words = |words: &[&str]| words.iter().map(ToString::to_string).collect();
    Rule {
        groups: words(&["sim:readers"]),
        verbs: words(&["get", "list", "watch"]),
        api_groups: words(&["metrics.k8s.io"]),
        resources: words(&["*"]),
        ..Rule::default()
    }
}

/// Starts the cluster with progress on a terminal; none if the end is asked for meanwhile.
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
            problem: "no node fits it".to_owned(),
            advice: "nodes are called node-00000 and so on".to_owned(),
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

fn tell(
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
        writeln!(out, "  --write-kubeconfig FILE would let kubectl in")?;
    }
    writeln!(out, "  curl http://{admin}/metrics\nstop with Ctrl-C")?;
    out.flush()
}

/// One line on standard error that is written over; nothing where nobody watches.
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
            let Progress { pods, wanted } = progress;
            let _ = write!(
                std::io::stderr(),
                "\rstarting: {pods} of {wanted} pods\u{1b}[K"
            );
        }
    }

    fn clear(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\u{1b}[K");
        }
    }
}
