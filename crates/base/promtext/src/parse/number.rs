//! Values and runs of digits.

use crate::error::Reason;
use crate::swar;

/// A run of digits.
pub(super) struct Digits {
    /// Their value, together with the digits before them.
    pub(super) number: u64,
    /// Their number, together with the digits before them.
    pub(super) count: usize,
    /// The offset of their end.
    pub(super) end: usize,
}

/// Number of digits that always fit a `u64`.
const MAX_DIGITS: usize = 19;
/// Whole numbers up to this one are exact in an `f64`.
const MAX_EXACT: u64 = 1 << 53;

static POWERS: [u64; 9] = [
    1,
    10,
    100,
    1_000,
    10_000,
    100_000,
    1_000_000,
    10_000_000,
    100_000_000,
];

/// The powers of ten that are exact in an `f64`.
static EXACT_POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Reads digits that continue a number of `count` digits. Returns `None` if there are too many.
#[inline]
pub(super) fn digits(bytes: &[u8], at: usize, mut number: u64, mut count: usize) -> Option<Digits> {
    let mut end = at;
    while let Some(chunk) = swar::load(bytes, end) {
        let (more, part) = swar::leading_digits(chunk);
        count += more;
        if count > MAX_DIGITS {
            return None;
        }
        end += more;
        number = number * POWERS.get(more)? + part;
        if more < 8 {
            return Some(Digits { number, count, end });
        }
    }
    while let Some(digit @ b'0'..=b'9') = bytes.get(end) {
        count += 1;
        if count > MAX_DIGITS {
            return None;
        }
        end += 1;
        number = number * 10 + u64::from(digit - b'0');
    }
    Some(Digits { number, count, end })
}

/// Reads a number of the form `-12.34e+56` that needs one multiplication or division.
///
/// If the digits make a whole number that is exact in an `f64`, and the power of ten is exact too,
/// then IEEE 754 rounds their product or quotient once, and correctly (Clinger, 1990). Returns
/// `None` for every other form: [`any_float`] reads those.
#[inline]
pub(super) fn plain_float(bytes: &[u8], at: usize) -> Option<(f64, usize)> {
    let negative = bytes.get(at) == Some(&b'-');
    let mut read = digits(bytes, at + usize::from(negative), 0, 0)?;
    let mut fraction = 0;
    if bytes.get(read.end) == Some(&b'.') {
        let whole = read.count;
        read = digits(bytes, read.end + 1, read.number, read.count)?;
        fraction = read.count - whole;
    }
    if read.count == 0 || read.number > MAX_EXACT {
        return None;
    }
    let mut end = read.end;
    let mut exponent = 0;
    if let Some(b'e' | b'E') = bytes.get(end) {
        let (sign, first) = match bytes.get(end + 1) {
            Some(b'-') => (true, end + 2),
            Some(b'+') => (false, end + 2),
            _ => (false, end + 1),
        };
        let power = digits(bytes, first, 0, 0)?;
        if power.count == 0 || power.count > 3 {
            return None;
        }
        let size = i32::try_from(power.number).ok()?;
        exponent = if sign { -size } else { size };
        end = power.end;
    }
    exponent -= i32::try_from(fraction).ok()?;
    let power = *EXACT_POWERS.get(usize::try_from(exponent.unsigned_abs()).ok()?)?;
    #[expect(clippy::cast_precision_loss, reason = "at most 2^53, which is exact")]
    let number = read.number as f64;
    let size = if exponent < 0 {
        number / power
    } else {
        number * power
    };
    Some((if negative { -size } else { size }, end))
}

/// Parses any number that Go's `strconv.ParseFloat` and Prometheus both accept.
///
/// Rust's parser accepts the same forms, except that it allows a sign before `NaN` and turns
/// numbers that are too large into infinity.
pub(super) fn any_float(token: &str) -> Result<f64, Reason> {
    let value: f64 = token.parse().map_err(|_| Reason::InvalidValue)?;
    let signed = token.starts_with(['+', '-']);
    if value.is_nan() && signed {
        return Err(Reason::InvalidValue);
    }
    if value.is_infinite() && token.contains(|c: char| c.is_ascii_digit()) {
        return Err(Reason::ValueOutOfRange);
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    fn plain(text: &str) -> Option<f64> {
        let (value, end) = plain_float(text.as_bytes(), 0)?;
        assert_eq!(end, text.len(), "{text}");
        Some(value)
    }

    #[test]
    fn plain_numbers_take_the_fast_path() {
        for text in [
            "0",
            "-0",
            "1",
            "3.248510285",
            "278528",
            "8.46692352e+08",
            "1e22",
            "1e-22",
            "1.",
            ".5",
            "9007199254740992",
            "-12.5",
            "00000000001",
            "0.0000000000000001",
            "1E5",
            "1e05",
        ] {
            let expected: f64 = text.parse().unwrap();
            assert_eq!(
                plain(text).map(f64::to_bits),
                Some(expected.to_bits()),
                "{text}"
            );
        }
    }

    #[test]
    fn other_numbers_take_the_slow_path() {
        for text in [
            "",
            ".",
            "-",
            "e5",
            "1e",
            "1e+",
            "9007199254740993",
            "1e23",
            "1e-23",
            "1e0001",
        ] {
            assert_eq!(plain_float(text.as_bytes(), 0), None, "{text}");
        }
        for text in ["+1", "Inf", "NaN", "nan", "x"] {
            assert!(plain_float(text.as_bytes(), 0).is_none_or(|(_, end)| end < text.len()));
        }
        assert_eq!(plain_float(b"12345678901234567890", 0), None);
        assert_eq!(plain_float(b"1234567890123456789.0", 0), None);
    }

    #[test]
    fn nan_and_infinity_are_spelled_as_in_go() {
        assert!(any_float("NaN").unwrap().is_nan());
        assert!(any_float("nAn").unwrap().is_nan());
        for infinite in ["Inf", "+Inf", "inf", "+INFINITY", "infinity"] {
            assert_eq!(any_float(infinite), Ok(f64::INFINITY));
        }
        assert_eq!(any_float("-iNf"), Ok(f64::NEG_INFINITY));
        for wrong in [
            "+NaN", "-nan", "infin", "0x1p4", "0x10", "1_000", "", "+", "1 ", "١",
        ] {
            assert_eq!(any_float(wrong), Err(Reason::InvalidValue), "{wrong}");
        }
        for large in ["1e309", "-1e309", "1e99999999999", "2e308"] {
            assert_eq!(any_float(large), Err(Reason::ValueOutOfRange), "{large}");
        }
        assert_eq!(any_float("1e-400"), Ok(0.0));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..ProptestConfig::default() })]

        #[test]
        fn the_fast_path_agrees_with_the_slow_one(
            text in "-?[0-9]{0,12}(\\.[0-9]{0,12})?([eE][+-]?[0-9]{1,2})?", tail in "[ \n].{0,9}"
        ) {
            let body = format!("{text}{tail}");
            if let Some((value, end)) = plain_float(body.as_bytes(), 0) && end == text.len() {
                prop_assert_eq!(Ok(value.to_bits()), any_float(&text).map(f64::to_bits));
            }
        }
    }
}
