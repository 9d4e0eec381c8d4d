//! Amounts as integers: what kubelets count, what the API serves.
//!
//! Kubelets state amounts as floating-point numbers of seconds and bytes. They become integers
//! once, here, rounded to the nearest. A kubelet counts whole nanoseconds and divides by 1e9 for
//! its text; the nearest integer gives back exactly what it counted, up to 2^52 ns (52 days of one
//! core; beyond that its own number is no longer exact, and off by as much as a float is).
//! metrics-server cuts off instead, and so loses a nanosecond whenever the product falls just below
//! an integer: for about three counters in a hundred. In a rate that nanosecond is divided by the
//! window, so that with usual windows both give the same whole nanocores in 996 of 1000 cases, and
//! differ by one in the others.
//!
//! A value that is not a number, not finite, negative or too large is an error. An unknown amount
//! is absent, never zero.

use std::fmt::{self, Write};

use crate::error::ModelError;
use crate::text::Text;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Two to the power of 64, the first number beyond `u64`.
const U64_END: f64 = 18_446_744_073_709_551_616.0;

/// CPU time used since some beginning, in nanoseconds of one core: a counter that only grows until
/// it restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CoreNanos(u64);

/// CPU in use, in billionths of a core. Printed as metrics-server does: `4710169n`, `12345u`, `5m`,
/// `2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct CpuUsage(u64);

/// A number of bytes. Printed as metrics-server does: `12240Ki`, `3Mi`, `1023`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Bytes(u64);

/// A number and its suffix, ready to be written.
#[derive(Clone, Copy)]
struct Canonical {
    mantissa: u64,
    suffix: &'static str,
}

impl CoreNanos {
    pub const fn new(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    /// The nanoseconds.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// From seconds as a kubelet states them, to the nearest nanosecond.
    pub fn from_seconds(seconds: f64) -> Result<Self, ModelError> {
        const WHAT: &str = "cpu time in seconds";
        let seconds = finite_and_not_negative(seconds, WHAT)?;
        // Apart, because the product of both together would be rounded twice.
        let whole = to_u64(seconds.trunc(), WHAT)?;
        let fraction = to_u64((seconds.fract() * 1e9).round(), WHAT)?;
        whole
            .checked_mul(NANOS_PER_SECOND)
            .and_then(|nanoseconds| nanoseconds.checked_add(fraction))
            .map(Self)
            .ok_or(ModelError::ValueOutOfRange {
                what: WHAT,
                value: seconds,
            })
    }
}

impl CpuUsage {
    pub const fn from_nanocores(nanocores: u64) -> Self {
        Self(nanocores)
    }

    /// The billionths of a core.
    pub const fn nanocores(self) -> u64 {
        self.0
    }

    /// The sum; `None` beyond 64 bits.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// Appends the canonical text, without allocating if there is room.
    pub fn write_to(self, out: &mut Vec<u8>) {
        self.canonical().write_to(out);
    }

    fn canonical(self) -> Canonical {
        const SUFFIXES: [&str; 6] = ["u", "m", "", "k", "M", "G"];
        let mut canonical = Canonical {
            mantissa: self.0,
            suffix: "n",
        };
        if self.0 == 0 {
            return Canonical {
                mantissa: 0,
                suffix: "",
            };
        }
        for suffix in SUFFIXES {
            if !canonical.mantissa.is_multiple_of(1000) {
                break;
            }
            canonical = Canonical {
                mantissa: canonical.mantissa / 1000,
                suffix,
            };
        }
        canonical
    }
}

impl Bytes {
    pub const fn new(count: u64) -> Self {
        Self(count)
    }

    /// The number of bytes.
    pub const fn count(self) -> u64 {
        self.0
    }

    /// From a number as a kubelet states it, to the nearest byte.
    pub fn from_f64(count: f64) -> Result<Self, ModelError> {
        const WHAT: &str = "number of bytes";
        to_u64(finite_and_not_negative(count, WHAT)?.round(), WHAT).map(Self)
    }

    /// The sum; `None` beyond 64 bits.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// Appends the canonical text, without allocating if there is room.
    pub fn write_to(self, out: &mut Vec<u8>) {
        self.canonical().write_to(out);
    }

    fn canonical(self) -> Canonical {
        match self.0 {
            // Below 1024 Kubernetes prints decimally, and 1000 is the one such number with a
            // shorter form.
            1000 => Canonical {
                mantissa: 1,
                suffix: "k",
            },
            0..1024 => Canonical {
                mantissa: self.0,
                suffix: "",
            },
            count => {
                let (shift, suffix) = match count.trailing_zeros() {
                    0..10 => (0, ""),
                    10..20 => (10, "Ki"),
                    20..30 => (20, "Mi"),
                    30..40 => (30, "Gi"),
                    40..50 => (40, "Ti"),
                    50..60 => (50, "Pi"),
                    _ => (60, "Ei"),
                };
                Canonical {
                    mantissa: count >> shift,
                    suffix,
                }
            }
        }
    }
}

impl fmt::Display for CpuUsage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.canonical().pad(f)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.canonical().pad(f)
    }
}

