//! The capabilities of the provider.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStatus, Pod, PodSpec, PodStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubevitals_host::HostStats;
use kubevitals_kubelet_api::provider::{PodLister, ProviderFuture, Stats};
use kubevitals_kubelet_api::{Provider, ProviderError};
use kubevitals_model::node_stats::{NodeStats, PodStats};

use crate::logs::HostLogs;
use crate::pods::HostPods;

/// The time after which a request is served with the last sample, if a new one takes longer.
const SAMPLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Statistics of the newest sample.
#[derive(Debug, Clone)]
pub struct SampledStats(HostStats);

/// The pods whose cgroups exist.
#[derive(Debug, Clone)]
pub struct RunningPods(SampledStats);

/// Returns what this provider can do: statistics, running pods and logs, and `/pods` if pods are
/// watched. `root` is where the root of the host is mounted.
pub fn host_provider(stats: &HostStats, pods: Option<&HostPods>, root: &Path) -> Provider {
    let sampled = SampledStats(stats.clone());
    let mut provider = Provider::default();
    provider.pods = pods.map(|pods| Arc::new(pods.clone()) as Arc<dyn PodLister>);
    provider.running_pods = Some(Arc::new(RunningPods(sampled.clone())));
    provider.stats = Some(Arc::new(sampled));
    provider.logs = Some(Arc::new(HostLogs::new(root, stats.clone(), pods.cloned())));
    provider
}

impl SampledStats {
    async fn sample(&self) -> Result<Arc<NodeStats>, ProviderError> {
        match tokio::time::timeout(SAMPLE_TIMEOUT, self.0.fresh()).await {
            Ok(sample) => sample.map_err(|error| ProviderError::Unavailable(error.to_string())),
            // Its timestamps say how old it is.
            Err(_) => self.0.latest().ok_or_else(|| {
                ProviderError::Timeout("the host has not been sampled in time".to_owned())
            }),
        }
    }
}

impl Stats for SampledStats {
    fn stats(&self, _only_cpu_and_memory: bool) -> ProviderFuture<'_, Arc<NodeStats>> {
        Box::pin(self.sample())
    }
}

impl PodLister for RunningPods {
    fn pods(&self) -> ProviderFuture<'_, Vec<Arc<Pod>>> {
        Box::pin(async {
            let stats = self.0.sample().await?;
            Ok(stats.pods.iter().map(running_pod).map(Arc::new).collect())
        })
    }
}

/// A pod as a runtime knows it: names and what runs.
fn running_pod(pod: &PodStats) -> Pod {
    let containers = pod.containers.iter();
    let specs = containers.clone().map(|container| Container {
        name: container.name.clone(),
        image: Some(container.image.clone()).filter(|image| !image.is_empty()),
        ..Container::default()
    });
    let statuses = containers.map(|container| ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone(),
        container_id: Some(container.id.clone()),
        state: Some(ContainerState {
            running: Some(ContainerStateRunning::default()),
            ..ContainerState::default()
        }),
        ..ContainerStatus::default()
    });
    Pod {
        metadata: ObjectMeta {
            name: Some(pod.key.name().to_string()),
            namespace: Some(pod.key.namespace().to_string()),
            uid: Some(pod.uid.to_string()),
            ..ObjectMeta::default()
        },
        spec: Some(PodSpec {
            containers: specs.collect(),
            ..PodSpec::default()
        }),
        status: Some(PodStatus {
            container_statuses: Some(statuses.collect()),
            ..PodStatus::default()
        }),
    }
}
