//! The plan: a workflow and its parameters, checked, resolved and frozen.
//!
//! Owns everything that can be known before a run: whether a workflow is valid, the arrays that the engine walks, the
//! hash that identifies it, and advice before money is spent. Does not know the state of a run. Read `check` first,
//! then `survey`, which all checks share.

mod advice;
mod bind;
mod check;
mod content_hash;
mod definition;
mod frozen_definition;
mod graph;
mod numbers;
mod order;
mod problem;
mod references;
mod schemas;
mod shape;
mod survey;
mod untrusted_text;

pub use advice::{CriticalPath, WorkerStarts, group_digits};
pub use check::{CheckedWorkflow, WorkflowLibrary, check_workflow};
pub use content_hash::ContentHash;
pub use definition::{
    Plan, PlanDefinition, RelativeStepPath, RouteTargetIx, ScopeEntry, ScopeIx, StepIdMap, WorkflowEntry,
};
pub use frozen_definition::FrozenDefinition;
pub use problem::{
    FieldPath, FieldSegment, PlanField, PlanProblem, ProblemCode, ProblemLocation, Severity, Suggestion,
};

pub(crate) use definition::detours;
pub(crate) use problem::{FieldRef, FieldRest};