impl Canonical {
    fn write_to(self, out: &mut Vec<u8>) {
        out.extend_from_slice(itoa::Buffer::new().format(self.mantissa).as_bytes());
        out.extend_from_slice(self.suffix.as_bytes());
    }

    fn pad(self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = Text::<24>::of(|text| {
            text.push_padded(self.mantissa, 1)?;
            text.write_str(self.suffix)
        });
        f.pad(text.as_str())
    }
}

/// Takes a sampled value that can be an amount at all. Negative zero is zero.
pub(crate) fn finite_and_not_negative(value: f64, what: &'static str) -> Result<f64, ModelError> {
    if !value.is_finite() {
        Err(ModelError::ValueNotFinite { what, value })
    } else if value < 0.0 {
        Err(ModelError::ValueNegative { what, value })
    } else {
        Ok(value)
    }
}

/// Converts a whole, non-negative number without loss.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the range is checked first, and callers have rounded and checked the sign"
)]
pub(crate) fn to_u64(value: f64, what: &'static str) -> Result<u64, ModelError> {
    if value < U64_END {
        Ok(value as u64)
    } else {
        Err(ModelError::ValueOutOfRange { what, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_give_back_the_nanoseconds_that_the_kubelet_counted() {
        // Cutting off would lose a nanosecond of both: the products are just below the integer.
        assert_eq!(
            CoreNanos::from_seconds(0.008_051_843).unwrap().get(),
            8_051_843
        );
        assert_eq!(
            CoreNanos::from_seconds(8.221_656_922).unwrap().get(),
            8_221_656_922
        );
        assert_eq!(
            CoreNanos::from_seconds(4_503_599.627_370_495)
                .unwrap()
                .get(),
            (1 << 52) - 1
        );
        assert_eq!(CoreNanos::from_seconds(-0.0).unwrap().get(), 0);
        assert_eq!(CoreNanos::from_seconds(1e-10).unwrap().get(), 0);
        assert_eq!(
            CoreNanos::from_seconds(0.999_999_999_9).unwrap().get(),
            1_000_000_000
        );
    }

    #[test]
    fn an_impossible_amount_is_an_error_and_never_zero() {
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(matches!(
                CoreNanos::from_seconds(value),
                Err(ModelError::ValueNotFinite { .. })
            ));
            assert!(matches!(
                Bytes::from_f64(value),
                Err(ModelError::ValueNotFinite { .. })
            ));
        }
        assert!(matches!(
            CoreNanos::from_seconds(-1e-300),
            Err(ModelError::ValueNegative { .. })
        ));
        assert!(matches!(
            Bytes::from_f64(-1.0),
            Err(ModelError::ValueNegative { .. })
        ));
        for value in [18_446_744_073.8, 1e19, f64::MAX] {
            assert!(matches!(
                CoreNanos::from_seconds(value),
                Err(ModelError::ValueOutOfRange { .. })
            ));
        }
        assert!(matches!(
            Bytes::from_f64(U64_END),
            Err(ModelError::ValueOutOfRange { .. })
        ));
        assert_eq!(
            CoreNanos::from_seconds(f64::NAN).unwrap_err().to_string(),
            "cpu time in seconds NaN is not a finite number"
        );
    }

    #[test]
    fn bytes_round_to_the_nearest() {
        assert_eq!(Bytes::from_f64(12_533_760.0).unwrap().count(), 12_533_760);
        assert_eq!(Bytes::from_f64(0.5).unwrap().count(), 1);
        assert_eq!(Bytes::from_f64(1.253_376e7).unwrap().count(), 12_533_760);
        assert_eq!(
            Bytes::from_f64(18_446_744_073_709_549_568.0)
                .unwrap()
                .count(),
            u64::MAX - 2047
        );
    }

    #[test]
    fn amounts_print_as_metrics_server_prints_them() {
        let cpu = |nanocores| CpuUsage::from_nanocores(nanocores).to_string();
        assert_eq!(cpu(4_710_169), "4710169n");
        assert_eq!(cpu(12_345_000), "12345u");
        assert_eq!(cpu(5_000_000), "5m");
        assert_eq!(cpu(2_000_000_000), "2");
        assert_eq!(cpu(0), "0");
        let memory = |count| Bytes::new(count).to_string();
        assert_eq!(memory(12_533_760), "12240Ki");
        assert_eq!(memory(3 << 20), "3Mi");
        assert_eq!(memory(1025), "1025");
        assert_eq!(memory(1000), "1k");
        assert_eq!(memory(0), "0");
        assert_eq!(format!("{:>8}", Bytes::new(1 << 10)), "     1Ki");
    }

    #[test]
    fn sums_beyond_64_bits_are_none() {
        assert!(Bytes::new(u64::MAX).checked_add(Bytes::new(1)).is_none());
        assert_eq!(
            CpuUsage::from_nanocores(1).checked_add(CpuUsage::from_nanocores(2)),
            Some(CpuUsage::from_nanocores(3))
        );
    }
}
