//! The encoding of a response: JSON, or the protobuf encoding of Kubernetes.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

use crate::decode::{Page, Status, WatchEvent, decode_event, decode_page, decode_status};
use crate::error::DecodeError;
use crate::frames::Frames;
use crate::kind::{Decoder, Kind};
use crate::lines::{Line, Lines};
use crate::protobuf::{decode_protobuf_event, decode_protobuf_page, decode_protobuf_status};

const PROTOBUF: &[u8] = b"application/vnd.kubernetes.protobuf";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Json,
    Protobuf,
}

/// Splits the chunks of a watch into events.
#[derive(Debug)]
pub(super) enum Splitter {
    Json(Lines),
    Protobuf(Frames),
}

impl Encoding {
    /// Returns the encoding that the server chose.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        match headers.get(CONTENT_TYPE) {
            Some(value) if value.as_bytes().starts_with(PROTOBUF) => Self::Protobuf,
            _ => Self::Json,
        }
    }

    pub(super) fn decode_event<K: Kind>(
        self,
        event: &[u8],
        decoder: &Decoder,
    ) -> Result<WatchEvent<K>, DecodeError> {
        match self {
            Self::Json => decode_event(event, decoder),
            Self::Protobuf => decode_protobuf_event(event, decoder),
        }
    }

    pub(super) fn decode_page<K: Kind>(
        self,
        body: &[u8],
        decoder: &Decoder,
    ) -> Result<Page<K>, DecodeError> {
        match self {
            Self::Json => decode_page(body, decoder),
            Self::Protobuf => decode_protobuf_page(body, decoder),
        }
    }

    /// Decodes a `Status`; `None` if it is something else.
    pub(super) fn decode_status(self, body: &[u8]) -> Option<Status> {
        match self {
            Self::Json => decode_status(body),
            Self::Protobuf => decode_protobuf_status(body),
        }
    }
}

impl Splitter {
    /// Events beyond the limit are skipped.
    pub(super) fn new(encoding: Encoding, limit: usize) -> Self {
        match encoding {
            Encoding::Json => Self::Json(Lines::new(limit)),
            Encoding::Protobuf => Self::Protobuf(Frames::new(limit)),
        }
    }

    pub(super) fn encoding(&self) -> Encoding {
        match self {
            Self::Json(_) => Encoding::Json,
            Self::Protobuf(_) => Encoding::Protobuf,
        }
    }

    /// Adds a chunk and calls `each` for every event that ends in it.
    pub(super) fn feed(&mut self, chunk: &[u8], each: impl FnMut(Line<'_>)) {
        match self {
            Self::Json(lines) => lines.feed(chunk, each),
            Self::Protobuf(frames) => frames.feed(chunk, each),
        }
    }
}
