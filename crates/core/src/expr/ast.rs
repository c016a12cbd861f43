//! Owns the expression tree that all dialects parse to, the references in it, and its JSON encoding. Does not know any dialect's syntax or
//! any value.
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

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{
    lex::ExprSpan,
    literal::LiteralValue,
    pointer,
    shape::{self, ExprShapeError},
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
        #[serde(with = "super::fields")]
        fields: Vec<(String, Expr)>,
    },
    Array {
        span: ExprSpan,
        items: Vec<Expr>,
    },
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
