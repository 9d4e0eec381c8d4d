//! Reads workloads: `DaemonSets`, `Deployments` and `ReplicaSets`.

use kubevitals_model::{
    DaemonSet, Deployment, Identity, ReplicaSet, SelectorRequirement, Workload, WorkloadSelector,
};
use serde::{Deserialize, Deserializer};

use super::condition::{ConditionWire, conditions};
use super::meta::{MetaWire, object_meta};
use crate::kind::{Decoder, Kind, Reading, Resource, TypedKind};
use crate::wire::{List, Map, ObjectWire, Struct, Text};

/// The fields of all three kinds, which are similar enough to be decoded as one.
type WorkloadWire<'a> = ObjectWire<MetaWire<'a>, SpecWire<'a>, StatusWire<'a>>;

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
    #[serde(borrow)]
    spec: Struct<TemplateSpecWire<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateSpecWire<'a> {
    #[serde(borrow)]
    containers: List<ImageWire<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ImageWire<'a> {
    #[serde(borrow)]
    image: Text<'a>,
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

fn workload(
    identity: Identity,
    meta: MetaWire<'_>,
    spec: SpecWire<'_>,
    observed_generation: Option<i64>,
    condition_list: List<ConditionWire<'_>>,
    reading: &mut Reading<'_>,
) -> Workload {
    let Struct(TemplateWire {
        metadata,
        spec: pod,
    }) = spec.template;
    let Struct(template) = metadata;
    let image = pod.0.containers.0.first();
    Workload {
        identity,
        labels: reading.labels(&meta.labels),
        meta: object_meta(meta, reading),
        selector: selector(spec.selector.0, reading),
        template_labels: reading.labels(&template.labels),
        template_annotations: reading.annotations(&template.annotations),
        template_image: image.and_then(|wire| reading.pool.intern_optional(&wire.image)),
        observed_generation: observed_generation.unwrap_or(0),
        conditions: conditions(condition_list, reading),
    }
}

fn selector(wire: SelectorWire<'_>, reading: &mut Reading<'_>) -> WorkloadSelector {
    WorkloadSelector {
        labels: reading.labels(&wire.match_labels),
        expressions: wire.match_expressions.map(|wire| SelectorRequirement {
            key: reading.pool.intern(&wire.key),
            operator: reading.pool.intern(&wire.operator),
            values: wire.values.map(|value| reading.pool.intern(&value)),
        }),
    }
}

/// Reads a workload of any of the three kinds; `build` gets the status and the desired replicas.
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
                    let $workload = workload(identity, meta, spec, generation, list, reading);
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
