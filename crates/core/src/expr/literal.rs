//! Owns literal values in expressions: their syntax, and exact comparison of numbers. Does not know the text around them.

use std::{borrow::Cow, cmp::Ordering};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Number, Value};

use super::{
    lex::{ExprSpan, continues_name},
    parse::{ExprParseError, ExprParseErrorKind},
};

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Value")]
pub enum LiteralValue {
    Text(Box<str>),
    /// Never a string.
    Other(Box<Value>),
}

impl LiteralValue {
    pub fn as_str(&self) -> Option<&str> {
        match self {
            LiteralValue::Text(text) => Some(text),
            LiteralValue::Other(_) => None,
        }
    }

    pub fn as_array(&self) -> Option<&Vec<Value>> {
        match self {
            LiteralValue::Text(_) => None,
            LiteralValue::Other(value) => value.as_array(),
        }
    }

    pub fn to_value(&self) -> Cow<'_, Value> {
        match self {
            LiteralValue::Text(text) => Cow::Owned(Value::from(&**text)),
            LiteralValue::Other(value) => Cow::Borrowed(value),
        }
    }
}

impl From<Value> for LiteralValue {
    fn from(value: Value) -> LiteralValue {
        match value {
            Value::String(text) => LiteralValue::Text(text.into()),
            other => LiteralValue::Other(Box::new(other)),
        }
    }
}

impl From<&str> for LiteralValue {
    fn from(text: &str) -> LiteralValue {
        LiteralValue::Text(text.into())
    }
}

impl From<LiteralValue> for Value {
    fn from(constant: LiteralValue) -> Value {
        match constant {
            LiteralValue::Text(text) => Value::String(text.into()),
            LiteralValue::Other(value) => *value,
        }
    }
}

impl Serialize for LiteralValue {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            LiteralValue::Text(text) => serializer.serialize_str(text),
            LiteralValue::Other(value) => value.serialize(serializer),
        }
    }
}

/// A parsed value, and the number of bytes of its text.
#[derive(Debug)]
pub(super) struct ParsedLiteral<T> {
    pub value: T,
    pub bytes: usize,
}

/// Parses the quoted string at the start of `text`. `base` is the position of `text`, for errors.
pub(super) fn parse_string(text: &str, base: usize) -> Result<ParsedLiteral<String>, ExprParseError> {
    let quote = text.chars().next();
    let mut value = String::new();
    let mut at = 1;
    while let Some(c) = text[at..].chars().next() {
        if Some(c) == quote {
            return Ok(ParsedLiteral { value, bytes: at + 1 });
        }
        let (c, length) = if c == '\\' { parse_escape(text, base, at)? } else { (c, c.len_utf8()) };
        value.push(c);
        at += length;
    }
    Err(ExprParseError::new(ExprParseErrorKind::UnterminatedString, ExprSpan::new(base, base + text.len())))
}

/// Returns the character of the escape at `at`, and the length of the escape in bytes.
fn parse_escape(text: &str, base: usize, at: usize) -> Result<(char, usize), ExprParseError> {
    let plain = match text[at + 1..].chars().next() {
        Some(c @ ('\\' | '\'' | '"' | '/')) => Some(c),
        Some('n') => Some('\n'),
        Some('r') => Some('\r'),
        Some('t') => Some('\t'),
        Some('b') => Some('\u{8}'),
        Some('f') => Some('\u{c}'),
        Some('u') => return parse_unicode_escape(text, base, at),
        _ => None,
    };
    plain.map(|c| (c, 2)).ok_or_else(|| bad_escape_error(text, base, at, 2))
}

/// Parses `\uXXXX`, or two of them for a character that needs a surrogate pair.
fn parse_unicode_escape(text: &str, base: usize, at: usize) -> Result<(char, usize), ExprParseError> {
    let unit = |at: usize| {
        let digits = text.get(at..)?.strip_prefix("\\u")?.get(..4)?;
        digits.bytes().all(|b| b.is_ascii_hexdigit()).then(|| u16::from_str_radix(digits, 16).ok())?
    };
    let first = unit(at).ok_or_else(|| bad_escape_error(text, base, at, 6))?;
    if let Some(c) = char::from_u32(u32::from(first)) {
        return Ok((c, 6));
    }
    let pair = unit(at + 6).and_then(|second| char::decode_utf16([first, second]).next()?.ok());
    pair.map(|c| (c, 12)).ok_or_else(|| bad_escape_error(text, base, at, 6))
}

