//! Owns making expressions in Rust, without text. Knows no surface; what is made has no source and empty
//! spans.

use serde_json::Value;

use super::ast::{CompareOp, Expr, Function, Node, Part, Piece, Root};
use super::bounds::MAX_TEXT;
use super::constant::Constant;
use super::shape::ShapeError;
use super::span::Span;

/// How many bytes one byte of a text can be in JSON.
const LONGEST_ESCAPE: usize = "\\u0000".len();

const NOWHERE: Span = Span { start: 0, end: 0 };

/// All but references may be out of bounds, and say so.
impl Expr {
    /// A value as it is, never looked into for expressions.
    pub fn literal(value: impl Into<Value>) -> Result<Self, ShapeError> {
        let value = Constant::from(value.into());
        // Most are short texts, and even with all of it escaped such a one is within every bound.
        let is_short = value.as_str().is_some_and(|text| text.len() < MAX_TEXT / LONGEST_ESCAPE - 1);
        let node = Node::Literal { span: NOWHERE, value };
        if is_short { Ok(Expr::unchecked("", node)) } else { made(node) }
    }

    /// A field of the run's input, or all of it for an empty path.
    pub fn input<S: Into<String>>(path: impl IntoIterator<Item = S>) -> Self {
        Expr::read(Root::Input, path)
    }

    /// A field of a step's output, or all of it for an empty path.
    pub fn step<S: Into<String>>(id: impl Into<Box<str>>, path: impl IntoIterator<Item = S>) -> Self {
        Expr::read(Root::Step { id: id.into(), part: Part::Output }, path)
    }

    /// A field of anything that can be referred to.
    pub fn read<S: Into<String>>(root: Root, path: impl IntoIterator<Item = S>) -> Self {
        let path = path.into_iter().map(Into::into).collect();
        let node = Node::Ref { span: NOWHERE, root, path, lenient_outputs: false };
        Expr::unchecked("", node)
    }

    /// An object with these fields, in this order.
    pub fn object<S: Into<String>>(fields: impl IntoIterator<Item = (S, Expr)>) -> Result<Self, ShapeError> {
        let fields = fields.into_iter().map(|(key, expr)| (key.into(), expr)).collect();
        made(Node::Object { span: NOWHERE, fields })
    }

    /// An array of these items.
    pub fn array(items: impl IntoIterator<Item = Expr>) -> Result<Self, ShapeError> {
        made(Node::Array { span: NOWHERE, items: items.into_iter().collect() })
    }

    /// One string of several values; literal strings are the text between them.
    pub fn template(pieces: impl IntoIterator<Item = Expr>) -> Result<Self, ShapeError> {
        let piece = |expr: Expr| match bare(expr) {
            Node::Literal { value: Constant::Text(text), .. } => Piece::Text(text.into()),
            node => Piece::Node(node),
        };
        made(Node::Template { span: NOWHERE, pieces: pieces.into_iter().map(piece).collect() })
    }

    /// Whether `of` does not count as true.
    pub fn negated(of: Expr) -> Result<Self, ShapeError> {
        made(Node::Not { span: NOWHERE, of: Box::new(bare(of)) })
    }

    /// The first operand that does not count as true, or the last; at least two.
    pub fn all(of: impl IntoIterator<Item = Expr>) -> Result<Self, ShapeError> {
        made(Node::And { span: NOWHERE, of: of.into_iter().map(bare).collect() })
    }

    /// The first operand that counts as true, or the last; at least two.
    pub fn any(of: impl IntoIterator<Item = Expr>) -> Result<Self, ShapeError> {
        made(Node::Or { span: NOWHERE, of: of.into_iter().map(bare).collect() })
    }

    /// A comparison.
    pub fn compare(by: CompareOp, left: Expr, right: Expr) -> Result<Self, ShapeError> {
        let (left, right) = (Box::new(bare(left)), Box::new(bare(right)));
        made(Node::Compare { span: NOWHERE, by, left, right })
    }

    /// `then` if `test` counts as true, and `otherwise` if not.
    pub fn cond(test: Expr, then: Expr, otherwise: Expr) -> Result<Self, ShapeError> {
        let (test, then, otherwise) = (Box::new(bare(test)), Box::new(bare(then)), Box::new(bare(otherwise)));
        made(Node::Cond { span: NOWHERE, test, then, otherwise })
    }

    /// A call, with as many arguments as the function takes.
    pub fn call(function: Function, args: impl IntoIterator<Item = Expr>) -> Result<Self, ShapeError> {
        made(Node::Call { span: NOWHERE, function, args: args.into_iter().map(bare).collect() })
    }
}

fn made(node: Node) -> Result<Expr, ShapeError> {
    Expr::checked(String::new(), node)
}

/// The tree without its source. Spans would point into a text that is no longer there.
fn bare(expr: Expr) -> Node {
    let mut node = expr.into_parts().node;
    forget_spans(&mut node);
    node
}

/// Bounded, since the tree was part of an expression. Objects and arrays hold expressions that keep their
/// own.
fn forget_spans(node: &mut Node) {
    match node {
        Node::Literal { span, .. }
        | Node::Ref { span, .. }
        | Node::Object { span, .. }
        | Node::Array { span, .. } => *span = NOWHERE,
        Node::Not { span, of } => {
            *span = NOWHERE;
            forget_spans(of);
        }
        Node::And { span, of } | Node::Or { span, of } | Node::Call { span, args: of, .. } => {
            *span = NOWHERE;
            of.iter_mut().for_each(forget_spans);
        }
        Node::Compare { span, left, right, .. } => {
            *span = NOWHERE;
            [left, right].into_iter().for_each(|node| forget_spans(node));
        }
        Node::Cond { span, test, then, otherwise } => {
            *span = NOWHERE;
            [test, then, otherwise].into_iter().for_each(|node| forget_spans(node));
        }
        Node::Template { span, pieces } => {
            *span = NOWHERE;
            for piece in pieces {
                if let Piece::Node(node) = piece {
                    forget_spans(node);
                }
            }
        }
    }
}
