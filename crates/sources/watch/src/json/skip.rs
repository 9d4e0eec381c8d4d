//! Skips bracketed values, 64 bytes at a time.
//!
//! Each block yields four masks with a bit for every byte: quotes, backslashes, opening and closing
//! brackets. The rest is arithmetic on masks: a quote that is not escaped toggles "inside a string"
//! for all bits above it, and brackets outside of strings are counted, not visited. Only in the
//! block that may contain the end are they visited one by one.

use wide::u8x16;

/// A bit for every byte of a block, the first byte lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Masks {
    quotes: u64,
    backslashes: u64,
    opening: u64,
    closing: u64,
}

/// The state at the start of a block.
#[derive(Debug, Default)]
struct Walk {
    depth: usize,
    /// All ones inside of a string, or zero.
    in_string: u64,
    /// Whether the first byte of the next block is escaped: one or zero.
    escaped: u64,
}

const BLOCK: usize = 64;

/// Returns the length of the value that starts with the opening bracket at the start of `input`.
/// The kinds of brackets are not compared.
pub(super) fn bracketed(input: &[u8]) -> Option<usize> {
    let mut walk = Walk::default();
    let (blocks, tail) = input.as_chunks::<BLOCK>();
    for (index, block) in blocks.iter().enumerate() {
        if let Some(end) = walk.block(masks(block)) {
            return Some(index * BLOCK + end);
        }
    }
    // Zeros are neither quotes nor brackets.
    let mut last = [0; BLOCK];
    last.get_mut(..tail.len())?.copy_from_slice(tail);
    let end = walk.block(masks(&last))?;
    Some(blocks.len() * BLOCK + end)
}

impl Walk {
    /// Goes over a block; gives the place behind the bracket that closes the first one, if it is in
    /// this block.
    fn block(&mut self, masks: Masks) -> Option<usize> {
        let quotes = masks.quotes & !self.escapes(masks.backslashes);
        let in_string = up_to_the_next(quotes) ^ self.in_string;
        // The highest bit says how the block ends; the shift is arithmetic to have it everywhere.
        self.in_string = (in_string.cast_signed() >> 63).cast_unsigned();
        let opening = masks.opening & !in_string;
        let closing = masks.closing & !in_string;
        let (opened, closed) = (opening.count_ones() as usize, closing.count_ones() as usize);
        if closed < self.depth {
            self.depth = self.depth + opened - closed;
            return None;
        }
        self.one_by_one(opening, closing)
    }

    fn one_by_one(&mut self, opening: u64, closing: u64) -> Option<usize> {
        let mut brackets = opening | closing;
        while brackets != 0 {
            let at = brackets.trailing_zeros();
            brackets &= brackets - 1;
            if opening >> at & 1 == 1 {
                self.depth += 1;
            } else if self.depth <= 1 {
                return Some(at as usize + 1);
            } else {
                self.depth -= 1;
            }
        }
        None
    }

    /// Returns the mask of escaped bytes.
    fn escapes(&mut self, backslashes: u64) -> u64 {
        let mut escaped = self.escaped;
        let mut left = backslashes & !escaped;
        self.escaped = 0;
        while left != 0 {
            let lowest = left & left.wrapping_neg();
            let next = lowest << 1;
            // Shifted out: it is the first of the next block.
            self.escaped = u64::from(next == 0);
            escaped |= next;
            left &= !(lowest | next);
        }
        escaped
    }
}

/// Each bit is the parity of the marks up to and with it.
fn up_to_the_next(mut marks: u64) -> u64 {
    for distance in [1, 2, 4, 8, 16, 32] {
        marks ^= marks << distance;
    }
    marks
}

/// Square and curly brackets differ in one bit alone.
const CURLY: u8 = b'[' ^ b'{';

fn masks(block: &[u8; BLOCK]) -> Masks {
    let all = u8x16::splat;
    let mut masks = Masks::default();
    let (lanes, _) = block.as_chunks::<16>();
    for (index, lane) in lanes.iter().enumerate() {
        let bytes = u8x16::new(*lane);
        let curly = bytes | all(CURLY);
        let bits = |found: u8x16| u64::from(found.to_bitmask()) << (index * 16);
        masks.quotes |= bits(bytes.simd_eq(all(b'"')));
        masks.backslashes |= bits(bytes.simd_eq(all(b'\\')));
        masks.opening |= bits(curly.simd_eq(all(b'{')));
        masks.closing |= bits(curly.simd_eq(all(b'}')));
    }
    masks
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Byte by byte, as one would read it. Outside of strings, where none may be, a backslash hides
    /// a quote all the same.
    fn slowly(input: &[u8]) -> Option<usize> {
        let (mut depth, mut in_string, mut is_escaped) = (0, false, false);
        for (at, &byte) in input.iter().enumerate() {
            match byte {
                b'"' if !is_escaped => in_string = !in_string,
                b'{' | b'[' if !in_string => depth += 1,
                b'}' | b']' if !in_string => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(at + 1);
                    }
                }
                _ => {}
            }
            is_escaped = byte == b'\\' && !is_escaped;
        }
        None
    }

    #[test]
    fn every_byte_is_what_it_is_at_every_place() {
        for byte in 0..=u8::MAX {
            let block = [byte; BLOCK];
            let all = |is_so: bool| if is_so { u64::MAX } else { 0 };
            let expected = Masks {
                quotes: all(byte == b'"'),
                backslashes: all(byte == b'\\'),
                opening: all(matches!(byte, b'{' | b'[')),
                closing: all(matches!(byte, b'}' | b']')),
            };
            assert_eq!(masks(&block), expected, "{byte}");
        }
    }

    #[test]
    fn an_escape_over_the_edge_of_a_block_counts_in_the_next() {
        for before in 50..80 {
            let text = format!("[\"{}\\\"]{}\\\\\"]", "a".repeat(before), "b".repeat(60));
            assert_eq!(bracketed(text.as_bytes()), Some(text.len()), "{before}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_end_is_found_as_byte_by_byte(
            rest in prop::collection::vec(prop_oneof![
                4 => prop::sample::select(b"{}[]\"\\".to_vec()),
                1 => any::<u8>(),
            ], 0..300),
        ) {
            let input = [b"{", &rest[..]].concat();
            prop_assert_eq!(bracketed(&input), slowly(&input));
        }
    }
}
