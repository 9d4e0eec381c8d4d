//! Frames of WebSocket.

use bytes::BytesMut;
use kubevitals_kubelet_api::streaming::websocket::{Decoder, Event, Kind, MAX_MESSAGE};

/// Heads of frames.
pub(crate) const WEBSOCKET_TOKENS: &[&[u8]] = &[
    b"\x82\x81\x00\x00\x00\x00",
    b"\x02\x82\x01\x02\x03\x04",
    b"\x80\x80\x00\x00\x00\x00",
    b"\x00\x80\x00\x00\x00\x00",
    b"\x81\xfe\x00\x80\x00\x00\x00\x00",
    b"\x82\xff\x00\x00\x00\x00\x02\x00\x00\x00",
    b"\x89\x80\x00\x00\x00\x00",
    b"\x8a\x81\x00\x00\x00\x00\x61",
    b"\x88\x82\x00\x00\x00\x00\x03\xe8",
    b"\xff\x00",
];

/// What was read of a message: its type, its bytes, and whether it is whole.
type Message = (Kind, Vec<u8>, bool);

/// No bytes make the decoder panic, how they are cut does not matter, and messages begin once, end
/// at most once and are within their limit.
///
/// # Panics
///
/// If the property is violated.
pub fn websocket_frames(bytes: &[u8]) {
    let whole = decode(bytes, bytes.len().max(1));
    for length in [1, 5] {
        assert_eq!(decode(bytes, length), whole, "cut into pieces of {length}");
    }
}

/// The messages and the other events of pieces of this length, and the fault that ended them.
fn decode(bytes: &[u8], length: usize) -> (Vec<Message>, Vec<Event>, Option<String>) {
    let mut decoder = Decoder::default();
    let mut buffer = BytesMut::new();
    let (mut messages, mut others): (Vec<Message>, _) = (Vec::new(), Vec::new());
    for piece in bytes.chunks(length) {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(None) => break,
                Err(fault) => return (messages, others, Some(fault.to_string())),
                Ok(Some(Event::Data {
                    kind,
                    bytes,
                    is_first,
                    is_last,
                })) => {
                    if is_first {
                        messages.push((kind, Vec::new(), false));
                    }
                    let (own, message, is_whole) =
                        messages.last_mut().expect("a message has begun");
                    assert_eq!((*own, *is_whole), (kind, false));
                    message.extend_from_slice(&bytes);
                    *is_whole = is_last;
                    assert!(u64::try_from(message.len()).is_ok_and(|len| len <= MAX_MESSAGE));
                }
                Ok(Some(other)) => others.push(other),
            }
        }
    }
    (messages, others, None)
}
