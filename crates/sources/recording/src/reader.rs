//! Decodes the objects of a file into pods and events.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read};
use std::time::Duration;

use kubevitals_model::{Event, Pod, Timestamp};
use kubevitals_watch::{Decoder, EventType, Kind, Status, WatchEvent, decode_event, decode_object};
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::error::RecordingError;
use crate::splitter::{Piece, Splitter};

const CHUNK_BYTES: usize = 64 << 10;

/// An iterator over the objects of a recording.
pub struct Recording<R> {
    input: R,
    decoder: Decoder,
    splitter: Splitter,
    limit: usize,
    chunk: Box<[u8]>,
    items: VecDeque<Item>,
    is_over: bool,
}

/// An object of a recording and its offset.
#[derive(Debug)]
pub struct Item {
    /// In bytes from the start of the file.
    pub offset: u64,
    pub object: Result<RecordedObject, RecordingError>,
}

/// An object of a recording.
#[derive(Debug)]
pub enum RecordedObject {
    Pod(Recorded<Pod>),
    Event(Recorded<Event>),
    /// The server ended the watch with an error.
    Ended(Status),
    /// The kind of any other object.
    Other(String),
}

/// A state of an object.
#[derive(Debug)]
pub struct Recorded<K> {
    pub event: EventType,
    pub object: K,
    /// When the server wrote this state, to the second: the newest time of `managedFields`, or the
    /// request to delete a pod, which is not among them.
    pub written: Option<Timestamp>,
}

/// The fields of an object that decide how to decode it.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Outline<'a> {
    #[serde(borrow)]
    r#type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    metadata: Option<MetaOutline<'a>>,
    #[serde(borrow)]
    object: Option<InnerOutline<'a>>,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct InnerOutline<'a> {
    #[serde(borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    metadata: Option<MetaOutline<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct MetaOutline<'a> {
    #[serde(borrow)]
    managed_fields: Option<Vec<ManagedOutline<'a>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ManagedOutline<'a> {
    #[serde(borrow)]
    time: Option<Cow<'a, str>>,
}

impl<R: Read> Recording<R> {
    /// Reads objects of up to `limit` bytes ([`MAX_OBJECT`](crate::MAX_OBJECT)).
    pub fn new(input: R, decoder: Decoder, limit: usize) -> Self {
        Self {
            input,
            decoder,
            splitter: Splitter::new(limit),
            limit,
            chunk: vec![0; CHUNK_BYTES].into(),
            items: VecDeque::new(),
            is_over: false,
        }
    }

    fn read_more(&mut self) {
        let (decoder, limit, items) = (&self.decoder, self.limit, &mut self.items);
        let mut take = |piece: Piece<'_>| read_piece(&piece, decoder, limit, items);
        match self.input.read(&mut self.chunk) {
            Ok(0) => {
                self.is_over = true;
                self.splitter.end(take);
            }
            Ok(length) => {
                let chunk = self.chunk.get(..length).unwrap_or_default();
                self.splitter.feed(chunk, take);
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => {
                self.is_over = true;
                self.splitter.end(&mut take);
                self.items.push_back(Item {
                    offset: self.splitter.position(),
                    object: Err(error.into()),
                });
            }
        }
    }
}

impl<R: Read> Iterator for Recording<R> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        while self.items.is_empty() && !self.is_over {
            self.read_more();
        }
        self.items.pop_front()
    }
}

impl<R> std::fmt::Debug for Recording<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording")
            .field("position", &self.splitter.position())
            .finish_non_exhaustive()
    }
}

fn read_piece(piece: &Piece<'_>, decoder: &Decoder, limit: usize, items: &mut VecDeque<Item>) {
    let (offset, error) = match *piece {
        Piece::Object { offset, bytes } => {
            read_object(bytes, decoder, offset, items);
            return;
        }
        Piece::CutOff { offset, length } => (offset, RecordingError::CutOff { length }),
        Piece::TooLarge { offset, length } => (offset, RecordingError::TooLarge { length, limit }),
        Piece::Garbage {
            offset,
            length,
            has_zeros,
        } => (
            offset,
            RecordingError::NoObject {
                length,
                looks_like_utf16: has_zeros,
            },
        ),
    };
    items.push_back(Item {
        offset,
        object: Err(error),
    });
}

