//! The settings of a virtual node.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::core::v1::{NodeAddress, NodeSystemInfo, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubevitals_model::Clock;

/// The label that marks Nodes of kubevitals; its value is the provider.
pub const PROVIDER_LABEL: &str = "kubevitals.io/provider";

/// The Node object.
#[derive(Debug, Clone)]
pub struct NodeSettings {
    pub name: String,
    /// The value of [`PROVIDER_LABEL`].
    pub provider: String,
    /// Labels beside those that every node has.
    pub labels: BTreeMap<String, String>,
    /// Taints of a new Node. Those of an existing one stay as they are.
    pub taints: Vec<Taint>,
    pub addresses: Vec<NodeAddress>,
    /// The port of the kubelet API.
    pub port: u16,
    pub capacity: BTreeMap<String, Quantity>,
    pub allocatable: BTreeMap<String, Quantity>,
    pub info: NodeSystemInfo,
    /// Sorted names of features, such as `ExtendWebSocketsToKubelet`.
    pub declared_features: Vec<String>,
}

/// A virtual node.
#[derive(Debug, Clone)]
pub struct Settings {
    pub node: NodeSettings,
    /// The most pods that run at once; further ones are rejected.
    pub max_pods: usize,
    /// The most pods that are synced at once.
    pub workers: usize,
    pub timing: Timing,
    pub clock: Clock,
}

/// Intervals and timeouts, by default those of a kubelet.
#[derive(Debug, Clone)]
pub struct Timing {
    pub lease_duration: Duration,
    pub lease_interval: Duration,
    /// How often the node's status is compared with what was written.
    pub status_check: Duration,
    /// How often an unchanged status is written.
    pub status_report: Duration,
    pub ping_interval: Duration,
    pub ping_timeout: Duration,
    /// How often the pods of the runtime are listed, in case a change was lost.
    pub relist: Duration,
    /// The timeout of other calls of the runtime.
    pub runtime_timeout: Duration,
    /// How soon a status that another client has overwritten is written again.
    pub overwrite_interval: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(40),
            lease_interval: Duration::from_secs(10),
            status_check: Duration::from_secs(10),
            status_report: Duration::from_mins(5),
            ping_interval: Duration::from_secs(10),
            ping_timeout: Duration::from_secs(10),
            relist: Duration::from_mins(1),
            runtime_timeout: Duration::from_secs(30),
            overwrite_interval: Duration::from_secs(10),
        }
    }
}

impl NodeSettings {
    /// All labels of the Node.
    pub(crate) fn all_labels(&self) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([
            ("kubernetes.io/hostname".to_owned(), self.name.clone()),
            (
                "kubernetes.io/os".to_owned(),
                self.info.operating_system.clone(),
            ),
            (
                "kubernetes.io/arch".to_owned(),
                self.info.architecture.clone(),
            ),
            ("type".to_owned(), "virtual-kubelet".to_owned()),
            (PROVIDER_LABEL.to_owned(), self.provider.clone()),
        ]);
        labels.extend(self.labels.clone());
        labels
    }
}
