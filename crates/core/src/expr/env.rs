//! Owns what the evaluator asks of its surroundings. Knows no run, no step and no store.

use std::borrow::Cow;

use serde_json::Value;

use super::ast::ReferenceRoot;

/// Where references find their values.
pub trait ExprEnv {
    fn lookup(&self, root: &ReferenceRoot) -> RootLookup<'_>;
}

/// What became of a reference's root.
#[derive(Clone, Debug, PartialEq)]
pub enum RootLookup<'a> {
    Found(Cow<'a, Value>),
    /// It has no value and will have none: it reads as null.
    Absent,
    /// It may have a value later, so that no answer would be right now.
    NotYet,
}
