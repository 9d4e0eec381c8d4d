//! Pods, brief and whole.

use std::sync::Arc;

use kubevitals_model::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::condition::{Condition, ConditionWire, conditions};
use super::container::{
    ContainerSpec, ContainerSpecWire, ContainerStatus, ContainerStatusWire, specs, statuses,
};
use super::meta::{BriefMetaWire, Details, MetaWire};
use crate::identity::Identity;
use crate::kind::{Decoder, Kind, Reading, Resource, TypedKind};
use crate::wire::{List, Struct, Text, Time};
use kubevitals_model::Labels;

/// As much of a pod as is needed to know where it runs: what 150,000 of are kept by who only serves
/// their usage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodBrief {
    /// Which pod.
    pub identity: Identity,
    /// Its labels.
    pub labels: Labels,
    /// The node it is bound to.
    pub node: Option<Arc<str>>,
    /// How far it is.
    pub phase: PodPhase,
}

/// A pod with what its way from creation to deletion can be told from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pod {
    /// What [`PodBrief`] has.
    pub brief: PodBrief,
    /// The rest of its metadata.
    pub details: Details,
    /// Its containers as asked for.
    pub containers: Box<[ContainerSpec]>,
    /// Its init containers as asked for, in the order in which they run.
    pub init_containers: Box<[ContainerSpec]>,
    /// What must be lifted before it is scheduled.
    pub scheduling_gates: Box<[Arc<str>]>,
    /// The types of conditions that must hold before it is ready.
    pub readiness_gates: Box<[Arc<str>]>,
    /// The name of its priority class.
    pub priority_class: Option<Arc<str>>,
    /// The name of its runtime class.
    pub runtime_class: Option<Arc<str>>,
    /// Whether it uses the network of its node.
    pub host_network: bool,
    /// Whether it mounts volumes only of kinds that need no storage to be attached: Secrets,
    /// `ConfigMaps`, empty directories, the downward API, and projections of these.
    pub stateless: bool,
    /// Its conditions, in the order of the API.
    pub conditions: Box<[Condition]>,
    /// Its containers as reported.
    pub container_statuses: Box<[ContainerStatus]>,
    /// Its init containers as reported.
    pub init_container_statuses: Box<[ContainerStatus]>,
    /// Its ephemeral containers as reported.
    pub ephemeral_container_statuses: Box<[ContainerStatus]>,
    /// Why it is in its phase, as one word: `Evicted`.
    pub reason: Option<Arc<str>>,
    /// Why it is in its phase, for people.
    pub message: Option<Arc<str>>,
    /// The class of its quality of service.
    pub qos_class: Option<Arc<str>>,
    /// The state of an in-place resize as kubelets up to 1.32 report it; later ones use conditions.
    pub resize: Option<Arc<str>>,
    /// When the kubelet accepted it.
    pub started: Option<Timestamp>,
    /// Its address.
    pub pod_ip: Option<Arc<str>>,
    /// The address of its node.
    pub host_ip: Option<Arc<str>>,
}

/// How far a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PodPhase {
    /// Not all of its containers have been started yet.
    Pending,
    /// At least one container runs, starts or restarts.
    Running,
    /// All containers ended well, for good.
    Succeeded,
    /// All containers ended, at least one badly.
    Failed,
    /// The node cannot be asked; also any phase that this program does not know.
    Unknown,
}

/// What both slim types of pods can be asked, so that a consumer of the one can share a stream of
/// the other.
pub trait PodLike: Kind {
    /// The brief part.
    fn brief(&self) -> &PodBrief;
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BriefWire<'a> {
    #[serde(borrow)]
    metadata: Struct<BriefMetaWire<'a>>,
    #[serde(borrow)]
    spec: Struct<BriefSpecWire<'a>>,
    #[serde(borrow)]
    status: Struct<BriefStatusWire<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BriefSpecWire<'a> {
    #[serde(borrow)]
    node_name: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BriefStatusWire<'a> {
    #[serde(borrow)]
    phase: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PodWire<'a> {
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

impl PodPhase {
    /// As the API writes it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }

    /// Whether the pod ended for good.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    fn read(text: &str) -> Self {
        match text {
            "Pending" => Self::Pending,
            "Running" => Self::Running,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ => Self::Unknown,
        }
    }
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

impl Kind for PodBrief {
    fn read<'de, D: Deserializer<'de>>(object: D, decoder: &Decoder) -> Result<Self, D::Error> {
        let Struct(wire) = Struct::<BriefWire<'_>>::deserialize(object)?;
        decoder.build(wire.metadata.0.into(), |identity, meta, reading| Self {
            identity,
            labels: reading.labels(&meta.labels),
            node: reading.pool.optional(&wire.spec.0.node_name),
            phase: PodPhase::read(&wire.status.0.phase),
        })
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl Kind for Pod {
    fn read<'de, D: Deserializer<'de>>(object: D, decoder: &Decoder) -> Result<Self, D::Error> {
        let Struct(wire) = Struct::<PodWire<'_>>::deserialize(object)?;
        let (Struct(spec), Struct(status)) = (wire.spec, wire.status);
        decoder.build(wire.metadata.0, |identity, meta, reading| {
            Self::build(identity, meta, spec, status, reading)
        })
    }

    fn identity(&self) -> &Identity {
        &self.brief.identity
    }
}

impl Pod {
    fn build(
        identity: Identity,
        meta: MetaWire<'_>,
        spec: SpecWire<'_>,
        status: StatusWire<'_>,
        reading: &mut Reading<'_>,
    ) -> Self {
        Self {
            brief: PodBrief {
                identity,
                labels: reading.labels(&meta.labels),
                node: reading.pool.optional(&spec.node_name),
                phase: PodPhase::read(&status.phase),
            },
            details: Details::read(meta, reading),
            containers: specs(spec.containers, reading),
            init_containers: specs(spec.init_containers, reading),
            scheduling_gates: spec
                .scheduling_gates
                .map(|gate| reading.pool.text(&gate.name)),
            readiness_gates: spec
                .readiness_gates
                .map(|gate| reading.pool.text(&gate.condition_type)),
            priority_class: reading.pool.optional(&spec.priority_class_name),
            runtime_class: reading.pool.optional(&spec.runtime_class_name),
            host_network: spec.host_network.unwrap_or(false),
            stateless: spec.volumes.0.iter().all(VolumeWire::needs_no_storage),
            conditions: conditions(status.conditions, reading),
            container_statuses: statuses(status.container_statuses, reading),
            init_container_statuses: statuses(status.init_container_statuses, reading),
            ephemeral_container_statuses: statuses(status.ephemeral_container_statuses, reading),
            reason: reading.pool.optional(&status.reason),
            message: reading.pool.optional(&status.message),
            qos_class: reading.pool.optional(&status.qos_class),
            resize: reading.pool.optional(&status.resize),
            started: status.start_time.0,
            pod_ip: (!status.pod_ip.is_empty()).then(|| (*status.pod_ip).into()),
            host_ip: reading.pool.optional(&status.host_ip),
        }
    }
}

impl TypedKind for PodBrief {
    const RESOURCE: Resource = Resource::new("", "v1", "pods");
}

impl TypedKind for Pod {
    const RESOURCE: Resource = Resource::new("", "v1", "pods");
}

impl PodLike for PodBrief {
    fn brief(&self) -> &PodBrief {
        self
    }
}

impl PodLike for Pod {
    fn brief(&self) -> &PodBrief {
        &self.brief
    }
}
