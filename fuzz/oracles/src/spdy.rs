//! Frames of SPDY.

use bytes::BytesMut;
use kubevitals_spdy::frame::{self, Decoder, Frame};
use kubevitals_spdy::header::{HeaderDecoder, HeaderEncoder};

const MAX_HEADERS: usize = 32;
const MAX_HEADER_BYTES: usize = 16 << 10;
const MAX_CONTROL_BYTES: usize = 8 << 10;

/// Heads of frames.
pub(crate) const TOKENS: &[&[u8]] = &[
    b"\x80\x03\x00\x01\x00\x00\x00\x28",
    b"\x80\x03\x00\x02\x01\x00\x00\x10",
    b"\x80\x03\x00\x03\x00\x00\x00\x08",
    b"\x80\x03\x00\x04\x00\x00\x00\x0c",
    b"\x80\x03\x00\x06\x00\x00\x00\x04",
    b"\x80\x03\x00\x07\x00\x00\x00\x08",
    b"\x80\x03\x00\x08\x00\x00\x00\x10",
    b"\x80\x03\x00\x09\x00\x00\x00\x08",
    b"\x00\x00\x00\x01\x01\x00\x00\x05",
    b"\x00\x00\x00\x01",
    b"\xff\xff\xff\xff",
    b"\x78\xf9\xe3\xc6\xa7\xc2",
    b"\x00\x00\xff\xff",
];

/// No bytes make the decoder panic, how they are cut does not matter, headers are within their
/// limits, and what was read can be written and read again.
///
/// # Panics
///
/// If the property is violated.
pub fn spdy_frames(bytes: &[u8]) {
    let (frames, fault) = decode(bytes, bytes.len().max(1));
    for length in [1, 7] {
        let (cut, cut_fault) = decode(bytes, length);
        assert_eq!(cut, frames, "cut into pieces of {length}");
        assert_eq!(cut_fault, fault);
    }
    let mut encoder = HeaderEncoder::new();
    let mut out = BytesMut::new();
    let mut written = Vec::new();
    for frame in frames {
        match &frame {
            Frame::Data { id, fin, bytes } => {
                frame::put_data_header(&mut out, *id, *fin, bytes.len());
                out.extend_from_slice(bytes);
            }
            Frame::SynStream { id, fin, headers } => {
                assert!(headers.iter().count() <= MAX_HEADERS);
                let size: usize = headers.iter().map(|(a, b)| a.len() + b.len()).sum();
                assert!(size <= MAX_HEADER_BYTES);
                let block = encoder.encode(headers).expect("decoded headers");
                frame::put_syn_stream(&mut out, *id, *fin, &block);
            }
            Frame::SynReply { id, fin, headers } => {
                let block = encoder.encode(headers).expect("decoded headers");
                frame::put_syn_reply(&mut out, *id, *fin, &block);
            }
            Frame::RstStream { id, status } => frame::put_rst_stream(&mut out, *id, *status),
            Frame::Ping { id } => frame::put_ping(&mut out, *id),
            Frame::GoAway { last_id, status } => frame::put_goaway(&mut out, *last_id, *status),
            Frame::Settings | Frame::WindowUpdate | Frame::Headers { .. } => continue,
        }
        written.push(frame);
    }
    // A block may be larger for us than it was for the peer.
    let (again, fault) = decode(&out, out.len().max(1));
    assert!(fault.is_none_or(|fault| fault.contains("limit")));
    assert!(written.starts_with(&again));
}

/// The frames of pieces of this length, with payloads joined, and the fault that ended them.
fn decode(bytes: &[u8], length: usize) -> (Vec<Frame>, Option<String>) {
    let headers = HeaderDecoder::new(MAX_HEADERS, MAX_HEADER_BYTES);
    let mut decoder = Decoder::new(headers, MAX_CONTROL_BYTES);
    let mut buffer = BytesMut::new();
    let mut frames: Vec<Frame> = Vec::new();
    let mut is_within = false;
    for piece in bytes.chunks(length) {
        buffer.extend_from_slice(piece);
        loop {
            match decoder.decode(&mut buffer) {
                Ok(None) => break,
                Err(fault) => return (frames, Some(fault.to_string())),
                Ok(Some(frame)) => {
                    let was_within =
                        std::mem::replace(&mut is_within, !decoder.is_between_frames());
                    join(&mut frames, frame, was_within);
                }
            }
        }
    }
    (frames, None)
}

/// Adds a frame, or a piece to the frame that it belongs to.
fn join(frames: &mut Vec<Frame>, frame: Frame, is_piece: bool) {
    if let (
        true,
        Frame::Data { bytes, fin, .. },
        Some(Frame::Data {
            bytes: own,
            fin: own_fin,
            ..
        }),
    ) = (is_piece, &frame, frames.last_mut())
    {
        *own = [&**own, &**bytes].concat().into();
        *own_fin = *fin;
        return;
    }
    frames.push(frame);
}
