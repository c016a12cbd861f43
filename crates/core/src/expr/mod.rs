//! Expressions.
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    pub start: u32,
    pub end: u32,
}
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expr {
    source: String,
}
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Root {
    Input,
    Step { id: String, part: Part },
    Item,
    Index,
    Context,
    Env,
    Run,
    Workflow,
}
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    Output,
    Status,
    Summary,
}
#[derive(Debug)]
pub enum Lookup<'a> {
    Found(Cow<'a, Value>),
    Absent,
    NotYet,
}
pub trait Env {
    fn lookup(&self, root: &Root) -> Lookup<'_>;
}
#[derive(Debug)]
pub struct EvalError {
    pub kind: EvalErrorKind,
    pub span: Span,
}
#[derive(Debug, PartialEq)]
pub enum EvalErrorKind {
    NotYet,
}
impl std::fmt::Display for EvalError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "x")
    }
}
pub struct Read<'a> {
    pub root: &'a Root,
    pub path: &'a [String],
    pub span: Span,
}
impl Expr {
    pub fn eval(&self, _: &dyn Env) -> Result<Value, EvalError> {
        Ok(Value::Null)
    }
    pub fn test(&self, _: &dyn Env) -> Result<bool, EvalError> {
        Ok(true)
    }
    pub fn reads(&self) -> Vec<Read<'_>> {
        vec![]
    }
    pub fn literal(_: Value) -> Expr {
        Expr { source: String::new() }
    }
}
