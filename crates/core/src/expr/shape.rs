//! Owns the validity of a tree, whether it comes from the parser, a program or JSON. Does not know the meaning of
//! values.

use thiserror::Error;

use super::ast::{Expr, ExprNode, TemplatePiece};
use super::bounds::{MAX_DEPTH, MAX_NODES, MAX_TEXT, MAX_WIRE_DEPTH};
use super::size::measure_json;

/// The reason why a tree is not a valid expression.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExprShapeError {
    #[error("operators and brackets nest more than {MAX_DEPTH} deep")]
    TooDeep,
    #[error("the value nests too deep around or inside its expressions")]
    NestedTooDeep,
    #[error("more than {MAX_NODES} parts in one expression")]
    TooManyNodes,
    #[error("more than {MAX_TEXT} bytes of text in one expression")]
    TooLong,
    #[error("`{function}` takes {takes} argument{}, not {given}", if *.takes == 1 { "" } else { "s" })]
    Arity { function: &'static str, takes: usize, given: usize },
    #[error("`and` and `or` join at least two operands")]
    TooFewOperands,
    #[error("a span lies outside its source")]
    SpanOutside,
    #[error("duplicate field `{0}`")]
    FieldTwice(String),
}

/// A node still to be visited, and its position.
struct PendingNode<'a> {
    node: &'a ExprNode,
    source: &'a str,
    /// The number of operators above it, plus one.
    depth: usize,
    /// JSON levels of the encoding, down to and including its own.
    wire: usize,
}

/// Checks that the tree is within all bounds. Does not recurse, since the tree may be too deep.
pub(super) fn check_shape(expr: &Expr) -> Result<(), ExprShapeError> {
    let mut todo = vec![PendingNode { node: expr.node(), source: expr.source(), depth: 1, wire: 2 }];
    let (mut nodes, mut text) = (0, expr.source().len());
    while let Some(visit) = todo.pop() {
        nodes += 1;
        if visit.depth > MAX_DEPTH {
            return Err(ExprShapeError::TooDeep);
        }
        if visit.node.span().slice_text(visit.source).is_none() {
            return Err(ExprShapeError::SpanOutside);
        }
        let (levels, bytes) = own_size(visit.node)?;
        text += bytes;
        if visit.wire + levels > MAX_WIRE_DEPTH {
            return Err(ExprShapeError::NestedTooDeep);
        }
        // A template's text counts twice, as the source and as pieces.
        if text > 2 * MAX_TEXT {
            return Err(ExprShapeError::TooLong);
        }
        check_operands(visit.node)?;
        push_children(&visit, &mut todo);
        if nodes + todo.len() > MAX_NODES {
            return Err(ExprShapeError::TooManyNodes);
        }
    }
    Ok(())
}

/// Returns the JSON levels below the node's own object, and the bytes, of its contents other than nodes.
fn own_size(node: &ExprNode) -> Result<(usize, usize), ExprShapeError> {
    match node {
        ExprNode::Literal { value, .. } => {
            let size = measure_json(&value.to_value(), MAX_TEXT).ok_or(ExprShapeError::TooLong)?;
            Ok((size.depth.max(1), size.bytes))
        }
        ExprNode::Ref { path, .. } => Ok((2, path.iter().map(|s| s.len() + 3).sum())),
        ExprNode::Template { pieces, .. } => {
            let bytes = pieces.iter().map(|piece| match piece {
                TemplatePiece::Text(text) => text.len(),
                TemplatePiece::Node(_) => 0,
            });
            Ok((2, bytes.sum()))
        }
        ExprNode::Object { fields, .. } => {
            Ok((1, fields.iter().map(|(key, expr)| key.len() + expr.source().len()).sum()))
        }
        ExprNode::Array { items, .. } => Ok((1, items.iter().map(|expr| expr.source().len()).sum())),
        _ => Ok((1, 0)),
    }
}

fn check_operands(node: &ExprNode) -> Result<(), ExprShapeError> {
    match node {
        ExprNode::And { of, .. } | ExprNode::Or { of, .. } if of.len() < 2 => Err(ExprShapeError::TooFewOperands),
        ExprNode::Call { function, args, .. } if args.len() != function.arity() => {
            Err(ExprShapeError::Arity { function: function.name(), takes: function.arity(), given: args.len() })
        }
        ExprNode::Object { fields, .. } => {
            let mut keys: Vec<&String> = fields.iter().map(|(key, _)| key).collect();
            keys.sort_unstable();
            match keys.windows(2).find(|pair| pair[0] == pair[1]) {
                Some(pair) => Err(ExprShapeError::FieldTwice(pair[0].clone())),
                None => Ok(()),
            }
        }
        _ => Ok(()),
    }
}

fn push_children<'a>(at: &PendingNode<'a>, todo: &mut Vec<PendingNode<'a>>) {
    let (source, wire) = (at.source, at.wire);
    let depth = at.depth + 1;
    let below = |levels: usize| move |node: &'a ExprNode| PendingNode { node, source, depth, wire: wire + levels };
    let whole = |expr: &'a Expr| PendingNode { node: expr.node(), source: expr.source(), depth: 1, wire: wire + 3 };
    match at.node {
        ExprNode::Literal { .. } | ExprNode::Ref { .. } => {}
        ExprNode::Not { of, .. } => todo.push(below(1)(of)),
        ExprNode::And { of, .. } | ExprNode::Or { of, .. } => todo.extend(of.iter().map(below(2))),
        ExprNode::Compare { left, right, .. } => todo.extend([&**left, right].map(below(1))),
        ExprNode::Cond { test, then, otherwise, .. } => {
            todo.extend([&**test, then, otherwise].map(below(1)));
        }
        ExprNode::Call { args, .. } => todo.extend(args.iter().map(below(2))),
        ExprNode::Template { pieces, .. } => todo.extend(pieces.iter().filter_map(|piece| match piece {
            TemplatePiece::Text(_) => None,
            TemplatePiece::Node(node) => Some(PendingNode { node, source, depth: 1, wire: wire + 3 }),
        })),
        ExprNode::Object { fields, .. } => todo.extend(fields.iter().map(|(_, expr)| whole(expr))),
        ExprNode::Array { items, .. } => todo.extend(items.iter().map(whole)),
    }
}
