//! Time zones and recurrence rules, as text. Owns what is accepted of each and says why not; when the next time is,
//! nobody here knows.

use skein_core::closest::closest;

use crate::{diagnostic::Sink, read::Given, schedule};

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

/// Text that one of these checks.
pub(super) fn text(
    given: Option<Given<'_>>,
    check: impl FnOnce(&str) -> Result<(), String>,
    sink: &mut Sink,
) -> Option<String> {
    let given = given?;
    let text = given.words(sink)?.value;
    if let Err(why) = check(text) {
        sink.push(schedule::refuse(given, text, &why));
    }
    Some(text.to_owned())
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
