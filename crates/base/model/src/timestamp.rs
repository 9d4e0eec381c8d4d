//! Instants in time, to the millisecond.
//!
//! Kubelets report the time of each sample in milliseconds since the epoch; the API serves whole
//! seconds as RFC 3339 text. An instant is a type of its own, so that it cannot be confused with a
//! duration.
//!
//! Not jiff's type: the watch decoder parses several times per pod and lists print one per pod, and
//! this is eight bytes with a parser and a printer for just these forms.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use crate::amount::{finite_and_not_negative, to_u64};
use crate::error::{ModelError, excerpt};
use crate::text::Text;

mod civil;
mod parse;

const MILLIS_PER_SECOND: i64 = 1_000;
const MILLIS_PER_DAY: i64 = 86_400_000;

/// An instant: milliseconds since 1970-01-01T00:00:00Z, not counting leap seconds.
///
/// Printed as RFC 3339 in UTC with milliseconds; [`Timestamp::rfc3339_seconds`] gives the form that
/// the API serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// An RFC 3339 text on the stack, from [`Timestamp::rfc3339_seconds`] or
/// [`Timestamp::rfc3339_millis`].
///
/// Years beyond 9999 have more digits and years before 0 a sign, as in Go; no other program may be
/// able to read them.
pub struct Rfc3339(Text<32>);

impl Timestamp {
    /// Go's zero time, 0001-01-01T00:00:00Z, which Go programs write for an unset time: a kubelet
    /// reports it for a container that it has not sampled yet. It means unknown.
    pub const GO_ZERO: Self = Self(-62_135_596_800_000);

    pub const fn from_unix_millis(milliseconds: i64) -> Self {
        Self(milliseconds)
    }

    /// From seconds since the epoch, as a kubelet reports the start of a container, to the nearest
    /// millisecond. Not a number, infinite, negative or too large is an error.
    pub fn from_unix_seconds(seconds: f64) -> Result<Self, ModelError> {
        const WHAT: &str = "time in seconds since the epoch";
        let seconds = finite_and_not_negative(seconds, WHAT)?;
        let out_of_range = ModelError::ValueOutOfRange {
            what: WHAT,
            value: seconds,
        };
        i64::try_from(to_u64((seconds * 1e3).round(), WHAT)?)
            .map(Self)
            .map_err(|_| out_of_range)
    }

    /// From a system time, rounded down to the millisecond and saturated at 64 bits.
    pub fn from_system_time(time: SystemTime) -> Self {
        match time.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(after) => Self(i64::try_from(after.as_millis()).unwrap_or(i64::MAX)),
            Err(before) => {
                let milliseconds = before.duration().as_nanos().div_ceil(1_000_000);
                Self(i64::try_from(milliseconds).map_or(i64::MIN, |n| -n))
            }
        }
    }

    /// Milliseconds since the epoch.
    pub const fn unix_millis(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down.
    pub const fn unix_seconds(self) -> i64 {
        self.0.div_euclid(MILLIS_PER_SECOND)
    }

    /// The time passed since `earlier`; `None` if it is in fact later.
    pub fn since(self, earlier: Self) -> Option<Duration> {
        (self >= earlier).then(|| Duration::from_millis(self.0.abs_diff(earlier.0)))
    }

    /// The instant `duration` later, rounded down to the millisecond; `None` beyond 64 bits.
    #[must_use]
    pub fn checked_add(self, duration: Duration) -> Option<Self> {
        let milliseconds = u64::try_from(duration.as_millis()).ok()?;
        self.0.checked_add_unsigned(milliseconds).map(Self)
    }

    /// The instant `duration` earlier, with the duration rounded down to the millisecond; `None`
    /// beyond 64 bits.
    #[must_use]
    pub fn checked_sub(self, duration: Duration) -> Option<Self> {
        let milliseconds = u64::try_from(duration.as_millis()).ok()?;
        self.0.checked_sub_unsigned(milliseconds).map(Self)
    }

    /// As `metav1.Time` writes it: UTC in whole seconds, rounded down.
    pub fn rfc3339_seconds(self) -> Rfc3339 {
        Rfc3339(Text::of(|out| {
            self.print_to_the_second(out)?;
            out.push_ascii([b'Z'])
        }))
    }

    /// UTC with milliseconds.
    pub fn rfc3339_millis(self) -> Rfc3339 {
        Rfc3339(Text::of(|out| {
            self.print_to_the_second(out)?;
            out.push_ascii([b'.'])?;
            out.push_padded(self.0.rem_euclid(MILLIS_PER_SECOND).unsigned_abs(), 3)?;
            out.push_ascii([b'Z'])
        }))
    }

    fn print_to_the_second<const N: usize>(self, out: &mut Text<N>) -> fmt::Result {
        let date = civil::date_of(self.0.div_euclid(MILLIS_PER_DAY));
        if date.year < 0 {
            out.push_ascii([b'-'])?;
        }
        out.push_padded(date.year.unsigned_abs(), 4)?;
        let second_of_day = self.0.rem_euclid(MILLIS_PER_DAY) / MILLIS_PER_SECOND;
        let [month, day] = [date.month, date.day].map(two_digits);
        let [hour, minute, second] = [
            second_of_day / 3_600,
            second_of_day / 60 % 60,
            second_of_day % 60,
        ]
        .map(|part| two_digits(u8::try_from(part).expect("it is below 60")));
        // One copy of fixed size: piece by piece takes half as long again, and lists print one per
        // pod.
        out.push_ascii([
            b'-', month[0], month[1], b'-', day[0], day[1], b'T', hour[0], hour[1], b':',
            minute[0], minute[1], b':', second[0], second[1],
        ])
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.rfc3339_millis().as_str())
    }
}

