//! From objects in a file to pods and events.

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

/// How much is read at once.
const CHUNK: usize = 64 << 10;

/// A recording, read object by object.
pub struct Recording<R> {
    input: R,
    decoder: Decoder,
    splitter: Splitter,
    limit: usize,
    chunk: Box<[u8]>,
    found: VecDeque<Item>,
    is_over: bool,
}

/// What stands at one place of a recording.
#[derive(Debug)]
pub struct Item {
    /// Where, in bytes from the beginning of the file.
    pub offset: u64,
    /// What, or what is wrong with it.
    pub what: Result<What, RecordingError>,
}

/// An object of a recording.
#[derive(Debug)]
pub enum What {
    /// A state of a pod.
    Pod(Seen<Pod>),
    /// A state of an event.
    Event(Seen<Event>),
    /// The server gave up the watch.
    Ended(Status),
    /// Something that is neither: its kind.
    Other(String),
}

/// A state of an object.
#[derive(Debug)]
pub struct Seen<K> {
    /// What happened to the object.
    pub event: EventType,
    /// Its state.
    pub object: K,
    /// When the server made this state, to the second, as far as it says: the last write of a field
    /// that somebody owns, or of a pod the request to delete it, which is no such write.
    pub written: Option<Timestamp>,
}

/// As much of an object as says how to read it.
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
    /// Reads objects of up to `limit` bytes ([`MAX_OBJECT`](crate::MAX_OBJECT)). Strings that
    /// repeat are shared with all that the decoder reads.
    pub fn new(input: R, decoder: Decoder, limit: usize) -> Self {
        Self {
            input,
            decoder,
            splitter: Splitter::new(limit),
            limit,
            chunk: vec![0; CHUNK].into(),
            found: VecDeque::new(),
            is_over: false,
        }
    }

    fn read_more(&mut self) {
        let (decoder, limit, found) = (&self.decoder, self.limit, &mut self.found);
        let mut take = |piece: Piece<'_>| read_piece(&piece, decoder, limit, found);
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
                self.found.push_back(Item {
                    offset: self.splitter.position(),
                    what: Err(error.into()),
                });
            }
        }
    }
}

impl<R: Read> Iterator for Recording<R> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        while self.found.is_empty() && !self.is_over {
            self.read_more();
        }
        self.found.pop_front()
    }
}

impl<R> std::fmt::Debug for Recording<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recording")
            .field("position", &self.splitter.position())
            .finish_non_exhaustive()
    }
}

fn read_piece(piece: &Piece<'_>, decoder: &Decoder, limit: usize, found: &mut VecDeque<Item>) {
    let (offset, error) = match *piece {
        Piece::Object { offset, bytes } => {
            read_object(bytes, decoder, offset, found);
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
    found.push_back(Item {
        offset,
        what: Err(error),
    });
}

fn read_object(bytes: &[u8], decoder: &Decoder, offset: u64, found: &mut VecDeque<Item>) {
    let mut put = |what| found.push_back(Item { offset, what });
    // What cannot even be outlined is given to the decoder, which says what is wrong with it.
    let outline: Outline<'_> = serde_json::from_slice(bytes).unwrap_or_default();
    if let Some(items) = outline.items {
        for item in items {
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

/// An object without word of what happened to it, as `--watch` alone prints it.
fn read_bare(
    bytes: &[u8],
    outline: &Outline<'_>,
    decoder: &Decoder,
) -> Result<What, RecordingError> {
    let written = outline.metadata.as_ref().and_then(MetaOutline::newest);
    Ok(match outline.kind.as_deref() {
        Some("Pod") => pod(Seen {
            event: EventType::Modified,
            object: decode_object(bytes, decoder)?,
            written,
        }),
        Some("Event") => What::Event(Seen {
            event: EventType::Modified,
            object: decode_object(bytes, decoder)?,
            written,
        }),
        // A watch that is given up may end in a bare Status.
        Some("Status") => match decode_event::<Pod>(bytes, decoder)? {
            WatchEvent::Error(status) => What::Ended(status),
            _ => What::Other("Status".to_owned()),
        },
        kind => What::Other(kind.unwrap_or_default().to_owned()),
    })
}

fn read_event(
    bytes: &[u8],
    outline: &Outline<'_>,
    decoder: &Decoder,
) -> Result<What, RecordingError> {
    let inner = outline.object.as_ref();
    let written = inner
        .and_then(|inner| inner.metadata.as_ref())
        .and_then(MetaOutline::newest);
    let kind = inner.and_then(|inner| inner.kind.as_deref());
    let is_about_objects = !matches!(outline.r#type.as_deref(), Some("BOOKMARK" | "ERROR"));
    Ok(match kind {
        Some("Event") if is_about_objects => {
            seen(decode_event(bytes, decoder)?, written, What::Event)
        }
        Some(other) if is_about_objects && other != "Pod" => What::Other(other.to_owned()),
        _ => seen(decode_event(bytes, decoder)?, written, pod),
    })
}

fn seen<K: Kind>(
    event: WatchEvent<K>,
    written: Option<Timestamp>,
    make: impl FnOnce(Seen<K>) -> What,
) -> What {
    let (event, object) = match event {
        WatchEvent::Added(object) => (EventType::Added, object),
        WatchEvent::Modified(object) => (EventType::Modified, object),
        WatchEvent::Deleted(object) => (EventType::Deleted, object),
        WatchEvent::Bookmark(_) => return What::Other("Bookmark".to_owned()),
        WatchEvent::Error(status) => return What::Ended(status),
    };
    make(Seen {
        event,
        object,
        written,
    })
}

fn pod(mut seen: Seen<Pod>) -> What {
    let details = &seen.object.meta;
    let grace = Duration::from_secs(details.deletion_grace.unwrap_or(0).into());
    let asked = details
        .deleted
        .and_then(|deleted| deleted.checked_sub(grace));
    seen.written = seen
        .written
        .map(|written| asked.map_or(written, |asked| asked.max(written)));
    What::Pod(seen)
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
