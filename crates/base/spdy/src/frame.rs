//! Frames: eight bytes of header, then a payload. All numbers are big-endian.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use crate::error::SpdyError;
use crate::header::{HeaderDecoder, Headers};

const HEADER_LEN: usize = 8;
const CONTROL: u16 = 0x8000;
const VERSION: u16 = 3;
/// The flag of the last frame of a stream in a direction.
const FIN: u8 = 1;
const ID_MASK: u32 = 0x7fff_ffff;
/// The longest payload that a length of 24 bits can state.
pub const MAX_DATA: usize = (1 << 24) - 1;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const SETTINGS: u16 = 4;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const HEADERS: u16 = 8;
const WINDOW_UPDATE: u16 = 9;

/// A status of `RST_STREAM`.
pub mod reset {
    pub const PROTOCOL_ERROR: u32 = 1;
    pub const REFUSED: u32 = 3;
    pub const CANCEL: u32 = 5;
}

/// A frame, or a piece of a long `DATA` frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Frame {
    /// A piece of a payload; `fin` with the last one.
    Data {
        id: u32,
        fin: bool,
        bytes: Bytes,
    },
    SynStream {
        id: u32,
        fin: bool,
        headers: Headers,
    },
    SynReply {
        id: u32,
        fin: bool,
        headers: Headers,
    },
    RstStream {
        id: u32,
        status: u32,
    },
    /// Ignored, as Go does.
    Settings,
    Ping {
        id: u32,
    },
    GoAway {
        last_id: u32,
        status: u32,
    },
    Headers {
        id: u32,
        fin: bool,
        headers: Headers,
    },
    /// Ignored, as Go does.
    WindowUpdate,
}

/// Splits received bytes into frames.
#[derive(Debug)]
pub struct Decoder {
    headers: HeaderDecoder,
    max_control_bytes: usize,
    /// The `DATA` frame of which more is to come.
    data: Option<Data>,
}

#[derive(Debug)]
struct Data {
    id: u32,
    fin: bool,
    rest: usize,
}

impl Decoder {
    /// Creates the decoder of a connection. Control frames of more bytes are an error.
    pub const fn new(headers: HeaderDecoder, max_control_bytes: usize) -> Self {
        Self {
            headers,
            max_control_bytes,
            data: None,
        }
    }

    /// Whether the connection may end here: no frame has begun.
    pub const fn is_between_frames(&self) -> bool {
        self.data.is_none()
    }

    /// Takes the next frame from `input`; `None` if more bytes are needed. Payloads of `DATA` are
    /// returned in pieces, as they arrive. After an error the connection must end.
    pub fn decode(&mut self, input: &mut BytesMut) -> Result<Option<Frame>, SpdyError> {
        if self.data.is_none() {
            let Some(header) = input.get(..HEADER_LEN) else {
                return Ok(None);
            };
            let (mut id, mut length) = (header, header);
            let id = id.get_u32();
            length.advance(4);
            let (flags, length) = (length.get_u8(), length.get_uint(3));
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            if id & !ID_MASK != 0 {
                return self.control(id, flags, length, input);
            }
            input.advance(HEADER_LEN);
            self.data = Some(Data {
                id,
                fin: flags & FIN != 0,
                rest: length,
            });
        }
        Ok(self.piece(input))
    }

    fn piece(&mut self, input: &mut BytesMut) -> Option<Frame> {
        let data = self.data.as_mut()?;
        let length = data.rest.min(input.len());
        if length == 0 && data.rest > 0 {
            return None;
        }
        data.rest -= length;
        let (id, is_last) = (data.id, data.rest == 0);
        let fin = is_last && data.fin;
        if is_last {
            self.data = None;
        }
        let bytes = input.split_to(length).freeze();
        Some(Frame::Data { id, fin, bytes })
    }

    fn control(
        &mut self,
        word: u32,
        flags: u8,
        length: usize,
        input: &mut BytesMut,
    ) -> Result<Option<Frame>, SpdyError> {
        let [v1, v2, t1, t2] = word.to_be_bytes();
        let version = u16::from_be_bytes([v1, v2]) & !CONTROL;
        let kind = u16::from_be_bytes([t1, t2]);
        if version != VERSION {
            return Err(SpdyError::Version(version));
        }
        if length > self.max_control_bytes {
            return Err(SpdyError::FrameTooLong {
                kind,
                length,
                limit: self.max_control_bytes,
            });
        }
        if input.len() < HEADER_LEN + length {
            return Ok(None);
        }
        input.advance(HEADER_LEN);
        let payload = input.split_to(length);
        self.payload(kind, flags, &payload).map(Some)
    }

