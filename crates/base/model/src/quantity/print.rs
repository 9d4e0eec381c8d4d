//! The canonical text of a quantity: no fraction, and the largest suffix that allows it.

use std::fmt::{self, Write};

use super::{Format, NANOS_PER_UNIT, Quantity};
use crate::text::Text;

/// The longest text: a sign, the 39 digits of 2^127 and an exponent.
type Canonical = Text<48>;

/// From the smallest to the largest, each a thousand times the one before.
const DECIMAL_SUFFIXES: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];

/// From the smallest to the largest, each 1024 times the one before.
const BINARY_SUFFIXES: [&str; 7] = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// Values below this have no use for a binary suffix.
const SMALLEST_BINARY: u128 = 1024 * NANOS_PER_UNIT;

pub(super) fn canonical(quantity: Quantity) -> Canonical {
    Text::of(|out| write(quantity, out))
}

fn write(quantity: Quantity, out: &mut Canonical) -> fmt::Result {
    let magnitude = quantity.nanos.unsigned_abs();
    if magnitude == 0 {
        return out.write_str("0");
    }
    if quantity.nanos < 0 {
        out.write_str("-")?;
    }
    match quantity.format {
        Format::BinarySi
            if magnitude >= SMALLEST_BINARY && magnitude.is_multiple_of(NANOS_PER_UNIT) =>
        {
            let (mantissa, times) =
                without_factors(magnitude / NANOS_PER_UNIT, 1024, BINARY_SUFFIXES.len() - 1);
            write!(out, "{mantissa}{}", suffix(&BINARY_SUFFIXES, times))
        }
        Format::BinarySi | Format::DecimalSi => {
            let (mantissa, times) = without_factors(magnitude, 1000, DECIMAL_SUFFIXES.len() - 1);
            write!(out, "{mantissa}{}", suffix(&DECIMAL_SUFFIXES, times))
        }
        Format::DecimalExponent => match without_factors(magnitude, 1000, usize::MAX) {
            (mantissa, 3) => write!(out, "{mantissa}"),
            // Three thousands make a unit out of nano-units, where the exponent is zero.
            (mantissa, times @ 0..3) => write!(out, "{mantissa}e-{}", (3 - times) * 3),
            (mantissa, times) => write!(out, "{mantissa}e{}", (times - 3) * 3),
        },
    }
}

/// Divides by `factor` while that leaves no remainder, at most `limit` times.
fn without_factors(mut value: u128, factor: u128, limit: usize) -> (u128, usize) {
    let mut times = 0;
    while times < limit && value.is_multiple_of(factor) {
        value /= factor;
        times += 1;
    }
    (value, times)
}

fn suffix(suffixes: &[&'static str], times: usize) -> &'static str {
    suffixes
        .get(times)
        .copied()
        .expect("the number of divisions is limited to the suffixes")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_texts_fit() {
        for format in [Format::DecimalSi, Format::BinarySi, Format::DecimalExponent] {
            for nanos in [i128::MIN, i128::MIN + 1, i128::MAX] {
                let text = canonical(Quantity::from_nanos(nanos, format));
                assert_eq!(
                    text.as_str().parse(),
                    Ok(Quantity::from_nanos(nanos, format))
                );
            }
        }
    }

    #[test]
    fn the_largest_suffix_stays_where_go_would_drop_it() {
        let text = |text: &str| text.parse::<Quantity>().unwrap().to_string();
        assert_eq!(text("1000E"), "1000E");
        let huge = Quantity::from_nanos((1_i128 << 70) * 1_000_000_000, Format::BinarySi);
        assert_eq!(huge.to_string(), "1024Ei");
    }
}
