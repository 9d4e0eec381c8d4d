//! What is published of a node each time something of it has changed.

use std::sync::Arc;

use kubevitals_model::{Labels, NodeName, PodKey, Timestamp, Usage};

/// A node and its pods as they are now. Nobody keeps it: who wants to keep something renders it.
#[derive(Debug, Clone, Copy)]
pub struct NodeView<'a> {
    /// Which node.
    pub node: &'a NodeName,
    /// The labels of the node.
    pub labels: &'a Labels,
    /// What the node as a whole uses, where that is known.
    pub usage: Option<&'a Usage>,
    /// The pods on it of which something is known, by namespace and name.
    pub pods: &'a [PodUsage],
    /// When this was published, by the clock of this process.
    pub published: Timestamp,
}

/// What a pod uses.
#[derive(Debug, Clone, PartialEq)]
pub struct PodUsage {
    /// Which pod.
    pub key: PodKey,
    /// The labels of the pod.
    pub labels: Labels,
    /// Its containers of which something is known, at least one, by name.
    pub containers: Vec<ContainerUsage>,
}

/// What a container uses.
#[derive(Debug, Clone, PartialEq)]
pub struct ContainerUsage {
    /// The name of the container.
    pub name: Arc<str>,
    /// What it uses, when that was measured, and over which time.
    pub usage: Usage,
}

/// Who is told what is known. Calls for one node come one after the other; those for two nodes may
/// come at once.
pub trait Publish: Send + Sync {
    /// Something of a node has changed: this replaces all that was said of it before.
    fn publish(&self, view: &NodeView<'_>);

    /// A node has gone, and all its pods with it.
    fn withdraw(&self, node: &NodeName);
}

impl PodUsage {
    /// The container that was measured first: its time and window stand for the pod, so that no
    /// container is claimed to be fresher than it is.
    pub fn oldest(&self) -> Option<&ContainerUsage> {
        self.containers.iter().min_by_key(|c| c.usage.timestamp)
    }
}
