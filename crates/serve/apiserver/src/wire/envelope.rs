//! The protobuf envelope of objects, and the frames of watches.

use super::protobuf::{put_bytes, put_message, put_str};

/// The magic bytes of every object in Kubernetes protobuf.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// The type of a watch event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    Added,
    Modified,
    /// The object is gone or no longer selected.
    Deleted,
    /// Carries a resource version only.
    Bookmark,
    /// The watch ends with a `Status`.
    Error,
}

impl EventKind {
    /// Returns the name in events.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }
}

/// Writes the magic bytes and a `runtime.Unknown` around a message.
pub fn put_envelope(out: &mut Vec<u8>, api_version: &str, kind: &str, message: &[u8]) {
    out.extend_from_slice(MAGIC);
    put_message(out, 1, |out| {
        put_str(out, 1, api_version);
        put_str(out, 2, kind);
    });
    put_bytes(out, 2, message);
    // Empty content encoding and type mean those of the response.
    put_str(out, 3, "");
    put_str(out, 4, "");
}

/// Writes an event of a watch in JSON: one line.
pub fn put_json_event(out: &mut Vec<u8>, kind: EventKind, object: &[u8]) {
    out.extend_from_slice(b"{\"type\":\"");
    out.extend_from_slice(kind.name().as_bytes());
    out.extend_from_slice(b"\",\"object\":");
    out.extend_from_slice(object.trim_ascii_end());
    out.extend_from_slice(b"}\n");
}

/// Writes an event of a watch in protobuf: its length in four bytes, and a `WatchEvent` around the
/// object, which has its envelope already.
pub fn put_protobuf_event(out: &mut Vec<u8>, kind: EventKind, enveloped: &[u8]) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    put_str(out, 1, kind.name());
    put_message(out, 2, |out| put_bytes(out, 1, enveloped));
    let length = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    if let Some(prefix) = out.get_mut(start..start + 4) {
        prefix.copy_from_slice(&length.to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::super::protobuf::fields;
    use super::*;

    #[test]
    fn a_status_is_what_go_sends() {
        // The response of a Go server to a forbidden request.
        let mut out = Vec::new();
        put_envelope(&mut out, "v1", "Status", b"xy");
        assert_eq!(
            out,
            b"k8s\0\x0a\x0c\x0a\x02v1\x12\x06Status\x12\x02xy\x1a\0\x22\0"
        );
    }

    #[test]
    fn events_are_framed() {
        let mut out = Vec::new();
        put_json_event(&mut out, EventKind::Added, b"{\"a\":1}\n");
        assert_eq!(out, b"{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n");
        let mut out = Vec::new();
        put_protobuf_event(&mut out, EventKind::Bookmark, b"k8s\0abc");
        let (length, event) = out.split_at(4);
        assert_eq!(length, u32::try_from(event.len()).unwrap().to_be_bytes());
        let event = fields(event).unwrap();
        assert_eq!((event.len(), event[0].number, event[1].number), (2, 1, 2));
        assert_eq!(event[0].value.text(), Some("BOOKMARK"));
        let raw = fields(event[1].value.bytes().unwrap()).unwrap();
        assert_eq!((raw.len(), raw[0].number), (1, 1));
        assert_eq!(raw[0].value.bytes(), Some(b"k8s\0abc".as_slice()));
    }
}
