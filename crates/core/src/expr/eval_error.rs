//! Owns the errors of evaluation. Does not know how they are handled.

use serde_json::Value;
use thiserror::Error;

use super::ast::{ReferenceRoot, StepProperty};
use super::bounds::{FUEL, MAX_RESULT, MAX_VALUE_DEPTH};
use super::pointer;
use super::span::ExprSpan;

/// The reason why an expression has no value, and its location.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{kind}")]
pub struct EvalError {
    pub kind: EvalErrorKind,
    /// The span within the source of the expression that `at` points to.
    pub span: ExprSpan,
    /// JSON pointer to that expression within the value being built; empty for the whole.
    pub at: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EvalErrorKind {
    #[error("{0} is not known yet")]
    NotYet(ReferenceRoot),
    #[error("`{sign}` orders two numbers or two strings, not {left} and {right}")]
    Incomparable { sign: &'static str, left: &'static str, right: &'static str },
    #[error("`{function}` takes {takes}, not {given}")]
    WrongArgument { function: &'static str, takes: &'static str, given: &'static str },
    #[error("`fromJSON` was given text that is not JSON: {0}")]
    BadJson(String),
    #[error("the value is larger than {MAX_RESULT} bytes")]
    TooLarge,
    #[error("the value nests more than {MAX_VALUE_DEPTH} deep")]
    TooDeep,
    #[error("the evaluation takes more than {FUEL} steps")]
    OutOfFuel,
}

impl EvalError {
    pub(super) fn new(kind: EvalErrorKind, span: ExprSpan) -> Self {
        EvalError { kind, span, at: String::new() }
    }

    /// Returns the same error with `segment` prepended to its pointer.
    pub(super) fn prefix_pointer(mut self, segment: &str) -> Self {
        self.at = pointer::prepend_segment(segment, &self.at);
        self
    }

    /// True if the same expression may have a value later.
    pub fn is_not_yet(&self) -> bool {
        matches!(self.kind, EvalErrorKind::NotYet(_))
    }
}

/// Returns the type of a value, as messages name it.
pub(super) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

impl std::fmt::Display for ReferenceRoot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = match self {
            ReferenceRoot::Input => "the input",
            ReferenceRoot::Item => "the item",
            ReferenceRoot::Index => "the item's index",
            ReferenceRoot::Context => "the context",
            ReferenceRoot::Env => "the environment",
            ReferenceRoot::Run => "the run",
            ReferenceRoot::Workflow => "the workflow",
            ReferenceRoot::Step { id, part } => {
                let part = match part {
                    StepProperty::Output => "output",
                    StepProperty::Status => "status",
                    StepProperty::Summary => "summary",
                };
                return write!(f, "the {part} of `{id}`");
            }
        };
        f.write_str(word)
    }
}
