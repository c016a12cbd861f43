//! The plan: a workflow and its parameters, checked, resolved and frozen.
//!
//! Owns everything that can be known before a run: whether a workflow is valid, the arrays that the engine walks, the
//! hash that identifies it, and advice before money is spent. Does not know the state of a run. Read `check` first,
//! then `survey`, which all checks share.

mod advice;
mod artifacts;
mod bind;
mod check;
mod compare;
mod conflict_resolvers;
mod content_hash;
mod critical_path;
mod definition;
mod expr_sites;
mod field_path;
mod flat_lists;
mod frozen_definition;
mod graph;
mod json_depth;
mod library;
mod numbers;
mod order;
mod problem;
mod references;
mod schemas;
mod shape;
mod step_id_map;
mod survey;
mod types;
mod untrusted_text;
mod worker_starts;

pub use check::{CheckedWorkflow, check_workflow};
pub use content_hash::ContentHash;
pub use critical_path::CriticalPath;
pub use definition::{Plan, PlanDefinition, RelativeStepPath, RouteTargetIx, ScopeEntry, ScopeIx, WorkflowEntry};
pub use field_path::{FieldPath, FieldSegment, PlanField};
pub use frozen_definition::FrozenDefinition;
pub use library::WorkflowLibrary;
pub use problem::{PlanProblem, ProblemCode, ProblemLocation, Severity, Suggestion};
pub use step_id_map::StepIdMap;
pub use worker_starts::{WorkerStarts, group_digits};
