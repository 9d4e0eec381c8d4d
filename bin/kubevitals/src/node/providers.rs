//! The providers: what runs pods, and what the endpoints show of them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubevitals_cli::{ResultExt as _, RunError, Shutdown};
use kubevitals_host::{
    HostMetrics, HostOptions, HostPaths, HostReader, HostStats, LogNames, Names, Sampler,
    SamplerOptions,
};
use kubevitals_host_provider::{HostPods, NodePod, host_provider, pod_watch};
use kubevitals_kubelet_api::Provider;
use kubevitals_kubelet_api::provider::{PodLister, ProviderFuture};
use kubevitals_model::Clock;
use kubevitals_process::{ProcessConfig, ProcessMetrics, ProcessRuntime};
use kubevitals_sim_runtime::{SimConfig, SimRuntime};
use kubevitals_telemetry::Metrics;
use kubevitals_virtual_node::runtime::{RuntimeChange, RuntimeChanges};
use kubevitals_virtual_node::{ApiInputs, ApiPods, NodeMetrics, PodRuntime};
use kubevitals_watch::Reflector;
use tokio::sync::mpsc;

use super::flags::ProviderName;
use super::settings::Settings;
use super::shim;
use crate::cluster::Cluster;
use crate::process::TaskSet;

/// Changes of a runtime that wait for the node.
const CHANGES: usize = 256;

/// The time that a simulated pod takes to end.
const SIM_STOP_DELAY: Duration = Duration::from_secs(1);

/// What a provider is opened with.
pub(super) struct Opening<'a> {
    pub(super) settings: &'a Settings,
    pub(super) cluster: &'a Cluster,
    pub(super) tasks: &'a TaskSet,
    pub(super) shutdown: Shutdown,
    pub(super) clock: &'a Clock,
    pub(super) node_metrics: &'a NodeMetrics,
}

/// A provider that is ready.
pub(super) struct Opened {
    pub(super) provider: Provider,
    pub(super) pods: Pods,
}

/// The pods of the node.
pub(super) enum Pods {
    /// They are run here.
    Run {
        pods: ApiPods,
        runtime: Arc<dyn PodRuntime>,
        changes: mpsc::Receiver<RuntimeChange>,
    },
    /// A kubelet runs them, and they are read here.
    Read {
        pods: Reflector<NodePod>,
        stats: HostStats,
    },
}

/// The metrics of a provider.
pub(super) enum ProviderMetrics {
    Process(ProcessMetrics),
    Host(HostMetrics),
    Sim,
}

/// The pods that the API server has bound to the node.
struct BoundPods(ApiPods);

impl ProviderMetrics {
    pub(super) fn register(provider: ProviderName, metrics: &mut Metrics) -> Self {
        match provider {
            ProviderName::Process => Self::Process(ProcessMetrics::register(metrics.root())),
            ProviderName::Host => Self::Host(HostMetrics::register(metrics.sub("kubevitals_host"))),
            ProviderName::Sim => Self::Sim,
        }
    }
}

pub(super) async fn open(
    opening: Opening<'_>,
    metrics: ProviderMetrics,
) -> Result<Opened, RunError> {
    let metrics = match metrics {
        ProviderMetrics::Host(metrics) => return host(opening, metrics),
        other => other,
    };
    let cluster = opening.cluster;
    let pods = ApiPods::watch(&cluster.watches, &opening.settings.node.name);
    cluster.metrics.track(pods.reflector());
    let (sender, changes) = mpsc::channel(CHANGES);
    let (mut provider, runtime) = match metrics {
        ProviderMetrics::Process(metrics) => process(&opening, sender, metrics).await?,
        _ => sim(&opening, sender),
    };
    provider.pods = Some(Arc::new(BoundPods(pods.clone())));
    Ok(Opened {
        provider,
        pods: Pods::Run {
            pods,
            runtime,
            changes,
        },
    })
}

fn sim(opening: &Opening<'_>, changes: RuntimeChanges) -> (Provider, Arc<dyn PodRuntime>) {
    let settings = opening.settings;
    let config = SimConfig {
        node_name: settings.node.name.clone(),
        cores: settings.cores,
        memory: settings.memory,
        start_delay: settings.sim_start_delay,
        stop_delay: SIM_STOP_DELAY,
        clock: opening.clock.clone(),
    };
    let runtime = SimRuntime::new(config, changes);
    opening.tasks.spawn("sim-runtime", runtime.clone().run());
    (runtime.provider(), Arc::new(runtime))
}

async fn process(
    opening: &Opening<'_>,
    changes: RuntimeChanges,
    metrics: ProcessMetrics,
) -> Result<(Provider, Arc<dyn PodRuntime>), RunError> {
    let settings = opening.settings;
    let shim = shim::command().context("cannot find the path of this program")?;
    let mut config = ProcessConfig::new(&settings.root_dir, shim, settings.node.name.clone());
    config.node_ips.clone_from(&settings.addresses);
    config.max_pods = settings.max_pods;
    config.cgroup_parent.clone_from(&settings.cgroup_root);
    config.cpu_milli = settings.cores.saturating_mul(1_000);
    config.memory_bytes = settings.memory;
    let inputs = ApiInputs::new(
        opening.cluster.client()?,
        opening.clock.clone(),
        opening.node_metrics.clone(),
    );
    let runtime = ProcessRuntime::open(config, Arc::new(inputs), changes, metrics)
        .await
        .map_err(RunError::runtime)?;
    Ok((runtime.provider(), Arc::new(runtime)))
}

fn host(opening: Opening<'_>, metrics: HostMetrics) -> Result<Opened, RunError> {
    let Opening {
        settings,
        cluster,
        tasks,
        clock,
        shutdown,
        ..
    } = opening;
    let root = &settings.host_root;
    let options = HostOptions {
        paths: HostPaths::below(root),
        ..HostOptions::new(settings.node.name.clone())
    };
    let pods = cluster.watches.reflector(pod_watch(&settings.node.name));
    cluster.metrics.track(&pods);
    let watched = HostPods::default();
    // Files name what the watch does not have yet.
    let logs = LogNames::new(options.paths.log.clone());
    let names = Names::new(Some(watched.table()), Some(logs));
    let reader = HostReader::open(options, names, clock.clone()).map_err(RunError::runtime)?;
    let (sampler, stats) = Sampler::new(reader, SamplerOptions::default(), clock.clone(), metrics);
    let stopped = requested(shutdown.clone());
    tasks.spawn("sample-host", async move {
        if let Err(error) = sampler.run(stopped).await {
            let error = &error as &dyn std::error::Error;
            tracing::error!(error, "sampling has ended");
        }
    });
    let (follower, followed) = (watched.clone(), pods.clone());
    tasks.spawn("follow-pods", async move {
        follower.follow(&followed, requested(shutdown)).await;
    });
    Ok(Opened {
        provider: host_provider(&stats, Some(&watched), Path::new(root)),
        pods: Pods::Read { pods, stats },
    })
}

impl PodLister for BoundPods {
    fn pods(&self) -> ProviderFuture<'_, Vec<Arc<Pod>>> {
        Box::pin(async { Ok(self.0.all()) })
    }
}

async fn requested(mut shutdown: Shutdown) {
    shutdown.requested().await;
}
