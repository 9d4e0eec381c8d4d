//! `kubevitals demo`: a small simulated cluster with the roles that exist, and lines to try on it.

mod folder;

use std::io::Write;
use std::net::SocketAddr;

use clap::Args;
use kubevitals_cli::{InvalidSetting, RunError};
use kubevitals_sim::api::User;
use kubevitals_sim::cluster::SimCluster;
use kubevitals_sim::objects::Resource;
use kubevitals_sim::roster::Node;
use kubevitals_sim::workload::ChurnRate;
use kubevitals_telemetry::{Probe, Status};

use self::folder::DemoFolder;
use crate::process::{Context, ProcessFlags};
use crate::sim::{self, Sim, SimFlags};

/// Flags of the demo.
#[derive(Debug, Clone, Args)]
pub struct DemoFlags {
    /// Nodes of the simulated cluster
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub nodes: usize,

    /// Pods that run on each node from the start
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub pods_per_node: usize,

    /// Pods that come and go on top: COUNT/s, COUNT/min or COUNT/h
    #[arg(long, value_name = "RATE", default_value = "20/min")]
    pub churn: ChurnRate,

    #[command(flatten)]
    pub(crate) process: ProcessFlags,
}

/// A demo that is configured and has opened nothing yet.
#[derive(Debug)]
pub struct Demo {
    sim: Sim,
}

impl Demo {
    /// Checks what the flags ask for.
    pub fn configure(flags: &DemoFlags) -> Result<Self, InvalidSetting> {
        let sim = SimFlags {
            nodes: flags.nodes,
            pods_per_node: flags.pods_per_node,
            containers_per_pod: 2,
            replace_nodes: ChurnRate::NONE,
            churn: flags.churn,
            faults: Vec::new(),
            watch_history: None,
            seed: 1,
            api_bind_address: SocketAddr::from(([127, 0, 0, 1], 0)),
            kubelet_port: 0,
            write_kubeconfig: None,
            process: flags.process.clone(),
        };
        Ok(Self {
            sim: Sim::configure(&sim)?,
        })
    }

    /// Runs until the end is asked for.
    pub async fn run(self, context: Context, out: &mut (dyn Write + Send)) -> Result<(), RunError> {
        let waiting = Status::warming_up("the simulated cluster starts");
        let started = context.health.cell("cluster", Probe::READINESS, waiting);
        let started = started.map_err(RunError::runtime)?;
        let mut shutdown = context.shutdown.clone();
        let admin = context.start_admin().await?;

        if let Some(cluster) = sim::start(self.sim.cluster, &mut shutdown).await? {
            started.set_ok();
            let folder = fill_folder(&cluster)?;
            let told = tell(out, &cluster, &folder, admin.address);
            shutdown.requested().await;
            cluster.shutdown().await;
            told.map_err(RunError::runtime)?;
        }
        // It ends by itself once the end is asked for.
        let _ = admin.task.await;
        Ok(())
    }
}

/// What kubectl and curl need to come in.
fn fill_folder(cluster: &SimCluster) -> Result<DemoFolder, RunError> {
    let api = cluster.api();
    let admin = User::new("demo", ["system:masters"]);
    let token = api.issue_token(admin, None).map_err(RunError::runtime)?;
    let failed = |error| RunError::runtime(format!("cannot write the demo's credentials: {error}"));
    let folder = DemoFolder::create().map_err(failed)?;
    folder
        .write("kubeconfig", &api.kubeconfig())
        .map_err(failed)?;
    folder.write("ca.crt", api.kube_ca_pem()).map_err(failed)?;
    folder.write("token", &token).map_err(failed)?;
    Ok(folder)
}

fn tell(
    out: &mut (dyn Write + Send),
    cluster: &SimCluster,
    folder: &DemoFolder,
    admin: SocketAddr,
) -> std::io::Result<()> {
    let api = cluster.api();
    let nodes = cluster.fleet().roster().nodes();
    let kubelet = nodes.first().and_then(Node::address);
    let path = folder.path().display();
    writeln!(
        out,
        "a simulated cluster of {} nodes and {} pods is up; try:\n",
        api.count(Resource::Nodes),
        api.count(Resource::Pods)
    )?;
    writeln!(out, "  export KUBECONFIG={path}/kubeconfig")?;
    writeln!(out, "  kubectl get nodes -o wide")?;
    writeln!(out, "  kubectl get pods -A")?;
    writeln!(out, "  kubectl get events -A --watch\n")?;
    let curl =
        format!("curl --cacert {path}/ca.crt -H \"Authorization: Bearer $(cat {path}/token)\"");
    writeln!(out, "  {curl} '{}/api/v1/nodes?limit=1'", api.url())?;
    if let Some(kubelet) = kubelet {
        writeln!(out, "  {curl} https://{kubelet}/metrics/resource")?;
    }
    writeln!(out, "\n  curl http://{admin}/metrics")?;
    writeln!(out, "  curl 'http://{admin}/readyz?verbose'\n")?;
    writeln!(out, "stop with Ctrl-C")?;
    out.flush()
}
