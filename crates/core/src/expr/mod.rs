//! Expressions: one tree and one evaluator for the syntaxes of four workflow formats.
//!
//! [`agentcore`], [`aip15`], [`swdl`] and [`ioa`] each parse one format's text to an [`Expr`], whose references start
//! at canonical [`ReferenceRoot`]s. [`Expr::eval`] looks these up in an [`ExprEnv`] and is total: it returns a value or
//! an error within the fuel, size and depth of [`limits`](crate::limits), and never searches data for more expressions.
//! [`Expr::reads`] and [`Expr::infer_type`] return its references and its type without evaluating it.

mod ast;
mod eval;
mod expr_type;
mod lex;
mod parse;
mod shape;
mod template;

pub mod agentcore;
pub mod aip15;
pub mod ioa;
pub mod swdl;

pub use ast::{CompareOp, Expr, ExprFunction, ExprNode, ExprRead, ReferenceRoot, StepProperty, TemplatePiece};
pub use eval::{EvalError, EvalErrorKind, ExprEnv, RootLookup};
pub use expr_type::{ExprType, InferredType, TypeEnv, TypeFit, TypeIssue, TypeIssueLevel};
pub use lex::{ExprSpan, LiteralValue};
pub use parse::{ExprParseError, ExprParseErrorKind, UnsupportedSyntax};
pub use shape::ExprShapeError;
