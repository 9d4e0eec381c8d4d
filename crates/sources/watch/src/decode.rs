//! Decodes watch events and lists.

use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::error::DecodeError;
use crate::json::Json;
use crate::kind::{Decoder, Kind};
use crate::kinds::meta::MetadataWire;
use crate::wire::{List, Map, Struct, Text};
use kubevitals_model::ResourceVersion;

/// The annotation of the bookmark that ends the initial events of a streaming list.
pub(crate) const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// One event of a watch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchEvent<K> {
    /// An object was created, or matches the selectors now.
    Added(K),
    Modified(K),
    /// An object was deleted, or no longer matches the selectors. With its last state.
    Deleted(K),
    Bookmark(Bookmark),
    /// The server ends the watch.
    Error(Status),
}

/// A bookmark: everything up to its version has been sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bookmark {
    pub resource_version: ResourceVersion,
    /// Whether it completes the initial events of a streaming list.
    pub ends_initial_events: bool,
}

/// A `metav1.Status`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    pub code: u16,
    /// A CamelCase word such as `Expired`.
    pub reason: String,
    pub message: String,
}

/// The type of a [`WatchEvent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventType {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

/// One page of a list.
#[derive(Debug)]
pub struct Page<K> {
    pub objects: Vec<K>,
    /// The errors of objects that could not be decoded.
    pub unreadable: Vec<DecodeError>,
    pub resource_version: ResourceVersion,
    /// The `continue` token; empty on the last page.
    pub next: String,
}

/// The result of one pass over a watch event.
enum Pass<K> {
    Whole(WatchEvent<K>),
    /// The object came before the type: another pass decodes it.
    ObjectFirst(EventType),
    Incomplete(&'static str),
}

struct EnvelopeVisitor<'d, K> {
    decoder: &'d Decoder,
    known: Option<EventType>,
    kind: PhantomData<fn() -> K>,
}

struct ObjectSeed<'d, K> {
    decoder: &'d Decoder,
    event: EventType,
    kind: PhantomData<fn() -> K>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "lowercase")]
enum EnvelopeField {
    Type,
    Object,
    #[serde(other)]
    Other,
}

/// The type and the names of a watch event.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct NamesWire<'a> {
    r#type: Option<EventType>,
    #[serde(borrow)]
    object: Struct<MetadataWire<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct BookmarkWire<'a> {
    #[serde(borrow)]
    metadata: Struct<BookmarkMetaWire<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct BookmarkMetaWire<'a> {
    #[serde(borrow)]
    resource_version: Text<'a>,
    #[serde(borrow)]
    annotations: Map<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StatusWire<'a> {
    #[serde(borrow)]
    kind: Text<'a>,
    code: Option<u16>,
    #[serde(borrow)]
    reason: Text<'a>,
    #[serde(borrow)]
    message: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PageWire<'a> {
    #[serde(borrow)]
    metadata: Struct<ListMetaWire<'a>>,
    #[serde(borrow)]
    items: List<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMetaWire<'a> {
    #[serde(borrow)]
    resource_version: Text<'a>,
    #[serde(borrow, rename = "continue")]
    next: Text<'a>,
}

/// Decodes one line of a watch.
pub fn decode_event<K: Kind>(line: &[u8], decoder: &Decoder) -> Result<WatchEvent<K>, DecodeError> {
    let mut pass = read_event(line, decoder, None);
    if let Ok(Pass::ObjectFirst(event)) = pass {
        pass = read_event(line, decoder, Some(event));
    }
    match pass {
        Ok(Pass::Whole(event)) => Ok(event),
        // A server that fails in the middle of a watch may write a bare Status.
        Ok(Pass::Incomplete(what)) => match serde_json::from_slice::<StatusWire<'_>>(line) {
            Ok(status) if &*status.kind == "Status" => Ok(WatchEvent::Error(status.into())),
            _ => Err(DecodeError::Incomplete(what)),
        },
        Ok(Pass::ObjectFirst(_)) => Err(DecodeError::Incomplete("type")),
        Err(source) => Err(blame_event(line, source)),
    }
}

/// Decodes one page of a list, or a whole list.
///
/// The page is split into objects before any is decoded, so that a bad one affects only itself.
pub fn decode_page<K: Kind>(body: &[u8], decoder: &Decoder) -> Result<Page<K>, DecodeError> {
    let Struct(page): Struct<PageWire<'_>> =
        serde_json::from_slice(body).map_err(|source| DecodeError::Json {
            what: "list",
            source,
        })?;
    let Struct(meta) = page.metadata;
    // Any other response must not pass for an empty list.
    if meta.resource_version.is_empty() {
        return Err(DecodeError::Incomplete("resourceVersion"));
    }
    let mut objects = Vec::with_capacity(page.items.0.len());
    let mut unreadable = Vec::new();
    for item in page.items.0 {
        match decode_object(item.get().as_bytes(), decoder) {
            Ok(object) => objects.push(object),
            Err(error) => unreadable.push(error),
        }
    }
    Ok(Page {
        objects,
        unreadable,
        resource_version: (*meta.resource_version).into(),
        next: meta.next.to_string(),
    })
}

