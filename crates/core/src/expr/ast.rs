//! Owns the tree that all surfaces parse to, and its JSON. Refuses to know any surface's spelling and any
//! value.
//!
//! # The JSON
//!
//! An expression is `{"source": TEXT, "node": NODE}`. A node is an object whose `op` says what it is, with a
//! `span` of `[start, end]` into the nearest enclosing `source`:
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

use super::constant::Constant;
use super::shape::{self, ShapeError};
use super::span::Span;

/// A parsed expression: a tree and the text it came from. Every value of this type is within the bounds.
///
/// Apart, because most places for an expression have none, and shared, because it never changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Parts")]
pub struct Expr(Arc<Parts>);

/// What it is made of, and what decoding reads before the bounds are checked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Parts {
    pub source: Box<str>,
    pub node: Node,
}

impl TryFrom<Parts> for Expr {
    type Error = ShapeError;

    fn try_from(parts: Parts) -> Result<Self, ShapeError> {
        Expr::checked(parts.source, parts.node)
    }
}

impl Expr {
    /// The only way to an expression: whatever made the tree, it is within the bounds afterwards.
    pub(super) fn checked(source: impl Into<Box<str>>, node: Node) -> Result<Self, ShapeError> {
        let expr = Expr::unchecked(source, node);
        shape::check(&expr)?;
        Ok(expr)
    }

    /// One that cannot be out of bounds, or a part of something that is checked as a whole.
    pub(super) fn unchecked(source: impl Into<Box<str>>, node: Node) -> Self {
        Expr(Arc::new(Parts { source: source.into(), node }))
    }

    /// The text that was parsed; empty for literals, for objects and arrays, and for what a program made.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// The tree.
    pub fn node(&self) -> &Node {
        &self.0.node
    }

    /// The parts by themselves, which may be put together to something else.
    pub(super) fn into_parts(self) -> Parts {
        Arc::unwrap_or_clone(self.0)
    }

    /// The value, if nothing needs to be looked up or worked out.
    pub fn as_literal(&self) -> Option<&Constant> {
        match self.node() {
            Node::Literal { value, .. } => Some(value),
            _ => None,
        }
    }
}

/// Where a reference starts: the canonical namespaces, which an environment answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Root {
    /// What the run was given: inputs, parameters, the trigger's payload.
    Input,
    /// Something about another step.
    Step {
        id: Box<str>,
        part: Part,
    },
    /// The element of the surrounding map or fan-out, and its place from zero.
    Item,
    Index,
    Context,
    Env,
    Run,
    Workflow,
}

/// Which thing about a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
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
pub enum Function {
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
pub enum Node {
    Literal {
        span: Span,
        value: Constant,
    },
    Ref {
        span: Span,
        root: Root,
        path: Box<[String]>,
        /// The text had an `outputs` segment before `path`, which counts only if the output has such a key.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lenient_outputs: bool,
    },
    Not {
        span: Span,
        of: Box<Node>,
    },
    And {
        span: Span,
        of: Vec<Node>,
    },
    Or {
        span: Span,
        of: Vec<Node>,
    },
    Compare {
        span: Span,
        by: CompareOp,
        left: Box<Node>,
        right: Box<Node>,
    },
    Cond {
        span: Span,
        test: Box<Node>,
        then: Box<Node>,
        otherwise: Box<Node>,
    },
    Call {
        span: Span,
        function: Function,
        args: Vec<Node>,
    },
    Template {
        span: Span,
        pieces: Vec<Piece>,
    },
    Object {
        span: Span,
        #[serde(with = "super::fields")]
        fields: Vec<(String, Expr)>,
    },
    Array {
        span: Span,
        items: Vec<Expr>,
    },
}

/// A run of text, or an expression whose value is spelled out in its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Piece {
    Text(String),
    Node(Node),
}

impl Node {
    pub fn span(&self) -> Span {
        match self {
            Node::Literal { span, .. }
            | Node::Ref { span, .. }
            | Node::Not { span, .. }
            | Node::And { span, .. }
            | Node::Or { span, .. }
            | Node::Compare { span, .. }
            | Node::Cond { span, .. }
            | Node::Call { span, .. }
            | Node::Template { span, .. }
            | Node::Object { span, .. }
            | Node::Array { span, .. } => *span,
        }
    }
}

impl CompareOp {
    /// As it is written.
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

impl Function {
    pub(super) const ALL: [Function; 4] =
        [Function::Length, Function::Contains, Function::ToJson, Function::FromJson];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Function::Length => "length",
            Function::Contains => "contains",
            Function::ToJson => "toJSON",
            Function::FromJson => "fromJSON",
        }
    }

    /// How many arguments it takes.
    pub fn arity(self) -> usize {
        if self == Function::Contains { 2 } else { 1 }
    }
}
