//! Reads pods, in summary or whole.

use kubevitals_model::{Identity, Pod, PodSummary};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::condition::{ConditionWire, conditions};
use super::container::{ContainerSpecWire, ContainerStatusWire, specs, statuses};
use super::meta::{BriefMetaWire, MetaWire, brief_meta_from_protobuf, object_meta};
use crate::error::DecodeError;
use crate::kind::{Decoder, Kind, ReadProtobuf, Reading, Resource, TypedKind};
use crate::protobuf::{each_field, string_field};
use crate::wire::{List, ObjectWire, Struct, Text, Time};

/// Set by the kubelet on the mirror of a static pod, with the UID of its manifest.
const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";

type SummaryWire<'a> = ObjectWire<BriefMetaWire<'a>, SummarySpecWire<'a>, SummaryStatusWire<'a>>;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SummarySpecWire<'a> {
    #[serde(borrow)]
    node_name: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SummaryStatusWire<'a> {
    #[serde(borrow)]
    phase: Text<'a>,
}

type PodWire<'a> = ObjectWire<MetaWire<'a>, SpecWire<'a>, StatusWire<'a>>;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SpecWire<'a> {
    #[serde(borrow)]
    node_name: Text<'a>,
    #[serde(borrow)]
    containers: List<ContainerSpecWire<'a>>,
    #[serde(borrow)]
    init_containers: List<ContainerSpecWire<'a>>,
    #[serde(borrow)]
    scheduling_gates: List<SchedulingGateWire<'a>>,
    #[serde(borrow)]
    readiness_gates: List<ReadinessGateWire<'a>>,
    #[serde(borrow)]
    priority_class_name: Text<'a>,
    #[serde(borrow)]
    runtime_class_name: Text<'a>,
    host_network: Option<bool>,
    #[serde(borrow)]
    restart_policy: Text<'a>,
    volumes: List<VolumeWire>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SchedulingGateWire<'a> {
    #[serde(borrow)]
    name: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ReadinessGateWire<'a> {
    #[serde(borrow)]
    condition_type: Text<'a>,
}

/// Only whether the volume is of a kind that needs no storage.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct VolumeWire {
    secret: Option<IgnoredAny>,
    config_map: Option<IgnoredAny>,
    empty_dir: Option<IgnoredAny>,
    #[serde(rename = "downwardAPI")]
    downward_api: Option<IgnoredAny>,
    projected: Option<IgnoredAny>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StatusWire<'a> {
    #[serde(borrow)]
    phase: Text<'a>,
    #[serde(borrow)]
    reason: Text<'a>,
    #[serde(borrow)]
    message: Text<'a>,
    #[serde(borrow)]
    conditions: List<ConditionWire<'a>>,
    #[serde(borrow)]
    container_statuses: List<ContainerStatusWire<'a>>,
    #[serde(borrow)]
    init_container_statuses: List<ContainerStatusWire<'a>>,
    #[serde(borrow)]
    ephemeral_container_statuses: List<ContainerStatusWire<'a>>,
    #[serde(borrow)]
    qos_class: Text<'a>,
    #[serde(borrow)]
    resize: Text<'a>,
    start_time: Time,
    #[serde(borrow, rename = "podIP")]
    pod_ip: Text<'a>,
    #[serde(borrow, rename = "hostIP")]
    host_ip: Text<'a>,
}

impl VolumeWire {
    fn needs_no_storage(&self) -> bool {
        self.secret.is_some()
            || self.config_map.is_some()
            || self.empty_dir.is_some()
            || self.downward_api.is_some()
            || self.projected.is_some()
    }
}

impl Kind for PodSummary {
    const PROTOBUF: Option<ReadProtobuf<Self>> = Some(summary_from_protobuf);

    fn read<'de, D: Deserializer<'de>>(object: D, decoder: &Decoder) -> Result<Self, D::Error> {
        let Struct(wire) = Struct::<SummaryWire<'_>>::deserialize(object)?;
        decoder.build(wire.metadata.0.into(), |identity, meta, reading| Self {
            identity,
            labels: reading.labels(&meta.labels),
            node: reading.pool.intern_optional(&wire.spec.0.node_name),
            phase: (&*wire.status.0.phase).into(),
        })
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }
}

