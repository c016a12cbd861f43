//! Types of unquoted scalars in the core schema of YAML 1.2. `yes`, `no`, `on`, `1_000` and dates are text.

/// The typed value of a scalar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum YamlScalar<'a> {
    Null,
    Bool(bool),
    /// From `i64::MIN` to `u64::MAX`, as JSON can hold it.
    Int(i128),
    Float(f64),
    Text(&'a str),
}

pub fn resolve_scalar(text: &str) -> YamlScalar<'_> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => YamlScalar::Null,
        "true" | "True" | "TRUE" => YamlScalar::Bool(true),
        "false" | "False" | "FALSE" => YamlScalar::Bool(false),
        _ => parse_number(text).unwrap_or(YamlScalar::Text(text)),
    }
}

fn parse_number(text: &str) -> Option<YamlScalar<'_>> {
    // Nearly all texts end here.
    if !text.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '.')) {
        return None;
    }
    let radix = |digits: &str, radix| i128::from_str_radix(digits, radix).ok().and_then(to_integer);
    if let Some(digits) = text.strip_prefix("0x").filter(|d| d.chars().all(|c| c.is_ascii_hexdigit())) {
        return radix(digits, 16);
    }
    if let Some(digits) = text.strip_prefix("0o").filter(|d| d.chars().all(|c| c.is_digit(8))) {
        return radix(digits, 8);
    }
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok().and_then(to_integer);
    }
    if digits.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-'))
        && digits.bytes().any(|b| b.is_ascii_digit())
    {
        return parse_float(text);
    }
    None
}

/// Returns an integer that JSON can hold. A larger one stays text, so that no digit of it is lost.
fn to_integer<'a>(value: i128) -> Option<YamlScalar<'a>> {
    (i128::from(i64::MIN)..=i128::from(u64::MAX)).contains(&value).then_some(YamlScalar::Int(value))
}

/// Parses a finite number. Infinity and NaN are useless in a workflow and stay text.
fn parse_float(text: &str) -> Option<YamlScalar<'_>> {
    text.parse().ok().filter(|number: &f64| number.is_finite()).map(YamlScalar::Float)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_schema_and_nothing_older() {
        for (text, meaning) in [
            ("", YamlScalar::Null),
            ("~", YamlScalar::Null),
            ("true", YamlScalar::Bool(true)),
            ("FALSE", YamlScalar::Bool(false)),
            ("12", YamlScalar::Int(12)),
            ("-12", YamlScalar::Int(-12)),
            ("+3", YamlScalar::Int(3)),
            ("010", YamlScalar::Int(10)),
            ("0o10", YamlScalar::Int(8)),
            ("0xff", YamlScalar::Int(255)),
            ("1.5", YamlScalar::Float(1.5)),
            ("1e3", YamlScalar::Float(1000.0)),
            (".5", YamlScalar::Float(0.5)),
            ("18446744073709551615", YamlScalar::Int(18_446_744_073_709_551_615)),
            ("-9223372036854775808", YamlScalar::Int(-9_223_372_036_854_775_808)),
            ("99999999999999999999", YamlScalar::Text("99999999999999999999")),
        ] {
            assert_eq!(resolve_scalar(text), meaning, "{text:?}");
        }
        for text in ["yes", "no", "on", "1_000", "2026-01-02", ".inf", ".nan", "1.2.3", "-", ".", "0x", "5m"]
        {
            assert_eq!(resolve_scalar(text), YamlScalar::Text(text));
        }
    }
}
