//! Owns what can be wrong with an expression's text, in words for whoever wrote it. Knows no files and no
//! lines.

use thiserror::Error;

use super::bounds::{MAX_SOURCE, MAX_TEXT};
use super::pointer;
use super::shape::ExprShapeError;
use super::span::ExprSpan;
use crate::suggest::or_did_you_mean;

/// Why a text or a value is not an expression, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind}")]
pub struct ExprParseError {
    pub kind: ExprParseErrorKind,
    /// Within the string that `at` points to.
    pub span: ExprSpan,
    /// JSON pointer to that string from the value that was given; empty for the value itself.
    pub at: String,
}

/// What is expected where a condition has ended.
pub(super) const AFTER_CONDITION: &str = "nothing after `}}` in a condition";

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExprParseErrorKind {
    #[error("expected {expected}, found {found}")]
    Unexpected { expected: &'static str, found: String },
    #[error("an expression is at most {MAX_SOURCE} bytes long; this one is {0}")]
    SourceTooLong(usize),
    #[error("a string with expressions is at most {MAX_TEXT} bytes long; this one is {0}")]
    TextTooLong(usize),
    #[error(transparent)]
    Shape(#[from] ExprShapeError),
    #[error("this string is never closed")]
    UnterminatedString,
    #[error("`{0}` is not an escape")]
    BadEscape(String),
    #[error("`{0}` is not a number")]
    BadNumber(String),
    #[error("`${{{{` is never closed")]
    Unclosed,
    #[error("`${{{{` inside `${{{{ }}}}`")]
    Nested,
    #[error("nothing to evaluate")]
    Empty,
    #[error("the key `{0}` has an expression in it")]
    ExpressionInKey(String),
    #[error("unknown {sort} `{name}`; {sort}s are {}{}", .legal.join(", "), or_did_you_mean(*.closest))]
    UnknownName {
        sort: &'static str,
        name: String,
        closest: Option<&'static str>,
        legal: &'static [&'static str],
    },
    #[error("`{path}` leads nowhere: {why}")]
    BadPath { path: String, why: &'static str },
    #[error("`{0}` only means something inside a fan-out")]
    OutsideFanOut(String),
    #[error("`{sign}` cannot be chained")]
    Chained { sign: &'static str },
    #[error("{0}")]
    NotInLanguage(UnsupportedSyntax),
    #[error("a value that starts with `$` is one path, and nothing follows it")]
    NotOnePath,
}

/// Things that other languages have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UnsupportedSyntax {
    #[error("there is no indexing")]
    Indexing,
    #[error("there is no arithmetic")]
    Arithmetic,
    #[error("what a call or brackets give has no fields to read")]
    CallMember,
    #[error("there are no functions here")]
    Functions,
    #[error("there is no `? :` here")]
    Ternary,
    #[error("there is no `=`")]
    Assignment,
    #[error("there is no `===` and no `!==`")]
    TripleEquals,
    #[error("there is no single `&`")]
    BitAnd,
    #[error("there is no single `|`")]
    BitOr,
    #[error("names here start with `$`")]
    BareName,
    #[error("names here do not start with `$`")]
    DollarName,
    #[error("there is no `${{{{ }}}}` here")]
    Template,
}

impl ExprParseError {
    pub(super) fn new(kind: impl Into<ExprParseErrorKind>, span: ExprSpan) -> Self {
        ExprParseError { kind: kind.into(), span, at: String::new() }
    }

    /// The same error, seen from one level further out.
    pub(super) fn prefix_pointer(mut self, segment: &str) -> Self {
        self.at = pointer::prepend_segment(segment, &self.at);
        self
    }

    /// What to do about it, where that is not plain from the message.
    pub fn hint(&self) -> Option<&'static str> {
        self.kind.hint()
    }
}

impl ExprParseErrorKind {
    fn hint(&self) -> Option<&'static str> {
        use ExprParseErrorKind as K;
        Some(match self {
            K::SourceTooLong(_) => "work it out in a step of its own",
            K::TextTooLong(_) => "put the text in a file and name the file",
            K::Shape(ExprShapeError::TooDeep) => "work part of it out in a step of its own",
            K::UnterminatedString => {
                "close it with the quote that opened it; a quote inside is written `\\'` or `\\\"`"
            }
            K::BadEscape(_) => {
                "escapes are \\\\ \\' \\\" \\/ \\n \\r \\t \\b \\f and \\u with four hex digits"
            }
            K::BadNumber(_) => "numbers are written as in JSON, and whole ones fit in 64 bits",
            K::Unclosed => "close it with `}}`, or write `${{ '${{' }}` for the three characters",
            K::Nested => "one `${{ }}` holds a whole expression; names inside it need no `${{` of their own",
            K::Empty => "write an expression",
            K::ExpressionInKey(_) => "only values can have expressions; write the key out",
            K::OutsideFanOut(_) => "read a parameter or another stage's outputs instead",
            K::Chained { .. } => "compare twice and join with `&&`",
            K::NotOnePath => "for text that starts with a dollar sign, write `$$`",
            K::NotInLanguage(missing) => missing.hint(),
            K::Unexpected { found, .. } if found == "`and`" => "write `&&`",
            K::Unexpected { found, .. } if found == "`or`" => "write `||`",
            K::Unexpected { expected, .. } if *expected == AFTER_CONDITION => {
                "one `${{ }}` holds the whole condition, such as `${{ a && b }}`"
            }
            K::UnknownName { name, .. } if name == "not" => "write `!`",
            _ => return None,
        })
    }
}

impl UnsupportedSyntax {
    fn hint(self) -> &'static str {
        match self {
            UnsupportedSyntax::Indexing => "have the step give the element as an output of its own",
            UnsupportedSyntax::CallMember => "have the step give the field as an output of its own",
            UnsupportedSyntax::Arithmetic | UnsupportedSyntax::Functions => {
                "work it out in a step of its own"
            }
            UnsupportedSyntax::Ternary => "use `&&` and `||`, or two steps with conditions",
            UnsupportedSyntax::Assignment | UnsupportedSyntax::TripleEquals => "compare with `==` or `!=`",
            UnsupportedSyntax::BitAnd => "write `&&`",
            UnsupportedSyntax::BitOr => "write `||`",
            UnsupportedSyntax::BareName => "write `$input.name` or `$steps.id.name`, and put text in quotes",
            UnsupportedSyntax::DollarName => "leave the `$` out",
            UnsupportedSyntax::Template => "write the expression without it",
        }
    }
}
