//! Frames that the library of kubectl and the API server wrote.

use std::path::Path;

use bytes::{Bytes, BytesMut};
use kubevitals_spdy::Headers;
use kubevitals_spdy::frame::{Decoder, Frame};
use kubevitals_spdy::header::HeaderDecoder;

/// What `e2e/vectors/spdy` describes.
fn expected() -> Vec<Frame> {
    let headers = |pairs: &[(&str, &str)]| {
        pairs
            .iter()
            .fold(Headers::default(), |headers, (name, value)| {
                headers.with(name, value)
            })
    };
    let mut frames = Vec::new();
    for (id, kind) in [(1, "error"), (3, "stdin"), (5, "stdout"), (7, "resize")] {
        let headers = headers(&[("streamtype", kind)]);
        frames.push(Frame::SynStream {
            id,
            fin: false,
            headers,
        });
    }
    let data = |fin, bytes: &'static [u8]| Frame::Data {
        id: 3,
        fin,
        bytes: Bytes::from_static(bytes),
    };
    frames.extend([
        data(false, b"echo hello\n"),
        data(true, b""),
        Frame::Ping { id: 1 },
    ]);
    for request in 0..50_u32 {
        for (offset, kind) in [(0, "error"), (2, "data")] {
            let headers = headers(&[
                ("streamtype", kind),
                ("port", "8080"),
                ("requestid", &request.to_string()),
            ]);
            frames.push(Frame::SynStream {
                id: 101 + 4 * request + offset,
                fin: true,
                headers,
            });
        }
    }
    frames.extend([
        Frame::SynReply {
            id: 2,
            fin: false,
            headers: headers(&[("a", "1\u{0}2")]),
        },
        Frame::Headers {
            id: 5,
            fin: false,
            headers: headers(&[("trailer-like", "x")]),
        },
        Frame::Settings,
        Frame::WindowUpdate,
        Frame::RstStream { id: 3, status: 5 },
        Frame::GoAway {
            last_id: 7,
            status: 0,
        },
    ]);
    frames
}

/// Go writes headers in the order of a map.
fn sorted(frame: Frame) -> Frame {
    let sort = |headers: Headers| {
        let mut pairs: Vec<_> = headers.iter().collect();
        pairs.sort_unstable();
        pairs
            .iter()
            .fold(Headers::default(), |headers, (name, value)| {
                headers.with(name, value)
            })
    };
    match frame {
        Frame::SynStream { id, fin, headers } => Frame::SynStream {
            id,
            fin,
            headers: sort(headers),
        },
        other => other,
    }
}

#[test]
fn frames_that_go_wrote_are_read() {
    // Read at run time: clones may share a target folder, and with it this binary.
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    let file = Path::new(&manifest).join("tests/vectors/client.bin");
    let mut input = BytesMut::from(&*std::fs::read(file).unwrap());
    let mut decoder = Decoder::new(HeaderDecoder::new(32, 16 << 10), 8 << 10);
    for expected in expected() {
        let frame = decoder.decode(&mut input).unwrap().unwrap();
        assert_eq!(sorted(frame), sorted(expected));
    }
    assert!(input.is_empty() && decoder.is_between_frames());
}
