//! Reading RFC 3339, with the liberties that Go's `time.Parse` takes: an hour of one digit, a comma
//! before the fraction, and offsets up to 24:60. An object that the API server took must be
//! readable here.

use super::civil::{self, Date};

/// The rest of the input.
struct Cursor<'a>(&'a [u8]);

/// The milliseconds since the epoch, cut off at the millisecond; `None` if the text is not a time.
pub(super) fn unix_millis(text: &str) -> Option<i64> {
    let mut rest = Cursor(text.as_bytes());
    let year = rest.number(4)?;
    let month = rest.after(b'-')?.two_digits(12)?;
    let day = rest.after(b'-')?.two_digits(31)?;
    let hour = rest.after(b'T')?.one_or_two_digits(23)?;
    let minute = rest.after(b':')?.two_digits(59)?;
    let second = rest.after(b':')?.two_digits(59)?;
    let milliseconds = rest.fraction();
    let offset_minutes = rest.offset()?;
    rest.0.is_empty().then_some(())?;

    let date = Date {
        year,
        month: u8::try_from(month).ok()?,
        day: u8::try_from(day).ok()?,
    };
    let exists = (1..=civil::days_in_month(date.year, date.month)).contains(&date.day);
    exists.then(|| {
        let minutes = (civil::days_of(date) * 24 + hour) * 60 + minute - offset_minutes;
        (minutes * 60 + second) * 1_000 + milliseconds
    })
}

impl Cursor<'_> {
    /// Takes this very byte.
    fn after(&mut self, expected: u8) -> Option<&mut Self> {
        self.0 = self.0.strip_prefix(&[expected])?;
        Some(self)
    }

    fn digit(&mut self) -> Option<i64> {
        let (&first, rest) = self.0.split_first()?;
        first.is_ascii_digit().then(|| {
            self.0 = rest;
            i64::from(first - b'0')
        })
    }

    fn number(&mut self, digits: usize) -> Option<i64> {
        (0..digits).try_fold(0, |number, _| Some(number * 10 + self.digit()?))
    }

    fn two_digits(&mut self, most: i64) -> Option<i64> {
        self.number(2).filter(|&number| number <= most)
    }

    fn one_or_two_digits(&mut self, most: i64) -> Option<i64> {
        let first = self.digit()?;
        let number = self.digit().map_or(first, |second| first * 10 + second);
        (number <= most).then_some(number)
    }

    /// A fraction of a second in milliseconds. Without a digit there is none, and the point stays
    /// to be refused.
    fn fraction(&mut self) -> i64 {
        let [b'.' | b',', b'0'..=b'9', ..] = self.0 else {
            return 0;
        };
        self.0 = self.0.get(1..).unwrap_or_default();
        let mut milliseconds = 0;
        let mut weight = 100;
        while let Some(digit) = self.digit() {
            milliseconds += digit * weight;
            weight /= 10;
        }
        milliseconds
    }

    /// `Z` or an offset from UTC, in minutes.
    fn offset(&mut self) -> Option<i64> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        let sign = match first {
            b'Z' => return Some(0),
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        let hours = self.two_digits(24)?;
        let minutes = self.after(b':')?.two_digits(60)?;
        Some(sign * (hours * 60 + minutes))
    }
}
