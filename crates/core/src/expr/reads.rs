//! Owns listing what an expression refers to, without evaluating it. Knows nothing of what exists.

use super::ast::{Expr, Node, Piece, Root};
use super::pointer;
use super::span::Span;

/// One reference of an expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Read<'a> {
    pub root: &'a Root,
    pub path: &'a [String],
    /// As in [`Node::Ref`].
    pub lenient_outputs: bool,
    /// Within the source of the expression that `at` points to.
    pub span: Span,
    /// JSON pointer to that expression; empty for the whole.
    pub at: String,
}

impl Expr {
    /// Every reference, in the order in which they are written, whether or not it would be evaluated.
    pub fn reads(&self) -> Vec<Read<'_>> {
        // Most are a text or one reference, and need no list of what is still to be looked at.
        match self.node() {
            Node::Literal { .. } => return Vec::new(),
            Node::Ref { span, root, path, lenient_outputs } => {
                let at = String::new();
                return vec![Read { root, path, lenient_outputs: *lenient_outputs, span: *span, at }];
            }
            _ => {}
        }
        let mut reads = Vec::new();
        // Backwards, so that what is popped next is what is written next.
        let mut todo = vec![(String::new(), self.node())];
        while let Some((at, node)) = todo.pop() {
            if let Node::Ref { span, root, path, lenient_outputs } = node {
                reads.push(Read { root, path, lenient_outputs: *lenient_outputs, span: *span, at });
                continue;
            }
            let first = todo.len();
            push_children(&at, node, &mut todo);
            todo[first..].reverse();
        }
        reads
    }

    /// The expression that a pointer in an error or a read leads to, for its [`Expr::source`].
    pub fn at(&self, pointer: &str) -> Option<&Expr> {
        let mut expr = self;
        let mut rest = pointer;
        while let Some((segment, tail)) = pointer::split(rest) {
            expr = match expr.node() {
                Node::Object { fields, .. } => &fields.iter().find(|(key, _)| *key == segment)?.1,
                Node::Array { items, .. } => items.get(segment.parse::<usize>().ok()?)?,
                _ => return None,
            };
            rest = tail;
        }
        rest.is_empty().then_some(expr)
    }
}

fn push_children<'a>(at: &str, node: &'a Node, todo: &mut Vec<(String, &'a Node)>) {
    let here = |node: &'a Node| (at.to_owned(), node);
    match node {
        Node::Literal { .. } | Node::Ref { .. } => {}
        Node::Not { of, .. } => todo.push(here(of)),
        Node::And { of, .. } | Node::Or { of, .. } => todo.extend(of.iter().map(here)),
        Node::Compare { left, right, .. } => todo.extend([&**left, right].map(here)),
        Node::Cond { test, then, otherwise, .. } => todo.extend([&**test, then, otherwise].map(here)),
        Node::Call { args, .. } => todo.extend(args.iter().map(here)),
        Node::Template { pieces, .. } => todo.extend(pieces.iter().filter_map(|piece| match piece {
            Piece::Text(_) => None,
            Piece::Node(node) => Some(here(node)),
        })),
        Node::Object { fields, .. } => {
            todo.extend(fields.iter().map(|(key, expr)| (pointer::append(at, key), expr.node())));
        }
        Node::Array { items, .. } => {
            let items = items.iter().enumerate();
            todo.extend(items.map(|(i, expr)| (pointer::append(at, &i.to_string()), expr.node())));
        }
    }
}
