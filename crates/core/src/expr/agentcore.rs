//! Owns the expression syntax of Skein's extensions to AgentCore workflows: the inputs of a step and the result of a
//! workflow. AgentCore itself has no expressions.
//!
//! | written | reads |
//! |---|---|
//! | `input.x` | the workflow's input |
//! | `steps.NAME.output.x` | that step's output |
//!
//! Does not know which steps exist: [`Expr::reads`] lists the references for the caller to check.

use serde_json::Value;

use super::{
    ast::{Expr, ExprNode, ReferenceRoot, StepProperty},
    lex::{DottedPath, ExprSpan},
    parse::{ExprDialect, ExprParseError, bad_path_error, build_reference, build_step_reference, unknown_name_error},
    template,
};

const WANTS_OUTPUT: &str = "write `steps.`, a step's name, then `.output`";

const TEMPLATE: ExprDialect =
    ExprDialect { dollar: false, digits: true, rich: true, chains: false, resolve, equated: |_, _| {} };

/// Parses a structured value; each of its strings may contain `${{ }}`.
pub fn parse_value(value: &Value) -> Result<Expr, ExprParseError> {
    template::parse_value(value, TEMPLATE)
}

fn resolve(path: &DottedPath, span: ExprSpan) -> Result<ExprNode, ExprParseError> {
    match (path.first.text.as_str(), path.nth_name(1)) {
        ("input", _) => Ok(build_reference(ReferenceRoot::Input, path, 0, span)),
        ("steps", Some("output")) => Ok(build_step_reference(StepProperty::Output, path, 2, span)),
        ("steps", _) => Err(bad_path_error(path, WANTS_OUTPUT, span)),
        _ => Err(unknown_name_error(path, &["input", "steps"])),
    }
}
