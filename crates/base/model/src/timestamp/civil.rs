//! Days since the epoch to dates of the Gregorian calendar and back, extended to all years.
//!
//! Both ways count from the first of March of the year 0: the leap day is then the last day of a
//! year, every month has a fixed place in it, and 400 years (an era) always have the same number of
//! days.

/// Days in 400 years.
const DAYS_PER_ERA: i64 = 146_097;

/// Days from 0000-03-01 to 1970-01-01.
const EPOCH: i64 = 719_468;

/// A day of the Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Date {
    pub(super) year: i64,
    /// 1 to 12.
    pub(super) month: u8,
    /// 1 to 31.
    pub(super) day: u8,
}

/// The date so many days after 1970-01-01.
pub(super) fn date_of(days_since_epoch: i64) -> Date {
    let days = days_since_epoch + EPOCH;
    let era = days.div_euclid(DAYS_PER_ERA);
    let day_of_era = days.rem_euclid(DAYS_PER_ERA);
    // Takes out the leap days before dividing: every 4 years (1,460 days), not every 100, but every
    // 400.
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    // From March on, five months always have 153 days.
    let months_after_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - days_before_month(months_after_march) + 1;
    let (month, next_year) = if months_after_march < 10 {
        (months_after_march + 3, 0)
    } else {
        (months_after_march - 9, 1)
    };
    Date {
        year: era * 400 + year_of_era + next_year,
        month: u8::try_from(month).expect("a month is between 1 and 12"),
        day: u8::try_from(day).expect("a day is between 1 and 31"),
    }
}

/// Returns the number of days from 1970-01-01 to a valid date.
pub(super) fn days_of(date: Date) -> i64 {
    let month = i64::from(date.month);
    let (months_after_march, year) = if month >= 3 {
        (month - 3, date.year)
    } else {
        (month + 9, date.year - 1)
    };
    let year_of_era = year.rem_euclid(400);
    let day_of_year = days_before_month(months_after_march) + i64::from(date.day) - 1;
    let day_of_era = 365 * year_of_era + year_of_era / 4 - year_of_era / 100 + day_of_year;
    year.div_euclid(400) * DAYS_PER_ERA + day_of_era - EPOCH
}

/// Returns the number of days in a month; zero if there is no such month.
pub(super) fn days_in_month(year: i64, month: u8) -> u8 {
    match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 0,
    }
}

/// Days from the first of March to the first of a later month.
fn days_before_month(months_after_march: i64) -> i64 {
    (153 * months_after_march + 2) / 5
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_eight_centuries_follows_the_one_before() {
        let mut expected = Date {
            year: 1600,
            month: 1,
            day: 1,
        };
        for days in days_of(expected).. {
            assert_eq!(date_of(days), expected);
            assert_eq!(days_of(expected), days);
            if expected.day < days_in_month(expected.year, expected.month) {
                expected.day += 1;
            } else if expected.month < 12 {
                expected = Date {
                    month: expected.month + 1,
                    day: 1,
                    ..expected
                };
            } else if expected.year < 2400 {
                expected = Date {
                    year: expected.year + 1,
                    month: 1,
                    day: 1,
                };
            } else {
                break;
            }
        }
    }

    #[test]
    fn the_epoch_is_day_zero() {
        assert_eq!(
            date_of(0),
            Date {
                year: 1970,
                month: 1,
                day: 1
            }
        );
        assert_eq!(
            date_of(-1),
            Date {
                year: 1969,
                month: 12,
                day: 31
            }
        );
    }
}
