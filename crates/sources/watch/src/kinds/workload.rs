//! Workloads: `DaemonSets`, `Deployments` and `ReplicaSets`.

use std::sync::Arc;

use serde::{Deserialize, Deserializer};

use super::condition::{Condition, ConditionWire, conditions};
use super::meta::{Details, MetaWire};
use crate::identity::Identity;
use crate::kind::{Decoder, Kind, Reading, Resource, TypedKind};
use crate::wire::{List, Map, Struct, Text};
use kubevitals_model::Labels;

/// What all workloads have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    /// Which workload.
    pub identity: Identity,
    /// Its labels.
    pub labels: Labels,
    /// The rest of its metadata.
    pub details: Details,
    /// Which pods are its own.
    pub selector: Selector,
    /// The labels that its pods get.
    pub template_labels: Labels,
    /// The annotations that its pods get, of those that the stream keeps.
    pub template_annotations: Labels,
    /// Up to which generation its controller has acted.
    pub observed_generation: i64,
    /// Its conditions.
    pub conditions: Box<[Condition]>,
}

/// A choice of objects by their labels: all parts must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selector {
    /// Labels and the values they must have.
    pub labels: Labels,
    /// What else must hold.
    pub expressions: Box<[Requirement]>,
}

/// What must hold of one label.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    /// The label.
    pub key: Arc<str>,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: Arc<str>,
    /// The values that the operator speaks of.
    pub values: Box<[Arc<str>]>,
}

/// A `DaemonSet`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonSet {
    /// What all workloads have.
    pub workload: Workload,
    /// Nodes that should run it.
    pub desired: i32,
    /// Nodes that should run it and do.
    pub current: i32,
    /// Nodes that run it and should not.
    pub misscheduled: i32,
    /// Nodes on which it is ready.
    pub ready: i32,
    /// Nodes on which it runs in its newest form.
    pub updated: i32,
    /// Nodes on which it has been ready for long enough.
    pub available: i32,
    /// Nodes on which it should be available and is not.
    pub unavailable: i32,
}

/// A `Deployment`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deployment {
    /// What all workloads have.
    pub workload: Workload,
    /// Whether its roll-out is paused.
    pub paused: bool,
    /// Pods asked for.
    pub desired: i32,
    /// Pods that exist.
    pub replicas: i32,
    /// Pods of its newest form.
    pub updated: i32,
    /// Pods that are ready.
    pub ready: i32,
    /// Pods that have been ready for long enough.
    pub available: i32,
    /// Pods that are missing or not available.
    pub unavailable: i32,
}

/// A `ReplicaSet`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplicaSet {
    /// What all workloads have.
    pub workload: Workload,
    /// Pods asked for.
    pub desired: i32,
    /// Pods that exist.
    pub replicas: i32,
    /// Pods that are ready.
    pub ready: i32,
    /// Pods that have been ready for long enough.
    pub available: i32,
}

/// All three kinds are near enough to one another to be read as one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WorkloadWire<'a> {
    #[serde(borrow)]
    metadata: Struct<MetaWire<'a>>,
    #[serde(borrow)]
    spec: Struct<SpecWire<'a>>,
    #[serde(borrow)]
    status: Struct<StatusWire<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SpecWire<'a> {
    replicas: Option<i32>,
    paused: Option<bool>,
    #[serde(borrow)]
    selector: Struct<SelectorWire<'a>>,
    #[serde(borrow)]
    template: Struct<TemplateWire<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SelectorWire<'a> {
    #[serde(borrow)]
    match_labels: Map<'a>,
    #[serde(borrow)]
    match_expressions: List<RequirementWire<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct RequirementWire<'a> {
    #[serde(borrow)]
    key: Text<'a>,
    #[serde(borrow)]
    operator: Text<'a>,
    #[serde(borrow)]
    values: List<Text<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateWire<'a> {
    #[serde(borrow)]
    metadata: Struct<TemplateMetaWire<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateMetaWire<'a> {
    #[serde(borrow)]
    labels: Map<'a>,
    #[serde(borrow)]
    annotations: Map<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct StatusWire<'a> {
    observed_generation: Option<i64>,
    #[serde(borrow)]
    conditions: List<ConditionWire<'a>>,
    desired_number_scheduled: i32,
    current_number_scheduled: i32,
    number_misscheduled: i32,
    number_ready: i32,
    updated_number_scheduled: i32,
    number_available: i32,
    number_unavailable: i32,
    replicas: i32,
    updated_replicas: i32,
    ready_replicas: i32,
    available_replicas: i32,
    unavailable_replicas: i32,
}

