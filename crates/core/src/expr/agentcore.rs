//! Owns how expressions are written in what Skein adds to AgentCore workflows: the values that a step is given and that a
//! workflow gives. The format itself has none.
//!
//! | written | reads |
//! |---|---|
//! | `input.x` | what the workflow was given |
//! | `steps.NAME.output.x` | that step's output |
//!
//! Refuses to know which steps exist: [`Expr::reads`] tells the caller.

use serde_json::Value;

use super::ast::{Expr, ExprNode, ReferenceRoot, StepProperty};
use super::name_resolution::{bad_path_error, build_reference, build_step_reference, unknown_name_error};
use super::parse::ExprDialect;
use super::parse_error::ExprParseError;
use super::span::ExprSpan;
use super::template;
use super::token::DottedPath;
use super::value_reader::ExprValueReader;

const WANTS_OUTPUT: &str = "write `steps.`, a step's name, then `.output`";

const TEMPLATE: ExprDialect =
    ExprDialect { dollar: false, digits: true, rich: true, chains: false, resolve, equated: |_, _| {} };

/// Reads a structured value, each string of which may have `${{ }}` in it.
pub fn parse_value(value: &Value) -> Result<Expr, ExprParseError> {
    let string = |text: &str| template::parse_template(text, TEMPLATE);
    ExprValueReader { string: &string, verbatim: |_| None, guards_keys: true }.read(value)
}

fn resolve(path: &DottedPath, span: ExprSpan) -> Result<ExprNode, ExprParseError> {
    match (path.first.text.as_str(), path.nth_name(1)) {
        ("input", _) => Ok(build_reference(ReferenceRoot::Input, path, 0, span)),
        ("steps", Some("output")) => Ok(build_step_reference(StepProperty::Output, path, 2, span)),
        ("steps", _) => Err(bad_path_error(path, WANTS_OUTPUT, span)),
        _ => Err(unknown_name_error(path, &["input", "steps"])),
    }
}
