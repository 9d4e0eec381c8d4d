//! Reads nodes.

use kubevitals_model::{Identity, Node, NodeAddress, Taint};
use serde::{Deserialize, Deserializer};

use super::condition::{ConditionWire, conditions};
use super::meta::{MetaWire, object_meta};
use crate::kind::{Decoder, Kind, Resource, TypedKind};
use crate::wire::{List, Map, ObjectWire, Struct, Text};

type NodeWire<'a> = ObjectWire<MetaWire<'a>, SpecWire<'a>, StatusWire<'a>>;

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
            meta: object_meta(meta, reading),
            provider_id: reading.pool.intern_optional(&spec.provider_id),
            unschedulable: spec.unschedulable.unwrap_or(false),
            taints: spec.taints.map(|taint| Taint {
                key: reading.pool.intern(&taint.key),
                value: reading.pool.intern_optional(&taint.value),
                effect: reading.pool.intern(&taint.effect),
            }),
            addresses: status.addresses.map(|address| NodeAddress {
                kind: reading.pool.intern(&address.r#type),
                address: reading.pool.intern(&address.address),
            }),
            kubelet_port: u16::try_from(port).ok().filter(|&port| port != 0),
            kubelet_version: reading
                .pool
                .intern_optional(&status.node_info.0.kubelet_version),
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
