//! Formatting of floating-point numbers as in Go.

use std::ops::Range;

/// Whole numbers below this are written without an exponent: Go's `%g` uses one from `1e+06` on.
const EXPONENT_FROM: i64 = 1_000_000;
/// Whole numbers below this have one shortest form: their own digits.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;
/// From 0.0001, below which Go writes exponents, to the end of what has fifteen digits, which is
/// also where exponents start again.
///
/// No two decimals of at most fifteen digits name the same `f64`: the one that is found is the one.
const NANOS: Range<i64> = 100_000..1_000_000_000_000_000;

/// Appends `value` as Go's `expfmt` writes it: the shortest digits that read back as `value`.
///
/// That is `strconv.FormatFloat(value, 'g', -1, 64)`, with `NaN`, `+Inf`, `-Inf`, and with `0`
/// for negative zero too.
#[inline]
pub fn write_go_float(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        out.extend_from_slice(b"NaN");
        return;
    }
    if value < 0.0 {
        out.push(b'-');
    } else if value.is_infinite() {
        out.push(b'+');
    }
    let size = value.abs();
    if size.is_infinite() {
        out.extend_from_slice(b"Inf");
    } else if let Some(whole) = whole(size) {
        write_whole(out, whole);
    } else if !write_nanos(out, size) {
        write_any(out, size);
    }
}

/// Returns the value as a whole number below 2^53, if it is one.
#[inline]
fn whole(value: f64) -> Option<i64> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "saturates, and is compared below"
    )]
    let whole = value as i64;
    #[expect(
        clippy::cast_precision_loss,
        reason = "exact below 2^53, and not used above"
    )]
    let back = whole as f64;
    (value < MAX_EXACT && back.to_bits() == value.to_bits()).then_some(whole)
}

/// Appends a whole number below 2^53.
///
/// Neighbouring floats are at most one apart, so that fewer digits are another whole number: its
/// own digits are the shortest form.
#[inline]
fn write_whole(out: &mut Vec<u8>, whole: i64) {
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(whole).as_bytes();
    if whole < EXPONENT_FROM {
        out.extend_from_slice(digits);
    } else {
        write_exponent(out, trim_zeros(digits), signed(digits.len()) - 1);
    }
}

/// Appends a number with at most nine decimals, such as seconds from nanoseconds. Returns false for
/// any other.
///
/// If dividing a whole number of at most fifteen digits by 10^9 gives the value, then these digits
/// read back as it, since IEEE 754 rounds both the same way; and no other decimal of at most
/// fifteen digits does, so that none is shorter.
#[inline]
fn write_nanos(out: &mut Vec<u8>, value: f64) -> bool {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "saturates, and is compared below"
    )]
    let nanos = (value * 1e9 + 0.5) as i64;
    #[expect(
        clippy::cast_precision_loss,
        reason = "exact below 10^15, and not used above"
    )]
    let back = nanos as f64 / 1e9;
    if !NANOS.contains(&nanos) || back.to_bits() != value.to_bits() {
        return false;
    }
    let mut buffer = itoa::Buffer::new();
    out.extend_from_slice(buffer.format(nanos / 1_000_000_000).as_bytes());
    // A leading one keeps the zeros that follow the point.
    let fraction = buffer
        .format(1_000_000_000 + nanos % 1_000_000_000)
        .as_bytes();
    out.push(b'.');
    out.extend_from_slice(trim_zeros(fraction.get(1..).unwrap_or_default()));
    true
}

/// Appends any finite positive number.
fn write_any(out: &mut Vec<u8>, value: f64) {
    // At most 17 digits, sign, point and exponent: 24 bytes.
    let mut digits = [0; 24];
    let mut count = 0;
    let mut point = None;
    let mut buffer = zmij::Buffer::new();
    let text = buffer.format_finite(value);
    let (mantissa, power) = text.split_once('e').unwrap_or((text, "0"));
    let exponent: i32 = power.parse().unwrap_or_default();
    for byte in mantissa.bytes() {
        if byte == b'.' {
            point = Some(count);
        } else if let Some(slot) = digits.get_mut(count) {
            *slot = byte;
            count += 1;
        }
    }
    let digits = digits.get(..count).unwrap_or_default();
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    let significant = digits.get(zeros..).unwrap_or_default();
    // Position of the decimal point, counted from the first digit that is not zero.
    let point = exponent + signed(point.unwrap_or(count)) - signed(zeros);
    write_digits(out, trim_zeros(significant), point);
}

