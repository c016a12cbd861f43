//! Owns the construction of expressions in Rust, without text. Does not know any dialect. The expressions have no
//! source and empty spans.

use serde_json::Value;

use super::ast::{CompareOp, Expr, ExprFunction, ExprNode, ReferenceRoot, StepProperty, TemplatePiece};
use super::bounds::MAX_TEXT;
use super::lex::ExprSpan;
use super::literal::LiteralValue;
use super::shape::ExprShapeError;

/// Maximum JSON bytes of one byte of text.
const LONGEST_ESCAPE: usize = "\\u0000".len();

const NOWHERE: ExprSpan = ExprSpan { start: 0, end: 0 };

/// Constructors. All but those of references return an error if the expression is out of bounds.
impl Expr {
    /// A literal value, which is never searched for expressions.
    pub fn literal(value: impl Into<Value>) -> Result<Self, ExprShapeError> {
        let value = LiteralValue::from(value.into());
        // Most literals are short texts. Even with every byte escaped, such a text is within every bound.
        let is_short = value.as_str().is_some_and(|text| text.len() < MAX_TEXT / LONGEST_ESCAPE - 1);
        let node = ExprNode::Literal { span: NOWHERE, value };
        if is_short { Ok(Expr::new_unchecked("", node)) } else { build_expr(node) }
    }

    /// A field of the run's input, or all of it for an empty path.
    pub fn input<S: Into<String>>(path: impl IntoIterator<Item = S>) -> Self {
        Expr::reference(ReferenceRoot::Input, path)
    }

    /// A field of a step's output, or all of it for an empty path.
    pub fn step<S: Into<String>>(id: impl Into<Box<str>>, path: impl IntoIterator<Item = S>) -> Self {
        Expr::reference(ReferenceRoot::Step { id: id.into(), part: StepProperty::Output }, path)
    }

    /// A field of any root.
    pub fn reference<S: Into<String>>(root: ReferenceRoot, path: impl IntoIterator<Item = S>) -> Self {
        let path = path.into_iter().map(Into::into).collect();
        let node = ExprNode::Ref { span: NOWHERE, root, path, lenient_outputs: false };
        Expr::new_unchecked("", node)
    }

    /// An object with these fields, in this order.
    pub fn object<S: Into<String>>(fields: impl IntoIterator<Item = (S, Expr)>) -> Result<Self, ExprShapeError> {
        let fields = fields.into_iter().map(|(key, expr)| (key.into(), expr)).collect();
        build_expr(ExprNode::Object { span: NOWHERE, fields })
    }

    /// An array of these items.
    pub fn array(items: impl IntoIterator<Item = Expr>) -> Result<Self, ExprShapeError> {
        build_expr(ExprNode::Array { span: NOWHERE, items: items.into_iter().collect() })
    }

    /// A string of several values; literal strings are the text between them.
    pub fn template(pieces: impl IntoIterator<Item = Expr>) -> Result<Self, ExprShapeError> {
        let piece = |expr: Expr| match strip_source(expr) {
            ExprNode::Literal { value: LiteralValue::Text(text), .. } => TemplatePiece::Text(text.into()),
            node => TemplatePiece::Node(node),
        };
        build_expr(ExprNode::Template { span: NOWHERE, pieces: pieces.into_iter().map(piece).collect() })
    }

    /// True if `of` is not truthy.
    pub fn negate(of: Expr) -> Result<Self, ExprShapeError> {
        build_expr(ExprNode::Not { span: NOWHERE, of: Box::new(strip_source(of)) })
    }

    /// The first operand that is not truthy, or else the last. Takes at least two.
    pub fn all(of: impl IntoIterator<Item = Expr>) -> Result<Self, ExprShapeError> {
        build_expr(ExprNode::And { span: NOWHERE, of: of.into_iter().map(strip_source).collect() })
    }

    /// The first operand that is truthy, or else the last. Takes at least two.
    pub fn any(of: impl IntoIterator<Item = Expr>) -> Result<Self, ExprShapeError> {
        build_expr(ExprNode::Or { span: NOWHERE, of: of.into_iter().map(strip_source).collect() })
    }

    pub fn compare(by: CompareOp, left: Expr, right: Expr) -> Result<Self, ExprShapeError> {
        let (left, right) = (Box::new(strip_source(left)), Box::new(strip_source(right)));
        build_expr(ExprNode::Compare { span: NOWHERE, by, left, right })
    }

    /// `then` if `test` is truthy, otherwise `otherwise`.
    pub fn cond(test: Expr, then: Expr, otherwise: Expr) -> Result<Self, ExprShapeError> {
        let (test, then, otherwise) =
            (Box::new(strip_source(test)), Box::new(strip_source(then)), Box::new(strip_source(otherwise)));
        build_expr(ExprNode::Cond { span: NOWHERE, test, then, otherwise })
    }

    /// A call, with as many arguments as the function takes.
    pub fn call(function: ExprFunction, args: impl IntoIterator<Item = Expr>) -> Result<Self, ExprShapeError> {
        build_expr(ExprNode::Call { span: NOWHERE, function, args: args.into_iter().map(strip_source).collect() })
    }
}

fn build_expr(node: ExprNode) -> Result<Expr, ExprShapeError> {
    Expr::new(String::new(), node)
}

/// Returns the tree without its source. Clears its spans, which would point into a text that is gone.
fn strip_source(expr: Expr) -> ExprNode {
    let mut node = expr.into_parts().node;
    clear_spans(&mut node);
    node
}

/// Recursion is bounded, since the tree was part of an expression. Objects and arrays hold whole expressions, which
/// keep their spans.
fn clear_spans(node: &mut ExprNode) {
    match node {
        ExprNode::Literal { span, .. }
        | ExprNode::Ref { span, .. }
        | ExprNode::Object { span, .. }
        | ExprNode::Array { span, .. } => *span = NOWHERE,
        ExprNode::Not { span, of } => {
            *span = NOWHERE;
            clear_spans(of);
        }
        ExprNode::And { span, of } | ExprNode::Or { span, of } | ExprNode::Call { span, args: of, .. } => {
            *span = NOWHERE;
            of.iter_mut().for_each(clear_spans);
        }
        ExprNode::Compare { span, left, right, .. } => {
            *span = NOWHERE;
            [left, right].into_iter().for_each(|node| clear_spans(node));
        }
        ExprNode::Cond { span, test, then, otherwise } => {
            *span = NOWHERE;
            [test, then, otherwise].into_iter().for_each(|node| clear_spans(node));
        }
        ExprNode::Template { span, pieces } => {
            *span = NOWHERE;
            for piece in pieces {
                if let TemplatePiece::Node(node) = piece {
                    clear_spans(node);
                }
            }
        }
    }
}
