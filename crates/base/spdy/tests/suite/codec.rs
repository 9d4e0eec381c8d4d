//! Frames, cut anywhere.

use bytes::BytesMut;
use kubevitals_spdy::frame::{self, Decoder, Frame};
use kubevitals_spdy::header::{HeaderDecoder, HeaderEncoder};
use kubevitals_spdy::{Headers, SpdyError};
use proptest::prelude::*;

/// What a test sends, and reads again.
#[derive(Debug, Clone)]
enum Sent {
    Data(u32, bool, Vec<u8>),
    Syn(u32, bool, Vec<(String, String)>),
    Reply(u32, bool),
    Reset(u32, u32),
    Ping(u32),
    GoAway(u32, u32),
}

fn decoder() -> Decoder {
    Decoder::new(HeaderDecoder::new(32, 16 << 10), 8 << 10)
}

fn sent() -> impl Strategy<Value = Sent> {
    let id = 1_u32..0x8000_0000;
    let headers = proptest::collection::hash_map("[a-z]{1,12}x", "[ -~]{0,20}", 0..5);
    prop_oneof![
        (
            id.clone(),
            any::<bool>(),
            proptest::collection::vec(any::<u8>(), 0..300)
        )
            .prop_map(|(id, fin, bytes)| Sent::Data(id, fin, bytes)),
        (id.clone(), any::<bool>(), headers).prop_map(|(id, fin, headers)| Sent::Syn(
            id,
            fin,
            headers.into_iter().collect()
        )),
        (id.clone(), any::<bool>()).prop_map(|(id, fin)| Sent::Reply(id, fin)),
        (id.clone(), 1_u32..12).prop_map(|(id, status)| Sent::Reset(id, status)),
        (1_u32..).prop_map(Sent::Ping),
        (id, 0_u32..3).prop_map(|(id, status)| Sent::GoAway(id, status)),
    ]
}

fn encode(frames: &[Sent]) -> BytesMut {
    let mut headers = HeaderEncoder::new();
    let mut out = BytesMut::new();
    for frame in frames {
        match frame {
            Sent::Data(id, fin, bytes) => {
                frame::put_data_header(&mut out, *id, *fin, bytes.len());
                out.extend_from_slice(bytes);
            }
            Sent::Syn(id, fin, pairs) => {
                let pairs = pairs.iter();
                let own = pairs.fold(Headers::default(), |own, (name, value)| {
                    own.with(name, value)
                });
                frame::put_syn_stream(&mut out, *id, *fin, &headers.encode(&own).unwrap());
            }
            Sent::Reply(id, fin) => {
                let block = headers.encode(&Headers::default()).unwrap();
                frame::put_syn_reply(&mut out, *id, *fin, &block);
            }
            Sent::Reset(id, status) => frame::put_rst_stream(&mut out, *id, *status),
            Sent::Ping(id) => frame::put_ping(&mut out, *id),
            Sent::GoAway(id, status) => frame::put_goaway(&mut out, *id, *status),
        }
    }
    out
}

/// Decodes pieces of this length, and joins the pieces of payloads.
fn decode(bytes: &[u8], length: usize) -> Result<Vec<Sent>, SpdyError> {
    let (mut decoder, mut buffer) = (decoder(), BytesMut::new());
    let mut read = Vec::new();
    let mut is_complete = true;
    for piece in bytes.chunks(length) {
        buffer.extend_from_slice(piece);
        while let Some(frame) = decoder.decode(&mut buffer)? {
            let next = match frame {
                Frame::Data { id, fin, bytes } => {
                    if let (false, Some(Sent::Data(_, last, own))) = (is_complete, read.last_mut())
                    {
                        own.extend_from_slice(&bytes);
                        *last = fin;
                    } else {
                        read.push(Sent::Data(id, fin, bytes.to_vec()));
                    }
                    is_complete = decoder.is_between_frames();
                    continue;
                }
                Frame::SynStream { id, fin, headers } => {
                    let pairs = headers.iter();
                    let own = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
                    Sent::Syn(id, fin, own.collect())
                }
                Frame::SynReply { id, fin, .. } => Sent::Reply(id, fin),
                Frame::RstStream { id, status } => Sent::Reset(id, status),
                Frame::Ping { id } => Sent::Ping(id),
                Frame::GoAway { last_id, status } => Sent::GoAway(last_id, status),
                other => panic!("{other:?}"),
            };
            read.push(next);
        }
    }
    assert!(buffer.is_empty());
    Ok(read)
}

proptest! {
    #[test]
    fn frames_are_read_however_they_are_cut(
        frames in proptest::collection::vec(sent(), 0..20),
        length in 1_usize..200,
    ) {
        let read = decode(&encode(&frames), length).unwrap();
        prop_assert_eq!(format!("{read:?}"), format!("{frames:?}"));
    }

    #[test]
    fn no_bytes_are_a_problem(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let (mut decoder, mut buffer) = (decoder(), BytesMut::from(&*bytes));
        while let Ok(Some(_)) = decoder.decode(&mut buffer) {}
    }
}

#[test]
fn faults_are_named() {
    let fault = |bytes: &[u8]| decoder().decode(&mut BytesMut::from(bytes)).unwrap_err();
    assert!(matches!(
        fault(&[0x80, 2, 0, 6, 0, 0, 0, 4]),
        SpdyError::Version(2)
    ));
    let unknown = [0x80, 3, 0, 5, 0, 0, 0, 0];
    assert!(matches!(fault(&unknown), SpdyError::UnknownType(5)));
    let long = [0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff];
    assert!(matches!(
        fault(&long),
        SpdyError::FrameTooLong { kind: 1, .. }
    ));
    // A ping of zero, one of five bytes, a reset without status, settings with too many values.
    for bytes in [
        &[0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 0][..],
        &[0x80, 3, 0, 6, 0, 0, 0, 5, 0, 0, 0, 1, 0],
        &[0x80, 3, 0, 3, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 0],
        &[0x80, 3, 0, 4, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff],
    ] {
        assert!(matches!(fault(bytes), SpdyError::Malformed(_)), "{bytes:?}");
    }
    let ignored = [
        0x80, 3, 0, 4, 0, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 4, 0, 0, 0, 9, 0x80, 3, 0, 9, 0, 0, 0, 8,
        0, 0, 0, 1, 0, 0, 0, 1,
    ];
    let (mut decoder, mut buffer) = (decoder(), BytesMut::from(&ignored[..]));
    assert_eq!(decoder.decode(&mut buffer).unwrap(), Some(Frame::Settings));
    assert_eq!(
        decoder.decode(&mut buffer).unwrap(),
        Some(Frame::WindowUpdate)
    );
}
