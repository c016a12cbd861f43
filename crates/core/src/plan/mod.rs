//! The plan: a workflow and its parameters, checked, resolved and frozen.
//!
//! Owns what can be known before a run: whether a workflow makes sense, the arrays that the engine walks, the hash
//! that names it, and what a person should know before spending money. Refuses to know how a run is going.

mod definition;
mod hash;

pub use definition::{Definition, Next, Place, Plan, ScopeEntry, ScopeIx, WorkflowEntry};
pub use hash::{Hash, canonical_json};
