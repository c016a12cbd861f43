//! Owns the small steps that all name tables take: making a reference, refusing a name. Knows no table.

use super::ast::{ExprNode, ReferenceRoot, StepProperty};
use super::parse_error::{ExprParseError, ExprParseErrorKind};
use super::span::ExprSpan;
use super::token::DottedPath;
use crate::suggest::find_closest_name;

/// A reference to `root`, past the first `skip` names after the path's first.
pub(super) fn build_reference(
    root: ReferenceRoot,
    path: &DottedPath,
    skip: usize,
    span: ExprSpan,
) -> ExprNode {
    ExprNode::Ref { span, root, path: path.tail_names(skip).collect(), lenient_outputs: false }
}

/// A reference to something about the step that the path's second name is.
pub(super) fn build_step_reference(
    part: StepProperty,
    path: &DottedPath,
    skip: usize,
    span: ExprSpan,
) -> ExprNode {
    let id = path.nth_name(0).unwrap_or_default().into();
    build_reference(ReferenceRoot::Step { id, part }, path, skip, span)
}

/// The first name is none of `legal`.
pub(super) fn unknown_name_error(path: &DottedPath, legal: &'static [&'static str]) -> ExprParseError {
    let dollar = if path.dollar { "$" } else { "" };
    let name = format!("{dollar}{}", path.first.text);
    let closest = find_closest_name(&name, legal.iter().copied());
    let kind = ExprParseErrorKind::UnknownName { sort: "namespace", name, closest, legal };
    let mut span = path.first.span;
    span.start -= u32::from(path.dollar);
    ExprParseError::new(kind, span)
}

/// The first name is right, but what follows it is not.
pub(super) fn bad_path_error(path: &DottedPath, why: &'static str, span: ExprSpan) -> ExprParseError {
    ExprParseError::new(ExprParseErrorKind::BadPath { path: path.to_text(), why }, span)
}
