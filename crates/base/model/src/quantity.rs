//! Kubernetes quantities, as `k8s.io/apimachinery/pkg/api/resource` reads and prints them.
//!
//! A [`Quantity`] is a whole number of billionths (nano-units) in an `i128`, with the format it was
//! written in. Go keeps an `int64` with a decimal scale, and falls back to a decimal of unbounded
//! size. One integer of fixed scale was chosen instead because
//!
//! - Go itself rounds whatever it reads up to whole nano-units, so that nothing finer has to be
//!   held;
//! - equal values have one representation: comparing, hashing and adding are the integer's own
//!   operations;
//! - it is `Copy`, never allocates, and no input makes it slow (Go computes powers of ten of
//!   unbounded size).
//!
//! The price is a bound: 2^127 nano-units, about 1.7e29. Kubernetes documents 2^63-1 (about 9.2e18)
//! as the largest magnitude, and real objects stay far below it. What lies beyond the bound is
//! refused with an error that says so; within it there are these deliberate departures from Go,
//! each listed in `tests/vectors/quantity_divergences.tsv`:
//!
//! - Go prints a multiple of 1000E (or of 1024Ei) without its suffix, which is another number. Here
//!   the suffix stays.
//! - Go's `Value()` and `MilliValue()` wrap around or answer zero beyond 64 bits, and round some
//!   negative values upwards. Here they answer `None` or round away from zero, as Go documents.
//! - Go takes an exponent modulo 2^32. Here `1e4294967296` is out of range.
//!
//! As in Go, a binary quantity (`Ki` and so on) beyond 2^63-1 becomes 2^63-1. Unlike Go's
//! `String()`, which may repeat a parsed text as it was written (`+5`, `1.234`), printing always
//! gives the canonical form (`5`, `1234m`).

use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::str::FromStr;

use crate::amount::{Bytes, CpuUsage};
use crate::error::ModelError;

mod parse;
mod print;

/// Nano-units in one unit.
const NANOS_PER_UNIT: u128 = 1_000_000_000;

/// An exact amount of a resource, such as `250m` of CPU or `64Mi` of memory.
///
/// Two quantities are equal if their values are, whatever their formats: `1Ki == 1024`.
#[derive(Debug, Clone, Copy)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

/// The family of suffixes that a quantity is printed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Format {
    /// Powers of 1000: `n`, `u`, `m`, none, `k`, `M`, `G`, `T`, `P`, `E`.
    #[default]
    DecimalSi,
    /// Powers of 1024: `Ki`, `Mi`, `Gi`, `Ti`, `Pi`, `Ei`. Values that would need a fraction, or
    /// are below 1024, are printed as [`Format::DecimalSi`].
    BinarySi,
    /// Powers of 1000 as an exponent: `e-3`, `e6`.
    DecimalExponent,
}

/// A power of ten with a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scale {
    /// 10^-9
    Nano,
    /// 10^-6
    Micro,
    /// 10^-3
    Milli,
    /// 1
    One,
    /// 10^3
    Kilo,
    /// 10^6
    Mega,
    /// 10^9
    Giga,
    /// 10^12
    Tera,
    /// 10^15
    Peta,
    /// 10^18
    Exa,
}

impl Quantity {
    /// Zero, printed as `0`.
    pub const ZERO: Self = Self {
        nanos: 0,
        format: Format::DecimalSi,
    };

    /// `value` whole units.
    pub fn new(value: i64, format: Format) -> Self {
        Self {
            nanos: i128::from(value) * 1_000_000_000,
            format,
        }
    }

    /// `nanos` billionths of a unit.
    pub const fn from_nanos(nanos: i128, format: Format) -> Self {
        Self { nanos, format }
    }

    /// `value` times a power of ten, in [`Format::DecimalSi`]; `None` if that is out of range.
    pub fn from_scaled(value: i64, scale: Scale) -> Option<Self> {
        let factor = i128::try_from(scale.nanos()).ok()?;
        Some(Self {
            nanos: i128::from(value).checked_mul(factor)?,
            format: Format::DecimalSi,
        })
    }

    /// The value in billionths of a unit.
    pub const fn nanos(self) -> i128 {
        self.nanos
    }

    /// The format it is printed in.
    pub const fn format(self) -> Format {
        self.format
    }

    /// The same value, printed in another format.
    #[must_use]
    pub const fn with_format(self, format: Format) -> Self {
        Self {
            nanos: self.nanos,
            format,
        }
    }

    /// Whether the value is zero.
    pub const fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// The value in whole units, rounded away from zero; `None` beyond 64 bits.
    pub fn value(self) -> Option<i64> {
        self.scaled_value(Scale::One)
    }

    /// The value in thousandths, rounded away from zero; `None` beyond 64 bits. This is how kubectl
    /// and the autoscaler read CPU.
    pub fn milli_value(self) -> Option<i64> {
        self.scaled_value(Scale::Milli)
    }

