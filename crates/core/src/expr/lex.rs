//! Owns tokens, their positions, and splitting expression text into them. Does not know the grammar or the namespaces,
//! only which names may contain digits.

use serde::{Deserialize, Serialize};
use serde_json::Number;

use super::{
    ast::CompareOp,
    literal,
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
    pub fn describe(&self, text: &str) -> String {
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
    pub fn to_text(&self) -> String {
        let mut text = if self.dollar { "$".to_owned() } else { String::new() };
        text.push_str(&self.first.text);
        for segment in &self.rest {
            text.push('.');
            text.push_str(&segment.text);
        }
        text
    }

    /// Returns the names from the `n`th after the first.
    pub fn tail_names(&self, n: usize) -> impl Iterator<Item = String> {
        self.rest.iter().skip(n).map(|segment| segment.text.clone())
    }

    /// Returns the text of the `n`th name after the first.
    pub fn nth_name(&self, n: usize) -> Option<&str> {
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
    pub fn new(text: &'a str, window: (usize, usize), digits: bool) -> Self {
        ExprLexer { text, pos: window.0, end: window.1, digits }
    }

    pub fn text(&self) -> &'a str {
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
    pub fn next_token(&mut self) -> Result<ExprToken, ExprParseError> {
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
        let read = literal::parse_string(self.rest(), self.pos)?;
        self.pos += read.bytes;
        Ok(ExprTokenKind::Str(read.value))
    }

    fn lex_number(&mut self) -> Result<ExprTokenKind, ExprParseError> {
        // A minus without a digit after it is arithmetic; the parser reports it.
        if self.rest().starts_with('-') && !self.rest()[1..].starts_with(|c: char| c.is_ascii_digit()) {
            self.pos += 1;
            return Ok(ExprTokenKind::Other('-'));
        }
        let read = literal::parse_number(self.rest(), self.pos)?;
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
pub(super) fn continues_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '-'
}