fn read_object(bytes: &[u8], decoder: &Decoder, offset: u64, items: &mut VecDeque<Item>) {
    let mut put = |object| items.push_back(Item { offset, object });
    // Anything without an outline goes to the decoder, whose error is more precise.
    let outline: Outline<'_> = serde_json::from_slice(bytes).unwrap_or_default();
    if let Some(list) = outline.items {
        for item in list {
            let bytes = item.get().as_bytes();
            let outline: Outline<'_> = serde_json::from_slice(bytes).unwrap_or_default();
            put(read_bare(bytes, &outline, decoder));
        }
    } else if outline.object.is_some() || outline.kind.is_none() {
        put(read_event(bytes, &outline, decoder));
    } else {
        put(read_bare(bytes, &outline, decoder));
    }
}

/// Decodes an object without an event, as `--watch` alone prints it.
fn read_bare(
    bytes: &[u8],
    outline: &Outline<'_>,
    decoder: &Decoder,
) -> Result<RecordedObject, RecordingError> {
    let written = outline.metadata.as_ref().and_then(MetaOutline::newest);
    Ok(match outline.kind.as_deref() {
        Some("Pod") => pod(Recorded {
            event: EventType::Modified,
            object: decode_object(bytes, decoder)?,
            written,
        }),
        Some("Event") => RecordedObject::Event(Recorded {
            event: EventType::Modified,
            object: decode_object(bytes, decoder)?,
            written,
        }),
        // A watch that fails may end in a bare Status.
        Some("Status") => match decode_event::<Pod>(bytes, decoder)? {
            WatchEvent::Error(status) => RecordedObject::Ended(status),
            _ => RecordedObject::Other("Status".to_owned()),
        },
        kind => RecordedObject::Other(kind.unwrap_or_default().to_owned()),
    })
}

fn read_event(
    bytes: &[u8],
    outline: &Outline<'_>,
    decoder: &Decoder,
) -> Result<RecordedObject, RecordingError> {
    let inner = outline.object.as_ref();
    let written = inner
        .and_then(|inner| inner.metadata.as_ref())
        .and_then(MetaOutline::newest);
    let kind = inner.and_then(|inner| inner.kind.as_deref());
    let is_about_objects = !matches!(outline.r#type.as_deref(), Some("BOOKMARK" | "ERROR"));
    Ok(match kind {
        Some("Event") if is_about_objects => recorded(
            decode_event(bytes, decoder)?,
            written,
            RecordedObject::Event,
        ),
        Some(other) if is_about_objects && other != "Pod" => {
            RecordedObject::Other(other.to_owned())
        }
        _ => recorded(decode_event(bytes, decoder)?, written, pod),
    })
}

fn recorded<K: Kind>(
    event: WatchEvent<K>,
    written: Option<Timestamp>,
    make: impl FnOnce(Recorded<K>) -> RecordedObject,
) -> RecordedObject {
    let (event, object) = match event {
        WatchEvent::Added(object) => (EventType::Added, object),
        WatchEvent::Modified(object) => (EventType::Modified, object),
        WatchEvent::Deleted(object) => (EventType::Deleted, object),
        WatchEvent::Bookmark(_) => return RecordedObject::Other("Bookmark".to_owned()),
        WatchEvent::Error(status) => return RecordedObject::Ended(status),
    };
    make(Recorded {
        event,
        object,
        written,
    })
}

fn pod(mut recorded: Recorded<Pod>) -> RecordedObject {
    let meta = &recorded.object.meta;
    let grace = Duration::from_secs(meta.deletion_grace.unwrap_or(0).into());
    let requested = meta.deleted.and_then(|deleted| deleted.checked_sub(grace));
    recorded.written = recorded
        .written
        .map(|written| requested.map_or(written, |requested| requested.max(written)));
    RecordedObject::Pod(recorded)
}

impl MetaOutline<'_> {
    fn newest(&self) -> Option<Timestamp> {
        let fields = self.managed_fields.as_deref().unwrap_or_default();
        fields
            .iter()
            .filter_map(|field| field.time.as_deref()?.parse().ok())
            .max()
    }
}
