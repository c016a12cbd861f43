//! Owns the evaluator's interface to its environment. Does not know runs, steps or the store.

use std::borrow::Cow;

use serde_json::Value;

use super::ast::ReferenceRoot;

/// The source of the values of references.
pub trait ExprEnv {
    fn lookup(&self, root: &ReferenceRoot) -> RootLookup<'_>;
}

/// The result of looking up the root of a reference.
#[derive(Clone, Debug, PartialEq)]
pub enum RootLookup<'a> {
    Found(Cow<'a, Value>),
    /// The root has no value and will have none; it reads as null.
    Absent,
    /// The root may have a value later, so no answer would be correct now.
    NotYet,
}
