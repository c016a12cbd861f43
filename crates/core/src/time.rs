//! Points in time and durations, as plain numbers, and their texts.
//!
//! Owns arithmetic that cannot overflow. Does not know a clock: every [`Timestamp`] came in with an input.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A point in wall-clock time: milliseconds since 1970 in UTC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// A duration in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

impl Timestamp {
    /// Returns the point in time this much later, or the latest possible one.
    pub fn saturating_add(self, length: Millis) -> Timestamp {
        Timestamp(self.0.saturating_add(i64::try_from(length.0).unwrap_or(i64::MAX)))
    }

    /// Returns the duration since an earlier point in time; zero if the clock went back in between.
    pub fn duration_since(self, earlier: Timestamp) -> Millis {
        Millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

impl Millis {
    pub const fn from_secs(n: u64) -> Millis {
        Millis(n.saturating_mul(1_000))
    }

    pub const fn from_mins(n: u64) -> Millis {
        Millis::from_secs(n.saturating_mul(60))
    }

    pub const fn from_hours(n: u64) -> Millis {
        Millis::from_mins(n.saturating_mul(60))
    }

    pub fn saturating_add(self, other: Millis) -> Millis {
        Millis(self.0.saturating_add(other.0))
    }
}

impl fmt::Display for Millis {
    /// Writes the shortest exact form in hours, minutes, seconds and milliseconds: `1h30m`, `250ms`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return f.write_str("0s");
        }
        let mut rest = self.0;
        for (unit, size) in [("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
            let count = rest / size;
            rest %= size;
            if count > 0 {
                write!(f, "{count}{unit}")?;
            }
        }
        Ok(())
    }
}

/// Formats a time in UTC (RFC 3339), to the second.
pub fn format_utc(time: Timestamp) -> String {
    let seconds = time.0.div_euclid(1_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = date_from_days(days);
    format!("{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z", second / 3_600, second / 60 % 60, second % 60)
}

/// Returns the date that is this many days after 1970-01-01. Years are counted from March, so that the leap day is the
/// last day of a year.
fn date_from_days(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year_of_era + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(Timestamp(i64::MAX).saturating_add(Millis(u64::MAX)), Timestamp(i64::MAX));
        assert_eq!(Timestamp(5).duration_since(Timestamp(9)), Millis(0));
        assert_eq!(Timestamp(i64::MAX).duration_since(Timestamp(i64::MIN)), Millis(i64::MAX as u64));
    }

    #[test]
    fn lengths_read_well() {
        let shown = |n| Millis(n).to_string();
        assert_eq!((shown(0), shown(5_400_000), shown(61_250)), ("0s".into(), "1h30m".into(), "1m1s250ms".into()));
    }

    #[test]
    fn times_read_as_dates() {
        assert_eq!(format_utc(Timestamp(0)), "1970-01-01T00:00:00Z");
        assert_eq!(format_utc(Timestamp(951_782_399_999)), "2000-02-28T23:59:59Z");
        assert_eq!(format_utc(Timestamp(951_782_400_000)), "2000-02-29T00:00:00Z");
        assert_eq!(format_utc(Timestamp(2_147_483_648_000)), "2038-01-19T03:14:08Z");
        assert_eq!(format_utc(Timestamp(-1)), "1969-12-31T23:59:59Z");
        // Leap days, years without one, and the ends of centuries and eras.
        for (time, text) in [
            (-2203977600000, "1900-02-28T00:00:00Z"),
            (-2203891200000, "1900-03-01T00:00:00Z"),
            (68169600000, "1972-02-29T00:00:00Z"),
            (978220800000, "2000-12-31T00:00:00Z"),
            (4107456000000, "2100-02-28T00:00:00Z"),
            (4107542400000, "2100-03-01T00:00:00Z"),
            (-11644473600000, "1601-01-01T00:00:00Z"),
            (13569379200000, "2399-12-31T00:00:00Z"),
            (13574563200000, "2400-02-29T00:00:00Z"),
            (13601088000000, "2401-01-01T00:00:00Z"),
        ] {
            assert_eq!(format_utc(Timestamp(time)), text);
        }
    }
}
