//! Owns the helpers of all name tables: building a reference, rejecting a name. Does not know any table.

use super::ast::{ExprNode, ReferenceRoot, StepProperty};
use super::parse_error::{ExprParseError, ExprParseErrorKind};
use super::span::ExprSpan;
use super::token::DottedPath;
use crate::suggest::find_closest_name;

/// Builds a reference to `root` from the names after the path's first, without the first `skip` of them.
pub(super) fn build_reference(
    root: ReferenceRoot,
    path: &DottedPath,
    skip: usize,
    span: ExprSpan,
) -> ExprNode {
    ExprNode::Ref { span, root, path: path.tail_names(skip).collect(), lenient_outputs: false }
}

/// Builds a reference to a property of the step that the path's second name identifies.
pub(super) fn build_step_reference(
    part: StepProperty,
    path: &DottedPath,
    skip: usize,
    span: ExprSpan,
) -> ExprNode {
    let id = path.nth_name(0).unwrap_or_default().into();
    build_reference(ReferenceRoot::Step { id, part }, path, skip, span)
}

/// Builds the error for a path whose first name is none of `legal`.
pub(super) fn unknown_name_error(path: &DottedPath, legal: &'static [&'static str]) -> ExprParseError {
    let dollar = if path.dollar { "$" } else { "" };
    let name = format!("{dollar}{}", path.first.text);
    let closest = find_closest_name(&name, legal.iter().copied());
    let kind = ExprParseErrorKind::UnknownName { sort: "namespace", name, closest, legal };
    let mut span = path.first.span;
    span.start -= u32::from(path.dollar);
    ExprParseError::new(kind, span)
}

/// Builds the error for a path whose first name is valid but whose rest is not.
pub(super) fn bad_path_error(path: &DottedPath, why: &'static str, span: ExprSpan) -> ExprParseError {
    ExprParseError::new(ExprParseErrorKind::BadPath { path: path.to_text(), why }, span)
}
