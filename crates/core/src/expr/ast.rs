//! Owns the expression tree that all dialects parse to, the references in it, its construction by a program, and its
//! JSON encoding. Does not know any dialect's syntax or any value. An expression that a program built has no source and
//! empty spans.
//!
//! # The JSON
//!
//! An expression is `{"source": TEXT, "node": NODE}`. A node is an object whose `op` names its operation, with a `span`
//! of `[start, end]` into the nearest enclosing `source`:
//!
//! | `op` | other fields |
//! |---|---|
//! | `literal` | `value`: any JSON |
//! | `ref` | `root`, `path`: list of names; `lenient_outputs`: true, or left out |
//! | `not` | `of`: node |
//! | `and`, `or` | `of`: list of at least two nodes |
//! | `compare` | `by`: `eq ne lt le gt ge`; `left`, `right`: nodes |
//! | `cond` | `test`, `then`, `otherwise`: nodes |
//! | `call` | `function`: `length contains toJSON fromJSON`; `args`: list of nodes |
//! | `template` | `pieces`: list of `{"text": TEXT}` and `{"node": NODE}` |
//! | `object` | `fields`: object of expressions, in order |
//! | `array` | `items`: list of expressions |
//!
//! A `root` is one of `"input" "item" "index" "context" "env" "run" "workflow"` or `{"step": {"id": ID,
//! "part": "output" | "status" | "summary"}}`. Objects and arrays hold whole expressions, each with its own
//! source, because each string of a document is parsed on its own.

use std::{collections::BTreeSet, fmt, sync::Arc};

use serde::{
    Deserialize, Serialize,
    de::{Deserializer, Error, MapAccess, Visitor},
    ser::{SerializeMap, Serializer},
};
use serde_json::Value;

use crate::{
    expr::{
        lex::{ExprSpan, LiteralValue},
        shape::{self, ExprShapeError},
    },
    limits::EXPRESSION_TEXT,
};

/// A parsed expression: a tree and its source text. Every value of this type is within the bounds.
///
/// Behind a pointer, because most fields for an expression are empty. Shared, because an expression never changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "ExprParts")]
pub struct Expr(Arc<ExprParts>);

/// The contents of an expression, as decoded before the bounds are checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExprParts {
    pub source: Box<str>,
    pub node: ExprNode,
}

impl TryFrom<ExprParts> for Expr {
    type Error = ExprShapeError;

    fn try_from(parts: ExprParts) -> Result<Self, ExprShapeError> {
        Expr::new(parts.source, parts.node)
    }
}

impl Expr {
    /// The checked constructor: rejects a tree that is out of bounds, however it was built.
    pub(super) fn new(source: impl Into<Box<str>>, node: ExprNode) -> Result<Self, ExprShapeError> {
        let expr = Expr::new_unchecked(source, node);
        shape::check_shape(&expr)?;
        Ok(expr)
    }

    /// Builds an expression that cannot be out of bounds, or a part of one that is checked as a whole.
    pub(super) fn new_unchecked(source: impl Into<Box<str>>, node: ExprNode) -> Self {
        Expr(Arc::new(ExprParts { source: source.into(), node }))
    }

    /// The text that was parsed. Empty for literals, objects, arrays and expressions built by a program.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// The tree.
    pub fn node(&self) -> &ExprNode {
        &self.0.node
    }

    /// Returns the parts, from which another expression can be built.
    pub(super) fn into_parts(self) -> ExprParts {
        Arc::unwrap_or_clone(self.0)
    }

    /// The value, if the expression needs no lookup and no evaluation.
    pub fn as_literal(&self) -> Option<&LiteralValue> {
        match self.node() {
            ExprNode::Literal { value, .. } => Some(value),
            _ => None,
        }
    }
}

/// The root of a reference: one of the canonical namespaces, whose value an environment provides.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReferenceRoot {
    /// The run's input: inputs, parameters, the trigger's payload.
    Input,
    /// A property of another step.
    Step {
        id: Box<str>,
        part: StepProperty,
    },
    /// The element of the surrounding map or fan-out; `Index` is its index from zero.
    Item,
    Index,
    Context,
    Env,
    Run,
    Workflow,
}

/// The property of a step that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepProperty {
    Output,
    Status,
    Summary,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ExprFunction {
    #[serde(rename = "length")]
    Length,
    #[serde(rename = "contains")]
    Contains,
    #[serde(rename = "toJSON")]
    ToJson,
    #[serde(rename = "fromJSON")]
    FromJson,
}