/// Appends `0.digits` times ten to the power of `point`, as `%g` does.
fn write_digits(out: &mut Vec<u8>, digits: &[u8], point: i32) {
    match usize::try_from(point) {
        Ok(point @ 1..=6) => {
            let (whole, fraction) = digits.split_at(point.min(digits.len()));
            out.extend_from_slice(whole);
            out.resize(out.len() + point - whole.len(), b'0');
            if !fraction.is_empty() {
                out.push(b'.');
                out.extend_from_slice(fraction);
            }
        }
        _ if (-3..=0).contains(&point) => {
            out.extend_from_slice(b"0.");
            out.resize(out.len() + point.unsigned_abs() as usize, b'0');
            out.extend_from_slice(digits);
        }
        _ => write_exponent(out, digits, point - 1),
    }
}

#[inline]
fn write_exponent(out: &mut Vec<u8>, digits: &[u8], exponent: i32) {
    if let [first, rest @ ..] = digits {
        out.push(*first);
        if !rest.is_empty() {
            out.push(b'.');
            out.extend_from_slice(rest);
        }
    }
    out.extend_from_slice(if exponent < 0 { b"e-" } else { b"e+" });
    let size = exponent.unsigned_abs();
    // Go writes at least two digits.
    if size < 10 {
        out.push(b'0');
    }
    out.extend_from_slice(itoa::Buffer::new().format(size).as_bytes());
}

#[inline]
fn trim_zeros(digits: &[u8]) -> &[u8] {
    let zeros = digits
        .iter()
        .rev()
        .take_while(|digit| **digit == b'0')
        .count();
    digits.get(..digits.len() - zeros).unwrap_or_default()
}

/// Converts a count of digits, which is small.
#[inline]
fn signed(count: usize) -> i32 {
    i32::try_from(count).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;

    use super::*;

    fn go(value: f64) -> String {
        let mut out = Vec::new();
        write_go_float(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    /// A slow and simple reference on `{:e}`, which has the fewest possible digits.
    fn reference(value: f64) -> String {
        if value.is_nan() {
            return "NaN".to_owned();
        }
        if value.is_infinite() {
            return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
        }
        if value == 0.0 {
            return "0".to_owned();
        }
        let shortest = format!("{value:e}");
        let (mantissa, _) = shortest.split_once('e').unwrap();
        // Of two decimals at the same distance, `{:e}` may choose the odd one, Go the even one, as
        // does rounding to a given number of digits.
        let decimals = mantissa.trim_start_matches('-').len().saturating_sub(2);
        let rounded = format!("{value:.decimals$e}");
        let best = if rounded.parse() == Ok(value) {
            rounded
        } else {
            shortest
        };
        let (mantissa, exponent) = best.split_once('e').unwrap();
        let exponent: i32 = exponent.parse().unwrap();
        if (-4..6).contains(&exponent) {
            let decimals = usize::try_from((signed(decimals) - exponent).max(0)).unwrap();
            return format!("{value:.decimals$}");
        }
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{mantissa}e{sign}{:02}", exponent.abs())
    }

    #[test]
    fn exponents_are_used_as_in_go() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-1.0, "-1"),
            (278_528.0, "278528"),
            (999_999.0, "999999"),
            (1e6, "1e+06"),
            (846_692_352.0, "8.46692352e+08"),
            (1_794_773_276.478_967_2, "1.7947732764789672e+09"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (0.000_123, "0.000123"),
            (999_999.5, "999999.5"),
            (1_000_000.5, "1.0000005e+06"),
            (3.248_510_285, "3.248510285"),
            (0.5, "0.5"),
            (1e21, "1e+21"),
            (1e22, "1e+22"),
            (1e100, "1e+100"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (f64::MIN_POSITIVE, "2.2250738585072014e-308"),
            (9_007_199_254_740_991.0, "9.007199254740991e+15"),
            (9_007_199_254_740_992.0, "9.007199254740992e+15"),
            (123_456.0, "123456"),
            (100_000.0, "100000"),
            (0.1 + 0.2, "0.30000000000000004"),
            (-2.5e-7, "-2.5e-07"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
            (0.000_100_001, "0.000100001"),
            (999_999.999_999_999, "999999.999999999"),
        ] {
            assert_eq!(go(value), text);
            assert_eq!(reference(value), text);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            failure_persistence: None, rng_seed: RngSeed::Fixed(1), cases: 2000, ..ProptestConfig::default()
        })]

        #[test]
        fn all_bits_agree_with_the_reference(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            prop_assert_eq!(go(value), reference(value));
        }

        #[test]
        fn whole_numbers_and_decimals_agree_with_the_reference(
            number in 0_u64..=u64::MAX, digits in 0_u32..19, decimals in 0_i32..12, ulps in 0_u64..2
        ) {
            let decimal = format!("{}e-{decimals}", number / 10_u64.pow(digits));
            let value: f64 = decimal.parse().unwrap();
            let value = f64::from_bits(value.to_bits() + ulps);
            prop_assert_eq!(go(value), reference(value));
            prop_assert_eq!(go(-value), reference(-value));
        }
    }
}
