//! `kubevitals node`: the kubelet's endpoints over a provider, and a virtual node around those that
//! run pods.
//!
//! ```text
//!  API server ──pods──► virtual node ──► runtime: process, sim
//!       ▲ Node, lease, status, events ◄─┘     │
//!       └── kubectl logs, exec … ──► kubelet server ◄── Prometheus, metrics-server
//! ```
//!
//! `crates/node/virtual` has the node, `crates/serve/kubelet-api` the server, `crates/node` the
//! providers; these files read the flags and wire them.

mod flags;
mod machine;
mod providers;
mod serving;
mod settings;
pub mod shim;

use std::sync::Arc;

pub use flags::NodeFlags;
use futures_util::future::BoxFuture;
use kubevitals_cli::{InvalidSetting, ResultExt as _, RunError, Shutdown};
use kubevitals_host_provider::NodePod;
use kubevitals_kubelet_api::{KubeletMetrics, KubeletServer, KubeletTelemetry};
use kubevitals_model::Clock;
use kubevitals_telemetry::Probe;
use kubevitals_virtual_node::{NodeMetrics, Parts, Timing, VirtualNode, WATCH_TIMEOUT};
use kubevitals_watch::Reflector;

use self::providers::{Opened, Pods, ProviderMetrics};
use self::settings::Settings;
use crate::cluster::Cluster;
use crate::output::Notice;
use crate::process::ProcessFlags;
use crate::role::{Kubeconfig, Role, RoleContext, RoleDefinition, RunningRole, Setup};
use crate::watches::WatchRequests;

const EXAMPLES: &str = "\
Providers: process runs pods as plain processes of this host, which is no isolation; host serves the
statistics and logs of a real node and registers nothing; sim runs nothing and simulates pods.

Flags of kubelets and of Virtual Kubelet have their names and meaning, and so have the variables
KUBELET_PORT, VKUBELET_POD_IP, VKUBELET_TAINT_KEY, VKUBELET_TAINT_VALUE, VKUBELET_TAINT_EFFECT,
APISERVER_CERT_LOCATION, APISERVER_KEY_LOCATION, APISERVER_CA_CERT_LOCATION and DEFAULT_NODE_NAME.

Examples:
  kubevitals node --provider process --kubeconfig node.kubeconfig --node-name edge-1 \\
      --node-address 192.0.2.7
  kubevitals node --provider sim --node-address 192.0.2.7 --max-pods 500
  kubevitals node --provider host --listen-address 127.0.0.1:10350";

/// The role, configured and with nothing opened yet.
pub struct Node {
    settings: Settings,
}

/// The role with its metrics registered.
struct RunningNode {
    settings: Settings,
    cluster: Arc<Cluster>,
    node_metrics: NodeMetrics,
    kubelet_metrics: KubeletMetrics,
    provider_metrics: ProviderMetrics,
}

/// What runs beside the kubelet server.
enum NodeTask {
    Virtual(Box<VirtualNode>),
    Host(Reflector<NodePod>),
}

impl RoleDefinition for Node {
    type Flags = NodeFlags;

    const NAME: &'static str = "node";
    const ABOUT: &'static str = "Serve the kubelet's endpoints over a provider, and run its pods as \
                                 a node of the cluster, in place of Virtual Kubelet";
    const EXAMPLES: &'static str = EXAMPLES;
    const MAX_THREADS: usize = 4;
    /// It has another identity than the roles that read a cluster, and kubelets' flag names.
    const IS_COMBINABLE: bool = false;

    fn configure(flags: &NodeFlags) -> Result<Self, InvalidSetting> {
        let environment = |name: &str| std::env::var(name).ok();
        Ok(Self {
            settings: Settings::new(flags, &environment, &machine::Machine::read())?,
        })
    }

    fn process(flags: &NodeFlags) -> &ProcessFlags {
        &flags.process
    }
}

impl Role for Node {
    fn kubeconfig(&self) -> Kubeconfig {
        Kubeconfig {
            file: self.settings.kubeconfig.clone(),
            fall_back_to_kubectl: false,
        }
    }

    /// The node watches its own pods alone.
    fn watches(&self, _requests: &mut WatchRequests) -> Result<(), InvalidSetting> {
        Ok(())
    }

