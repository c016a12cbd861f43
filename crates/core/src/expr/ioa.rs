//! Owns the expression syntax of IOA workflows: trigger conditions, and the values of `x-skein.input`.
//!
//! | written | reads |
//! |---|---|
//! | `payload.x`, `trigger.x`, `x` | the trigger's payload |
//! | `steps.NAME.output.x` | that step's output |
//!
//! Does not know which steps exist: [`Expr::reads`] lists the references for the caller to check.

use serde_json::Value;

use super::{
    ast::{Expr, ExprNode, ReferenceRoot, StepProperty},
    lex::{DottedPath, ExprSpan},
    parse::{ExprDialect, ExprParseError, bad_path_error, build_reference, build_step_reference},
    template,
};

const WANTS_OUTPUT: &str = "write `steps.`, a step's name, then `.output`";

/// Conditions have the operators of AIP-15.
const CONDITION: ExprDialect =
    ExprDialect { dollar: false, digits: true, rich: false, chains: true, resolve, equated: |_, _| {} };

/// Values are Skein's extension, with all of its operators and functions.
const TEMPLATE: ExprDialect =
    ExprDialect { dollar: false, digits: true, rich: true, chains: false, resolve, equated: |_, _| {} };

/// Parses a trigger's `condition`.
pub fn parse_condition(text: &str) -> Result<Expr, ExprParseError> {
    template::parse_window(text, (0, text.len()), CONDITION)
}

/// Parses a structured value; each of its strings may contain `${{ }}`.
pub fn parse_value(value: &Value) -> Result<Expr, ExprParseError> {
    template::parse_value(value, TEMPLATE)
}

fn resolve(path: &DottedPath, span: ExprSpan) -> Result<ExprNode, ExprParseError> {
    match (path.first.text.as_str(), path.nth_name(1)) {
        ("payload" | "trigger", _) => Ok(build_reference(ReferenceRoot::Input, path, 0, span)),
        ("steps", Some("output")) => Ok(build_step_reference(StepProperty::Output, path, 2, span)),
        ("steps", _) => Err(bad_path_error(path, WANTS_OUTPUT, span)),
        (bare, _) => {
            let path = std::iter::once(bare.to_owned()).chain(path.tail_names(0)).collect();
            Ok(ExprNode::Ref { span, root: ReferenceRoot::Input, path, lenient_outputs: false })
        }
    }
}
