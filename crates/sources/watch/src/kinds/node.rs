//! Nodes.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use super::condition::{Condition, ConditionWire, conditions};
use super::meta::{Details, MetaWire};
use crate::identity::Identity;
use crate::kind::{Decoder, Kind, Resource, TypedKind};
use crate::wire::{List, Map, Struct, Text};
use kubevitals_model::Labels;

/// A node: how to reach its kubelet, and how it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Which node.
    pub identity: Identity,
    /// Its labels.
    pub labels: Labels,
    /// The rest of its metadata.
    pub details: Details,
    /// The name its cloud knows it by.
    pub provider_id: Option<Arc<str>>,
    /// Whether it was cordoned.
    pub unschedulable: bool,
    /// What keeps pods away from it.
    pub taints: Box<[Taint]>,
    /// Where it can be reached, in the order of the API.
    pub addresses: Box<[NodeAddress]>,
    /// The port of its kubelet, if the node states one.
    pub kubelet_port: Option<u16>,
    /// The version of its kubelet.
    pub kubelet_version: Option<Arc<str>>,
    /// Its conditions.
    pub conditions: Box<[Condition]>,
    /// What it has, as quantities.
    pub capacity: Labels,
    /// What it has for pods, as quantities.
    pub allocatable: Labels,
}

/// What keeps pods away from a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: Arc<str>,
    /// Its value.
    pub value: Option<Arc<str>>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    pub effect: Arc<str>,
}

/// Where a node can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeAddress {
    /// `InternalIP`, `Hostname` and so on.
    pub kind: Arc<str>,
    /// The address or name.
    pub address: Arc<str>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NodeWire<'a> {
    #[serde(borrow)]
    metadata: Struct<MetaWire<'a>>,
    #[serde(borrow)]
    spec: Struct<SpecWire<'a>>,
    #[serde(borrow)]
    status: Struct<StatusWire<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SpecWire<'a> {
    #[serde(borrow, rename = "providerID")]
    provider_id: Text<'a>,
    unschedulable: Option<bool>,
    #[serde(borrow)]
    taints: List<TaintWire<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TaintWire<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    value: Text<'a>,
    #[serde(borrow)]
    effect: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StatusWire<'a> {
    #[serde(borrow)]
    addresses: List<AddressWire<'a>>,
    #[serde(borrow)]
    conditions: List<ConditionWire<'a>>,
    daemon_endpoints: Struct<EndpointsWire>,
    #[serde(borrow)]
    node_info: Struct<InfoWire<'a>>,
    #[serde(borrow)]
    capacity: Map<'a>,
    #[serde(borrow)]
    allocatable: Map<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AddressWire<'a> {
    #[serde(borrow)]
    r#type: Text<'a>,
    #[serde(borrow)]
    address: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EndpointsWire {
    kubelet_endpoint: Struct<EndpointWire>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EndpointWire {
    /// Spelt with a capital letter in the API.
    #[serde(rename = "Port")]
    port: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct InfoWire<'a> {
    #[serde(borrow)]
    kubelet_version: Text<'a>,
}

impl Kind for Node {
    fn read<'de, D: Deserializer<'de>>(object: D, decoder: &Decoder) -> Result<Self, D::Error> {
        let Struct(wire) = Struct::<NodeWire<'_>>::deserialize(object)?;
        let (Struct(spec), Struct(status)) = (wire.spec, wire.status);
        let port = status.daemon_endpoints.0.kubelet_endpoint.0.port;
        decoder.build(wire.metadata.0, |identity, meta, reading| Self {
            identity,
            labels: reading.labels(&meta.labels),
            details: Details::read(meta, reading),
            provider_id: reading.pool.optional(&spec.provider_id),
            unschedulable: spec.unschedulable.unwrap_or(false),
            taints: spec.taints.map(|taint| Taint {
                key: reading.pool.text(&taint.key),
                value: reading.pool.optional(&taint.value),
                effect: reading.pool.text(&taint.effect),
            }),
            addresses: status.addresses.map(|address| NodeAddress {
                kind: reading.pool.text(&address.r#type),
                address: reading.pool.text(&address.address),
            }),
            kubelet_port: u16::try_from(port).ok().filter(|&port| port != 0),
            kubelet_version: reading.pool.optional(&status.node_info.0.kubelet_version),
            conditions: conditions(status.conditions, reading),
            capacity: reading.labels(&status.capacity),
            allocatable: reading.labels(&status.allocatable),
        })
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl TypedKind for Node {
    const RESOURCE: Resource = Resource::new("", "v1", "nodes");
}