/// One node of the tree; see the module's table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum ExprNode {
    Literal {
        span: ExprSpan,
        value: LiteralValue,
    },
    Ref {
        span: ExprSpan,
        root: ReferenceRoot,
        path: Box<[String]>,
        /// True if the text had an `outputs` segment before `path`. It counts only if the output has such a key.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lenient_outputs: bool,
    },
    Not {
        span: ExprSpan,
        of: Box<ExprNode>,
    },
    And {
        span: ExprSpan,
        of: Vec<ExprNode>,
    },
    Or {
        span: ExprSpan,
        of: Vec<ExprNode>,
    },
    Compare {
        span: ExprSpan,
        by: CompareOp,
        left: Box<ExprNode>,
        right: Box<ExprNode>,
    },
    Cond {
        span: ExprSpan,
        test: Box<ExprNode>,
        then: Box<ExprNode>,
        otherwise: Box<ExprNode>,
    },
    Call {
        span: ExprSpan,
        function: ExprFunction,
        args: Vec<ExprNode>,
    },
    Template {
        span: ExprSpan,
        pieces: Vec<TemplatePiece>,
    },
    Object {
        span: ExprSpan,
        #[serde(serialize_with = "serialize_fields", deserialize_with = "deserialize_fields")]
        fields: Vec<(String, Expr)>,
    },
    Array {
        span: ExprSpan,
        items: Vec<Expr>,
    },
}

/// Writes the fields as a JSON object that keeps their order.
fn serialize_fields<S: Serializer>(fields: &[(String, Expr)], to: S) -> Result<S::Ok, S::Error> {
    let mut map = to.serialize_map(Some(fields.len()))?;
    for (key, expr) in fields {
        map.serialize_entry(key, expr)?;
    }
    map.end()
}

/// Reads the fields in their order, and rejects duplicate keys.
fn deserialize_fields<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<(String, Expr)>, D::Error> {
    from.deserialize_map(FieldsVisitor)
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Vec<(String, Expr)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object of expressions")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut seen = BTreeSet::new();
        let mut fields = Vec::new();
        while let Some((key, expr)) = map.next_entry::<String, Expr>()? {
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format!("duplicate field `{key}`")));
            }
            fields.push((key, expr));
        }
        Ok(fields)
    }
}

/// Literal text, or an expression whose value is inserted in its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TemplatePiece {
    Text(String),
    Node(ExprNode),
}

impl ExprNode {
    pub fn span(&self) -> ExprSpan {
        match self {
            ExprNode::Literal { span, .. }
            | ExprNode::Ref { span, .. }
            | ExprNode::Not { span, .. }
            | ExprNode::And { span, .. }
            | ExprNode::Or { span, .. }
            | ExprNode::Compare { span, .. }
            | ExprNode::Cond { span, .. }
            | ExprNode::Call { span, .. }
            | ExprNode::Template { span, .. }
            | ExprNode::Object { span, .. }
            | ExprNode::Array { span, .. } => *span,
        }
    }
}

impl CompareOp {
    /// The operator as it is written.
    pub fn sign(self) -> &'static str {
        match self {
            CompareOp::Eq => "==",
            CompareOp::Ne => "!=",
            CompareOp::Lt => "<",
            CompareOp::Le => "<=",
            CompareOp::Gt => ">",
            CompareOp::Ge => ">=",
        }
    }
}

impl ExprFunction {
    pub(super) const ALL: [ExprFunction; 4] =
        [ExprFunction::Length, ExprFunction::Contains, ExprFunction::ToJson, ExprFunction::FromJson];

    /// The name as it is written.
    pub fn name(self) -> &'static str {
        match self {
            ExprFunction::Length => "length",
            ExprFunction::Contains => "contains",
            ExprFunction::ToJson => "toJSON",
            ExprFunction::FromJson => "fromJSON",
        }
    }

    /// The number of arguments.
    pub fn arity(self) -> usize {
        if self == ExprFunction::Contains { 2 } else { 1 }
    }
}

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
        while let Some((segment, tail)) = split_first_segment(rest) {
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
            todo.extend(fields.iter().map(|(key, expr)| (append_segment(at, key), expr.node())));
        }
        ExprNode::Array { items, .. } => {
            let items = items.iter().enumerate();
            todo.extend(items.map(|(i, expr)| (append_segment(at, &i.to_string()), expr.node())));
        }
    }
}

/// Prepends a segment to the pointer `rest`: a JSON pointer, RFC 6901.
pub(super) fn prepend_segment(segment: &str, rest: &str) -> String {
    format!("/{}{rest}", segment.replace('~', "~0").replace('/', "~1"))
}

/// Appends a segment to the pointer `base`.
pub(super) fn append_segment(base: &str, segment: &str) -> String {
    format!("{base}{}", prepend_segment(segment, ""))
}

/// Returns the first segment, unescaped, and the rest.
fn split_first_segment(pointer: &str) -> Option<(String, &str)> {
    let tail = pointer.strip_prefix('/')?;
    let end = tail.find('/').unwrap_or(tail.len());
    let (segment, rest) = tail.split_at(end);
    Some((segment.replace("~1", "/").replace("~0", "~"), rest))
}

/// Maximum JSON bytes of one byte of text.
const LONGEST_ESCAPE: usize = "\\u0000".len();

const NOWHERE: ExprSpan = ExprSpan { start: 0, end: 0 };

/// Constructors. All but those of references return an error if the expression is out of bounds.
impl Expr {
    /// A literal value, which is never searched for expressions.
    pub fn literal(value: impl Into<Value>) -> Result<Self, ExprShapeError> {
        let value = LiteralValue::from(value.into());
        // Most literals are short texts. Even with every byte escaped, such a text is within every bound.
        let is_short = value.as_str().is_some_and(|text| text.len() < EXPRESSION_TEXT / LONGEST_ESCAPE - 1);
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
