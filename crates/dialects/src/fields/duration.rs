//! Durations as the formats write them, and the delays of retries.

use skein_core::{limits, time::Millis};
use thiserror::Error;

use crate::{
    diagnostics::{Code, Diagnostic, DiagnosticSink},
    fields::{FieldValue, Spanned},
};

/// The units that a format has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DurationUnits {
    /// AgentCore and IOA: `ms`, `s`, `m`, `h`, one after the other.
    UpToHours,
    /// SWDL and AIP-41: `s`, `m`, `h`, `d`.
    UpToDays,
    /// The units of Skein's own fields: all of them.
    All,
}

/// The reason why a text is not a duration.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DurationError {
    #[error("it is empty")]
    Empty,
    #[error("it must be more than zero")]
    Zero,
    #[error("it cannot be negative")]
    Negative,
    #[error("it is more than 366 days")]
    TooLong,
    #[error("use whole numbers, each with a unit")]
    Fraction,
    #[error("expected a number at `{0}`")]
    NoNumber(String),
    #[error("{0} is too large")]
    NumberTooLarge(String),
    #[error("missing unit ({known})")]
    MissingUnit { known: String },
    #[error("unknown unit `{unit}`; use {known}")]
    UnknownUnit { unit: String, known: String },
}

impl DurationUnits {
    fn known_units(self) -> &'static [(&'static str, u64)] {
        const ALL: &[(&str, u64)] = &[("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        match self {
            DurationUnits::UpToHours => &ALL[..4],
            DurationUnits::UpToDays => &ALL[1..],
            DurationUnits::All => ALL,
        }
    }

    fn unit_names(self) -> String {
        self.known_units().iter().map(|(unit, _)| *unit).collect::<Vec<_>>().join(", ")
    }

    pub fn quoted_names(self) -> String {
        self.known_units().iter().map(|(unit, _)| format!("`{unit}`")).collect::<Vec<_>>().join(", ")
    }

    pub fn example(self) -> &'static str {
        match self {
            DurationUnits::UpToHours | DurationUnits::All => "1h30m",
            DurationUnits::UpToDays => "90m",
        }
    }

    /// Parses numbers with units, such as `1h30m`.
    pub fn parse(self, text: &str) -> Result<Millis, DurationError> {
        let mut rest = text;
        let mut total = 0u64;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            let (number, after) = rest.split_at(digits);
            let unit_end = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
            let (unit, after) = after.split_at(unit_end);
            if after.starts_with(['.', ',']) && !number.is_empty() {
                return Err(DurationError::Fraction);
            }
            let number: u64 = number.parse().map_err(|_| number_error(number, rest))?;
            let size = self.known_units().iter().find(|(known, _)| *known == unit).map(|(_, size)| *size);
            let size = size.ok_or_else(|| match unit {
                "" => DurationError::MissingUnit { known: self.unit_names() },
                unit => DurationError::UnknownUnit { unit: unit.to_owned(), known: self.unit_names() },
            })?;
            total = total.saturating_add(number.saturating_mul(size));
            rest = after;
        }
        match total {
            0 if text.is_empty() => Err(DurationError::Empty),
            0 => Err(DurationError::Zero),
            total if total > limits::TIMEOUT => Err(DurationError::TooLong),
            total => Ok(Millis(total)),
        }
    }

    /// Suggests the format's spelling of a duration that a person can read: with words, spaces or capitals, in ISO
    /// 8601, with a fraction, or in a unit that the format does not have.
    pub fn suggest_spelling(self, text: &str) -> Option<String> {
        self.format_fraction(text).or_else(|| self.format_duration(parse_spoken(text)?))
    }

    /// Formats a duration in the units of the format, the largest first.
    fn format_duration(self, length: u64) -> Option<String> {
        let mut rest = length;
        let mut written = String::new();
        for (unit, size) in self.known_units().iter().rev().filter(|_| length <= limits::TIMEOUT) {
            if rest >= *size {
                written += &format!("{}{unit}", rest / size);
                rest %= size;
            }
        }
        (rest == 0 && !written.is_empty()).then_some(written)
    }

    /// Converts a fraction of a unit, such as `1.5h`, to whole numbers of a smaller one.
    fn format_fraction(self, text: &str) -> Option<String> {
        let (whole, rest) = text.split_once(['.', ','])?;
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (part, unit) = rest.split_at(digits);
        let (_, size) = self.known_units().iter().find(|(known, _)| *known == unit)?;
        let scale = 10u64.checked_pow(u32::try_from(part.len()).ok()?)?;
        let parts = format!("{whole}{part}").parse::<u64>().ok()?.checked_mul(*size)?;
        let total = parts / scale;
        let exact = parts % scale == 0 && total > 0;
        let (unit, size) = self.known_units().iter().rev().find(|(_, size)| exact && total % size == 0)?;
        Some(format!("{}{unit}", total / size))
    }
}

/// Common words for each unit, with its length in milliseconds.
const WORDS: &[(&[&str], u64)] = &[
    (&["ms", "msec", "millis", "millisecond", "milliseconds"], 1),
    (&["s", "sec", "secs", "second", "seconds"], 1_000),
    (&["m", "min", "mins", "minute", "minutes"], 60_000),
    (&["h", "hr", "hrs", "hour", "hours"], 3_600_000),
    (&["d", "day", "days"], 86_400_000),
    (&["w", "week", "weeks"], 604_800_000),
];

