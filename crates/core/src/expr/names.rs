//! Owns the small steps that all name tables take: making a reference, refusing a name. Knows no table.

use super::ast::{Node, Part, Root};
use super::error::{ParseError, ParseErrorKind};
use super::span::Span;
use super::token::Path;
use crate::closest::closest;

/// A reference to `root`, past the first `skip` names after the path's first.
pub(super) fn reference(root: Root, path: &Path, skip: usize, span: Span) -> Node {
    Node::Ref { span, root, path: path.tail(skip).collect(), lenient_outputs: false }
}

/// A reference to something about the step that the path's second name is.
pub(super) fn step(part: Part, path: &Path, skip: usize, span: Span) -> Node {
    let id = path.nth(0).unwrap_or_default().into();
    reference(Root::Step { id, part }, path, skip, span)
}

/// The first name is none of `legal`.
pub(super) fn unknown(path: &Path, legal: &'static [&'static str]) -> ParseError {
    let dollar = if path.dollar { "$" } else { "" };
    let name = format!("{dollar}{}", path.first.text);
    let closest = closest(&name, legal.iter().copied());
    let kind = ParseErrorKind::UnknownName { sort: "namespace", name, closest, legal };
    let mut span = path.first.span;
    span.start -= u32::from(path.dollar);
    ParseError::new(kind, span)
}

/// The first name is right, but what follows it is not.
pub(super) fn nowhere(path: &Path, why: &'static str, span: Span) -> ParseError {
    ParseError::new(ParseErrorKind::BadPath { path: path.text(), why }, span)
}
