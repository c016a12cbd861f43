//! Cron expressions, as text. Owns their checks. Does not know how to compute the next occurrence; triggers start no runs.

use std::{fmt, ops::RangeInclusive};

use skein_core::{expr::ExprSpan, suggest::find_closest_name};
use thiserror::Error;

use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticSink, shorten_text},
    fields::FieldValue,
};

const MONTHS: &[&str] = &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const DAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
/// The five fields of a cron expression, the range of each, and the names for its numbers.
const FIELDS: [(&str, RangeInclusive<u32>, &[&str]); 5] = [
    ("minute", 0..=59, &[]),
    ("hour", 0..=23, &[]),
    ("day of the month", 1..=31, &[]),
    ("month", 1..=12, MONTHS),
    ("day of the week", 0..=7, DAYS),
];
/// Names for whole expressions.
const LINES: &[&str] = &["@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

/// The reason why a text is not a cron expression.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum CronError {
    #[error("it has {0} fields instead of five: minute, hour, day, month and day of the week")]
    FieldCount(usize),
    #[error("unknown name; did you mean `{0}`?")]
    MisspeltName(&'static str),
    #[error("the names are {}", LINES.join(", "))]
    UnknownName,
    #[error("the {field} `{text}` {fault}")]
    BadField { field: &'static str, text: String, fault: CronItemFault },
}

/// The fault of one item of a field.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum CronItemFault {
    #[error("has a step that is not a number above 0")]
    Step,
    #[error("is not a number")]
    Number,
    #[error("is not from {} to {}", .0.start(), .0.end())]
    OutOfRange(RangeInclusive<u32>),
    #[error("ends before it begins")]
    Backwards,
}

/// Builds the diagnostic for a text that is not a schedule.
pub(crate) fn diagnose_schedule(given: FieldValue<'_>, text: &str, why: &impl fmt::Display) -> Diagnostic {
    let message = format!("`{}` cannot be `{}`: {why}", given.name, shorten_text(text));
    given.diagnose(Code::BadSchedule, message)
}

/// Checks five fields (minute, hour, day, month, day of the week), or a name for all five.
pub(crate) fn check_cron(text: &str) -> Result<(), CronError> {
    let parts: Vec<&str> = text.split_whitespace().collect();
    if let [name] = parts.as_slice()
        && name.starts_with('@')
    {
        return check_cron_name(name);
    }
    if parts.len() != FIELDS.len() {
        return Err(CronError::FieldCount(parts.len()));
    }
    for (part, (field, range, names)) in parts.iter().zip(&FIELDS) {
        let error = |fault| CronError::BadField { field, text: (*part).to_owned(), fault };
        for item in part.split(',') {
            check_cron_item(item, range, names).map_err(error)?;
        }
    }
    Ok(())
}

fn check_cron_name(name: &str) -> Result<(), CronError> {
    if LINES.contains(&name) {
        return Ok(());
    }
    Err(match find_closest_name(name, LINES.iter().copied()) {
        Some(near) => CronError::MisspeltName(near),
        None => CronError::UnknownName,
    })
}

/// Checks `*`, `5` or `1-5`, each perhaps with `/2`.
fn check_cron_item(item: &str, range: &RangeInclusive<u32>, names: &[&str]) -> Result<(), CronItemFault> {
    let (span, step) = item.split_once('/').map_or((item, None), |(span, step)| (span, Some(step)));
    if step.is_some_and(|step| step.parse().map_or(true, |step: u32| step == 0)) {
        return Err(CronItemFault::Step);
    }
    if span == "*" {
        return Ok(());
    }
    let number = |text: &str| {
        let upper = text.to_ascii_uppercase();
        let named = names.iter().position(|name| *name == upper).and_then(|at| u32::try_from(at).ok());
        let named = named.map(|at| at + range.start());
        let number = named.or_else(|| text.parse().ok()).ok_or(CronItemFault::Number)?;
        let outside = || CronItemFault::OutOfRange(range.clone());
        range.contains(&number).then_some(number).ok_or_else(outside)
    };
    match span.split_once('-') {
        Some((first, last)) if number(first)? > number(last)? => Err(CronItemFault::Backwards),
        Some(_) => Ok(()),
        None => number(span).map(|_| ()),
    }
}

/// Notes that a trigger is kept but starts no runs. `kind` names it.
pub(crate) fn note_unserved_trigger(span: ExprSpan, kind: &str, sink: &mut DiagnosticSink) {
    let message = format!("runs are not started by {kind} yet; use `skein run`");
    sink.push(Diagnostic::new(Code::TriggerNotServed, &sink.source, span, message));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cron_has_five_fields_in_their_ranges() {
        for good in ["0 9 * * MON", "*/15 0-6 1,15 jan-mar 0", "59 23 31 12 7", "0 0 * * *", "@daily", " @hourly "] {
            assert_eq!(check_cron(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("0 9 * *", "it has 4 fields instead of five: minute, hour, day, month and day of the week"),
            ("0 0 9 * * MON", "it has 6 fields instead of five: minute, hour, day, month and day of the week"),
            ("@dayly", "unknown name; did you mean `@daily`?"),
            ("@reboot", "the names are @yearly, @annually, @monthly, @weekly, @daily, @midnight, @hourly"),
            ("60 9 * * *", "the minute `60` is not from 0 to 59"),
            ("0 9 0 * *", "the day of the month `0` is not from 1 to 31"),
            ("0 9 * FOO *", "the month `FOO` is not a number"),
            ("0 5-1 * * *", "the hour `5-1` ends before it begins"),
            ("*/0 * * * *", "the minute `*/0` has a step that is not a number above 0"),
            ("1,, * * * *", "the minute `1,,` is not a number"),
        ] {
            assert_eq!(check_cron(bad).unwrap_err().to_string(), why, "{bad}");
        }
    }
}
