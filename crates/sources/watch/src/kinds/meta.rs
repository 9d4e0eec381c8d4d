//! Metadata: the part that all objects share, and the slim type for kinds of which nothing else is
//! wanted.

use std::sync::Arc;

use kubevitals_model::Timestamp;
use serde::{Deserialize, Deserializer};

use crate::identity::{Identity, Uid};
use crate::kind::{Decoder, Form, Kind, Reading};
use crate::wire::{List, Map, Struct, Text, Time};
use kubevitals_model::Labels;

/// The metadata of an object beyond its [`Identity`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Details {
    /// Counts the changes of what is wanted.
    pub generation: i64,
    /// When it was created, in whole seconds.
    pub created: Option<Timestamp>,
    /// When it was or will be deleted, if that was asked for.
    pub deleted: Option<Timestamp>,
    /// How many seconds before that it was asked for: what is deleted is given so long to end by
    /// itself.
    pub deletion_grace: Option<u32>,
    /// The annotations that the stream keeps.
    pub annotations: Labels,
    /// Who owns it.
    pub owners: Box<[Owner]>,
}

/// One owner of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Group and version of its kind.
    pub api_version: Arc<str>,
    /// Its kind, such as `ReplicaSet`.
    pub kind: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID.
    pub uid: Uid,
    /// Whether it is the one that controls the object.
    pub controller: bool,
}

/// An object of any kind, of which only the metadata is asked for and sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Metadata {
    /// Which object.
    pub identity: Identity,
    /// Its labels.
    pub labels: Labels,
    /// The rest.
    pub details: Details,
}

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

impl Details {
    /// The owner that controls the object.
    pub fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.controller)
    }

    pub(crate) fn read(meta: MetaWire<'_>, reading: &mut Reading<'_>) -> Self {
        Self {
            generation: meta.generation,
            created: meta.creation_timestamp.0,
            deleted: meta.deletion_timestamp.0,
            deletion_grace: meta
                .deletion_grace_period_seconds
                .and_then(|seconds| u32::try_from(seconds).ok()),
            annotations: reading.annotations(&meta.annotations),
            owners: meta.owner_references.map(|owner| Owner {
                api_version: reading.pool.text(&owner.api_version),
                kind: reading.pool.text(&owner.kind),
                name: reading.pool.text(&owner.name),
                uid: (*owner.uid).into(),
                controller: owner.controller.unwrap_or(false),
            }),
        }
    }
}

impl Kind for Metadata {
    const FORM: Form = Form::Metadata;

    fn read<'de, D: Deserializer<'de>>(object: D, decoder: &Decoder) -> Result<Self, D::Error> {
        let Struct(wire) = Struct::<MetadataWire<'_>>::deserialize(object)?;
        decoder.build(wire.metadata.0, |identity, meta, reading| Self {
            identity,
            labels: reading.labels(&meta.labels),
            details: Details::read(meta, reading),
        })
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }
}
