//! Owns tokens, their positions, and splitting expression text into them; and literal values: their syntax, and exact
//! comparison of numbers. Does not know the grammar or the namespaces, only which names may contain digits.

use std::{borrow::Cow, cmp::Ordering};

use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Number, Value};

use crate::expr::{
    ast::CompareOp,
    parse::{ExprParseError, ExprParseErrorKind, UnsupportedSyntax},
};

/// Byte offsets, start inclusive and end exclusive, into the text that was parsed.
///
/// Encoded as `[start, end]`. Both are zero for a node built by a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(u32, u32)", into = "(u32, u32)")]
pub struct ExprSpan {
    pub start: u32,
    pub end: u32,
}

impl ExprSpan {
    /// Creates a span. Offsets past the four gigabytes that a span can express are clamped; texts are far shorter.
    pub fn new(start: usize, end: usize) -> Self {
        let clamp = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        ExprSpan { start: clamp(start), end: clamp(end) }
    }

    pub fn extend_to(self, other: ExprSpan) -> Self {
        ExprSpan { start: self.start, end: other.end }
    }

    /// The part of `text` that this span covers, if it lies within `text` and between characters.
    pub fn slice_text(self, text: &str) -> Option<&str> {
        text.get(self.start as usize..self.end as usize)
    }
}

impl From<(u32, u32)> for ExprSpan {
    fn from((start, end): (u32, u32)) -> Self {
        ExprSpan { start, end }
    }
}

impl From<ExprSpan> for (u32, u32) {
    fn from(span: ExprSpan) -> Self {
        (span.start, span.end)
    }
}

impl std::fmt::Display for ExprSpan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}..{}", self.start, self.end)
    }
}

/// One name of a dotted path.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DottedPathSegment {
    pub text: String,
    pub span: ExprSpan,
}

/// A dotted path as written; `dollar` is true if a `$` came first.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DottedPath {
    pub dollar: bool,
    pub first: DottedPathSegment,
    pub rest: Vec<DottedPathSegment>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum ExprTokenKind {
    Path(DottedPath),
    Str(String),
    Num(Number),
    Not,
    And,
    Or,
    Compare(CompareOp),
    Open,
    Close,
    Question,
    Colon,
    Comma,
    Dot,
    /// A character that starts no token; the parser reports it.
    Other(char),
    End,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct ExprToken {
    pub tok: ExprTokenKind,
    pub span: ExprSpan,
}

impl ExprToken {
    /// Returns the token as an error names it: its text if that is short, otherwise its kind.
    pub(super) fn describe(&self, text: &str) -> String {
        match (&self.tok, self.span.slice_text(text)) {
            (ExprTokenKind::End, _) => "the end".to_owned(),
            (ExprTokenKind::Str(_), _) => "a string".to_owned(),
            (_, Some(words)) if words.len() <= 40 => format!("`{words}`"),
            (ExprTokenKind::Path(_), _) => "a name".to_owned(),
            _ => "a number".to_owned(),
        }
    }
}

impl DottedPath {
    /// Returns the path as written, including the dots.
    pub(super) fn to_text(&self) -> String {
        let mut text = if self.dollar { "$".to_owned() } else { String::new() };
        text.push_str(&self.first.text);
        for segment in &self.rest {
            text.push('.');
            text.push_str(&segment.text);
        }
        text
    }

    /// Returns the names from the `n`th after the first.
    pub(super) fn tail_names(&self, n: usize) -> impl Iterator<Item = String> {
        self.rest.iter().skip(n).map(|segment| segment.text.clone())
    }

    /// Returns the text of the `n`th name after the first.
    pub(super) fn nth_name(&self, n: usize) -> Option<&str> {
        self.rest.get(n).map(|segment| segment.text.as_str())
    }
}

/// Lexes a window of a text, so that spans always count from the start of the text.
#[derive(Clone, Debug)]
pub(super) struct ExprLexer<'a> {
    text: &'a str,
    pos: usize,
    end: usize,
    /// True if names after a dot may start with a digit, as array indices do.
    digits: bool,
}

impl<'a> ExprLexer<'a> {
    pub(super) fn new(text: &'a str, window: (usize, usize), digits: bool) -> Self {
        ExprLexer { text, pos: window.0, end: window.1, digits }
    }

