//! The errors of this crate.

use std::time::Duration;

use crate::duration::GoDuration;

/// The maximum length of an invalid text in an error. Texts come from flags, but also from objects
/// of others, and errors end up in logs.
const EXCERPT_CHARS: usize = 64;

/// An invalid text or number.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ModelError {
    /// The text is not a number followed by a suffix.
    #[error(
        "invalid quantity {input:?}; write a number with an optional suffix, as in 250m, 1.5 or 64Mi"
    )]
    QuantityInvalid { input: Box<str> },
    /// There is a suffix, but no digit before it.
    #[error("quantity {input:?} has no digits; write a number, as in 250m, 1.5 or 64Mi")]
    QuantityWithoutDigits { input: Box<str> },
    /// The letters after the number are not a suffix of Kubernetes.
    #[error(
        "unknown suffix {suffix:?} in quantity {input:?}; \
         use n, u, m, k, M, G, T, P, E, Ki, Mi, Gi, Ti, Pi, Ei or an exponent such as e3"
    )]
    QuantitySuffixUnknown { input: Box<str>, suffix: Box<str> },
    /// The number is larger than a [`Quantity`](crate::Quantity) holds.
    #[error("quantity {input:?} is out of range; the largest magnitude is about 1.7e29")]
    QuantityOutOfRange { input: Box<str> },

    /// The text is not a sequence of numbers with units.
    #[error("invalid duration {input:?}; write numbers with units, as in 15s or 1m30s")]
    DurationInvalid { input: Box<str> },
    /// A number stands without a unit.
    #[error("missing unit in duration {input:?}; write {example}")]
    DurationUnitMissing { input: Box<str>, example: Box<str> },
    /// A unit that Go does not know, such as `d`.
    #[error("unknown unit {unit:?} in duration {input:?}; use ns, us, ms, s, m or h, as in 1h30m")]
    DurationUnitUnknown { input: Box<str>, unit: Box<str> },
    /// The duration does not fit 64 bits of nanoseconds.
    #[error(
        "duration {input:?} is out of range; the longest is {}",
        GoDuration::MAX
    )]
    DurationOutOfRange { input: Box<str> },
    /// A duration of the standard library that does not fit 64 bits of nanoseconds.
    #[error("a duration of {} s is out of range; the longest is {}", .0.as_secs(), GoDuration::MAX)]
    DurationTooLong(Duration),
    /// A negative duration where only a span of time makes sense.
    #[error("duration {0} is negative; it must be zero or longer")]
    DurationNegative(GoDuration),

    /// The text is not a time as Kubernetes writes it.
    #[error("invalid time {input:?}; write it as in 2006-01-02T15:04:05Z")]
    TimestampInvalid { input: Box<str> },

    /// A sampled value is NaN or infinite.
    #[error("{what} {value} is not a finite number")]
    ValueNotFinite {
        what: &'static str,
        /// The value as sampled.
        value: f64,
    },
    /// A sampled value is below zero.
    #[error("{what} {value} is negative")]
    ValueNegative {
        what: &'static str,
        /// The value as sampled.
        value: f64,
    },
    /// A sampled value does not fit the integer that holds it.
    #[error("{what} {value} is out of range")]
    ValueOutOfRange {
        what: &'static str,
        /// The value as sampled.
        value: f64,
    },
}

/// The beginning of a text for an error message.
pub(crate) fn excerpt(input: &str) -> Box<str> {
    match input.char_indices().nth(EXCERPT_CHARS) {
        None => input.into(),
        Some((end, _)) => {
            let mut kept = input.get(..end).unwrap_or_default().to_owned();
            kept.push('…');
            kept.into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_character_boundary() {
        let text = "µ".repeat(100);
        assert_eq!(&*excerpt(&text), format!("{}…", "µ".repeat(64)));
        assert_eq!(&*excerpt("15"), "15");
    }
}
