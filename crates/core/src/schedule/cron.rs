//! Cron expressions over civil time.
//!
//! Owns the accepted syntax: five fields or a name. The search is croner's, over times without a zone; `slots` maps its
//! results to instants. Croner's own search over zoned times loses and repeats slots around daylight-saving changes.

use croner::{
    Cron,
    parser::{CronParser, Seconds, Year},
};
use jiff::civil::DateTime;

use super::error::TriggerError;

/// Names for whole expressions.
const NAMES: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

const MONTHS: &[&str] = &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// The names that each of the five fields accepts besides numbers.
const FIELD_NAMES: [&[&str]; 5] = [&[], &[], &[], MONTHS, WEEKDAYS];

/// A parsed cron expression.
#[derive(Debug, Clone)]
pub(super) struct CronSeries {
    cron: Cron,
    /// True if the hour field is `*` or `*/n`, so that real hours count.
    pub real_hours: bool,
}

impl CronSeries {
    pub(crate) fn parse(text: &str) -> Result<CronSeries, TriggerError> {
        let bad = |reason: String| TriggerError::Cron { text: text.to_owned(), reason };
        let trimmed = text.trim();
        let expression = NAMES.iter().find(|(name, _)| *name == trimmed).map_or(trimmed, |(_, fields)| fields);
        let fields: Vec<&str> = expression.split_whitespace().collect();
        if fields.len() != FIELD_NAMES.len() {
            return Err(bad(format!("it has {} fields instead of five", fields.len())));
        }
        for (field, names) in fields.iter().zip(FIELD_NAMES) {
            if let Some(item) = field.split([',', '-', '/']).find(|item| !is_plain_item(item, names)) {
                return Err(bad(format!("`{item}` is not a number or a name of its field")));
            }
        }
        let parser =
            CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).sloppy_ranges(true).build();
        let cron = parser.parse(&fields.join(" ")).map_err(|error| bad(error.to_string()))?;
        let hour = fields[1];
        let real_hours = hour == "*" || hour.strip_prefix("*/").is_some_and(|step| !step.contains(','));
        let series = CronSeries { cron, real_hours };
        if series.next(DateTime::constant(2024, 1, 1, 0, 0, 0, 0), true).is_none() {
            return Err(TriggerError::NeverFires { text: text.to_owned() });
        }
        Ok(series)
    }

    /// Returns the first occurrence after a civil time, or at it if `inclusive`.
    pub(crate) fn next(&self, from: DateTime, inclusive: bool) -> Option<DateTime> {
        // Croner works in whole seconds, so a start within a second must not find that second again.
        let inclusive = inclusive && from.subsec_nanosecond() == 0;
        self.cron.find_next_occurrence(&from, inclusive).ok()
    }
}

/// True for `*`, a number, and a name of the field.
fn is_plain_item(item: &str, names: &[&str]) -> bool {
    let number = !item.is_empty() && item.len() <= 4 && item.bytes().all(|byte| byte.is_ascii_digit());
    item == "*" || number || names.iter().any(|name| name.eq_ignore_ascii_case(item))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upcoming(text: &str, from: &str, count: usize) -> Vec<String> {
        let series = CronSeries::parse(text).unwrap();
        let mut at: DateTime = from.parse().unwrap();
        let mut found = Vec::new();
        for _ in 0..count {
            at = series.next(at, false).unwrap();
            found.push(at.strftime("%m-%d %H:%M").to_string());
        }
        found
    }

    #[test]
    fn the_next_times_of_an_expression() {
        assert_eq!(upcoming("30 2 * * *", "2026-01-01T00:00", 2), ["01-01 02:30", "01-02 02:30"]);
        assert_eq!(upcoming("@weekly", "2026-01-01T00:00", 2), ["01-04 00:00", "01-11 00:00"]);
        assert_eq!(upcoming("@midnight", "2026-01-01T00:00", 1), ["01-02 00:00"]);
        assert_eq!(upcoming("0 0 29 2 *", "2026-01-01T00:00", 1), ["02-29 00:00"]);
        assert_eq!(upcoming("5/20 9 * jan mon-fri", "2026-01-02T09:26", 2), ["01-02 09:45", "01-05 09:05"]);
        assert_eq!(upcoming("*/90 * * * *", "2026-01-01T00:00", 2), ["01-01 01:00", "01-01 02:00"]);
        assert_eq!(upcoming("0 0 * * sat-sun", "2026-01-01T00:00", 2), ["01-03 00:00", "01-04 00:00"]);
    }

    #[test]
    fn either_of_two_day_fields_matches() {
        assert_eq!(upcoming("0 0 13 * FRI", "2026-01-10T00:00", 3), ["01-13 00:00", "01-16 00:00", "01-23 00:00"]);
    }

    #[test]
    fn an_occurrence_is_not_found_twice() {
        let series = CronSeries::parse("0 0 * * *").unwrap();
        let slot: DateTime = "2026-01-02T00:00".parse().unwrap();
        let next: DateTime = "2026-01-03T00:00".parse().unwrap();
        assert_eq!(series.next(slot, true), Some(slot));
        assert_eq!(series.next(slot, false), Some(next));
        assert_eq!(series.next("2026-01-02T00:00:00.5".parse().unwrap(), true), Some(next));
        assert_eq!(series.next("2026-01-01T23:59:59.999".parse().unwrap(), false), Some(slot));
    }

    #[test]
    fn real_hours_are_a_star_in_the_hour_field() {
        let real = |text| CronSeries::parse(text).unwrap().real_hours;
        assert!(real("0 * * * *") && real("0 */2 * * *") && real("@hourly"));
        assert!(!real("0 0-23 * * *") && !real("0 1 * * *") && !real("0 */2,5 * * *") && !real("0 0-23/2 * * *"));
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in [
            "",
            "0 0 * *",
            "0 0 0 * * *",
            "@reboot",
            "0 0 L * *",
            "0 0 15W * *",
            "0 0 * * 5#2",
            "0 0 ? * *",
            "60 * * * *",
        ] {
            assert!(matches!(CronSeries::parse(bad), Err(TriggerError::Cron { .. })), "{bad}");
        }
        for bad in ["0 5-1 * * *", "*/0 * * * *", "1,, * * * *", "0 0 * MON *", "0 0 * * +MON", "99999 * * * *"] {
            assert!(matches!(CronSeries::parse(bad), Err(TriggerError::Cron { .. })), "{bad}");
        }
        assert!(matches!(CronSeries::parse("0 0 31 2 *"), Err(TriggerError::NeverFires { .. })));
    }
}
