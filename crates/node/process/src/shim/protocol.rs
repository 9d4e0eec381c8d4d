//! Frames on the socket of a shim: a kind, a length of four bytes (big endian), a payload.

/// The largest payload.
pub(crate) const MAX_PAYLOAD: usize = 64 << 10;
/// The bytes of a header.
pub(crate) const HEADER: usize = 5;

/// The kinds of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// To the shim: report start and end.
    Watch,
    /// To the shim: copy output. The payload has a byte for stdout and one for stderr.
    Attach,
    /// To the shim: send a signal to the main process. The payload is its number.
    Signal,
    /// To the shim: standard input.
    Stdin,
    /// To the shim: the end of standard input.
    StdinEnd,
    /// To the shim: width and height of the terminal, two bytes each.
    Resize,
    /// From the shim: the program runs; a `ProcessRecord`.
    Started,
    /// From the shim: the program has ended; an `ExitRecord`.
    Exited,
    /// From the shim: output.
    Stdout,
    Stderr,
}

/// A frame that is larger than allowed or of an unknown kind.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadFrame;

impl Kind {
    const ALL: [(u8, Self); 10] = [
        (b'w', Self::Watch),
        (b'a', Self::Attach),
        (b's', Self::Signal),
        (b'i', Self::Stdin),
        (b'e', Self::StdinEnd),
        (b'z', Self::Resize),
        (b'p', Self::Started),
        (b'x', Self::Exited),
        (b'1', Self::Stdout),
        (b'2', Self::Stderr),
    ];

    fn code(self) -> u8 {
        Self::ALL
            .iter()
            .find(|(_, kind)| *kind == self)
            .map_or(0, |(code, _)| *code)
    }

    fn of(code: u8) -> Option<Self> {
        Self::ALL
            .iter()
            .find(|(one, _)| *one == code)
            .map(|(_, kind)| *kind)
    }
}

/// Appends frames with the payload, split if it is too large.
pub(crate) fn encode(kind: Kind, payload: &[u8], out: &mut impl Extend<u8>) {
    let mut rest = payload;
    loop {
        let (head, tail) = rest.split_at(rest.len().min(MAX_PAYLOAD));
        let length = u32::try_from(head.len()).unwrap_or(u32::MAX);
        out.extend([kind.code()]);
        out.extend(length.to_be_bytes());
        out.extend(head.iter().copied());
        rest = tail;
        if rest.is_empty() {
            return;
        }
    }
}

/// Takes the first frame out of a buffer; `None` until it is complete.
pub(crate) fn decode(buffer: &mut Vec<u8>) -> Result<Option<(Kind, Vec<u8>)>, BadFrame> {
    let Some(([code, a, b, c, d], _)) = buffer.split_first_chunk::<HEADER>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_be_bytes([*a, *b, *c, *d])).map_err(|_| BadFrame)?;
    let kind = Kind::of(*code).ok_or(BadFrame)?;
    if length > MAX_PAYLOAD {
        return Err(BadFrame);
    }
    if buffer.len() < HEADER + length {
        return Ok(None);
    }
    let payload = buffer.drain(..HEADER + length).skip(HEADER).collect();
    Ok(Some((kind, payload)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn frames_survive_any_cut(payload in proptest::collection::vec(any::<u8>(), 0..150_000), cut in 500usize..50_000) {
            let mut bytes = Vec::new();
            encode(Kind::Stdout, &payload, &mut bytes);
            let mut buffer = Vec::new();
            let mut read = Vec::new();
            for part in bytes.chunks(cut) {
                buffer.extend_from_slice(part);
                while let Some((kind, payload)) = decode(&mut buffer).expect("valid frames") {
                    prop_assert_eq!(kind, Kind::Stdout);
                    read.extend(payload);
                }
            }
            prop_assert!(buffer.is_empty());
            prop_assert_eq!(read, payload);
        }

        #[test]
        fn garbage_does_not_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            while let Ok(Some(_)) = decode(&mut bytes) {}
        }
    }

    #[test]
    fn a_huge_length_is_refused_before_it_is_buffered() {
        let mut bytes = vec![b'1', 0xff, 0xff, 0xff, 0xff];
        assert_eq!(decode(&mut bytes), Err(BadFrame));
    }
}
