//! Reads the metadata that all objects have.

use kubevitals_model::{Identity, ObjectMeta, OwnerReference, PartialObjectMeta};
use serde::{Deserialize, Deserializer};

use crate::kind::{Decoder, Form, Kind, Reading};
use crate::protobuf::each_field;
use crate::wire::{List, Map, Struct, Text, Time};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct MetaWire<'a> {
    #[serde(borrow)]
    pub(crate) name: Text<'a>,
    #[serde(borrow)]
    pub(crate) namespace: Text<'a>,
    #[serde(borrow)]
    pub(crate) uid: Text<'a>,
    #[serde(borrow)]
    pub(crate) resource_version: Text<'a>,
    generation: i64,
    pub(crate) creation_timestamp: Time,
    deletion_timestamp: Time,
    deletion_grace_period_seconds: Option<i64>,
    #[serde(borrow)]
    pub(crate) labels: Map<'a>,
    #[serde(borrow)]
    pub(crate) annotations: Map<'a>,
    #[serde(borrow)]
    owner_references: List<OwnerWire<'a>>,
}

/// The few fields that kinds with very many objects need.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct BriefMetaWire<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    namespace: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    #[serde(borrow)]
    resource_version: Text<'a>,
    creation_timestamp: Time,
    #[serde(borrow)]
    labels: Map<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OwnerWire<'a> {
    #[serde(borrow)]
    api_version: Text<'a>,
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    controller: Option<bool>,
}

/// An object whose metadata is all that is looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct MetadataWire<'a> {
    #[serde(borrow)]
    pub(crate) metadata: Struct<MetaWire<'a>>,
}

impl<'a> From<BriefMetaWire<'a>> for MetaWire<'a> {
    fn from(brief: BriefMetaWire<'a>) -> Self {
        Self {
            name: brief.name,
            namespace: brief.namespace,
            uid: brief.uid,
            resource_version: brief.resource_version,
            creation_timestamp: brief.creation_timestamp,
            labels: brief.labels,
            ..Self::default()
        }
    }
}

/// The fields of a [`BriefMetaWire`] but the creation time, from an `ObjectMeta` of
/// `k8s.io/apimachinery/pkg/apis/meta/v1/generated.proto`; `None` if it is malformed.
pub(crate) fn brief_meta_from_protobuf(message: &[u8]) -> Option<MetaWire<'_>> {
    let mut meta = MetaWire::default();
    each_field(message, |number, value| {
        match number {
            1 => meta.name = value.text()?.into(),
            3 => meta.namespace = value.text()?.into(),
            5 => meta.uid = value.text()?.into(),
            6 => meta.resource_version = value.text()?.into(),
            11 => meta.labels.0.push(map_entry(value.bytes()?)?),
            _ => {}
        }
        Some(())
    })?;
    Some(meta)
}

/// An entry of a `map<string, string>`.
fn map_entry(message: &[u8]) -> Option<(Text<'_>, Text<'_>)> {
    let (mut key, mut value) = (Text::default(), Text::default());
    each_field(message, |number, field| {
        match number {
            1 => key = field.text()?.into(),
            2 => value = field.text()?.into(),
            _ => {}
        }
        Some(())
    })?;
    Some((key, value))
}

pub(crate) fn object_meta(meta: MetaWire<'_>, reading: &mut Reading<'_>) -> ObjectMeta {
    ObjectMeta {
        generation: meta.generation,
        created: meta.creation_timestamp.0,
        deleted: meta.deletion_timestamp.0,
        deletion_grace: meta
            .deletion_grace_period_seconds
            .and_then(|seconds| u32::try_from(seconds).ok()),
        annotations: reading.annotations(&meta.annotations),
        owners: meta.owner_references.map(|owner| OwnerReference {
            api_version: reading.pool.intern(&owner.api_version),
            kind: reading.pool.intern(&owner.kind),
            name: reading.pool.intern(&owner.name),
            uid: (*owner.uid).into(),
            controller: owner.controller.unwrap_or(false),
        }),
    }
}

impl Kind for PartialObjectMeta {
    const FORM: Form = Form::Metadata;

    fn read<'de, D: Deserializer<'de>>(object: D, decoder: &Decoder) -> Result<Self, D::Error> {
        let Struct(wire) = Struct::<MetadataWire<'_>>::deserialize(object)?;
        decoder.build(wire.metadata.0, |identity, meta, reading| Self {
            identity,
            labels: reading.labels(&meta.labels),
            meta: object_meta(meta, reading),
        })
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }
}
