//! Events.

use std::sync::Arc;

use kubevitals_model::Timestamp;
use serde::{Deserialize, Deserializer};

use super::meta::BriefMetaWire;
use crate::identity::{Identity, Uid};
use crate::kind::{Decoder, Kind, Resource, TypedKind};
use crate::wire::{Struct, Text, Time};

/// An event: something that a component says about an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Which event.
    pub identity: Identity,
    /// When it was written, in whole seconds.
    pub created: Option<Timestamp>,
    /// What it is about.
    pub regarding: Regarding,
    /// What happened, as one word: `Pulled`.
    pub reason: Option<Arc<str>>,
    /// What happened, for people.
    pub message: Option<Arc<str>>,
    /// `Normal` or `Warning`.
    pub kind: Option<Arc<str>>,
    /// How often it happened, as components with the older client count it.
    pub count: i32,
    /// When it first happened, in whole seconds.
    pub first: Option<Timestamp>,
    /// When it last happened, in whole seconds.
    pub last: Option<Timestamp>,
    /// When it happened, as components with the newer client state it; to the millisecond here.
    pub time: Option<Timestamp>,
    /// How often and when it happened again, from components with the newer client.
    pub series: Option<Series>,
    /// Who says so: the component.
    pub component: Option<Arc<str>>,
    /// Who says so: the node or instance.
    pub instance: Option<Arc<str>>,
}

/// The object that an event is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Regarding {
    /// Its kind, such as `Pod`.
    pub kind: Arc<str>,
    /// Its namespace; empty for objects that have none.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Its UID; some components leave it out or write something else here.
    pub uid: Uid,
    /// The part of it, such as `spec.containers{app}`.
    pub field_path: Option<Arc<str>>,
}

/// How often an event happened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    /// How often.
    pub count: i32,
    /// When it was last seen.
    pub last: Option<Timestamp>,
}

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

impl Event {
    /// When it last happened, by the best of the times it states.
    pub fn happened(&self) -> Option<Timestamp> {
        let series = self.series.and_then(|series| series.last);
        series
            .or(self.last)
            .or(self.time)
            .or(self.first)
            .or(self.created)
    }

    /// How often it happened, by whichever way it is counted; at least once.
    pub fn occurrences(&self) -> i32 {
        let series = self.series.map_or(0, |series| series.count);
        self.count.max(series).max(1)
    }
}

impl Kind for Event {
    fn read<'de, D: Deserializer<'de>>(object: D, decoder: &Decoder) -> Result<Self, D::Error> {
        let Struct(wire) = Struct::<EventWire<'_>>::deserialize(object)?;
        let (Struct(regarding), Struct(source)) = (wire.involved_object, wire.source);
        decoder.build(wire.metadata.0.into(), |identity, meta, reading| Self {
            identity,
            created: meta.creation_timestamp.0,
            regarding: Regarding {
                kind: reading.pool.text(&regarding.kind),
                namespace: reading.pool.text(&regarding.namespace),
                name: reading.pool.text(&regarding.name),
                uid: (*regarding.uid).into(),
                field_path: reading.pool.optional(&regarding.field_path),
            },
            reason: reading.pool.optional(&wire.reason),
            message: reading.pool.optional(&wire.message),
            kind: reading.pool.optional(&wire.r#type),
            count: wire.count.unwrap_or(0),
            first: wire.first_timestamp.0,
            last: wire.last_timestamp.0,
            time: wire.event_time.0,
            series: wire.series.map(|series| Series {
                count: series.count,
                last: series.last_observed_time.0,
            }),
            component: reading
                .pool
                .optional(first_of(&wire.reporting_component, &source.component)),
            instance: reading
                .pool
                .optional(first_of(&wire.reporting_instance, &source.host)),
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
