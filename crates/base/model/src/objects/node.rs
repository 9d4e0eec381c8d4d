//! Nodes.

use std::sync::Arc;

use super::condition::Condition;
use super::identity::Identity;
use super::meta::ObjectMeta;
use crate::labels::Labels;

/// A node: its addresses, the port of its kubelet and its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub identity: Identity,
    pub labels: Labels,
    pub meta: ObjectMeta,
    /// The ID that its cloud provider uses.
    pub provider_id: Option<Arc<str>>,
    /// Whether the node is cordoned.
    pub unschedulable: bool,
    pub taints: Box<[Taint]>,
    /// In the order of the API.
    pub addresses: Box<[NodeAddress]>,
    /// The port of the kubelet, if the node states one.
    pub kubelet_port: Option<u16>,
    pub kubelet_version: Option<Arc<str>>,
    pub conditions: Box<[Condition]>,
    /// Quantities by resource name.
    pub capacity: Labels,
    /// Quantities by resource name.
    pub allocatable: Labels,
}

/// A taint of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    pub key: Arc<str>,
    pub value: Option<Arc<str>>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: Arc<str>,
}

/// An address of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddress {
    /// The type: `InternalIP`, `Hostname` and so on.
    pub kind: Arc<str>,
    pub address: Arc<str>,
}