fn bad_escape_error(text: &str, base: usize, at: usize, chars: usize) -> ExprParseError {
    let shown: String = text[at..].chars().take(chars).collect();
    let span = ExprSpan::new(base + at, base + at + shown.len());
    ExprParseError::new(ExprParseErrorKind::BadEscape(shown), span)
}

/// Parses the number at the start of `text`, which may have a minus sign.
pub(super) fn parse_number(text: &str, base: usize) -> Result<ParsedLiteral<Number>, ExprParseError> {
    let bytes = number_extent(text);
    let words = &text[..bytes];
    let bad = || {
        let shown = if bytes > 40 { format!("{}…", &words[..40]) } else { words.to_owned() };
        ExprParseError::new(ExprParseErrorKind::BadNumber(shown), ExprSpan::new(base, base + bytes))
    };
    if words == "-0" {
        return Ok(ParsedLiteral { value: Number::from(0), bytes });
    }
    let value: Number = serde_json::from_str(words).map_err(|_| bad())?;
    // JSON parsers round an integer that does not fit; in a program that would be a silent mistake.
    if value.is_f64() && !words.contains(['.', 'e', 'E']) {
        return Err(bad());
    }
    Ok(ParsedLiteral { value, bytes })
}

/// Returns the length of the digits, letters and separators at the start: `3abc` is one bad number, not two tokens.
fn number_extent(text: &str) -> usize {
    let mut end = 0;
    for (at, c) in text.char_indices() {
        let exponent_sign = c == '+' && text[..at].ends_with(['e', 'E']);
        let minus_inside = c == '-' && at > 0 && !text[..at].ends_with(['e', 'E']);
        if !(continues_name(c) || c == '.' || exponent_sign) || minus_inside {
            break;
        }
        end = at + c.len_utf8();
    }
    end
}

/// Compares two numbers exactly: integers up to 64 bits, fractions as the doubles they are.
pub(super) fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    match (as_whole(a), as_whole(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(a), None) => compare_whole(a, as_double(b)),
        (None, Some(b)) => compare_whole(b, as_double(a)).reverse(),
        // Neither is NaN: JSON has none.
        (None, None) => as_double(a).partial_cmp(&as_double(b)).unwrap_or(Ordering::Equal),
    }
}

/// True if the number is zero, of either sign.
pub(super) fn is_zero(n: &Number) -> bool {
    as_whole(n).map_or_else(|| as_double(n) == 0.0, |n| n == 0)
}

fn as_whole(n: &Number) -> Option<i128> {
    n.as_i64().map(i128::from).or_else(|| n.as_u64().map(i128::from))
}

fn as_double(n: &Number) -> f64 {
    n.as_f64().unwrap_or_default()
}

/// Compares an integer with a double. The cast drops the fraction and saturates at 128 bits, far outside of 64.
fn compare_whole(a: i128, b: f64) -> Ordering {
    let fraction = b.fract().partial_cmp(&0.0).unwrap_or(Ordering::Equal);
    a.cmp(&(b.trunc() as i128)).then(fraction.reverse())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_str};

    use super::*;

    fn order(a: &str, b: &str) -> Ordering {
        let number = |text: &str| match from_str(text).unwrap() {
            Value::Number(n) => n,
            other => panic!("{other}"),
        };
        let (a, b) = (number(a), number(b));
        assert_eq!(compare_numbers(&a, &b), compare_numbers(&b, &a).reverse());
        compare_numbers(&a, &b)
    }

    #[test]
    fn is_exact_where_doubles_round() {
        assert_eq!(order("3", "3.0"), Ordering::Equal);
        assert_eq!(order("0", "-0.0"), Ordering::Equal);
        assert_eq!(order("9007199254740993", "9007199254740992.0"), Ordering::Greater);
        assert_eq!(order("18446744073709551615", "18446744073709551616.0"), Ordering::Less);
        assert_eq!(order("9223372036854775807", "9223372036854775808.0"), Ordering::Less);
        assert_eq!(order("-9223372036854775808", "-9223372036854775808.0"), Ordering::Equal);
        assert_eq!(order("18446744073709551615", "-1"), Ordering::Greater);
        assert_eq!(order("18446744073709551615", "1e300"), Ordering::Less);
        assert_eq!(order("-5", "-1e300"), Ordering::Greater);
    }

    #[test]
    fn fractions_decide_between_neighbours() {
        assert_eq!(order("3", "3.5"), Ordering::Less);
        assert_eq!(order("-3", "-3.5"), Ordering::Greater);
        assert_eq!(order("0", "5e-324"), Ordering::Less);
        assert_eq!(order("0", "-5e-324"), Ordering::Greater);
        assert_eq!(order("0.1", "0.2"), Ordering::Less);
    }
}
