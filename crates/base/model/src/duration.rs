//! Durations as Go writes and reads them: `time.Duration` with `String()` and `ParseDuration`.
//!
//! The API serves windows in this form, and every duration flag is read in it, so that values carry
//! over from the programs that people run today.

use std::fmt::{self, Write};
use std::str::FromStr;
use std::time::Duration;

use crate::error::{ModelError, excerpt};
use crate::text::Text;

/// The longest text is `-2562047h47m16.854775808s`.
type Printed = Text<32>;

/// One more than the largest number of nanoseconds; the magnitude of the most negative one.
const MAGNITUDE_LIMIT: u64 = 1 << 63;

/// A possibly negative number of nanoseconds in 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GoDuration(i64);

/// The reason why a text is not a duration, without the text itself.
enum Fault<'a> {
    Invalid,
    UnitMissing { at_end: bool },
    UnitUnknown(&'a str),
    OutOfRange,
}

impl GoDuration {
    /// No time at all, printed as `0s`.
    pub const ZERO: Self = Self(0);
    /// About 292 years.
    pub const MAX: Self = Self(i64::MAX);
    /// About 292 years backwards.
    pub const MIN: Self = Self(i64::MIN);

    pub const fn from_nanos(nanoseconds: i64) -> Self {
        Self(nanoseconds)
    }

    /// Every `u32` fits.
    pub const fn from_millis(milliseconds: u32) -> Self {
        Self(milliseconds as i64 * 1_000_000)
    }

    /// Every `u32` fits.
    pub const fn from_secs(seconds: u32) -> Self {
        Self(seconds as i64 * 1_000_000_000)
    }

    /// The nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The nearest duration that 64 bits hold: longer ones become [`GoDuration::MAX`], as Go does
    /// when it subtracts times.
    pub fn saturating_from(duration: Duration) -> Self {
        Self::try_from(duration).unwrap_or(Self::MAX)
    }

    /// Appends the text, without allocating if there is room.
    pub fn write_to(self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.printed().as_bytes());
    }

    fn printed(self) -> Printed {
        Text::of(|out| self.print(out))
    }

    fn print(self, out: &mut Printed) -> fmt::Result {
        let nanoseconds = self.0.unsigned_abs();
        if self.0 < 0 {
            out.push_ascii([b'-'])?;
        }
        match nanoseconds {
            0 => out.write_str("0s"),
            1..1_000 => push_decimal(out, nanoseconds, 0, "ns"),
            1_000..1_000_000 => push_decimal(out, nanoseconds, 3, "µs"),
            1_000_000..1_000_000_000 => push_decimal(out, nanoseconds, 6, "ms"),
            _ => {
                let minutes = nanoseconds / 60_000_000_000;
                if minutes >= 60 {
                    out.push_padded(minutes / 60, 1)?;
                    out.push_ascii([b'h'])?;
                }
                if minutes > 0 {
                    out.push_padded(minutes % 60, 1)?;
                    out.push_ascii([b'm'])?;
                }
                push_decimal(out, nanoseconds % 60_000_000_000, 9, "s")
            }
        }
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.printed().as_str())
    }
}

impl TryFrom<Duration> for GoDuration {
    type Error = ModelError;

    fn try_from(duration: Duration) -> Result<Self, ModelError> {
        i64::try_from(duration.as_nanos())
            .map(Self)
            .map_err(|_| ModelError::DurationTooLong(duration))
    }
}

impl TryFrom<GoDuration> for Duration {
    type Error = ModelError;

    fn try_from(duration: GoDuration) -> Result<Self, ModelError> {
        u64::try_from(duration.0)
            .map(Self::from_nanos)
            .map_err(|_| ModelError::DurationNegative(duration))
    }
}

impl FromStr for GoDuration {
    type Err = ModelError;

    /// Reads what Go's `time.ParseDuration` reads: an optional sign, then numbers with units, or a
    /// bare `0`.
    fn from_str(input: &str) -> Result<Self, ModelError> {
        parse(input).map_err(|fault| fault.in_text(input))
    }
}

impl Fault<'_> {
    fn in_text(self, text: &str) -> ModelError {
        let input = excerpt(text);
        match self {
            Self::Invalid => ModelError::DurationInvalid { input },
            Self::UnitMissing { at_end } => {
                let example = if at_end {
                    format!("{input}s")
                } else {
                    "it as in 1m30s".to_owned()
                };
                ModelError::DurationUnitMissing {
                    input,
                    example: example.into(),
                }
            }
            Self::UnitUnknown(unit) => ModelError::DurationUnitUnknown {
                input,
                unit: excerpt(unit),
            },
            Self::OutOfRange => ModelError::DurationOutOfRange { input },
        }
    }
}

/// Writes `value` with its last `places` digits after a point, without zeros at the end.
fn push_decimal(out: &mut Printed, value: u64, places: usize, unit: &str) -> fmt::Result {
    let scale = 10_u64.pow(u32::try_from(places).expect("there are at most nine places"));
    out.push_padded(value / scale, 1)?;
    let mut fraction = value % scale;
    if fraction != 0 {
        let mut width = places;
        // Most are of whole milliseconds, though counted in nanoseconds.
        while fraction.is_multiple_of(1_000) {
            fraction /= 1_000;
            width -= 3;
        }
        while fraction.is_multiple_of(10) {
            fraction /= 10;
            width -= 1;
        }
        out.push_ascii([b'.'])?;
        out.push_padded(fraction, width)?;
    }
    out.write_str(unit)
}