    fn payload(&mut self, kind: u16, flags: u8, payload: &[u8]) -> Result<Frame, SpdyError> {
        let malformed = |_| SpdyError::Malformed(kind);
        let exactly = |length: usize| {
            if payload.len() == length {
                Ok(())
            } else {
                Err(SpdyError::Malformed(kind))
            }
        };
        let mut rest = payload;
        let mut number = || rest.try_get_u32().map_err(malformed);
        let fin = flags & FIN != 0;
        match kind {
            SYN_STREAM => {
                let (id, _associated) = (number()? & ID_MASK, number()?);
                // Priority and slot.
                rest.try_get_u16().map_err(malformed)?;
                let headers = self.headers.decode(rest)?;
                if id == 0 {
                    return Err(SpdyError::Malformed(kind));
                }
                Ok(Frame::SynStream { id, fin, headers })
            }
            SYN_REPLY | HEADERS => {
                let id = number()? & ID_MASK;
                let headers = self.headers.decode(rest)?;
                Ok(if kind == HEADERS {
                    Frame::Headers { id, fin, headers }
                } else {
                    Frame::SynReply { id, fin, headers }
                })
            }
            RST_STREAM => {
                exactly(8)?;
                let (id, status) = (number()? & ID_MASK, number()?);
                if id == 0 || status == 0 {
                    return Err(SpdyError::Malformed(kind));
                }
                Ok(Frame::RstStream { id, status })
            }
            SETTINGS => {
                let count = usize::try_from(number()?).unwrap_or(usize::MAX);
                exactly(count.saturating_mul(8).saturating_add(4))?;
                Ok(Frame::Settings)
            }
            PING => {
                exactly(4)?;
                let id = number()?;
                if id == 0 {
                    return Err(SpdyError::Malformed(kind));
                }
                Ok(Frame::Ping { id })
            }
            GOAWAY => {
                exactly(8)?;
                let (last_id, status) = (number()? & ID_MASK, number()?);
                Ok(Frame::GoAway { last_id, status })
            }
            WINDOW_UPDATE => exactly(8).map(|()| Frame::WindowUpdate),
            unknown => Err(SpdyError::UnknownType(unknown)),
        }
    }
}

/// Appends the header of a `DATA` frame, whose payload of `length` bytes (at most [`MAX_DATA`])
/// follows.
pub fn put_data_header(out: &mut BytesMut, id: u32, fin: bool, length: usize) {
    out.put_u32(id & ID_MASK);
    out.put_u8(u8::from(fin));
    out.put_uint(u64::try_from(length.min(MAX_DATA)).unwrap_or_default(), 3);
}

/// Appends `SYN_STREAM`.
pub fn put_syn_stream(out: &mut BytesMut, id: u32, fin: bool, block: &[u8]) {
    put_control(out, SYN_STREAM, fin, 10 + block.len());
    out.put_u32(id);
    out.put_u32(0);
    out.put_u16(0);
    out.put_slice(block);
}

/// Appends `SYN_REPLY`.
pub fn put_syn_reply(out: &mut BytesMut, id: u32, fin: bool, block: &[u8]) {
    put_control(out, SYN_REPLY, fin, 4 + block.len());
    out.put_u32(id);
    out.put_slice(block);
}

/// Appends `RST_STREAM`.
pub fn put_rst_stream(out: &mut BytesMut, id: u32, status: u32) {
    put_control(out, RST_STREAM, false, 8);
    out.put_u32(id);
    out.put_u32(status);
}

/// Appends `PING`.
pub fn put_ping(out: &mut BytesMut, id: u32) {
    put_control(out, PING, false, 4);
    out.put_u32(id);
}

/// Appends `GOAWAY`.
pub fn put_goaway(out: &mut BytesMut, last_id: u32, status: u32) {
    put_control(out, GOAWAY, false, 8);
    out.put_u32(last_id);
    out.put_u32(status);
}

fn put_control(out: &mut BytesMut, kind: u16, fin: bool, length: usize) {
    out.put_u16(CONTROL | VERSION);
    out.put_u16(kind);
    out.put_u8(u8::from(fin));
    out.put_uint(u64::try_from(length).unwrap_or_default(), 3);
}
