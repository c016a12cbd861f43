//! Owns the syntax of strings and numbers in expressions. Does not know the text around them.

use serde_json::Number;

use super::lex::continues_name;
use super::parse_error::{ExprParseError, ExprParseErrorKind};
use super::span::ExprSpan;

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
