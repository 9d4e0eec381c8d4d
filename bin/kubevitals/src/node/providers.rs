//! The providers: what runs pods, and what the endpoints show of them.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kubevitals_cli::RunError;
use kubevitals_kubelet_api::Provider;
use kubevitals_kubelet_api::provider::{PodLister, ProviderFuture};
use kubevitals_model::Clock;
use kubevitals_sim_runtime::{SimConfig, SimRuntime};
use kubevitals_telemetry::Metrics;
use kubevitals_virtual_node::runtime::RuntimeChange;
use kubevitals_virtual_node::{ApiPods, NodeMetrics, PodRuntime};
use tokio::sync::mpsc;

use super::flags::ProviderName;
use super::settings::Settings;
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
    pub(super) pods: &'a ApiPods,
    pub(super) tasks: &'a TaskSet,
    pub(super) clock: &'a Clock,
    pub(super) node_metrics: &'a NodeMetrics,
}

/// A provider that is ready.
pub(super) struct Opened {
    pub(super) provider: Provider,
    /// What runs pods, and its changes; `None` if pods are only read.
    pub(super) runtime: Option<(Arc<dyn PodRuntime>, mpsc::Receiver<RuntimeChange>)>,
}

/// The metrics of a provider.
pub(super) enum ProviderMetrics {
    None,
}

/// The pods that the API server has bound to the node.
struct BoundPods(ApiPods);

impl ProviderMetrics {
    pub(super) fn register(_provider: ProviderName, _metrics: &mut Metrics) -> Self {
        Self::None
    }
}

pub(super) async fn open(
    opening: Opening<'_>,
    _metrics: ProviderMetrics,
) -> Result<Opened, RunError> {
    let mut opened = match opening.settings.provider {
        ProviderName::Sim => sim(&opening),
        ProviderName::Process | ProviderName::Host => {
            return Err(RunError::runtime("the provider is not built in"));
        }
    };
    opened.provider.pods = Some(Arc::new(BoundPods(opening.pods.clone())));
    Ok(opened)
}

fn sim(opening: &Opening<'_>) -> Opened {
    let settings = opening.settings;
    let (sender, changes) = mpsc::channel(CHANGES);
    let config = SimConfig {
        node_name: settings.node.name.clone(),
        cores: settings.cores,
        memory: settings.memory,
        start_delay: settings.sim_start_delay,
        stop_delay: SIM_STOP_DELAY,
        clock: opening.clock.clone(),
    };
    let runtime = SimRuntime::new(config, sender);
    opening.tasks.spawn("sim-runtime", runtime.clone().run());
    Opened {
        provider: runtime.provider(),
        runtime: Some((Arc::new(runtime), changes)),
    }
}

impl PodLister for BoundPods {
    fn pods(&self) -> ProviderFuture<'_, Vec<Arc<Pod>>> {
        Box::pin(async { Ok(self.0.all()) })
    }
}
