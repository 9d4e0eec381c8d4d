//! The codec of WebSocket for a server, RFC 6455, without I/O.
//!
//! It stands in for `tungstenite`: that assembles whole messages, of megabytes if a client sends
//! such, and a slow process on stdin then holds them. Here payloads are returned as they arrive,
//! and what a connection buffers does not depend on the client. There are no extensions.

use aws_lc_rs::digest::{self, SHA1_FOR_LEGACY_USE_ONLY};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The longest message; Go's server has the same limit.
pub const MAX_MESSAGE: u64 = 32 << 20;
/// The longest payload of a control frame.
const MAX_CONTROL: u64 = 125;
/// What a server appends to the key of a client, to prove that it speaks WebSocket.
const ACCEPT_SUFFIX: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// The type of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Binary,
}

/// What a client has sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A piece of a message, as it has arrived.
    Data {
        kind: Kind,
        bytes: Bytes,
        /// Whether the message begins here.
        is_first: bool,
        /// Whether the message ends here.
        is_last: bool,
    },
    Ping(Bytes),
    Pong,
    Close,
}

/// A violation of the protocol by the client. The connection must end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WebSocketError {
    #[error("frame with reserved bits")]
    Reserved,
    #[error("frame with unknown opcode {0}")]
    Opcode(u8),
    #[error("frame of a client without mask")]
    Unmasked,
    #[error("control frame in pieces or of more than 125 bytes")]
    Control,
    #[error("continuation without a message, or a message within another")]
    Sequence,
    #[error("message of more than {MAX_MESSAGE} bytes")]
    TooLong,
    #[error("text where data is binary, or the reverse")]
    Kind,
    #[error("message that closes a channel does not name exactly one")]
    ChannelClose,
    #[error("message is not valid base64, or too long")]
    Base64,
}

/// Splits received bytes into events.
#[derive(Debug, Default)]
pub struct Decoder {
    /// The data frame of which more is to come.
    frame: Option<DataFrame>,
    /// The message of which more is to come, and its length so far.
    message: Option<(Kind, u64)>,
    /// Whether nothing of the message was returned yet.
    is_first: bool,
}

#[derive(Debug)]
struct DataFrame {
    rest: u64,
    mask: [u8; 4],
    is_final: bool,
}

/// The head of a frame.
struct Head {
    opcode: u8,
    is_final: bool,
    length: u64,
    mask: [u8; 4],
    /// Bytes of the head itself.
    size: usize,
}

const CONTINUATION: u8 = 0;
const TEXT: u8 = 1;
const BINARY: u8 = 2;
const CLOSE: u8 = 8;
const PING: u8 = 9;
const PONG: u8 = 10;

impl Decoder {
    /// Takes the next event from `input`; `None` if more bytes are needed.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Event>, WebSocketError> {
        if self.frame.is_none() {
            let Some(head) = Head::parse(input)? else {
                return Ok(None);
            };
            if head.opcode & 8 != 0 {
                return Self::control(&head, input);
            }
            self.begin(&head)?;
            input.advance(head.size);
        }
        Ok(self.piece(input))
    }

    fn begin(&mut self, head: &Head) -> Result<(), WebSocketError> {
        let (kind, before) = match (head.opcode, self.message) {
            (CONTINUATION, Some(message)) => message,
            (TEXT, None) => (Kind::Text, 0),
            (BINARY, None) => (Kind::Binary, 0),
            (CONTINUATION | TEXT | BINARY, _) => return Err(WebSocketError::Sequence),
            (unknown, _) => return Err(WebSocketError::Opcode(unknown)),
        };
        let length = before.saturating_add(head.length);
        if length > MAX_MESSAGE {
            return Err(WebSocketError::TooLong);
        }
        self.is_first |= self.message.is_none();
        self.message = Some((kind, length));
        self.frame = Some(DataFrame {
            rest: head.length,
            mask: head.mask,
            is_final: head.is_final,
        });
        Ok(())
    }

    fn piece(&mut self, input: &mut BytesMut) -> Option<Event> {
        let frame = self.frame.as_mut()?;
        let (kind, _) = self.message?;
        let length = usize::try_from(frame.rest).map_or(input.len(), |rest| rest.min(input.len()));
        if length == 0 && frame.rest > 0 {
            return None;
        }
        frame.rest -= u64::try_from(length).unwrap_or(frame.rest);
        let mut bytes = input.split_to(length);
        unmask(&mut bytes, frame.mask);
        frame.mask.rotate_left(length % 4);
        let (is_end, is_final) = (frame.rest == 0, frame.is_final);
        let is_last = is_end && is_final;
        if is_end {
            self.frame = None;
        }
        if is_last {
            self.message = None;
        }
        let is_first = std::mem::take(&mut self.is_first);
        Some(Event::Data {
            kind,
            bytes: bytes.freeze(),
            is_first,
            is_last,
        })
    }

    fn control(head: &Head, input: &mut BytesMut) -> Result<Option<Event>, WebSocketError> {
        if !matches!(head.opcode, CLOSE | PING | PONG) {
            return Err(WebSocketError::Opcode(head.opcode));
        }
        if !head.is_final || head.length > MAX_CONTROL {
            return Err(WebSocketError::Control);
        }
        let length = usize::try_from(head.length).unwrap_or(usize::MAX);
        if input.len() - head.size < length {
            return Ok(None);
        }
        input.advance(head.size);
        let mut payload = input.split_to(length);
        unmask(&mut payload, head.mask);
        Ok(Some(match head.opcode {
            CLOSE => Event::Close,
            PING => Event::Ping(payload.freeze()),
            _ => Event::Pong,
        }))
    }
}