    fn start(self: Box<Self>, setup: &mut Setup<'_>) -> Result<Box<dyn RunningRole>, RunError> {
        let provider = self.settings.provider;
        Ok(Box::new(RunningNode {
            node_metrics: NodeMetrics::register(setup.metrics.sub("kubevitals_node")),
            kubelet_metrics: KubeletMetrics::register(setup.metrics),
            provider_metrics: ProviderMetrics::register(provider, setup.metrics),
            cluster: Arc::clone(setup.cluster),
            settings: self.settings,
        }))
    }
}

impl RunningRole for RunningNode {
    fn run(self: Box<Self>, context: RoleContext) -> BoxFuture<'static, Result<(), RunError>> {
        Box::pin(self.serve(context))
    }
}

impl RunningNode {
    async fn serve(self, context: RoleContext) -> Result<(), RunError> {
        let Self {
            mut settings,
            cluster,
            node_metrics,
            kubelet_metrics,
            provider_metrics,
        } = self;
        let clock = Clock::system();
        let opening = providers::Opening {
            settings: &settings,
            cluster: &cluster,
            tasks: &context.tasks,
            shutdown: context.shutdown.clone(),
            clock: &clock,
            node_metrics: &node_metrics,
        };
        let Opened { provider, pods } = providers::open(opening, provider_metrics).await?;
        let telemetry = KubeletTelemetry {
            health: context.health.clone(),
            registry: context.registry.clone(),
            metrics: kubelet_metrics,
            outage: cluster.outage.clone(),
        };
        serving::keep_certificate(&settings, &cluster, &clock, &context.tasks)?;
        let config = serving::configure(&settings, &cluster, provider, telemetry)?;
        let mut server = KubeletServer::bind(config)
            .await
            .map_err(RunError::runtime)?;
        for (name, task) in server.take_tasks() {
            context.tasks.spawn(name, task);
        }
        let address = server.local_addr();
        settings.node.port = address.port();
        let node = match pods {
            Pods::Run {
                pods,
                runtime,
                changes,
            } => {
                let node_settings = kubevitals_virtual_node::Settings {
                    node: settings.node.clone(),
                    max_pods: settings.max_pods,
                    workers: settings.workers,
                    timing: Timing::default(),
                    clock,
                };
                let parts = Parts {
                    client: cluster.client()?,
                    pods,
                    runtime,
                    changes,
                    metrics: node_metrics,
                    hooks: cluster.hooks.clone(),
                };
                let node = VirtualNode::new(node_settings, parts);
                node.add_checks(&context.health)
                    .map_err(RunError::runtime)?;
                NodeTask::Virtual(Box::new(node))
            }
            Pods::Read { pods, stats } => {
                let watch = pods.health_check(WATCH_TIMEOUT);
                let health = &context.health;
                health
                    .check("node-pods", Probe::READINESS, watch)
                    .map_err(RunError::runtime)?;
                health
                    .check("host-stats", Probe::READINESS, stats.health_check())
                    .map_err(RunError::runtime)?;
                NodeTask::Host(pods)
            }
        };
        let notice = Notice {
            text: format!("serving node {} on https://{address}", settings.node.name),
            address: Some(address),
            admin: context.admin,
        };
        context
            .output
            .notify(notice)
            .context("cannot write to standard output")?;
        let serving = server.serve(requested(context.shutdown.clone()));
        node.run(serving, context.shutdown).await
    }
}

impl NodeTask {
    /// Runs until shutdown, beside the server.
    async fn run(
        self,
        serving: impl Future<Output = ()>,
        shutdown: Shutdown,
    ) -> Result<(), RunError> {
        match self {
            Self::Virtual(node) => {
                let running = node.run(requested(shutdown));
                tokio::pin!(serving, running);
                tokio::select! {
                    result = &mut running => {
                        result.map_err(RunError::runtime)?;
                        serving.await;
                    }
                    () = &mut serving => running.await.map_err(RunError::runtime)?,
                }
            }
            Self::Host(pods) => {
                serving.await;
                pods.shutdown().await;
            }
        }
        Ok(())
    }
}

async fn requested(mut shutdown: Shutdown) {
    shutdown.requested().await;
}