impl FromStr for Timestamp {
    type Err = ModelError;

    /// Parses what Go parses into a `metav1.Time`: RFC 3339 with any offset and any fraction of a
    /// second, which is cut off at the millisecond. The form of `metav1.MicroTime` is among it.
    fn from_str(input: &str) -> Result<Self, ModelError> {
        parse::unix_millis(input)
            .map(Self)
            .ok_or_else(|| ModelError::TimestampInvalid {
                input: excerpt(input),
            })
    }
}

impl Rfc3339 {
    /// The text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// The text as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Rfc3339").field(&self.as_str()).finish()
    }
}

fn two_digits(number: u8) -> [u8; 2] {
    [b'0' + number / 10, b'0' + number % 10]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_between_two_instants_is_never_negative() {
        let early = Timestamp::from_unix_millis(i64::MIN);
        let late = Timestamp::from_unix_millis(i64::MAX);
        assert_eq!(late.since(early), Some(Duration::from_millis(u64::MAX)));
        assert_eq!(late.since(late), Some(Duration::ZERO));
        assert_eq!(early.since(late), None);
    }

    #[test]
    fn start_times_of_a_kubelet_become_milliseconds() {
        let start = Timestamp::from_unix_seconds(1.763_000_000_123_456_7e9).unwrap();
        assert_eq!(start.to_string(), "2025-11-13T02:13:20.123Z");
        assert_eq!(start.rfc3339_seconds().as_str(), "2025-11-13T02:13:20Z");
        for value in [f64::NAN, f64::INFINITY, -1.0, 1e300, 9.3e15] {
            assert!(Timestamp::from_unix_seconds(value).is_err(), "{value}");
        }
    }

    #[test]
    fn a_clock_is_rounded_down() {
        let epoch = SystemTime::UNIX_EPOCH;
        let millis = |time| Timestamp::from_system_time(time).unix_millis();
        assert_eq!(millis(epoch + Duration::from_micros(1_999)), 1);
        assert_eq!(millis(epoch - Duration::from_micros(1)), -1);
        assert_eq!(millis(epoch - Duration::from_millis(5)), -5);
        assert_eq!(Timestamp::from_unix_millis(-1).unix_seconds(), -1);
    }

    #[test]
    fn sums_beyond_64_bits_are_none() {
        let late = Timestamp::from_unix_millis(i64::MAX);
        assert_eq!(late.checked_add(Duration::from_millis(1)), None);
        assert_eq!(late.checked_add(Duration::MAX), None);
        assert_eq!(
            late.checked_sub(Duration::from_millis(u64::MAX)),
            Some(Timestamp::from_unix_millis(i64::MIN))
        );
    }

    #[test]
    fn the_zero_time_of_go_is_recognized() {
        assert_eq!("0001-01-01T00:00:00Z".parse(), Ok(Timestamp::GO_ZERO));
    }

    #[test]
    fn an_error_shows_how_to_write_a_time() {
        let error = "yesterday".parse::<Timestamp>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid time \"yesterday\"; write it as in 2006-01-02T15:04:05Z"
        );
    }
}
