//! Owns the tokens that the lexer passes to the parser, and their names in errors. Does not know the grammar.

use serde_json::Number;

use super::ast::CompareOp;
use super::span::ExprSpan;

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
