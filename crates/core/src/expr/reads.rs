//! Owns listing the references of an expression, without evaluating it. Does not know which targets exist.

use super::ast::{Expr, ExprNode, ReferenceRoot, TemplatePiece};
use super::pointer;
use super::span::ExprSpan;

/// One reference of an expression.
#[derive(Clone, Debug, PartialEq)]
pub struct ExprRead<'a> {
    pub root: &'a ReferenceRoot,
    pub path: &'a [String],
    /// As in [`ExprNode::Ref`].
    pub lenient_outputs: bool,
    /// The span within the source of the expression that `at` points to.
    pub span: ExprSpan,
    /// JSON pointer to that expression; empty for the whole.
    pub at: String,
}

impl Expr {
    /// Returns every reference in source order, whether or not it would be evaluated.
    pub fn reads(&self) -> Vec<ExprRead<'_>> {
        // Most expressions are a text or one reference, and need no work list.
        match self.node() {
            ExprNode::Literal { .. } => return Vec::new(),
            ExprNode::Ref { span, root, path, lenient_outputs } => {
                let at = String::new();
                return vec![ExprRead { root, path, lenient_outputs: *lenient_outputs, span: *span, at }];
            }
            _ => {}
        }
        let mut reads = Vec::new();
        // Reversed, so that nodes are popped in source order.
        let mut todo = vec![(String::new(), self.node())];
        while let Some((at, node)) = todo.pop() {
            if let ExprNode::Ref { span, root, path, lenient_outputs } = node {
                reads.push(ExprRead { root, path, lenient_outputs: *lenient_outputs, span: *span, at });
                continue;
            }
            let first = todo.len();
            push_children(&at, node, &mut todo);
            todo[first..].reverse();
        }
        reads
    }

    /// Returns the expression that the pointer of an error or a read leads to, for its [`Expr::source`].
    pub fn expr_at(&self, pointer: &str) -> Option<&Expr> {
        let mut expr = self;
        let mut rest = pointer;
        while let Some((segment, tail)) = pointer::split_first_segment(rest) {
            expr = match expr.node() {
                ExprNode::Object { fields, .. } => &fields.iter().find(|(key, _)| *key == segment)?.1,
                ExprNode::Array { items, .. } => items.get(segment.parse::<usize>().ok()?)?,
                _ => return None,
            };
            rest = tail;
        }
        rest.is_empty().then_some(expr)
    }
}

fn push_children<'a>(at: &str, node: &'a ExprNode, todo: &mut Vec<(String, &'a ExprNode)>) {
    let here = |node: &'a ExprNode| (at.to_owned(), node);
    match node {
        ExprNode::Literal { .. } | ExprNode::Ref { .. } => {}
        ExprNode::Not { of, .. } => todo.push(here(of)),
        ExprNode::And { of, .. } | ExprNode::Or { of, .. } => todo.extend(of.iter().map(here)),
        ExprNode::Compare { left, right, .. } => todo.extend([&**left, right].map(here)),
        ExprNode::Cond { test, then, otherwise, .. } => todo.extend([&**test, then, otherwise].map(here)),
        ExprNode::Call { args, .. } => todo.extend(args.iter().map(here)),
        ExprNode::Template { pieces, .. } => todo.extend(pieces.iter().filter_map(|piece| match piece {
            TemplatePiece::Text(_) => None,
            TemplatePiece::Node(node) => Some(here(node)),
        })),
        ExprNode::Object { fields, .. } => {
            todo.extend(fields.iter().map(|(key, expr)| (pointer::append_segment(at, key), expr.node())));
        }
        ExprNode::Array { items, .. } => {
            let items = items.iter().enumerate();
            todo.extend(items.map(|(i, expr)| (pointer::append_segment(at, &i.to_string()), expr.node())));
        }
    }
}