/// Parses a duration in any common notation, if it is unambiguous.
fn parse_spoken(text: &str) -> Option<u64> {
    let lower = text.trim().to_lowercase();
    // Before the T of ISO 8601, M means months.
    let plain = match lower.strip_prefix('p') {
        Some(iso) if iso.split('t').next()?.contains('m') => return None,
        Some(iso) => iso.replacen('t', "", 1),
        None => lower.replace(" and ", " "),
    };
    let mut rest = plain.as_str();
    let mut total = 0u64;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let after = after.trim_start();
        let (unit, after) = after.split_at(after.find(|c: char| !c.is_alphabetic()).unwrap_or(after.len()));
        let (_, size) = WORDS.iter().find(|(words, _)| words.contains(&unit))?;
        total = total.checked_add(number.parse::<u64>().ok()?.checked_mul(*size)?)?;
        rest = after.trim_start_matches([' ', ',']);
    }
    Some(total)
}

fn number_error(digits: &str, rest: &str) -> DurationError {
    match digits {
        "" if rest.starts_with('-') => DurationError::Negative,
        "" => DurationError::NoNumber(rest.chars().take(8).collect()),
        digits => DurationError::NumberTooLarge(digits.to_owned()),
    }
}

/// Checks a retry delay, which the engine limits to one day.
pub(crate) fn check_delay(
    given: FieldValue<'_>,
    length: Option<Spanned<Millis>>,
    sink: &mut DiagnosticSink,
) -> Option<Spanned<Millis>> {
    let length = length?;
    if length.value.0 > limits::BACKOFF {
        let message = format!("`{}` is at most {}", given.name, Millis(limits::BACKOFF));
        sink.push(given.diagnose(Code::BadDuration, message));
        return None;
    }
    Some(length)
}

/// Refuses a maximum delay that is shorter than the initial one.
pub(crate) fn refuse_short_max_delay(first: &Spanned<Millis>, most: &Spanned<Millis>, sink: &mut DiagnosticSink) {
    if most.value < first.value {
        let message = "the maximum delay is shorter than the initial delay";
        let diagnostic = Diagnostic::new(Code::FieldsClash, &sink.source, most.span, message);
        sink.push(diagnostic.with_related(first.span, "the initial delay is here"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units_add_up() {
        assert_eq!(DurationUnits::UpToHours.parse("1h30m45s"), Ok(Millis(5_445_000)));
        assert_eq!(DurationUnits::UpToHours.parse("200ms"), Ok(Millis(200)));
        assert_eq!(DurationUnits::UpToDays.parse("2d"), Ok(Millis(172_800_000)));
        assert_eq!(DurationUnits::All.parse("1d1ms"), Ok(Millis(86_400_001)));
    }

    #[test]
    fn a_part_of_a_unit_is_whole_in_a_smaller_one() {
        let of = |units: DurationUnits, text| units.format_fraction(text);
        assert_eq!(of(DurationUnits::UpToHours, "1.5h").as_deref(), Some("90m"));
        assert_eq!(of(DurationUnits::UpToHours, "2.0h").as_deref(), Some("2h"));
        assert_eq!(of(DurationUnits::UpToHours, "0,25s").as_deref(), Some("250ms"));
        assert_eq!(of(DurationUnits::UpToDays, "0.5d").as_deref(), Some("12h"));
        assert_eq!(of(DurationUnits::UpToDays, "0.5s"), None);
        for other in ["1.5", "1.5x", "1.5h30m", "1h", "0.0h", ".", "1.99999999999999999999h", "-1.5h"] {
            assert_eq!(of(DurationUnits::UpToHours, other), None, "{other}");
        }
    }

    #[test]
    fn what_people_write_is_understood() {
        let of = |units: DurationUnits, text| units.suggest_spelling(text);
        for (text, meant) in [
            ("5 minutes", "5m"),
            ("5 min", "5m"),
            ("5M", "5m"),
            ("1h 30m", "1h30m"),
            ("1 hour and 30 minutes", "1h30m"),
            ("1 hr, 5 secs", "1h5s"),
            ("90 Minutes", "1h30m"),
            ("PT5M", "5m"),
            ("P1DT12H", "36h"),
            ("2d", "48h"),
            ("1 week", "168h"),
            ("250 milliseconds", "250ms"),
            ("1.5h", "90m"),
        ] {
            assert_eq!(of(DurationUnits::UpToHours, text).as_deref(), Some(meant), "{text}");
            let parsed = DurationUnits::UpToHours.parse(meant);
            assert!(parsed.is_ok(), "{meant}");
        }
        assert_eq!(of(DurationUnits::UpToDays, "36 hours").as_deref(), Some("1d12h"));
        assert_eq!(of(DurationUnits::UpToDays, "200 ms"), None);
        for other in ["300", "P1M", "soon", "5 x", "", "-5 m", "0 s", "９ m", "99999999999999999999 h", "400 d"] {
            assert_eq!(of(DurationUnits::UpToHours, other), None, "{other}");
        }
    }

    #[test]
    fn what_is_not_one_says_why() {
        let of = |text| DurationUnits::UpToHours.parse(text).unwrap_err().to_string();
        assert_eq!(of(""), "it is empty");
        assert_eq!(of("0s"), "it must be more than zero");
        assert_eq!(of("abc"), "expected a number at `abc`");
        assert_eq!(of("5x"), "unknown unit `x`; use ms, s, m, h");
        assert_eq!(of("-5m"), "it cannot be negative");
        assert_eq!(of("30"), "missing unit (ms, s, m, h)");
        assert_eq!(of("1.5h"), "use whole numbers, each with a unit");
        assert_eq!(of("1d"), "unknown unit `d`; use ms, s, m, h");
        assert_eq!(of("99999999999999999999s"), "99999999999999999999 is too large");
        assert_eq!(of("9999999h"), "it is more than 366 days");
        let error = DurationUnits::UpToDays.parse("5ms").unwrap_err();
        assert_eq!(error.to_string(), "unknown unit `ms`; use s, m, h, d");
    }
}