/// Decodes one object.
pub fn decode_object<K: Kind>(object: &[u8], decoder: &Decoder) -> Result<K, DecodeError> {
    let mut json = Json::new(object);
    let read = K::read(&mut json, decoder).and_then(|read| json.end().map(|()| read));
    read.map_err(|error| {
        let source = json.locate(&error);
        match serde_json::from_slice::<MetadataWire<'_>>(object) {
            Ok(wire) => blame(None, wire, source),
            Err(_) => DecodeError::Json {
                what: "object",
                source,
            },
        }
    })
}

/// Decodes a `Status`; `None` if it is something else.
pub(crate) fn decode_status(body: &[u8]) -> Option<Status> {
    let status: StatusWire<'_> = serde_json::from_slice(body).ok()?;
    (&*status.kind == "Status").then(|| status.into())
}

impl Status {
    /// Whether the requested resource version is too old.
    pub fn is_expired(&self) -> bool {
        self.code == 410 || self.reason == "Expired" || self.reason == "Gone"
    }
}

impl From<StatusWire<'_>> for Status {
    fn from(wire: StatusWire<'_>) -> Self {
        Self {
            code: wire.code.unwrap_or(0),
            reason: wire.reason.to_string(),
            message: wire.message.to_string(),
        }
    }
}

impl EventType {
    /// Returns the type of this name.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "ADDED" => Self::Added,
            "MODIFIED" => Self::Modified,
            "DELETED" => Self::Deleted,
            "BOOKMARK" => Self::Bookmark,
            "ERROR" => Self::Error,
            _ => return None,
        })
    }
}

impl<'de> Deserialize<'de> for EventType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = Text::deserialize(deserializer)?;
        Self::parse(&name)
            .ok_or_else(|| D::Error::custom(format_args!("unknown event type {:?}", &*name)))
    }
}

impl<'de, K: Kind> Visitor<'de> for EnvelopeVisitor<'_, K> {
    type Value = Pass<K>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a watch event")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Self::Value, A::Error> {
        let mut event = self.known;
        let mut object = None;
        let mut was_skipped = false;
        while let Some(field) = fields.next_key()? {
            match (field, event) {
                (EnvelopeField::Type, _) => event = Some(fields.next_value()?),
                (EnvelopeField::Object, Some(event)) => {
                    object = Some(fields.next_value_seed(ObjectSeed {
                        decoder: self.decoder,
                        event,
                        kind: PhantomData,
                    })?);
                }
                (EnvelopeField::Object, None) => {
                    fields.next_value::<IgnoredAny>()?;
                    was_skipped = true;
                }
                (EnvelopeField::Other, _) => {
                    fields.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(match (object, event) {
            (Some(object), _) => Pass::Whole(object),
            (None, Some(event)) if was_skipped => Pass::ObjectFirst(event),
            (None, Some(_)) => Pass::Incomplete("object"),
            (None, None) => Pass::Incomplete("type"),
        })
    }
}

impl<'de, K: Kind> DeserializeSeed<'de> for ObjectSeed<'_, K> {
    type Value = WatchEvent<K>;

    fn deserialize<D: Deserializer<'de>>(self, object: D) -> Result<Self::Value, D::Error> {
        Ok(match self.event {
            EventType::Added => WatchEvent::Added(K::read(object, self.decoder)?),
            EventType::Modified => WatchEvent::Modified(K::read(object, self.decoder)?),
            EventType::Deleted => WatchEvent::Deleted(K::read(object, self.decoder)?),
            EventType::Bookmark => {
                let Struct(wire) = Struct::<BookmarkWire<'_>>::deserialize(object)?;
                let Struct(meta) = wire.metadata;
                WatchEvent::Bookmark(Bookmark {
                    resource_version: (*meta.resource_version).into(),
                    ends_initial_events: meta
                        .annotations
                        .iter()
                        .any(|(key, value)| key == INITIAL_EVENTS_END && value == "true"),
                })
            }
            EventType::Error => {
                let Struct(status) = Struct::<StatusWire<'_>>::deserialize(object)?;
                WatchEvent::Error(status.into())
            }
        })
    }
}

fn read_event<K: Kind>(
    line: &[u8],
    decoder: &Decoder,
    known: Option<EventType>,
) -> Result<Pass<K>, serde_json::Error> {
    let mut json = Json::new(line);
    let visitor = EnvelopeVisitor {
        decoder,
        known,
        kind: PhantomData,
    };
    let pass = json.deserialize_map(visitor);
    pass.and_then(|pass| json.end().map(|()| pass))
        .map_err(|error| json.locate(&error))
}

/// Finds out whose line it was that could not be read.
fn blame_event(line: &[u8], source: serde_json::Error) -> DecodeError {
    match serde_json::from_slice::<NamesWire<'_>>(line) {
        Ok(names) if !names.object.0.metadata.0.name.is_empty() => {
            blame(names.r#type, names.object.0, source)
        }
        _ => DecodeError::Json {
            what: "watch event",
            source,
        },
    }
}

fn blame(
    event: Option<EventType>,
    object: MetadataWire<'_>,
    source: serde_json::Error,
) -> DecodeError {
    let Struct(meta) = object.metadata;
    DecodeError::Object {
        event,
        namespace: (*meta.namespace).into(),
        name: (*meta.name).into(),
        source,
    }
}

#[cfg(test)]
mod tests;
