//! Owns the validity of a tree, whether it comes from the parser, a program or JSON, and the size of a JSON value. Does
//! not recurse, and does not know the meaning of values.

use serde_json::{Number, Value};
use thiserror::Error;

use crate::{
    expr::ast::{Expr, ExprNode, TemplatePiece},
    limits::{EXPRESSION_DEPTH, EXPRESSION_NODES, EXPRESSION_TEXT, EXPRESSION_WIRE_DEPTH},
};

/// The reason why a tree is not a valid expression.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ExprShapeError {
    #[error("operators and brackets nest more than {EXPRESSION_DEPTH} deep")]
    TooDeep,
    #[error("the value nests too deep around or inside its expressions")]
    NestedTooDeep,
    #[error("more than {EXPRESSION_NODES} parts in one expression")]
    TooManyNodes,
    #[error("more than {EXPRESSION_TEXT} bytes of text in one expression")]
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
        if visit.depth > EXPRESSION_DEPTH {
            return Err(ExprShapeError::TooDeep);
        }
        if visit.node.span().slice_text(visit.source).is_none() {
            return Err(ExprShapeError::SpanOutside);
        }
        let (levels, bytes) = own_size(visit.node)?;
        text += bytes;
        if visit.wire + levels > EXPRESSION_WIRE_DEPTH {
            return Err(ExprShapeError::NestedTooDeep);
        }
        // A template's text counts twice, as the source and as pieces.
        if text > 2 * EXPRESSION_TEXT {
            return Err(ExprShapeError::TooLong);
        }
        check_operands(visit.node)?;
        push_children(&visit, &mut todo);
        if nodes + todo.len() > EXPRESSION_NODES {
            return Err(ExprShapeError::TooManyNodes);
        }
    }
    Ok(())
}

/// Returns the JSON levels below the node's own object, and the bytes, of its contents other than nodes.
fn own_size(node: &ExprNode) -> Result<(usize, usize), ExprShapeError> {
    match node {
        ExprNode::Literal { value, .. } => {
            let size = measure_json(&value.to_value(), EXPRESSION_TEXT).ok_or(ExprShapeError::TooLong)?;
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

/// The size of a value when written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JsonSize {
    pub bytes: usize,
    /// Levels of arrays and objects; a scalar has none.
    pub depth: usize,
    /// The number of values in it, including itself.
    pub values: usize,
}

/// Returns the size of `value`, or none as soon as it is known to exceed `max` bytes.
pub(super) fn measure_json(value: &Value, max: usize) -> Option<JsonSize> {
    let mut size = JsonSize { bytes: own_bytes(value), depth: 0, values: 1 };
    let mut todo = vec![(value, 1)];
    while let Some((value, depth)) = todo.pop() {
        if size.bytes > max {
            return None;
        }
        // Only members that have members themselves are queued; there may be very many of the others.
        let mut member = |member: &Value| {
            if size.bytes > max {
                return false;
            }
            size.bytes += own_bytes(member);
            size.values += 1;
            member.is_array() || member.is_object()
        };
        match value {
            Value::Array(items) => todo.extend(items.iter().filter(|v| member(v)).map(|v| (v, depth + 1))),
            Value::Object(fields) => todo.extend(fields.values().filter(|v| member(v)).map(|v| (v, depth + 1))),
            _ => continue,
        }
        size.depth = size.depth.max(depth);
    }
    (size.bytes <= max).then_some(size)
}

/// Returns the bytes of a value without its members. Brackets, commas and keys are its own.
fn own_bytes(value: &Value) -> usize {
    match value {
        Value::Null => 4,
        Value::Bool(b) => 5 - usize::from(*b),
        Value::Number(n) => number_bytes(n),
        Value::String(s) => text_bytes(s),
        Value::Array(items) => punctuation_bytes(items.len()),
        Value::Object(fields) => {
            punctuation_bytes(fields.len()) + fields.keys().map(|key| text_bytes(key) + 1).sum::<usize>()
        }
    }
}

/// Returns the bytes of a number. Integers are common, and are counted without writing them.
fn number_bytes(n: &Number) -> usize {
    let digits = |n: u64| 1 + n.checked_ilog10().unwrap_or(0) as usize;
    match (n.as_u64(), n.as_i64()) {
        (Some(n), _) => digits(n),
        (None, Some(n)) => 1 + digits(n.unsigned_abs()),
        (None, None) => n.to_string().len(),
    }
}

/// Returns the bytes of the brackets and commas around `n` members.
fn punctuation_bytes(n: usize) -> usize {
    2 + n.saturating_sub(1)
}

/// Returns the bytes of a string with its quotes and escapes.
pub(super) fn text_bytes(text: &str) -> usize {
    let extra = |b: u8| match b {
        b'"' | b'\\' | 0x08 | 0x09 | 0x0a | 0x0c | 0x0d => 1,
        0x00..0x20 => 5,
        _ => 0,
    };
    2 + text.len() + text.bytes().map(extra).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn agrees_with_the_writer() {
        let odd = "q\" b\\ n\n t\t r\r \u{8}\u{c}\u{1}\u{1f}\u{7f} é 🧶";
        for value in [
            json!(null),
            json!([true, false, null]),
            json!({}),
            json!([]),
            json!([0, 1, 9, 10, -2, -10, 3.5, 1e300, -0.0, u64::MAX, i64::MIN]),
            json!({odd: odd, "a": {"b": [[], {"c": "d"}]}}),
        ] {
            let written = serde_json::to_string(&value).unwrap().len();
            assert_eq!(measure_json(&value, usize::MAX).unwrap().bytes, written, "{value}");
            assert!(measure_json(&value, written).is_some() && measure_json(&value, written - 1).is_none());
        }
    }

    #[test]
    fn counts_levels() {
        assert_eq!(measure_json(&json!(1), 99).unwrap().depth, 0);
        assert_eq!(measure_json(&json!([]), 99).unwrap().depth, 1);
        let size = measure_json(&json!({"a": [{}], "b": 1}), 99).unwrap();
        assert_eq!((size.depth, size.values), (3, 4));
    }
}
