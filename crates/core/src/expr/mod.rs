//! Expressions: one tree and one evaluator behind the spellings of four workflow formats.
//!
//! [`agentcore`], [`aip15`], [`swdl`] and [`ioa`] each read one format's text to an [`Expr`], whose references start at
//! canonical [`Root`]s. [`Expr::eval`] asks an [`Env`] for those and is total: it gives a value or an error
//! within the fuel, size and depth of [`bounds`], and never looks into data for more expressions.
//! [`Expr::reads`] and [`Expr::ty`] tell what it refers to and what it will be without evaluating it.

mod ast;
mod build;
mod call;
mod constant;
mod env;
mod error;
mod eval;
mod fault;
mod fields;
mod infer;
mod lex;
mod literal;
mod meter;
mod names;
mod number;
mod ops;
mod parse;
mod pointer;
mod reads;
mod shape;
mod size;
mod span;
mod status;
mod template;
mod token;
mod ty;
mod walk;

pub mod agentcore;
pub mod aip15;
pub mod bounds;
pub mod ioa;
pub mod swdl;

pub use ast::{CompareOp, Expr, Function, Node, Part, Piece, Root};
pub use constant::Constant;
pub use env::{Env, Lookup};
pub use error::{Missing, ParseError, ParseErrorKind};
pub use fault::{EvalError, EvalErrorKind};
pub use infer::{Issue, Level, TypeEnv, Typed};
pub use reads::Read;
pub use shape::ShapeError;
pub use span::Span;
pub use ty::{Fit, Ty};
