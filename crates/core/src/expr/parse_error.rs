//! Owns the errors in an expression's text, worded for its author. Does not know files or lines.

use thiserror::Error;

use super::bounds::{MAX_SOURCE, MAX_TEXT};
use super::lex::ExprSpan;
use super::pointer;
use super::shape::ExprShapeError;
use crate::{suggest::or_did_you_mean, terms::WorkflowTerms};

/// The reason why a text or a value is not an expression, and its location.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind}")]
pub struct ExprParseError {
    pub kind: ExprParseErrorKind,
    /// The span within the string that `at` points to.
    pub span: ExprSpan,
    /// JSON pointer to that string from the given value; empty for the value itself.
    pub at: String,
}

/// The expectation after the end of a condition.
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
    #[error("the expression is empty")]
    Empty,
    #[error("the key `{0}` contains an expression")]
    ExpressionInKey(String),
    #[error("unknown {sort} `{name}`; {sort}s are {}{}", .legal.join(", "), or_did_you_mean(*.closest))]
    UnknownName { sort: &'static str, name: String, closest: Option<&'static str>, legal: &'static [&'static str] },
    #[error("`{path}` leads nowhere: {why}")]
    BadPath { path: String, why: &'static str },
    #[error("`{0}` is only available inside a fan-out")]
    OutsideFanOut(String),
    #[error("`{sign}` cannot be chained")]
    Chained { sign: &'static str },
    #[error("{0}")]
    NotInLanguage(UnsupportedSyntax),
    #[error("a value that starts with `$` must be one path and nothing else")]
    NotOnePath,
}

/// Syntax of other languages that this language lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum UnsupportedSyntax {
    #[error("indexing is not supported")]
    Indexing,
    #[error("arithmetic is not supported")]
    Arithmetic,
    #[error("fields of a call or of brackets cannot be read")]
    CallMember,
    #[error("functions are not supported here")]
    Functions,
    #[error("`? :` is not supported here")]
    Ternary,
    #[error("`=` is not an operator")]
    Assignment,
    #[error("`===` and `!==` are not operators")]
    TripleEquals,
    #[error("a single `&` is not an operator")]
    BitAnd,
    #[error("a single `|` is not an operator")]
    BitOr,
    #[error("names here start with `$`")]
    BareName,
    #[error("names here do not start with `$`")]
    DollarName,
    #[error("`${{{{ }}}}` is not supported here")]
    Template,
}

impl ExprParseError {
    pub(super) fn new(kind: impl Into<ExprParseErrorKind>, span: ExprSpan) -> Self {
        ExprParseError { kind: kind.into(), span, at: String::new() }
    }

    /// Returns the same error with `segment` prepended to its pointer.
    pub(super) fn prefix_pointer(mut self, segment: &str) -> Self {
        self.at = pointer::prepend_segment(segment, &self.at);
        self
    }

    /// The fix, if it is not obvious from the message.
    pub fn hint(&self, terms: &WorkflowTerms) -> Option<String> {
        self.kind.hint(terms)
    }
}

impl ExprParseErrorKind {
    fn hint(&self, terms: &WorkflowTerms) -> Option<String> {
        use ExprParseErrorKind as K;
        let step = terms.step;
        let hint = match self {
            K::SourceTooLong(_) => return Some(format!("compute the value in a separate {step}")),
            K::TextTooLong(_) => "put the text in a file and name the file",
            K::Shape(ExprShapeError::TooDeep) => {
                return Some(format!("compute part of it in a separate {step}"));
            }
            K::UnterminatedString => {
                "close it with the quote that opened it; a quote inside is written `\\'` or `\\\"`"
            }
            K::BadEscape(_) => "escapes are \\\\ \\' \\\" \\/ \\n \\r \\t \\b \\f and \\u with four hex digits",
            K::BadNumber(_) => "numbers are written as in JSON, and whole ones fit in 64 bits",
            K::Unclosed => "close it with `}}`, or write `${{ '${{' }}` for the three characters",
            K::Nested => "one `${{ }}` holds a whole expression; names inside it need no `${{` of their own",
            K::Empty => "write an expression",
            K::ExpressionInKey(_) => "only values can have expressions; write the key out",
            K::OutsideFanOut(_) => "read a parameter or another stage's outputs instead",
            K::Chained { .. } => "compare twice and join with `&&`",
            K::NotOnePath => "for text that starts with a dollar sign, write `$$`",
            K::NotInLanguage(missing) => return Some(missing.hint(terms)),
            K::Unexpected { found, .. } if found == "`and`" => "write `&&`",
            K::Unexpected { found, .. } if found == "`or`" => "write `||`",
            K::Unexpected { expected, .. } if *expected == AFTER_CONDITION => {
                "one `${{ }}` holds the whole condition, such as `${{ a && b }}`"
            }
            K::UnknownName { name, .. } if name == "not" => "write `!`",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

impl UnsupportedSyntax {
    fn hint(self, terms: &WorkflowTerms) -> String {
        let step = terms.step;
        let hint = match self {
            UnsupportedSyntax::Indexing => {
                return format!("let the {step} return the element as a separate output");
            }
            UnsupportedSyntax::CallMember => {
                return format!("let the {step} return the field as a separate output");
            }
            UnsupportedSyntax::Arithmetic | UnsupportedSyntax::Functions => {
                return format!("compute the value in a separate {step}");
            }
            UnsupportedSyntax::Ternary => {
                return format!("use `&&` and `||`, or two {step}s with conditions");
            }
            UnsupportedSyntax::Assignment | UnsupportedSyntax::TripleEquals => "compare with `==` or `!=`",
            UnsupportedSyntax::BitAnd => "write `&&`",
            UnsupportedSyntax::BitOr => "write `||`",
            UnsupportedSyntax::BareName => "write `$input.name` or `$steps.id.name`, and put text in quotes",
            UnsupportedSyntax::DollarName => "leave the `$` out",
            UnsupportedSyntax::Template => "write the expression without it",
        };
        hint.to_owned()
    }
}
