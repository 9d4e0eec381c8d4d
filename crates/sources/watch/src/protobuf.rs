//! Decodes lists and watch events of the protobuf encoding of Kubernetes.
//!
//! An object is a `runtime.Unknown` behind four magic bytes: its type, and the message itself.
//! Messages are read field by field and not built: of a pod of some kilobytes, a summary needs a
//! hundred bytes, and everything else is skipped by its length.

use kubevitals_protobuf::{Value, read_field};

use crate::decode::{Bookmark, EventType, INITIAL_EVENTS_END, Page, Status, WatchEvent};
use crate::error::DecodeError;
use crate::kind::{Decoder, Kind};

/// The start of every object.
const MAGIC: &[u8] = b"k8s\0";

/// An object without its envelope.
#[derive(Default)]
struct Envelope<'a> {
    kind: &'a str,
    message: &'a [u8],
}

/// Decodes one frame of a watch, without its length.
pub fn decode_protobuf_event<K: Kind>(
    frame: &[u8],
    decoder: &Decoder,
) -> Result<WatchEvent<K>, DecodeError> {
    let malformed = || DecodeError::Protobuf {
        what: "watch event",
    };
    let (mut event, mut object) = ("", None);
    each_field(frame, |number, value| {
        match number {
            1 => event = value.text()?,
            2 => object = Some(bytes_field(value.bytes()?, 1)?),
            _ => {}
        }
        Some(())
    })
    .ok_or_else(malformed)?;
    let object = object.ok_or(DecodeError::Incomplete("object"))?;
    let envelope = Envelope::read(object).ok_or_else(malformed)?;
    let event = EventType::parse(event).ok_or(DecodeError::Incomplete("type"))?;
    Ok(match event {
        EventType::Added => WatchEvent::Added(envelope.decode(decoder)?),
        EventType::Modified => WatchEvent::Modified(envelope.decode(decoder)?),
        EventType::Deleted => WatchEvent::Deleted(envelope.decode(decoder)?),
        EventType::Bookmark => {
            WatchEvent::Bookmark(bookmark(envelope.message).ok_or_else(malformed)?)
        }
        EventType::Error => WatchEvent::Error(status(envelope.message).ok_or_else(malformed)?),
    })
}

/// Decodes one page of a list, or a whole list. A bad object affects only itself.
pub fn decode_protobuf_page<K: Kind>(
    body: &[u8],
    decoder: &Decoder,
) -> Result<Page<K>, DecodeError> {
    let malformed = || DecodeError::Protobuf { what: "list" };
    let envelope = Envelope::read(body).ok_or_else(malformed)?;
    let read = K::PROTOBUF.ok_or_else(malformed)?;
    let (mut objects, mut unreadable) = (Vec::new(), Vec::new());
    let (mut version, mut next) = ("", "");
    each_field(envelope.message, |number, value| {
        match number {
            1 => {
                version = string_field(value.bytes()?, 2)?;
                next = string_field(value.bytes()?, 3)?;
            }
            2 => match read(value.bytes()?, decoder) {
                Ok(object) => objects.push(object),
                Err(error) => unreadable.push(error),
            },
            _ => {}
        }
        Some(())
    })
    .ok_or_else(malformed)?;
    if version.is_empty() {
        return Err(DecodeError::Incomplete("resourceVersion"));
    }
    Ok(Page {
        objects,
        unreadable,
        resource_version: version.into(),
        next: next.to_owned(),
    })
}

/// Decodes a `Status`; `None` if it is something else.
pub(crate) fn decode_protobuf_status(body: &[u8]) -> Option<Status> {
    let envelope = Envelope::read(body)?;
    (envelope.kind == "Status").then(|| status(envelope.message))?
}

/// Calls `each` for every field; `None` if the message or a field is malformed.
pub(crate) fn each_field<'m>(
    mut message: &'m [u8],
    mut each: impl FnMut(u32, Value<'m>) -> Option<()>,
) -> Option<()> {
    while !message.is_empty() {
        let field = read_field(&mut message)?;
        each(field.number, field.value)?;
    }
    Some(())
}

/// Returns a string field of a message, empty if it is absent; `None` if the message is malformed.
pub(crate) fn string_field(message: &[u8], wanted: u32) -> Option<&str> {
    str::from_utf8(bytes_field(message, wanted)?).ok()
}

fn bytes_field(message: &[u8], wanted: u32) -> Option<&[u8]> {
    let mut found: &[u8] = &[];
    each_field(message, |number, value| {
        if number == wanted {
            found = value.bytes()?;
        }
        Some(())
    })?;
    Some(found)
}

fn bookmark(object: &[u8]) -> Option<Bookmark> {
    let mut bookmark = Bookmark {
        resource_version: "".into(),
        ends_initial_events: false,
    };
    each_field(bytes_field(object, 1)?, |number, value| {
        match number {
            6 => bookmark.resource_version = value.text()?.into(),
            12 => {
                let entry = value.bytes()?;
                bookmark.ends_initial_events |= string_field(entry, 1)? == INITIAL_EVENTS_END
                    && string_field(entry, 2)? == "true";
            }
            _ => {}
        }
        Some(())
    })?;
    Some(bookmark)
}

fn status(message: &[u8]) -> Option<Status> {
    let mut status = Status::default();
    each_field(message, |number, value| {
        match number {
            3 => value.text()?.clone_into(&mut status.message),
            4 => value.text()?.clone_into(&mut status.reason),
            6 => status.code = u16::try_from(value.uint()?).unwrap_or_default(),
            _ => {}
        }
        Some(())
    })?;
    Some(status)
}

impl<'a> Envelope<'a> {
    /// Reads the envelope; `None` if it is malformed.
    fn read(object: &'a [u8]) -> Option<Self> {
        let mut envelope = Self::default();
        each_field(object.strip_prefix(MAGIC)?, |number, value| {
            match number {
                1 => envelope.kind = string_field(value.bytes()?, 2)?,
                2 => envelope.message = value.bytes()?,
                _ => {}
            }
            Some(())
        })?;
        Some(envelope)
    }

    fn decode<K: Kind>(&self, decoder: &Decoder) -> Result<K, DecodeError> {
        let read = K::PROTOBUF.ok_or(DecodeError::Protobuf { what: "object" })?;
        read(self.message, decoder)
    }
}
