//! Reading a quantity. What is accepted is exactly what Go accepts, including texts that a stricter
//! grammar would refuse (`.`, `1.`, `m`): an object that the API server took must be readable here.

use super::{Format, NANOS_PER_UNIT, Quantity};
use crate::error::{ModelError, excerpt};

/// As in Go, a binary quantity is capped at the largest 64-bit integer.
const BINARY_CAP: u128 = i64::MAX.unsigned_abs() as u128 * NANOS_PER_UNIT;

/// The decimal places that nano-units hold.
const NANO_PLACES: usize = 9;

/// A text taken apart, before anything is computed.
struct Parts<'a> {
    negative: bool,
    /// The digits before the point, possibly none.
    whole: &'a [u8],
    /// The digits after the point, possibly none.
    fraction: &'a [u8],
    suffix: &'a str,
}

/// The factor of a suffix.
enum Multiplier {
    PowerOfTen { exponent: i64, format: Format },
    PowerOfTwo { exponent: u32 },
}

impl Multiplier {
    /// Go takes a text without digits for zero as long as it can compute in 64 bits, and refuses it
    /// otherwise.
    fn allows_no_digits(&self) -> bool {
        match *self {
            Self::PowerOfTen { exponent, .. } => exponent >= -9,
            Self::PowerOfTwo { exponent } => exponent <= 40,
        }
    }
}

pub(super) fn parse(input: &str) -> Result<Quantity, ModelError> {
    let parts = split(input).ok_or_else(|| ModelError::QuantityInvalid {
        input: excerpt(input),
    })?;
    let multiplier = multiplier(parts.suffix).ok_or_else(|| ModelError::QuantitySuffixUnknown {
        input: excerpt(input),
        suffix: excerpt(parts.suffix),
    })?;
    if parts.whole.is_empty() && parts.fraction.is_empty() && !multiplier.allows_no_digits() {
        return Err(ModelError::QuantityWithoutDigits {
            input: excerpt(input),
        });
    }
    let (magnitude, format) = match multiplier {
        Multiplier::PowerOfTen { exponent, format } => {
            (decimal_nanos(parts.whole, parts.fraction, exponent), format)
        }
        Multiplier::PowerOfTwo { exponent } => {
            let nanos = binary_nanos(parts.whole, parts.fraction, exponent);
            // As in Go, a value that no binary suffix can express is decimal from the start.
            let below_one = nanos > 0 && nanos < NANOS_PER_UNIT;
            (
                Some(nanos),
                if below_one {
                    Format::DecimalSi
                } else {
                    Format::BinarySi
                },
            )
        }
    };
    magnitude
        .and_then(|magnitude| {
            if parts.negative {
                0_i128.checked_sub_unsigned(magnitude)
            } else {
                0_i128.checked_add_unsigned(magnitude)
            }
        })
        .map(|nanos| Quantity { nanos, format })
        .ok_or_else(|| ModelError::QuantityOutOfRange {
            input: excerpt(input),
        })
}

/// Sign, digits, point, digits, and a suffix of letters, a sign and digits; each part may be
/// missing.
fn split(input: &str) -> Option<Parts<'_>> {
    if input.is_empty() {
        return None;
    }
    let (negative, unsigned) = match input.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, input.strip_prefix('+').unwrap_or(input)),
    };
    let (whole, rest) = leading_digits(unsigned);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => leading_digits(rest),
        None => ("", rest),
    };
    let after_letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
    let after_sign = after_letters
        .strip_prefix(['+', '-'])
        .unwrap_or(after_letters);
    let (_, remainder) = leading_digits(after_sign);
    remainder.is_empty().then_some(Parts {
        negative,
        whole: whole.as_bytes(),
        fraction: fraction.as_bytes(),
        suffix,
    })
}

fn leading_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at_checked(end).unwrap_or((text, ""))
}

fn multiplier(suffix: &str) -> Option<Multiplier> {
    let si = |exponent| {
        Some(Multiplier::PowerOfTen {
            exponent,
            format: Format::DecimalSi,
        })
    };
    let binary = |exponent| Some(Multiplier::PowerOfTwo { exponent });
    match suffix {
        "n" => si(-9),
        "u" => si(-6),
        "m" => si(-3),
        "" => si(0),
        "k" => si(3),
        "M" => si(6),
        "G" => si(9),
        "T" => si(12),
        "P" => si(15),
        "E" => si(18),
        "Ki" => binary(10),
        "Mi" => binary(20),
        "Gi" => binary(30),
        "Ti" => binary(40),
        "Pi" => binary(50),
        "Ei" => binary(60),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            Some(Multiplier::PowerOfTen {
                exponent,
                format: Format::DecimalExponent,
            })
        }
    }
}