impl Workload {
    fn read(
        identity: Identity,
        meta: MetaWire<'_>,
        spec: SpecWire<'_>,
        observed_generation: Option<i64>,
        condition_list: List<ConditionWire<'_>>,
        reading: &mut Reading<'_>,
    ) -> Self {
        let Struct(template) = spec.template.0.metadata;
        Self {
            identity,
            labels: reading.labels(&meta.labels),
            details: Details::read(meta, reading),
            selector: Selector::read(spec.selector.0, reading),
            template_labels: reading.labels(&template.labels),
            template_annotations: reading.annotations(&template.annotations),
            observed_generation: observed_generation.unwrap_or(0),
            conditions: conditions(condition_list, reading),
        }
    }

    /// Whether its controller has acted on what is wanted now.
    pub fn is_observed(&self) -> bool {
        self.observed_generation >= self.details.generation
    }
}

impl Selector {
    /// Whether these labels satisfy it. An empty selector is satisfied by none: workloads with one
    /// own no pods.
    pub fn matches(&self, labels: &Labels) -> bool {
        let is_empty = self.labels.is_empty() && self.expressions.is_empty();
        let has = |(key, value): (&str, &str)| labels.get(key).is_some_and(|own| **own == *value);
        !is_empty
            && self.labels.iter().all(has)
            && self.expressions.iter().all(|one| one.matches(labels))
    }

    fn read(wire: SelectorWire<'_>, reading: &mut Reading<'_>) -> Self {
        Self {
            labels: reading.labels(&wire.match_labels),
            expressions: wire.match_expressions.map(|wire| Requirement {
                key: reading.pool.text(&wire.key),
                operator: reading.pool.text(&wire.operator),
                values: wire.values.map(|value| reading.pool.text(&value)),
            }),
        }
    }
}

impl Requirement {
    /// An operator that this program does not know is satisfied by nothing.
    fn matches(&self, labels: &Labels) -> bool {
        let value = labels.get(&self.key);
        let is_listed = || value.is_some_and(|value| self.values.contains(value));
        match &*self.operator {
            "In" => is_listed(),
            "NotIn" => !is_listed(),
            "Exists" => value.is_some(),
            "DoesNotExist" => value.is_none(),
            _ => false,
        }
    }
}

/// Reads a workload of any of the three kinds; `build` gets the counts and the replicas asked for.
macro_rules! workload_kind {
    ($name:ident, $plural:literal, |$workload:ident, $paused:ident, $desired:ident, $status:ident| $build:expr) => {
        impl Kind for $name {
            fn read<'de, D: Deserializer<'de>>(
                object: D,
                decoder: &Decoder,
            ) -> Result<Self, D::Error> {
                let Struct(wire) = Struct::<WorkloadWire<'_>>::deserialize(object)?;
                let (Struct(spec), Struct(mut $status)) = (wire.spec, wire.status);
                let (generation, list) = (
                    $status.observed_generation,
                    std::mem::take(&mut $status.conditions),
                );
                // The API server fills in the default of one; an older object may come without.
                let $desired = spec.replicas.unwrap_or(1);
                let $paused = spec.paused.unwrap_or(false);
                decoder.build(wire.metadata.0, |identity, meta, reading| {
                    let $workload = Workload::read(identity, meta, spec, generation, list, reading);
                    $build
                })
            }

            fn identity(&self) -> &Identity {
                &self.workload.identity
            }
        }

        impl TypedKind for $name {
            const RESOURCE: Resource = Resource::new("apps", "v1", $plural);
        }
    };
}

workload_kind!(
    DaemonSet,
    "daemonsets",
    |workload, _paused, _desired, status| Self {
        workload,
        desired: status.desired_number_scheduled,
        current: status.current_number_scheduled,
        misscheduled: status.number_misscheduled,
        ready: status.number_ready,
        updated: status.updated_number_scheduled,
        available: status.number_available,
        unavailable: status.number_unavailable,
    }
);

workload_kind!(
    Deployment,
    "deployments",
    |workload, paused, desired, status| Self {
        workload,
        paused,
        desired,
        replicas: status.replicas,
        updated: status.updated_replicas,
        ready: status.ready_replicas,
        available: status.available_replicas,
        unavailable: status.unavailable_replicas,
    }
);

workload_kind!(
    ReplicaSet,
    "replicasets",
    |workload, _paused, desired, status| Self {
        workload,
        desired,
        replicas: status.replicas,
        ready: status.ready_replicas,
        available: status.available_replicas,
    }
);
