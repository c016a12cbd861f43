//! Expressions: one tree and one evaluator for the syntaxes of four workflow formats.
//!
//! [`agentcore`], [`aip15`], [`swdl`] and [`ioa`] each parse one format's text to an [`Expr`], whose references start
//! at canonical [`ReferenceRoot`]s. [`Expr::eval`] looks these up in an [`ExprEnv`] and is total: it returns a value or
//! an error within the fuel, size and depth of [`bounds`], and never searches data for more expressions.
//! [`Expr::reads`] and [`Expr::infer_type`] return its references and its type without evaluating it.

mod ast;
mod build;
mod eval;
mod expr_type;
mod fields;
mod infer;
mod lex;
mod literal;
mod ops;
mod parse;
mod parse_error;
mod pointer;
mod shape;
mod size;
mod template;
mod value_reader;

pub mod agentcore;
pub mod aip15;
pub mod bounds;
pub mod ioa;
pub mod swdl;

pub use ast::{CompareOp, Expr, ExprFunction, ExprNode, ExprRead, ReferenceRoot, StepProperty, TemplatePiece};
pub use eval::{EvalError, EvalErrorKind, ExprEnv, RootLookup};
pub use expr_type::{ExprType, TypeFit};
pub use infer::{InferredType, TypeEnv, TypeIssue, TypeIssueLevel};
pub use lex::ExprSpan;
pub use literal::LiteralValue;
pub use parse_error::{ExprParseError, ExprParseErrorKind, UnsupportedSyntax};
pub use shape::ExprShapeError;