/// `whole.fraction` times a power of ten in nano-units, rounded up; `None` beyond 128 bits.
fn decimal_nanos(whole: &[u8], fraction: &[u8], exponent: i64) -> Option<u128> {
    // The power of ten of the digit at hand, counted in nano-units; below zero it is lost to
    // rounding.
    let places = whole
        .len()
        .checked_add(NANO_PLACES)
        .and_then(|n| i64::try_from(n).ok())?;
    let mut place = exponent.saturating_add(places).saturating_sub(1);
    let mut total = 0_u128;
    let mut lost = false;
    for digit in whole.iter().chain(fraction).copied().map(value_of) {
        if place >= 0 {
            total = total.checked_mul(10)?.checked_add(digit)?;
        } else {
            lost |= digit != 0;
        }
        place = place.saturating_sub(1);
    }
    if total != 0 && place >= 0 {
        let zeros = u32::try_from(place.saturating_add(1)).ok()?;
        total = total.checked_mul(10_u128.checked_pow(zeros)?)?;
    }
    total.checked_add(u128::from(lost))
}

/// `whole.fraction` times a power of two in nano-units, rounded up and capped.
fn binary_nanos(whole: &[u8], fraction: &[u8], exponent: u32) -> u128 {
    // Schoolbook multiplication of the fraction from its last digit: any number of digits is exact,
    // none is stored.
    let mut carry = 0_u128;
    let mut nanos = 0_u128;
    let mut lost = false;
    for (place, digit) in fraction.iter().copied().map(value_of).enumerate().rev() {
        let product = (digit << exponent) + carry;
        carry = product / 10;
        let digit = product % 10;
        match (NANO_PLACES - 1)
            .checked_sub(place)
            .and_then(|power| u32::try_from(power).ok())
        {
            Some(power) => nanos += digit * 10_u128.pow(power),
            None => lost |= digit != 0,
        }
    }
    let total = whole
        .iter()
        .copied()
        .map(value_of)
        .try_fold(0_u128, |total, digit| {
            total.checked_mul(10)?.checked_add(digit)
        })
        .and_then(|units| units.checked_mul(1 << exponent)?.checked_add(carry))
        .and_then(|units| units.checked_mul(NANOS_PER_UNIT))
        .and_then(|total| total.checked_add(nanos)?.checked_add(u128::from(lost)));
    total.map_or(BINARY_CAP, |total| total.min(BINARY_CAP))
}

fn value_of(digit: u8) -> u128 {
    u128::from(digit.saturating_sub(b'0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(input: &str) -> String {
        input
            .parse::<Quantity>()
            .map_or_else(|error| error.to_string(), |q| q.to_string())
    }

    #[test]
    fn fractions_of_a_nano_unit_round_away_from_zero() {
        assert_eq!(text("0.1n"), "1n");
        assert_eq!(text("-0.1n"), "-1n");
        assert_eq!(text("1e-1000000000000"), "1e-9");
        assert_eq!(
            text("0.00000000000000000000000000000000000000000000000001Ei"),
            "1n"
        );
    }

    #[test]
    fn binary_quantities_beyond_64_bits_are_capped() {
        assert_eq!(text("8Ei"), "9223372036854775807");
        assert_eq!(
            text(&format!("-{}Ki", "9".repeat(500))),
            "-9223372036854775807"
        );
    }

    #[test]
    fn decimal_quantities_beyond_the_limit_are_rejected() {
        assert_eq!(
            text("170141183460469231731687303715.884105727"),
            "170141183460469231731687303715884105727n"
        );
        assert_eq!(
            text("-170141183460469231731687303715.884105728"),
            "-170141183460469231731687303715884105728n"
        );
        for input in [
            "170141183460469231731687303715.884105728",
            "1e30",
            "1e4294967296",
            "1e9223372036854775807",
        ] {
            assert!(
                matches!(
                    input.parse::<Quantity>(),
                    Err(ModelError::QuantityOutOfRange { .. })
                ),
                "{input}"
            );
        }
        assert_eq!(text("0e9223372036854775807"), "0");
        assert_eq!(
            text("0.0000000000000000000000000000000000000000001e43"),
            "1"
        );
    }

    #[test]
    fn errors_say_what_was_wrong_and_what_to_write() {
        assert_eq!(
            text("64MB"),
            "invalid quantity \"64MB\"; write a number with an optional suffix, as in 250m, 1.5 or 64Mi"
        );
        assert!(
            text("1mi").starts_with("unknown suffix \"mi\" in quantity \"1mi\"; use n, u, m, k,")
        );
        assert!(text("Ei").starts_with("quantity \"Ei\" has no digits"));
        assert!(text("1e99").starts_with("quantity \"1e99\" is out of range"));
    }
}
