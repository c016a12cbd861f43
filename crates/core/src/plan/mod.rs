//! The plan: a workflow and its parameters, checked, resolved and frozen.
//!
//! Owns what can be known before a run: whether a workflow makes sense, the arrays that the engine walks, the hash
//! that names it, and what a person should know before spending money. Refuses to know how a run is going. Read
//! `check` first, then `survey`, which the single checks share.

mod advice;
mod artifacts;
mod bind;
mod calls;
mod check;
mod compare;
mod contracts;
mod cost;
mod definition;
mod depth;
mod flat;
mod frozen;
mod graph;
mod hash;
mod library;
mod names;
mod numbers;
mod order;
mod path;
mod problem;
mod references;
mod settlers;
mod shape;
mod sites;
mod survey;
mod types;
mod untrusted;

pub use check::{Checked, check};
pub use cost::{Starts, grouped};
pub use definition::{Definition, Next, Place, Plan, ScopeEntry, ScopeIx, WorkflowEntry};
pub use frozen::Frozen;
pub use hash::Hash;
pub use library::Library;
pub use names::Names;
pub use path::Path;
pub use problem::{At, Problem, ProblemCode, Severity, Slip};
