//! `kubevitals demo`: the roles on a small simulated cluster, and commands to try.
//!
//! ```text
//! simulated cluster ◄──watch, scrape── server, transitions
//!   └─ APIServices of metrics.k8s.io ─────► server
//! ```

mod folder;
mod text;

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use clap::{Args, Command, FromArgMatches as _};
use kubevitals_cli::{InvalidSetting, ResultExt as _, RunError};
use kubevitals_sim::api::ADDRESS_ANNOTATION;
use kubevitals_sim::api::User;
use kubevitals_sim::cluster::SimCluster;
use kubevitals_sim::objects::Resource;
use kubevitals_sim::workload::ChurnRate;
use kubevitals_telemetry::{Health, Probe};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};

use self::folder::DemoFolder;
use crate::kubeconfig;
use crate::output::{Notice, Output};
use crate::process::{Context, ProcessFlags};
use crate::run::{Roles, RunFlags};
use crate::sim::{self, Sim, SimFlags};

/// The Service of the server, as its certificate names it.
const SERVICE: (&str, &str) = ("kube-system", "metrics-server");

/// The versions of `metrics.k8s.io`, and their priority in discovery.
const VERSIONS: [(&str, u32); 2] = [("v1", 200), ("v1beta1", 100)];

/// Maximum wait for readiness before the commands are printed anyway: they also show why the server
/// is not ready.
const READY_TIMEOUT: Duration = Duration::from_secs(15);

/// Interval of the readiness checks meanwhile.
const READY_INTERVAL: Duration = Duration::from_millis(20);

/// Flags of the demo.
#[derive(Debug, Clone, Args)]
pub struct DemoFlags {
    /// Nodes of the simulated cluster
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub nodes: usize,

    /// Pods that run on each node from the start
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub pods_per_node: usize,

    /// Additional pods that are created and deleted: COUNT/s, COUNT/min or COUNT/h
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
    /// Validates the flags.
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

    /// Runs until shutdown is requested.
    pub async fn run(self, context: Context, out: &mut (dyn Write + Send)) -> Result<(), RunError> {
        let mut shutdown = context.shutdown.clone();
        let Some(cluster) = sim::start(self.sim.cluster, &mut shutdown).await? else {
            return Ok(());
        };
        let folder = write_credentials(&cluster)?;
        let health = context.health.clone();
        let (output, notices) = Output::channel();
        let running = async {
            let roles = Roles::configure(&role_flags(&folder)?)?;
            let file = folder.path().join(text::KUBECONFIG);
            let config = kubeconfig::load("kubeconfig", Some(&file)).await?;
            roles.run_on(config, context, output).await
        };
        let shown = async {
            let admin = aggregate(&cluster, &folder, notices).await?;
            ready(&cluster, &health).await;
            text::write(out, &cluster, &folder, admin).context("cannot write to standard output")
        };
        let mut running = Box::pin(running);
        let result = tokio::select! {
            ended = &mut running => ended,
            shown = shown => match shown {
                Ok(()) => running.await,
                failed => failed,
            },
        };
        cluster.shutdown().await;
        result
    }
}

/// The flags of the roles: those of a cluster whose kubelets are all on this machine.
fn role_flags(folder: &DemoFolder) -> Result<RunFlags, RunError> {
    let file = |name: &str| folder.path().join(name).display().to_string();
    let (namespace, service) = SERVICE;
    let args = [
        "run".to_owned(),
        "--roles=server,transitions".to_owned(),
        format!("--kubeconfig={}", file(text::KUBECONFIG)),
        "--bind-address=127.0.0.1".to_owned(),
        "--secure-port=0".to_owned(),
        format!("--cert-dir={}", file("certificates")),
        format!("--apiservice-backend={namespace}/{service}"),
        format!("--kubelet-certificate-authority={}", file("kubelet-ca.crt")),
        "--kubelet-use-node-status-port".to_owned(),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        "--metric-resolution=15s".to_owned(),
        // No load balancer has to learn of the end.
        "--shutdown-delay-duration=0s".to_owned(),
    ];
    let matches = RunFlags::augment_args(Command::new("run"))
        .try_get_matches_from(args)
        .map_err(RunError::runtime)?;
    RunFlags::from_arg_matches(&matches).map_err(RunError::runtime)
}

/// Writes the files that kubectl, curl and the roles need.
fn write_credentials(cluster: &SimCluster) -> Result<DemoFolder, RunError> {
    let api = cluster.api();
    let admin = User::new("demo", ["system:masters"]);
    let token = api
        .issue_token(admin, None)
        .context("cannot issue a token")?;
    let failed = |error| RunError::runtime(format!("cannot write the demo's credentials: {error}"));
    let folder = DemoFolder::create().map_err(failed)?;
    for (name, contents) in [
        (text::KUBECONFIG, &*api.kubeconfig()),
        (text::CA, api.kube_ca_pem()),
        (text::TOKEN, &*token),
        ("kubelet-ca.crt", cluster.fleet().authority_pem()),
    ] {
        folder.write(name, contents).map_err(failed)?;
    }
    Ok(folder)
}

/// Registers the server with the aggregation layer once it listens, and returns the address of the
/// admin server.
async fn aggregate(
    cluster: &SimCluster,
    folder: &DemoFolder,
    mut notices: mpsc::Receiver<Notice>,
) -> Result<SocketAddr, RunError> {
    while let Some(notice) = notices.recv().await {
        let Some(address) = notice.address else {
            continue;
        };
        let ca = folder.path().join("certificates/kubevitals-ca.crt");
        let ca = std::fs::read(ca).context("cannot read the CA of the server")?;
        let writer = cluster.api().writer();
        for (version, priority) in VERSIONS {
            writer
                .create(
                    Resource::ApiServices,
                    api_service(version, priority, address, &ca),
                )
                .context("cannot create an APIService")?;
        }
        return Ok(notice.admin);
    }
    Err(RunError::runtime("the server did not start"))
}

fn api_service(version: &str, priority: u32, address: SocketAddr, ca: &[u8]) -> Value {
    let (namespace, service) = SERVICE;
    json!({
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {
            "name": format!("{version}.metrics.k8s.io"),
            "annotations": {ADDRESS_ANNOTATION: address.to_string()},
        },
        "spec": {
            "group": "metrics.k8s.io",
            "version": version,
            "groupPriorityMinimum": 100,
            "versionPriority": priority,
            "caBundle": STANDARD.encode(ca),
            "service": {"name": service, "namespace": namespace, "port": 443},
        },
    })
}

/// Waits until the roles are ready and the aggregation layer reaches the server.
async fn ready(cluster: &SimCluster, health: &Health) {
    let mut ticks = interval(READY_INTERVAL);
    let waited = timeout(READY_TIMEOUT, async {
        while !health.report(Probe::Readyz, &[]).passed() || !is_aggregated(cluster) {
            ticks.tick().await;
        }
    });
    if waited.await.is_err() {
        tracing::warn!("the roles are not ready yet");
    }
}

fn is_aggregated(cluster: &SimCluster) -> bool {
    VERSIONS.iter().all(|(version, _)| {
        let name = format!("{version}.metrics.k8s.io");
        let object = cluster.api().object(Resource::ApiServices, None, &name);
        let object = object.unwrap_or_default();
        let condition = object.pointer("/status/conditions/0/status");
        condition.and_then(Value::as_str) == Some("True")
    })
}
