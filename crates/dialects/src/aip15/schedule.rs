//! Time zones and recurrence rules, as text. Owns their checks. Does not know how to compute the next occurrence.

use skein_core::suggest::find_closest_name;

use crate::{cron, diagnostic::DiagnosticSink, fields::FieldValue};

/// The names of the time zone database, one a line, sorted.
const ZONES: &str = include_str!("time_zones.txt");
const FREQUENCIES: &[&str] = &["SECONDLY", "MINUTELY", "HOURLY", "DAILY", "WEEKLY", "MONTHLY", "YEARLY"];

/// Reads a text and reports the error that `check` returns for it.
pub(super) fn read_checked_text(
    given: Option<FieldValue<'_>>,
    check: impl FnOnce(&str) -> Result<(), String>,
    sink: &mut DiagnosticSink,
) -> Option<String> {
    let given = given?;
    let text = given.read_non_empty_text(sink)?.value;
    if let Err(why) = check(text) {
        sink.push(cron::diagnose_schedule(given, text, &why));
    }
    Some(text.to_owned())
}

/// Checks a name of the time zone database, such as `UTC` or `Europe/Paris`.
pub(super) fn check_timezone(text: &str) -> Result<(), String> {
    if ZONES.lines().any(|zone| zone == text) {
        return Ok(());
    }
    Err(match find_closest_name(text, ZONES.lines()) {
        Some(near) => format!("there is no time zone `{text}`; did you mean `{near}`?"),
        None => format!("there is no time zone `{text}`; names are `UTC` or such as `Europe/Paris`"),
    })
}

/// Checks a rule such as `FREQ=WEEKLY;BYDAY=MO`, perhaps after `RRULE:`.
pub(super) fn check_rrule(text: &str) -> Result<(), String> {
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
        None => Err("`FREQ` is missing, as in `FREQ=WEEKLY;BYDAY=MO`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_and_rules() {
        for good in ["UTC", "Europe/Paris", "America/Argentina/Buenos_Aires", "Etc/GMT+5"] {
            assert_eq!(check_timezone(good), Ok(()), "{good}");
        }
        for bad in ["", "Paris", "CET+1", "Europe/", "Europe/Pa ris", "Mars/Olympus", "Europe/Nowhere"] {
            assert!(check_timezone(bad).is_err(), "{bad}");
        }
        assert!(check_timezone("Eurpe/Paris").unwrap_err().contains("`Europe/Paris`"));
        assert_eq!(check_rrule("FREQ=WEEKLY;BYDAY=MO"), Ok(()));
        for bad in ["", "WEEKLY", "FREQ=", "FREQ=OFTEN", "BYDAY=MO", "FREQ=DAILY;;"] {
            assert!(check_rrule(bad).is_err(), "{bad}");
        }
    }
}
