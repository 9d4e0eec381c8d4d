//! Splits chunks of bytes into lines.

use std::mem;

use memchr::memchr;

/// Buffers an incomplete line up to a limit.
#[derive(Debug)]
pub(crate) struct Lines {
    begun: Vec<u8>,
    limit: usize,
    /// The number of bytes of a line beyond the limit that were skipped.
    skipped: usize,
}

/// A line without its end.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Line<'b> {
    Whole(&'b [u8]),
    /// The line exceeded the limit and was not kept.
    TooLong {
        length: usize,
    },
}

impl Lines {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            begun: Vec::new(),
            limit,
            skipped: 0,
        }
    }

    /// Adds a chunk and calls `each` for every line that ends in it, except blank ones.
    pub(crate) fn feed(&mut self, chunk: &[u8], mut each: impl FnMut(Line<'_>)) {
        let mut rest = chunk;
        while !rest.is_empty() {
            let (piece, is_ended) = match memchr(b'\n', rest).and_then(|end| {
                let (piece, behind) = rest.split_at_checked(end)?;
                Some((piece, behind.get(1..)?))
            }) {
                Some((piece, behind)) => {
                    rest = behind;
                    (piece, true)
                }
                None => (mem::take(&mut rest), false),
            };
            if is_ended && self.begun.is_empty() && self.skipped == 0 {
                // The common case, without a copy.
                if piece.len() > self.limit {
                    each(Line::TooLong {
                        length: piece.len(),
                    });
                } else if !piece.trim_ascii().is_empty() {
                    each(Line::Whole(piece));
                }
                continue;
            }
            self.extend(piece);
            if is_ended {
                self.end(&mut each);
            }
        }
    }

    fn extend(&mut self, piece: &[u8]) {
        if self.skipped > 0 || self.begun.len() + piece.len() > self.limit {
            self.skipped += mem::take(&mut self.begun).len() + piece.len();
        } else {
            self.begun.extend_from_slice(piece);
        }
    }

    fn end(&mut self, each: &mut impl FnMut(Line<'_>)) {
        if self.skipped > 0 {
            each(Line::TooLong {
                length: mem::take(&mut self.skipped),
            });
        } else if !self.begun.trim_ascii().is_empty() {
            each(Line::Whole(&self.begun));
        }
        self.begun.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(chunks: &[&[u8]], limit: usize) -> Vec<Result<Vec<u8>, usize>> {
        let mut found = Vec::new();
        let mut lines = Lines::new(limit);
        for chunk in chunks {
            lines.feed(chunk, |line| {
                found.push(match line {
                    Line::Whole(bytes) => Ok(bytes.to_vec()),
                    Line::TooLong { length } => Err(length),
                });
            });
        }
        found
    }

    #[test]
    fn complete_lines_are_returned_and_the_rest_is_buffered() {
        let lines = split(&[b"a\nb", b"c\n\r\n", b"\nd\ne"], 10);
        assert_eq!(
            lines,
            [Ok(b"a".to_vec()), Ok(b"bc".to_vec()), Ok(b"d".to_vec())]
        );
    }

    #[test]
    fn a_line_beyond_the_limit_is_skipped_and_not_buffered() {
        let mut lines = Lines::new(4);
        for _ in 0..1_000 {
            lines.feed(b"xxx", |_| panic!("no line has ended"));
            assert!(lines.begun.len() <= 4);
        }
        let mut found = Vec::new();
        lines.feed(b"\nok\n12345\n", |line| found.push(format!("{line:?}")));
        assert_eq!(
            found,
            [
                "TooLong { length: 3000 }",
                "Whole([111, 107])",
                "TooLong { length: 5 }"
            ]
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_chunks_give_the_same_lines(
            text in "[ab\n]{0,60}",
            cuts in prop::collection::vec(0_usize..60, 0..8),
            limit in 1_usize..12,
        ) {
            let mut cuts: Vec<usize> = cuts.into_iter().filter(|&cut| cut < text.len()).collect();
            cuts.sort_unstable();
            let mut chunks = Vec::new();
            let mut from = 0;
            for cut in cuts {
                chunks.push(&text.as_bytes()[from..cut]);
                from = cut;
            }
            chunks.push(&text.as_bytes()[from..]);
            prop_assert_eq!(split(&chunks, limit), split(&[text.as_bytes()], limit));
        }
    }
}
