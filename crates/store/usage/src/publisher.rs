//! The usage of a node as it is published, and the trait that receives it.

use std::sync::Arc;

use kubevitals_model::{Labels, NodeName, PodKey, Timestamp, Usage};

/// The current usage of a node and its pods. It borrows from the store: a publisher copies or
/// encodes what it keeps.
#[derive(Debug, Clone, Copy)]
pub struct NodeUsage<'a> {
    pub node: &'a NodeName,
    pub labels: &'a Labels,
    /// The usage of the node as a whole, if it is known.
    pub usage: Option<&'a Usage>,
    /// The pods with usage, sorted by namespace and name.
    pub pods: &'a [PodUsage],
    /// The time of publication by the clock of this process.
    pub published: Timestamp,
}

/// The usage of a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodUsage {
    pub key: PodKey,
    pub labels: Labels,
    /// The containers with usage, at least one, sorted by name.
    pub containers: Vec<ContainerUsage>,
}

/// The usage of a container.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerUsage {
    pub name: Arc<str>,
    pub usage: Usage,
}

/// Receives the usage of a node whenever it changes, for example to serve or to export it.
///
/// Calls for one node come one after the other and in order, under the lock of that node; calls for
/// different nodes may come at once. A publisher must not block: the scrape that brought the change
/// waits for it.
pub trait UsagePublisher: Send + Sync {
    /// Replaces everything published for this node before.
    fn publish(&self, usage: &NodeUsage<'_>);

    /// Removes a node and all its pods.
    fn withdraw(&self, node: &NodeName);
}

impl PodUsage {
    /// Returns the container with the oldest sample. Its timestamp and window stand for the pod, so
    /// that no container looks fresher than it is.
    pub fn oldest(&self) -> Option<&ContainerUsage> {
        self.containers.iter().min_by_key(|c| c.usage.timestamp)
    }
}