impl Head {
    /// Parses the head of a frame; `None` if more bytes are needed.
    fn parse(input: &[u8]) -> Result<Option<Self>, WebSocketError> {
        let mut rest = input;
        let (Ok(first), Ok(second)) = (rest.try_get_u8(), rest.try_get_u8()) else {
            return Ok(None);
        };
        if first & 0x70 != 0 {
            return Err(WebSocketError::Reserved);
        }
        if second & 0x80 == 0 {
            return Err(WebSocketError::Unmasked);
        }
        let length = match second & 0x7f {
            126 => rest.try_get_u16().map(u64::from),
            127 => rest.try_get_u64(),
            short => Ok(u64::from(short)),
        };
        let (Ok(length), Ok(mask)) = (length, rest.try_get_u32()) else {
            return Ok(None);
        };
        Ok(Some(Self {
            opcode: first & 0x0f,
            is_final: first & 0x80 != 0,
            length,
            mask: mask.to_be_bytes(),
            size: input.len() - rest.len(),
        }))
    }
}

/// Appends the head of a message in one frame, whose payload of `length` bytes follows.
pub fn put_message_head(out: &mut BytesMut, kind: Kind, length: usize) {
    let opcode = match kind {
        Kind::Text => TEXT,
        Kind::Binary => BINARY,
    };
    put_head(out, opcode, length);
}

/// Appends a pong.
pub fn put_pong(out: &mut BytesMut, payload: &[u8]) {
    put_head(out, PONG, payload.len());
    out.put_slice(payload);
}

/// Appends a close frame with this code.
pub fn put_close(out: &mut BytesMut, code: u16) {
    put_head(out, CLOSE, 2);
    out.put_u16(code);
}

fn put_head(out: &mut BytesMut, opcode: u8, length: usize) {
    out.put_u8(0x80 | opcode);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(short @ ..=125), _) => out.put_u8(short),
        (_, Ok(medium)) => {
            out.put_u8(126);
            out.put_u16(medium);
        }
        _ => {
            out.put_u8(127);
            out.put_u64(u64::try_from(length).unwrap_or(u64::MAX));
        }
    }
}

/// The response to the key of a client; `None` if it is not a key.
pub(super) fn accept_key(key: &[u8]) -> Option<String> {
    if STANDARD.decode(key).ok()?.len() != 16 {
        return None;
    }
    let mut context = digest::Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
    context.update(key);
    context.update(ACCEPT_SUFFIX);
    Some(STANDARD.encode(context.finish()))
}