    pub(super) fn text(&self) -> &'a str {
        self.text
    }

    fn rest(&self) -> &'a str {
        &self.text[self.pos..self.end]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn eat(&mut self, what: &str) -> bool {
        let there = self.rest().starts_with(what);
        if there {
            self.pos += what.len();
        }
        there
    }

    fn span_since(&self, start: usize) -> ExprSpan {
        ExprSpan::new(start, self.pos)
    }

    /// Returns the next token. After the last one it always returns `ExprTokenKind::End`.
    pub(super) fn next_token(&mut self) -> Result<ExprToken, ExprParseError> {
        let blank = self.rest().len() - self.rest().trim_start().len();
        self.pos += blank;
        let start = self.pos;
        let tok = match self.peek() {
            None => ExprTokenKind::End,
            Some('\'' | '"') => self.lex_string()?,
            Some('0'..='9' | '-') => self.lex_number()?,
            Some('$') => self.lex_dollar()?,
            Some(c) if starts_name(c) => ExprTokenKind::Path(self.lex_path(false)?),
            Some(c) => self.lex_sign(c),
        };
        Ok(ExprToken { tok, span: self.span_since(start) })
    }

    fn lex_sign(&mut self, first: char) -> ExprTokenKind {
        const SIGNS: [(&str, ExprTokenKind); 14] = [
            ("&&", ExprTokenKind::And),
            ("||", ExprTokenKind::Or),
            ("==", ExprTokenKind::Compare(CompareOp::Eq)),
            ("!=", ExprTokenKind::Compare(CompareOp::Ne)),
            ("<=", ExprTokenKind::Compare(CompareOp::Le)),
            (">=", ExprTokenKind::Compare(CompareOp::Ge)),
            ("<", ExprTokenKind::Compare(CompareOp::Lt)),
            (">", ExprTokenKind::Compare(CompareOp::Gt)),
            ("!", ExprTokenKind::Not),
            ("(", ExprTokenKind::Open),
            (")", ExprTokenKind::Close),
            ("?", ExprTokenKind::Question),
            (":", ExprTokenKind::Colon),
            (",", ExprTokenKind::Comma),
        ];
        for (sign, tok) in SIGNS {
            if self.eat(sign) {
                return tok;
            }
        }
        self.pos += first.len_utf8();
        if first == '.' { ExprTokenKind::Dot } else { ExprTokenKind::Other(first) }
    }

    fn lex_string(&mut self) -> Result<ExprTokenKind, ExprParseError> {
        let read = parse_string(self.rest(), self.pos)?;
        self.pos += read.bytes;
        Ok(ExprTokenKind::Str(read.value))
    }

    fn lex_number(&mut self) -> Result<ExprTokenKind, ExprParseError> {
        // A minus without a digit after it is arithmetic; the parser reports it.
        if self.rest().starts_with('-') && !self.rest()[1..].starts_with(|c: char| c.is_ascii_digit()) {
            self.pos += 1;
            return Ok(ExprTokenKind::Other('-'));
        }
        let read = parse_number(self.rest(), self.pos)?;
        self.pos += read.bytes;
        Ok(ExprTokenKind::Num(read.value))
    }

    fn lex_dollar(&mut self) -> Result<ExprTokenKind, ExprParseError> {
        let start = self.pos;
        if self.eat("${{") {
            return Err(ExprParseError::new(
                ExprParseErrorKind::NotInLanguage(UnsupportedSyntax::Template),
                self.span_since(start),
            ));
        }
        self.pos += 1;
        Ok(ExprTokenKind::Path(self.lex_path(true)?))
    }

    fn lex_path(&mut self, dollar: bool) -> Result<DottedPath, ExprParseError> {
        let first = self.lex_segment(false)?;
        let mut rest = Vec::new();
        while self.eat(".") {
            rest.push(self.lex_segment(true)?);
        }
        Ok(DottedPath { dollar, first, rest })
    }

    fn lex_segment(&mut self, after_dot: bool) -> Result<DottedPathSegment, ExprParseError> {
        let start = self.pos;
        let length = self.rest().find(|c| !continues_name(c)).unwrap_or(self.rest().len());
        let text = &self.rest()[..length];
        self.pos += length;
        match text.chars().next() {
            Some(c) if starts_name(c) || (after_dot && self.digits && c.is_ascii_digit()) => {
                Ok(DottedPathSegment { text: text.to_owned(), span: self.span_since(start) })
            }
            Some(c) if after_dot && c.is_ascii_digit() => Err(ExprParseError::new(
                ExprParseErrorKind::NotInLanguage(UnsupportedSyntax::Indexing),
                self.span_since(start),
            )),
            _ => Err(self.missing_name_error(start, after_dot)),
        }
    }

    fn missing_name_error(&mut self, start: usize, after_dot: bool) -> ExprParseError {
        self.pos = start;
        let found = self.peek().map_or("the end".to_owned(), |c| format!("`{c}`"));
        let expected = if after_dot { "a name after `.`" } else { "a name after `$`" };
        let end = start + self.peek().map_or(0, char::len_utf8);
        ExprParseError::new(ExprParseErrorKind::Unexpected { expected, found }, ExprSpan::new(start, end))
    }
}

pub(super) fn starts_name(c: char) -> bool {
    c.is_ascii_alphabetic() || c == '_'
}

/// True for characters inside names. Hyphens are included: step ids have them, and there is no subtraction.
fn continues_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}

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
fn parse_number(text: &str, base: usize) -> Result<ParsedLiteral<Number>, ExprParseError> {
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
