//! The framing of gRPC: one message each way, over HTTP/2.

use std::time::Duration;

use http::{HeaderName, HeaderValue};

pub(crate) const ENCODING: HeaderName = HeaderName::from_static("grpc-encoding");
pub(crate) const TIMEOUT: HeaderName = HeaderName::from_static("grpc-timeout");

/// Prefixes a message with whether it is compressed, and its length.
pub(crate) fn frame(message: &[u8], is_compressed: bool) -> Vec<u8> {
    // A batch is far below the limit of four gigabytes.
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut framed = Vec::with_capacity(message.len() + 5);
    framed.push(u8::from(is_compressed));
    framed.extend_from_slice(&length.to_be_bytes());
    framed.extend_from_slice(message);
    framed
}

/// Returns the message of a frame; `None` if it is compressed, which is not offered, or incomplete.
pub(crate) fn unframed(body: &[u8]) -> Option<&[u8]> {
    let (head, rest) = body.split_first_chunk::<5>()?;
    let [flag, length @ ..] = *head;
    let length = usize::try_from(u32::from_be_bytes(length)).ok()?;
    rest.get(..length).filter(|_| flag == 0)
}

/// A timeout as the protocol writes it: at most eight digits.
pub(crate) fn timeout_value(timeout: Duration) -> HeaderValue {
    let millis = timeout.as_millis().min(99_999_999);
    HeaderValue::try_from(format!("{millis}m")).expect("digits and a letter are valid in a header")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_a_flag_and_a_length() {
        assert_eq!(frame(b"ab", true), [1, 0, 0, 0, 2, b'a', b'b']);
        assert_eq!(unframed(&frame(b"ab", false)), Some(&b"ab"[..]));
        assert_eq!(unframed(&frame(b"", false)), Some(&b""[..]));
        for broken in [
            &b""[..],
            b"\0\0\0\0",
            b"\0\0\0\0\x02a",
            b"\x01\0\0\0\0",
            b"\0\xff\xff\xff\xffa",
        ] {
            assert_eq!(unframed(broken), None, "{broken:?}");
        }
        assert_eq!(timeout_value(Duration::from_secs(10)), "10000m");
        assert_eq!(timeout_value(Duration::MAX), "99999999m");
    }
}
