//! Numbers as Go's exposition encoder writes them.

use std::io::Write;

/// Appends the shortest decimal that reads back as `value`, with an exponent of two digits or more
/// below 1e-4 and from 1e6 on. Both zeros are `0`.
pub(super) fn write_go_float(out: &mut Vec<u8>, value: f64) {
    if value.is_nan() {
        out.extend_from_slice(b"NaN");
    } else if value.is_infinite() {
        out.extend_from_slice(if value > 0.0 { b"+Inf" } else { b"-Inf" });
    } else if value == 0.0 {
        out.push(b'0');
    } else if (1e-4..1e6).contains(&value.abs()) {
        let _ = write!(out, "{value}");
    } else {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = match exponent.strip_prefix('-') {
            Some(exponent) => ('-', exponent),
            None => ('+', exponent),
        };
        let _ = write!(out, "{digits}e{sign}{exponent:0>2}");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn go(value: f64) -> String {
        let mut out = Vec::new();
        write_go_float(&mut out, value);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn agrees_with_go() {
        for (value, want) in [
            (0.0, "0"),
            (-0.0, "0"),
            (1.0, "1"),
            (-1.0, "-1"),
            (0.1, "0.1"),
            (100.0, "100"),
            (123_456.0, "123456"),
            (999_999.999, "999999.999"),
            (1e6, "1e+06"),
            (1_234_567.0, "1.234567e+06"),
            (1e20, "1e+20"),
            (1e21, "1e+21"),
            (1e100, "1e+100"),
            (0.0001, "0.0001"),
            (0.000_099, "9.9e-05"),
            (1.5e-7, "1.5e-07"),
            (5e-324, "5e-324"),
            (-2.5e10, "-2.5e+10"),
            (1_700_000_000.123, "1.700000000123e+09"),
            (f64::MAX, "1.7976931348623157e+308"),
            (9_007_199_254_740_993.0, "9.007199254740992e+15"),
            (f64::NAN, "NaN"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
        ] {
            assert_eq!(go(value), want);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_number_reads_back(bits in any::<u64>()) {
            let value = f64::from_bits(bits);
            let read: f64 = go(value).parse().unwrap();
            prop_assert!(read == value || (read.is_nan() && value.is_nan()));
        }
    }
}
