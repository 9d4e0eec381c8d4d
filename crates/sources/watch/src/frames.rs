//! Splits chunks of bytes into the frames of a protobuf watch.

use crate::lines::Line;

/// The length of a frame stands before it, in network order.
const HEADER: usize = 4;

/// Buffers an incomplete frame up to a limit.
#[derive(Debug)]
pub(crate) struct Frames {
    /// The header and the first bytes of an incomplete frame.
    begun: Vec<u8>,
    limit: usize,
    /// The number of bytes of a frame beyond the limit that are still to be skipped.
    to_skip: usize,
}

impl Frames {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            begun: Vec::new(),
            limit,
            to_skip: 0,
        }
    }

    /// Adds a chunk and calls `each` for every frame that ends in it, except empty ones.
    pub(crate) fn feed(&mut self, chunk: &[u8], mut each: impl FnMut(Line<'_>)) {
        let mut rest = chunk;
        while !rest.is_empty() {
            if self.to_skip > 0 {
                let skipped = self.to_skip.min(rest.len());
                self.to_skip -= skipped;
                rest = rest.get(skipped..).unwrap_or_default();
            } else if self.begun.is_empty()
                && let Some((length, behind)) = header(rest)
                && length <= self.limit
                && let Some((frame, behind)) = behind.split_at_checked(length)
            {
                // The common case, without a copy.
                emit(frame, &mut each);
                rest = behind;
            } else {
                let missing = self.wanted().saturating_sub(self.begun.len());
                let (piece, behind) = rest.split_at(missing.min(rest.len()));
                self.begun.extend_from_slice(piece);
                rest = behind;
                self.end(&mut each);
            }
        }
    }

    /// The number of bytes after which the header or the frame is complete.
    fn wanted(&self) -> usize {
        header(&self.begun).map_or(HEADER, |(length, _)| HEADER.saturating_add(length))
    }

    /// Passes on the frame if it is complete, and skips it if it is too long.
    fn end(&mut self, each: &mut impl FnMut(Line<'_>)) {
        let Some((length, frame)) = header(&self.begun) else {
            return;
        };
        if length > self.limit {
            each(Line::TooLong { length });
            self.to_skip = length;
        } else if frame.len() == length {
            emit(frame, each);
        } else {
            return;
        }
        self.begun.clear();
    }
}

fn emit(frame: &[u8], each: &mut impl FnMut(Line<'_>)) {
    if !frame.is_empty() {
        each(Line::Whole(frame));
    }
}

/// Returns the length of a frame and what follows; `None` if the header is incomplete.
fn header(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<HEADER>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    Some((length, rest))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMIT: usize = 8;

    fn split(chunks: &[&[u8]]) -> Vec<Result<Vec<u8>, usize>> {
        let mut found = Vec::new();
        let mut frames = Frames::new(LIMIT);
        for chunk in chunks {
            frames.feed(chunk, |frame| {
                found.push(match frame {
                    Line::Whole(bytes) => Ok(bytes.to_vec()),
                    Line::TooLong { length } => Err(length),
                });
            });
            assert!(frames.begun.len() < HEADER + LIMIT);
        }
        found
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_chunks_give_the_same_frames(
            frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..12), 0..6),
            size in 1_usize..20,
        ) {
            let mut stream = Vec::new();
            for frame in &frames {
                stream.extend(u32::try_from(frame.len()).unwrap().to_be_bytes());
                stream.extend(frame);
            }
            let expected: Vec<_> = frames
                .into_iter()
                .filter(|frame| !frame.is_empty())
                .map(|frame| if frame.len() > LIMIT { Err(frame.len()) } else { Ok(frame) })
                .collect();
            prop_assert_eq!(&split(&stream.chunks(size).collect::<Vec<_>>()), &expected);
            prop_assert_eq!(&split(&[&stream]), &expected);
        }
    }
}
