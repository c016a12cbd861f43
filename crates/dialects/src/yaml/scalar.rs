//! What an unquoted scalar means in the core schema of YAML 1.2. `yes`, `no`, `on`, `1_000` and dates are text.

/// A scalar's meaning.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scalar<'a> {
    Null,
    Bool(bool),
    /// From the smallest of 64 bits with a sign to the largest without, as JSON can hold it.
    Int(i128),
    Float(f64),
    Text(&'a str),
}

pub fn resolve(text: &str) -> Scalar<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "true" | "True" | "TRUE" => Scalar::Bool(true),
        "false" | "False" | "FALSE" => Scalar::Bool(false),
        _ => number(text).unwrap_or(Scalar::Text(text)),
    }
}

fn number(text: &str) -> Option<Scalar<'_>> {
    // Nearly all text ends here.
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return None;
    }
    let radix = |digits: &str, radix| i128::from_str_radix(digits, radix).ok().and_then(integer);
    if let Some(digits) = text.strip_prefix("0x").filter(|d| d.chars().all(|c| c.is_ascii_hexdigit())) {
        return radix(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o").filter(|d| d.chars().all(|c| c.is_digit(8))) {
        return radix(digits, 8);
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok().and_then(integer);
    }
    if digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'))
        && digits.bytes().any(|b| b.is_ascii_digit())
    {
        return float(text);
    }
    None
}

/// An integer that JSON can hold. A larger one stays text, so that no digit of it is lost.
fn integer<'a>(value: i128) -> Option<Scalar<'a>> {
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value).then_some(Scalar::Int(value))
}

/// Infinity and not-a-number have no place in a workflow and stay text.
fn float(text: &str) -> Option<Scalar<'_>> {
    text.parse().ok().filter(|number: &f64| number.is_finite()).map(Scalar::Float)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_schema_and_nothing_older() {
        for (text, meaning) in [
            ("", Scalar::Null),
            ("~", Scalar::Null),
            ("true", Scalar::Bool(true)),
            ("FALSE", Scalar::Bool(false)),
            ("12", Scalar::Int(12)),
            ("-12", Scalar::Int(-12)),
            ("+3", Scalar::Int(3)),
            ("010", Scalar::Int(10)),
            ("0o10", Scalar::Int(8)),
            ("0xff", Scalar::Int(255)),
            ("1.5", Scalar::Float(1.5)),
            ("1e3", Scalar::Float(1000.0)),
            (".5", Scalar::Float(0.5)),
            ("18446744073709551615", Scalar::Int(18_446_744_073_709_551_615)),
            ("-9223372036854775808", Scalar::Int(-9_223_372_036_854_775_808)),
            ("99999999999999999999", Scalar::Text("99999999999999999999")),
        ] {
            assert_eq!(resolve(text), meaning, "{text:?}");
        }
        for text in ["yes", "no", "on", "1_000", "2026-01-02", ".inf", ".nan", "1.2.3", "-", ".", "0x", "5m"]
        {
            assert_eq!(resolve(text), Scalar::Text(text));
        }
    }
}
