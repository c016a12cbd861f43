//! Owns the expression syntax of AIP-15 workflows: conditions, and `$` paths as values.
//!
//! | written | reads |
//! |---|---|
//! | `$input.x`, `$workflow.inputs.x` | the run's inputs |
//! | `$steps.ID.x` | that step's output |
//! | `$steps.ID.outputs.x` | the same, through a key `outputs` if the output has one |
//! | `$item.x`, `$index` | the surrounding map's element and its index |
//!
//! Does not know which steps exist or whether a map surrounds the text: [`Expr::reads`] lists the references for the
//! caller to check.

use serde_json::Value;

use super::{
    ast::{Expr, ExprNode, ReferenceRoot, StepProperty},
    lex::{DottedPath, ExprLexer, ExprSpan, ExprTokenKind, starts_name},
    parse::{
        ExprDialect, ExprParseError, ExprParseErrorKind, bad_path_error, build_reference, build_step_reference,
        unknown_name_error,
    },
    template::{self, ExprValueReader, OPEN},
};
use crate::limits::EXPRESSION_BYTES;

const NAMESPACES: &[&str] = &["$input", "$workflow.inputs", "$steps", "$item", "$index"];

const DIALECT: ExprDialect =
    ExprDialect { dollar: true, digits: true, rich: false, chains: true, resolve, equated: |_, _| {} };

/// Parses a `when` or a `while`.
pub fn parse_condition(text: &str) -> Result<Expr, ExprParseError> {
    template::parse_window(text, (0, text.len()), DIALECT)
}

/// Parses a step's `inputs`, a `result`, or any part of them.
///
/// A string that starts with `$` is one path. A string that starts with `$$` is text with one `$` removed. An object of
/// exactly `kind: literal` and `value` stands for that value unchanged. Everything else is literal, including `${{`.
pub fn parse_value(value: &Value) -> Result<Expr, ExprParseError> {
    ExprValueReader { string: &parse_string, verbatim, guards_keys: false }.read(value)
}

fn verbatim(value: &Value) -> Option<&Value> {
    let fields = value.as_object().filter(|fields| fields.len() == 2)?;
    fields.get("value").filter(|_| fields.get("kind").is_some_and(|kind| kind == "literal"))
}

fn parse_string(text: &str) -> Result<Expr, ExprParseError> {
    let plain =
        |text: &str| Expr::new_unchecked("", ExprNode::Literal { span: ExprSpan::default(), value: text.into() });
    match text.strip_prefix('$') {
        None => Ok(plain(text)),
        Some(_) if text.starts_with(OPEN) => Ok(plain(text)),
        Some(escaped) if escaped.starts_with('$') => Ok(plain(escaped)),
        Some(name) => parse_path(text, name),
    }
}

fn parse_path(text: &str, name: &str) -> Result<Expr, ExprParseError> {
    let all = ExprSpan::new(0, text.len());
    let not_one_path = || ExprParseError::new(ExprParseErrorKind::NotOnePath, all);
    if text.len() > EXPRESSION_BYTES {
        return Err(ExprParseError::new(ExprParseErrorKind::SourceTooLong(text.len()), all));
    }
    if !name.starts_with(starts_name) {
        return Err(not_one_path());
    }
    let token = ExprLexer::new(text, (0, text.len()), DIALECT.digits).next_token()?;
    match &token.tok {
        ExprTokenKind::Path(path) if token.span == all => Ok(Expr::new_unchecked(text, resolve(path, all)?)),
        _ => Err(not_one_path()),
    }
}

fn resolve(path: &DottedPath, span: ExprSpan) -> Result<ExprNode, ExprParseError> {
    match (path.first.text.as_str(), path.nth_name(0)) {
        ("input", _) => Ok(build_reference(ReferenceRoot::Input, path, 0, span)),
        ("workflow", Some("inputs")) => Ok(build_reference(ReferenceRoot::Input, path, 1, span)),
        ("workflow", _) => Err(bad_path_error(path, "write `$workflow.inputs` and a name", span)),
        ("item", _) => Ok(build_reference(ReferenceRoot::Item, path, 0, span)),
        ("index", None) => Ok(build_reference(ReferenceRoot::Index, path, 0, span)),
        ("index", Some(_)) => Err(bad_path_error(path, "`$index` is a number and has no fields", span)),
        ("steps", None) => Err(bad_path_error(path, "write `$steps.`, a step's id and a name", span)),
        ("steps", Some(_)) => Ok(step_output_reference(path, span)),
        _ => Err(unknown_name_error(path, NAMESPACES)),
    }
}

fn step_output_reference(path: &DottedPath, span: ExprSpan) -> ExprNode {
    let lenient = path.nth_name(1) == Some("outputs");
    match build_step_reference(StepProperty::Output, path, if lenient { 2 } else { 1 }, span) {
        ExprNode::Ref { span, root, path, .. } => ExprNode::Ref { span, root, path, lenient_outputs: lenient },
        other => other,
    }
}