/// Applies the mask, which begins with the first byte.
fn unmask(bytes: &mut [u8], mask: [u8; 4]) {
    let [a, b, c, d] = mask;
    let wide = u64::from_ne_bytes([a, b, c, d, a, b, c, d]);
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for word in words {
        *word = (u64::from_ne_bytes(*word) ^ wide).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(mask.iter().cycle()) {
        *byte ^= mask;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A frame of a client.
    fn frame(first: u8, mask: [u8; 4], payload: &[u8]) -> BytesMut {
        let mut out = BytesMut::new();
        put_head(&mut out, 0, payload.len());
        out[0] = first;
        out[1] |= 0x80;
        out.put_slice(&mask);
        let start = out.len();
        out.put_slice(payload);
        unmask(&mut out[start..], mask);
        out
    }

    fn binary(bytes: &'static [u8], is_first: bool, is_last: bool) -> Event {
        Event::Data {
            kind: Kind::Binary,
            bytes: Bytes::from_static(bytes),
            is_first,
            is_last,
        }
    }

    fn events(mut input: BytesMut) -> Result<Vec<Event>, WebSocketError> {
        let mut decoder = Decoder::default();
        let mut events = Vec::new();
        while let Some(event) = decoder.decode(&mut input)? {
            events.push(event);
        }
        Ok(events)
    }

    #[test]
    fn the_key_of_the_specification_is_accepted() {
        assert_eq!(
            accept_key(b"dGhlIHNhbXBsZSBub25jZQ==").as_deref(),
            Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        );
        assert_eq!(accept_key(b""), None);
        assert_eq!(accept_key(b"c2hvcnQ="), None);
    }

    #[test]
    fn control_frames_may_come_within_a_message() {
        let mask = [1, 2, 3, 4];
        let input = [
            frame(BINARY, mask, b"ab"),
            frame(0x80 | PING, mask, b"p"),
            frame(CONTINUATION, mask, b""),
            frame(0x80 | CONTINUATION, mask, b"c"),
            frame(0x80 | PONG, mask, b""),
            frame(0x80 | BINARY, mask, b""),
            frame(0x80 | CLOSE, mask, b"\x03\xe8"),
        ]
        .concat();
        let events = events(BytesMut::from(&*input)).unwrap();
        let expected = [
            binary(b"ab", true, false),
            Event::Ping(Bytes::from_static(b"p")),
            binary(b"", false, false),
            binary(b"c", false, true),
            Event::Pong,
            binary(b"", true, true),
            Event::Close,
        ];
        assert_eq!(events, expected);
    }

    #[test]
    fn violations_are_errors() {
        let mask = [0; 4];
        let error = |bytes: BytesMut| events(bytes).unwrap_err();
        assert_eq!(error(frame(0xc2, mask, b"")), WebSocketError::Reserved);
        assert_eq!(error(frame(0x83, mask, b"")), WebSocketError::Opcode(3));
        assert_eq!(error(frame(0x8b, mask, b"")), WebSocketError::Opcode(11));
        assert_eq!(
            error(BytesMut::from(&[0x82, 0][..])),
            WebSocketError::Unmasked
        );
        assert_eq!(error(frame(PING, mask, b"")), WebSocketError::Control);
        let long = frame(0x80 | PING, mask, &[0; 126]);
        assert_eq!(error(long), WebSocketError::Control);
        assert_eq!(error(frame(0x80, mask, b"")), WebSocketError::Sequence);
        let twice = [frame(BINARY, mask, b"a"), frame(TEXT, mask, b"b")].concat();
        assert_eq!(error(BytesMut::from(&*twice)), WebSocketError::Sequence);
        let huge = [0x82, 0xff, 0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 0];
        assert_eq!(error(BytesMut::from(&huge[..])), WebSocketError::TooLong);
    }

    proptest! {
        #[test]
        fn messages_are_read_however_they_are_cut(
            payload in proptest::collection::vec(any::<u8>(), 0..1000),
            mask in any::<[u8; 4]>(),
            cut in 1_usize..64,
            split in 0_usize..1000,
        ) {
            let (first, second) = payload.split_at(split.min(payload.len()));
            let input = [frame(BINARY, mask, first), frame(0x80, mask, second)].concat();
            let mut decoder = Decoder::default();
            let (mut buffer, mut read) = (BytesMut::new(), Vec::new());
            let (mut firsts, mut lasts) = (0, 0);
            for piece in input.chunks(cut) {
                buffer.put_slice(piece);
                while let Some(event) = decoder.decode(&mut buffer).unwrap() {
                    let Event::Data { bytes, is_first, is_last, .. } = event else {
                        panic!("{event:?}")
                    };
                    prop_assert_eq!(is_first, firsts == 0);
                    firsts += 1;
                    lasts += u32::from(is_last);
                    read.extend_from_slice(&bytes);
                }
            }
            prop_assert_eq!(lasts, 1);
            prop_assert_eq!(read, payload);
        }

        #[test]
        fn no_bytes_are_a_problem(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = events(BytesMut::from(&*bytes));
        }
    }
}