/// Field numbers are those of `k8s.io/api/core/v1/generated.proto`.
fn summary_from_protobuf(object: &[u8], decoder: &Decoder) -> Result<PodSummary, DecodeError> {
    let mut meta = MetaWire::default();
    let (mut node, mut phase) = ("", "");
    let decoded = each_field(object, |number, value| {
        match number {
            1 => meta = brief_meta_from_protobuf(value.bytes()?)?,
            2 => node = string_field(value.bytes()?, 10)?,
            3 => phase = string_field(value.bytes()?, 1)?,
            _ => {}
        }
        Some(())
    });
    decoded.ok_or(DecodeError::Protobuf { what: "pod" })?;
    let pod = decoder.build(meta, |identity, meta, reading| PodSummary {
        identity,
        labels: reading.labels(&meta.labels),
        node: reading.pool.intern_optional(node),
        phase: phase.into(),
    });
    pod.map_err(|_: serde::de::value::Error| DecodeError::Incomplete("metadata.name"))
}

impl Kind for Pod {
    fn read<'de, D: Deserializer<'de>>(object: D, decoder: &Decoder) -> Result<Self, D::Error> {
        let Struct(wire) = Struct::<PodWire<'_>>::deserialize(object)?;
        let (Struct(spec), Struct(status)) = (wire.spec, wire.status);
        decoder.build(wire.metadata.0, |identity, meta, reading| {
            pod(identity, meta, spec, status, reading)
        })
    }

    fn identity(&self) -> &Identity {
        &self.summary.identity
    }
}

fn pod(
    identity: Identity,
    meta: MetaWire<'_>,
    spec: SpecWire<'_>,
    status: StatusWire<'_>,
    reading: &mut Reading<'_>,
) -> Pod {
    let mirror = meta
        .annotations
        .iter()
        .find(|(key, _)| *key == MIRROR_ANNOTATION);
    Pod {
        static_uid: mirror.map(|(_, uid)| Box::new(uid.into())),
        summary: PodSummary {
            identity,
            labels: reading.labels(&meta.labels),
            node: reading.pool.intern_optional(&spec.node_name),
            phase: (&*status.phase).into(),
        },
        meta: object_meta(meta, reading),
        containers: specs(spec.containers, reading),
        init_containers: specs(spec.init_containers, reading),
        scheduling_gates: spec
            .scheduling_gates
            .map(|gate| reading.pool.intern(&gate.name)),
        readiness_gates: spec
            .readiness_gates
            .map(|gate| reading.pool.intern(&gate.condition_type)),
        priority_class: reading.pool.intern_optional(&spec.priority_class_name),
        runtime_class: reading.pool.intern_optional(&spec.runtime_class_name),
        host_network: spec.host_network.unwrap_or(false),
        restart_policy: (&*spec.restart_policy).into(),
        stateless: spec.volumes.0.iter().all(VolumeWire::needs_no_storage),
        conditions: conditions(status.conditions, reading),
        container_statuses: statuses(status.container_statuses, reading),
        init_container_statuses: statuses(status.init_container_statuses, reading),
        ephemeral_container_statuses: statuses(status.ephemeral_container_statuses, reading),
        reason: reading.pool.intern_optional(&status.reason),
        message: reading.pool.intern_optional(&status.message),
        qos_class: reading.pool.intern_optional(&status.qos_class),
        resize: reading.pool.intern_optional(&status.resize),
        started: status.start_time.0,
        pod_ip: (!status.pod_ip.is_empty()).then(|| (*status.pod_ip).into()),
        host_ip: reading.pool.intern_optional(&status.host_ip),
    }
}

impl TypedKind for PodSummary {
    const RESOURCE: Resource = Resource::new("", "v1", "pods");
}

impl TypedKind for Pod {
    const RESOURCE: Resource = Resource::new("", "v1", "pods");
}
