//! Timestamps as policies write them: `2026-03-01`, `2026-03-01T09:30:00Z`, `2026-03-01T09:30:00+01:00`.

use skein_core::time::Timestamp;

/// Parses a timestamp.
pub(super) fn parse_timestamp(text: &str) -> Option<Timestamp> {
    let (date, clock) = text.split_once(['T', ' ']).map_or((text, None), |(date, clock)| (date, Some(clock)));
    let mut parts = date.splitn(3, '-').map(|part| parse_number(part, 4));
    let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let seconds = days_since_epoch(year, month, day) * 86_400 + clock.map_or(Some(0), parse_clock)?;
    Some(Timestamp(seconds * 1_000))
}

/// Returns the seconds of the day in UTC.
fn parse_clock(clock: &str) -> Option<i64> {
    let (clock, offset) = match clock.strip_suffix('Z') {
        Some(clock) => (clock, 0),
        None => {
            let at = clock.rfind(['+', '-'])?;
            let (hours, minutes) = clock[at + 1..].split_once(':')?;
            let offset = parse_number(hours, 2)? * 3_600 + parse_number(minutes, 2)? * 60;
            (&clock[..at], if clock[at..].starts_with('-') { -offset } else { offset })
        }
    };
    let clock = clock.split('.').next()?;
    let mut parts = clock.splitn(3, ':').map(|part| parse_number(part, 2));
    let (hour, minute, second) = (parts.next()??, parts.next()??, parts.next()??);
    (hour < 24 && minute < 60 && second < 61).then_some(hour * 3_600 + minute * 60 + second - offset)
}

fn parse_number(text: &str, most: usize) -> Option<i64> {
    let good = !text.is_empty() && text.len() <= most && text.bytes().all(|byte| byte.is_ascii_digit());
    if good { text.parse().ok() } else { None }
}

/// Returns the days since 1970-01-01. Counts in years that begin in March, so that the leap day is the last of a year.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * month + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use skein_core::engine::format_utc;

    use super::*;

    #[test]
    fn moments_are_read_as_they_are_shown() {
        for text in ["1970-01-01T00:00:00Z", "2000-02-29T23:59:59Z", "2026-11-16T12:00:00Z"] {
            assert_eq!(parse_timestamp(text).map(format_utc).as_deref(), Some(text));
        }
        assert_eq!(parse_timestamp("2026-03-01"), parse_timestamp("2026-03-01T00:00:00Z"));
        assert_eq!(parse_timestamp("2026-03-01T01:00:00.5+01:00"), parse_timestamp("2026-03-01T00:00:00Z"));
        for wrong in ["", "yesterday", "2026-13-01", "2026-3", "2026-03-01T9", "2026-03-01T09:00:00", "1e9-01-01"] {
            assert_eq!(parse_timestamp(wrong), None, "{wrong}");
        }
    }
}
