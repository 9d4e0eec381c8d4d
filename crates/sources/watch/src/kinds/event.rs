//! Reads events.

use kubevitals_model::{Event, EventSeries, Identity, ObjectReference};
use serde::{Deserialize, Deserializer};

use super::meta::BriefMetaWire;
use crate::kind::{Decoder, Kind, Resource, TypedKind};
use crate::wire::{Struct, Text, Time};

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct EventWire<'a> {
    #[serde(borrow)]
    metadata: Struct<BriefMetaWire<'a>>,
    #[serde(borrow)]
    involved_object: Struct<RegardingWire<'a>>,
    #[serde(borrow)]
    reason: Text<'a>,
    #[serde(borrow)]
    message: Text<'a>,
    #[serde(borrow)]
    r#type: Text<'a>,
    count: Option<i32>,
    first_timestamp: Time,
    last_timestamp: Time,
    event_time: Time,
    series: Option<SeriesWire>,
    #[serde(borrow)]
    source: Struct<SourceWire<'a>>,
    #[serde(borrow)]
    reporting_component: Text<'a>,
    #[serde(borrow)]
    reporting_instance: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RegardingWire<'a> {
    #[serde(borrow)]
    kind: Text<'a>,
    #[serde(borrow)]
    namespace: Text<'a>,
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow)]
    uid: Text<'a>,
    #[serde(borrow)]
    field_path: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SeriesWire {
    count: i32,
    last_observed_time: Time,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SourceWire<'a> {
    #[serde(borrow)]
    component: Text<'a>,
    #[serde(borrow)]
    host: Text<'a>,
}

impl Kind for Event {
    fn read<'de, D: Deserializer<'de>>(object: D, decoder: &Decoder) -> Result<Self, D::Error> {
        let Struct(wire) = Struct::<EventWire<'_>>::deserialize(object)?;
        let (Struct(regarding), Struct(source)) = (wire.involved_object, wire.source);
        decoder.build(wire.metadata.0.into(), |identity, meta, reading| Self {
            identity,
            created: meta.creation_timestamp.0,
            regarding: ObjectReference {
                kind: reading.pool.intern(&regarding.kind),
                namespace: reading.pool.intern(&regarding.namespace),
                name: reading.pool.intern(&regarding.name),
                uid: (*regarding.uid).into(),
                field_path: reading.pool.intern_optional(&regarding.field_path),
            },
            reason: reading.pool.intern_optional(&wire.reason),
            message: reading.pool.intern_optional(&wire.message),
            kind: reading.pool.intern_optional(&wire.r#type),
            count: wire.count.unwrap_or(0),
            first: wire.first_timestamp.0,
            last: wire.last_timestamp.0,
            time: wire.event_time.0,
            series: wire.series.map(|series| EventSeries {
                count: series.count,
                last: series.last_observed_time.0,
            }),
            component: reading
                .pool
                .intern_optional(first_of(&wire.reporting_component, &source.component)),
            instance: reading
                .pool
                .intern_optional(first_of(&wire.reporting_instance, &source.host)),
        })
    }

    fn identity(&self) -> &Identity {
        &self.identity
    }
}

impl TypedKind for Event {
    // Not `events.k8s.io`: the core group's form has all fields of both, and older clusters serve
    // no other.
    const RESOURCE: Resource = Resource::new("", "v1", "events");
}

/// The newer spelling, or else the older.
fn first_of<'t>(newer: &'t str, older: &'t str) -> &'t str {
    if newer.is_empty() { older } else { newer }
}
