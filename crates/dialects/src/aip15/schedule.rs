//! When something is to happen, as text: cron, time zones, recurrence rules. Owns what is accepted of each and says why
//! not; when the next time is, nobody here knows.

use std::ops::RangeInclusive;

use skein_core::closest::closest;

use crate::{
    code::Code,
    diagnostic::{Diagnostic, Sink},
    read::Given,
};

const MONTHS: &[&str] = &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const DAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
/// The five fields of a cron expression, what each may hold, and the names that stand for its numbers.
const FIELDS: [(&str, RangeInclusive<u32>, &[&str]); 5] = [
    ("minute", 0..=59, &[]),
    ("hour", 0..=23, &[]),
    ("day of the month", 1..=31, &[]),
    ("month", 1..=12, MONTHS),
    ("day of the week", 0..=7, DAYS),
];
/// The areas of the time zone database.
const AREAS: &[&str] = &[
    "Africa",
    "America",
    "Antarctica",
    "Arctic",
    "Asia",
    "Atlantic",
    "Australia",
    "Etc",
    "Europe",
    "Indian",
    "Pacific",
];
const FREQUENCIES: &[&str] = &["SECONDLY", "MINUTELY", "HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"];

/// Text that is checked by one of the functions here.
pub(super) fn text(
    given: Option<Given<'_>>,
    check: impl FnOnce(&str) -> Result<(), String>,
    sink: &mut Sink,
) -> Option<String> {
    let given = given?;
    let text = given.words(sink)?.value;
    if let Err(why) = check(text) {
        let message = format!("`{}` cannot be `{text}`: {why}", given.name);
        sink.push(Diagnostic::new(Code::WrongSchedule, given.node.source(), given.node.mark(), message));
    }
    Some(text.to_owned())
}

/// Five fields: minute, hour, day, month, day of the week.
pub(super) fn cron(text: &str) -> Result<(), String> {
    let parts: Vec<&str> = text.split_whitespace().collect();
    if parts.len() != FIELDS.len() {
        return Err(format!(
            "it has {} fields, and the five are minute, hour, day, month and day of the week",
            parts.len()
        ));
    }
    for (part, (what, range, names)) in parts.iter().zip(&FIELDS) {
        for item in part.split(',') {
            cron_item(item, range, names).map_err(|why| format!("the {what} `{part}` {why}"))?;
        }
    }
    Ok(())
}

/// `*`, `5`, `1-5`, each perhaps with `/2`.
fn cron_item(item: &str, range: &RangeInclusive<u32>, names: &[&str]) -> Result<(), String> {
    let (span, step) = item.split_once('/').map_or((item, None), |(span, step)| (span, Some(step)));
    if step.is_some_and(|step| step.parse().map_or(true, |step: u32| step == 0)) {
        return Err("has a step that is not a number above 0".to_owned());
    }
    if span == "*" {
        return Ok(());
    }
    let number = |text: &str| {
        let upper = text.to_ascii_uppercase();
        let named = names.iter().position(|name| *name == upper).and_then(|at| u32::try_from(at).ok());
        let named = named.map(|at| at + range.start());
        let number = named.or_else(|| text.parse().ok()).ok_or_else(|| "is not a number".to_owned())?;
        let outside = || format!("is not from {} to {}", range.start(), range.end());
        range.contains(&number).then_some(number).ok_or_else(outside)
    };
    match span.split_once('-') {
        Some((first, last)) if number(first)? > number(last)? => Err("ends before it begins".to_owned()),
        Some(_) => Ok(()),
        None => number(span).map(|_| ()),
    }
}

/// `UTC`, or an area and a place of the time zone database. Whether there is such a place, the host knows.
pub(super) fn timezone(text: &str) -> Result<(), String> {
    if matches!(text, "UTC" | "GMT") {
        return Ok(());
    }
    let is_part = |part: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '+');
        !part.is_empty() && part.chars().all(allowed)
    };
    match text.split_once('/') {
        Some((area, place)) if AREAS.contains(&area) && place.split('/').all(is_part) => Ok(()),
        Some((area, place)) if !AREAS.contains(&area) => Err(match closest(area, AREAS.iter().copied()) {
            Some(near) => format!("there is no area `{area}`; did you mean `{near}/{place}`?"),
            None => format!("there is no area `{area}`"),
        }),
        _ => Err("a time zone is `UTC` or has an area and a place, such as `Europe/Paris`".to_owned()),
    }
}

/// `FREQ=WEEKLY;BYDAY=MO`, perhaps after `RRULE:`.
pub(super) fn rrule(text: &str) -> Result<(), String> {
    let rule = text.strip_prefix("RRULE:").unwrap_or(text);
    let mut frequency = None;
    for part in rule.split(';') {
        let Some((key, value)) =
            part.split_once('=').filter(|(key, value)| !key.is_empty() && !value.is_empty())
        else {
            return Err(format!("`{part}` is not a name, `=` and a value"));
        };
        if key == "FREQ" {
            frequency = Some(value);
        }
    }
    match frequency {
        Some(word) if FREQUENCIES.contains(&word) => Ok(()),
        Some(word) => Err(format!("there is no frequency `{word}`")),
        None => Err("a rule says how often, such as `FREQ=WEEKLY;BYDAY=MO`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cron_has_five_fields_in_their_ranges() {
        for good in ["0 9 * * MON", "*/15 0-6 1,15 jan-mar 0", "59 23 31 12 7", "0 0 * * *"] {
            assert_eq!(cron(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("0 9 * *", "it has 4 fields, and the five are minute, hour, day, month and day of the week"),
            ("60 9 * * *", "the minute `60` is not from 0 to 59"),
            ("0 9 0 * *", "the day of the month `0` is not from 1 to 31"),
            ("0 9 * FOO *", "the month `FOO` is not a number"),
            ("0 5-1 * * *", "the hour `5-1` ends before it begins"),
            ("*/0 * * * *", "the minute `*/0` has a step that is not a number above 0"),
            ("1,, * * * *", "the minute `1,,` is not a number"),
        ] {
            assert_eq!(cron(bad), Err(why.to_owned()), "{bad}");
        }
    }

    #[test]
    fn zones_and_rules() {
        for good in ["UTC", "Europe/Paris", "America/Argentina/Buenos_Aires", "Etc/GMT+5"] {
            assert_eq!(timezone(good), Ok(()), "{good}");
        }
        for bad in ["", "Paris", "CET+1", "Europe/", "Europe/Pa ris", "Mars/Olympus"] {
            assert!(timezone(bad).is_err(), "{bad}");
        }
        assert!(timezone("Eurpe/Paris").unwrap_err().contains("`Europe/Paris`"));
        assert_eq!(rrule("FREQ=WEEKLY;BYDAY=MO"), Ok(()));
        for bad in ["", "WEEKLY", "FREQ=", "FREQ=OFTEN", "BYDAY=MO", "FREQ=DAILY;;"] {
            assert!(rrule(bad).is_err(), "{bad}");
        }
    }
}
