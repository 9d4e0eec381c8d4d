//! SIMD within a register: eight bytes at a time in one `u64`, in safe and portable Rust.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;
const ZEROS_ASCII: u64 = 0x3030_3030_3030_3030;

/// Returns the eight bytes from `at` on, the first one lowest, or `None` if there are fewer.
#[inline]
pub(crate) fn load(bytes: &[u8], at: usize) -> Option<u64> {
    bytes
        .get(at..)?
        .first_chunk::<8>()
        .map(|chunk| u64::from_le_bytes(*chunk))
}

/// Marks the bytes of `chunk` that equal `byte` with their high bit.
///
/// Only the lowest mark is exact: a borrow may mark a byte above a true match, never below one.
#[inline]
pub(crate) const fn mark(chunk: u64, byte: u8) -> u64 {
    let difference = chunk ^ (ONES * byte as u64);
    difference.wrapping_sub(ONES) & !difference & HIGHS
}

/// Marks the bytes of `chunk` that are smaller than `bound`, which is ASCII, with their high bit.
///
/// Only the lowest mark is exact, as with [`mark`].
#[inline]
pub(crate) const fn mark_below(chunk: u64, bound: u8) -> u64 {
    chunk.wrapping_sub(ONES * bound as u64) & !chunk & HIGHS
}

/// Returns the index of the lowest marked byte, or 8 if none is marked.
#[inline]
pub(crate) const fn first_marked(marks: u64) -> usize {
    (marks.trailing_zeros() / 8) as usize
}

/// Returns the number of leading decimal digits and their value.
#[inline]
pub(crate) const fn leading_digits(chunk: u64) -> (usize, u64) {
    // A digit is 0x30..=0x39: the high half must be 3, and adding 6 must not carry out of the low.
    let digits = chunk ^ ZEROS_ASCII;
    let carried = (digits & 0x7f7f_7f7f_7f7f_7f7f) + 0x7676_7676_7676_7676;
    let not_digit = (carried | digits) & HIGHS;
    let bits = not_digit.trailing_zeros() & !7;
    if bits == 0 {
        return (0, 0);
    }
    // Shifted to the top, the digits are preceded by zeros.
    ((bits / 8) as usize, eight_digits(digits << (64 - bits)))
}

/// Returns the value of eight digits (0 to 9 each), the first digit lowest.
#[inline]
const fn eight_digits(digits: u64) -> u64 {
    let pairs = (digits.wrapping_mul(10).wrapping_add(digits >> 8)) & 0x00ff_00ff_00ff_00ff;
    let quads = (pairs.wrapping_mul(100).wrapping_add(pairs >> 16)) & 0x0000_ffff_0000_ffff;
    quads.wrapping_mul(10_000).wrapping_add(quads >> 32) & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(text: &str) -> u64 {
        load(text.as_bytes(), 0).unwrap()
    }

    #[test]
    fn load_needs_eight_bytes() {
        assert_eq!(load(b"1234567", 0), None);
        assert_eq!(load(b"12345678", 1), None);
        assert_eq!(load(b"12345678", usize::MAX), None);
        assert_eq!(load(b"\x01\0\0\0\0\0\0\0", 0), Some(1));
    }

    #[test]
    fn the_lowest_mark_is_exact_for_every_byte_and_index() {
        for byte in 0..=u8::MAX {
            for index in 0..8 {
                for filler in [
                    0,
                    1,
                    0x7f,
                    0x80,
                    0xff,
                    byte.wrapping_add(1),
                    byte.wrapping_sub(1),
                ] {
                    let mut bytes = [filler; 8];
                    bytes[index] = byte;
                    let expected = bytes.iter().position(|b| *b == byte).unwrap();
                    let marks = mark(u64::from_le_bytes(bytes), byte);
                    assert_eq!(first_marked(marks), expected, "{bytes:?} {byte}");
                }
            }
            assert_eq!(mark(u64::from_le_bytes([byte ^ 0x55; 8]), byte), 0);
        }
    }

    #[test]
    fn the_lowest_mark_of_smaller_bytes_is_exact_for_every_byte_and_index() {
        for bound in 1..0x80 {
            for byte in 0..=u8::MAX {
                for index in 0..8 {
                    for filler in [bound - 1, bound, 0x7f, 0x80, 0xff] {
                        let mut bytes = [filler; 8];
                        bytes[index] = byte;
                        let expected = bytes.iter().position(|b| *b < bound).unwrap_or(8);
                        let marks = mark_below(u64::from_le_bytes(bytes), bound);
                        assert_eq!(first_marked(marks), expected, "{bytes:?} {bound}");
                    }
                }
            }
        }
    }

    #[test]
    fn leading_digits_stop_at_every_other_byte() {
        for byte in 0..=u8::MAX {
            if byte.is_ascii_digit() {
                continue;
            }
            for index in 0..8 {
                let mut bytes = *b"98765432";
                bytes[index] = byte;
                let number = bytes[..index]
                    .iter()
                    .fold(0, |n, d| n * 10 + u64::from(d - b'0'));
                assert_eq!(leading_digits(u64::from_le_bytes(bytes)), (index, number));
            }
        }
        assert_eq!(leading_digits(chunk("98765432")), (8, 98_765_432));
        assert_eq!(leading_digits(chunk("00000001")), (8, 1));
        assert_eq!(leading_digits(chunk("99999999")), (8, 99_999_999));
    }
}