fn parse(input: &str) -> Result<GoDuration, Fault<'_>> {
    let (negative, unsigned) = match input.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, input.strip_prefix('+').unwrap_or(input)),
    };
    if unsigned == "0" {
        return Ok(GoDuration::ZERO);
    }
    if unsigned.is_empty() {
        return Err(Fault::Invalid);
    }
    let mut total = 0_u64;
    let mut rest = unsigned;
    while !rest.is_empty() {
        let (nanoseconds, after) = parse_component(rest)?;
        total = total
            .checked_add(nanoseconds)
            .filter(|&total| total <= MAGNITUDE_LIMIT)
            .ok_or(Fault::OutOfRange)?;
        rest = after;
    }
    let nanoseconds = if negative {
        0_i64.checked_sub_unsigned(total)
    } else {
        i64::try_from(total).ok()
    };
    nanoseconds.map(GoDuration).ok_or(Fault::OutOfRange)
}

/// Reads one number with its unit; gives its nanoseconds and what follows it.
fn parse_component(text: &str) -> Result<(u64, &str), Fault<'_>> {
    let (whole, rest) = split_where(text, |byte| !byte.is_ascii_digit());
    let (fraction, rest) = match rest.strip_prefix('.') {
        Some(rest) => split_where(rest, |byte| !byte.is_ascii_digit()),
        None => ("", rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return Err(Fault::Invalid);
    }
    let (unit, rest) = split_where(rest, |byte| byte == b'.' || byte.is_ascii_digit());
    let scale = match unit {
        "" => {
            return Err(Fault::UnitMissing {
                at_end: rest.is_empty(),
            });
        }
        "ns" => 1,
        // The micro sign and the Greek letter look alike; Go takes both.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        unknown => return Err(Fault::UnitUnknown(unknown)),
    };
    let whole = if whole.is_empty() {
        Ok(0)
    } else {
        whole.parse::<u64>()
    };
    whole
        .ok()
        .and_then(|whole| whole.checked_mul(scale))
        .and_then(|nanoseconds| nanoseconds.checked_add(fraction_of(fraction, scale)))
        .filter(|&nanoseconds| nanoseconds <= MAGNITUDE_LIMIT)
        .map(|nanoseconds| (nanoseconds, rest))
        .ok_or(Fault::OutOfRange)
}

/// Nanoseconds in a fraction of a unit, cut off. In floating point, because Go does so: the last
/// nanosecond of a fraction of an hour depends on it.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the very roundings that Go makes; the result is at most one unit, 3.6e12"
)]
fn fraction_of(digits: &str, unit: u64) -> u64 {
    let mut value = 0_u64;
    let mut scale = 1_f64;
    for digit in digits
        .bytes()
        .map(|byte| u64::from(byte.saturating_sub(b'0')))
    {
        // Digits that 63 bits cannot hold are dropped, not refused.
        if value > i64::MAX.unsigned_abs() / 10 {
            break;
        }
        let next = value * 10 + digit;
        if next > MAGNITUDE_LIMIT {
            break;
        }
        value = next;
        scale *= 10.0;
    }
    (value as f64 * (unit as f64 / scale)) as u64
}

fn split_where(text: &str, stop: impl Fn(u8) -> bool) -> (&str, &str) {
    let end = text.bytes().position(stop).unwrap_or(text.len());
    // A stop is always ASCII or follows ASCII, so that the position is a character boundary.
    text.split_at_checked(end).unwrap_or((text, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(input: &str) -> String {
        input.parse::<GoDuration>().unwrap_err().to_string()
    }

    #[test]
    fn errors_say_what_was_wrong_and_what_to_write() {
        assert_eq!(message("15"), "missing unit in duration \"15\"; write 15s");
        assert_eq!(
            message("1.5.5s"),
            "missing unit in duration \"1.5.5s\"; write it as in 1m30s"
        );
        assert_eq!(
            message("1d"),
            "unknown unit \"d\" in duration \"1d\"; use ns, us, ms, s, m or h, as in 1h30m"
        );
        assert_eq!(
            message(""),
            "invalid duration \"\"; write numbers with units, as in 15s or 1m30s"
        );
        assert_eq!(
            message("3000000h"),
            "duration \"3000000h\" is out of range; the longest is 2562047h47m16.854775807s"
        );
    }

    #[test]
    fn durations_of_the_standard_library_convert_where_they_fit() {
        assert_eq!(
            GoDuration::try_from(Duration::from_millis(14_964))
                .unwrap()
                .to_string(),
            "14.964s"
        );
        assert_eq!(
            Duration::try_from(GoDuration::from_millis(1_500)),
            Ok(Duration::from_millis(1_500))
        );
        assert_eq!(
            Duration::try_from(GoDuration::from_nanos(-1))
                .unwrap_err()
                .to_string(),
            "duration -1ns is negative; it must be zero or longer"
        );
        assert_eq!(
            GoDuration::try_from(Duration::MAX).unwrap_err(),
            ModelError::DurationTooLong(Duration::MAX)
        );
        assert_eq!(GoDuration::saturating_from(Duration::MAX), GoDuration::MAX);
        assert_eq!(
            GoDuration::from_secs(u32::MAX).to_string(),
            "1193046h28m15s"
        );
    }

    #[test]
    fn printing_honors_width() {
        assert_eq!(format!("{:>7}", GoDuration::from_secs(15)), "    15s");
    }
}