    /// The value in units of `scale`, rounded away from zero; `None` beyond 64 bits.
    pub fn scaled_value(self, scale: Scale) -> Option<i64> {
        let magnitude = i128::try_from(self.nanos.unsigned_abs().div_ceil(scale.nanos())).ok()?;
        i64::try_from(if self.nanos < 0 {
            -magnitude
        } else {
            magnitude
        })
        .ok()
    }

    /// The sum; `None` if it is out of range. It keeps the format of `self`, unless `self` is zero
    /// (as in Go, so that a total that starts from zero takes the format of what is added).
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        Some(Self {
            nanos: self.nanos.checked_add(other.nanos)?,
            format: self.format_with(other),
        })
    }

    /// The difference; `None` if it is out of range. The format is chosen as in
    /// [`Quantity::checked_add`].
    #[must_use]
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        Some(Self {
            nanos: self.nanos.checked_sub(other.nanos)?,
            format: self.format_with(other),
        })
    }

    fn format_with(self, other: Self) -> Format {
        if self.is_zero() {
            other.format
        } else {
            self.format
        }
    }
}

impl Scale {
    /// The number of nano-units in one unit of this scale.
    const fn nanos(self) -> u128 {
        match self {
            Self::Nano => 1,
            Self::Micro => 1_000,
            Self::Milli => 1_000_000,
            Self::One => NANOS_PER_UNIT,
            Self::Kilo => 1_000 * NANOS_PER_UNIT,
            Self::Mega => 1_000_000 * NANOS_PER_UNIT,
            Self::Giga => 1_000_000_000 * NANOS_PER_UNIT,
            Self::Tera => 1_000_000_000_000 * NANOS_PER_UNIT,
            Self::Peta => 1_000_000_000_000_000 * NANOS_PER_UNIT,
            Self::Exa => 1_000_000_000_000_000_000 * NANOS_PER_UNIT,
        }
    }
}

impl Default for Quantity {
    fn default() -> Self {
        Self::ZERO
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl Hash for Quantity {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.nanos.hash(state);
    }
}

impl FromStr for Quantity {
    type Err = ModelError;

    /// Reads what Go's `ParseQuantity` reads. Spaces around the number are not allowed.
    fn from_str(input: &str) -> Result<Self, ModelError> {
        parse::parse(input)
    }
}

/// The canonical text. Reading it gives back the value, and the format as long as there is a suffix
/// to tell it by: as in Go, a [`Format::BinarySi`] quantity that is no multiple of 1024 is printed
/// bare, and read as [`Format::DecimalSi`].
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(print::canonical(*self).as_str())
    }
}

impl From<CpuUsage> for Quantity {
    fn from(usage: CpuUsage) -> Self {
        Self {
            nanos: usage.nanocores().into(),
            format: Format::DecimalSi,
        }
    }
}

impl From<Bytes> for Quantity {
    fn from(bytes: Bytes) -> Self {
        Self {
            nanos: i128::from(bytes.count()) * 1_000_000_000,
            format: Format::BinarySi,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_are_equal_in_any_format() {
        let binary: Quantity = "1Ki".parse().unwrap();
        let decimal: Quantity = "1024".parse().unwrap();
        assert_eq!(binary, decimal);
        assert_ne!(binary.format(), decimal.format());
        assert!(binary > "1k".parse().unwrap());
    }

    #[test]
    fn scaled_values_round_away_from_zero_and_never_wrap() {
        let quantity = |text: &str| text.parse::<Quantity>().unwrap();
        assert_eq!(quantity("1n").milli_value(), Some(1));
        assert_eq!(quantity("-1.5").value(), Some(-2));
        assert_eq!(quantity("-1.0000000001").value(), Some(-2));
        assert_eq!(quantity("1E").milli_value(), None);
        assert_eq!(quantity("1500M").scaled_value(Scale::Giga), Some(2));
        assert_eq!(
            Quantity::from_nanos(i128::MIN, Format::DecimalSi).scaled_value(Scale::Nano),
            None
        );
        assert_eq!(
            Quantity::new(i64::MIN, Format::BinarySi).value(),
            Some(i64::MIN)
        );
    }

    #[test]
    fn a_sum_out_of_range_is_none() {
        let most = Quantity::from_nanos(i128::MAX, Format::DecimalSi);
        assert!(
            most.checked_add(Quantity::new(1, Format::DecimalSi))
                .is_none()
        );
        assert!(
            most.checked_sub(Quantity::new(-1, Format::DecimalSi))
                .is_none()
        );
        assert!(Quantity::from_scaled(i64::MAX, Scale::Exa).is_none());
        assert_eq!(
            Quantity::from_scaled(-7, Scale::Peta).unwrap().to_string(),
            "-7P"
        );
    }

    #[test]
    fn printing_honors_width_and_alignment() {
        let quantity: Quantity = "250m".parse().unwrap();
        assert_eq!(format!("[{quantity:>6}|{quantity:<6}]"), "[  250m|250m  ]");
    }
}
