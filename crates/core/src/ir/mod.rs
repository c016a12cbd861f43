//! The workflow: one form for what four formats say.
//!
//! Owns the nouns a workflow is made of and their JSON. Refuses to know where they came from (the front ends lower
//! into it) and what they do (the engine). Policies are tables here, filled in by lowering, so that the engine
//! never asks which format it runs. Read `workflow` first, then `scope`, `step` and `policy`.

mod approval;
mod check;
mod evidence;
mod gate;
mod kind;
mod policy;
mod schema;
mod scope;
mod shared;
mod status;
mod step;
mod surroundings;
mod work;
mod workflow;

pub use approval::{ApprovalHold, Level, Ruling};
pub use check::{Check, Convergence, Stage};
pub use evidence::Evidence;
pub use gate::{Approver, Gate, GateTimeout, Wait, WaitTimeout};
pub use kind::{Arm, Branch, Call, Each, EachErrors, Export, Kind, KindName, Lane, Loop, LoopTest, Parallel};
pub use policy::{
    Backoff, Budget, BudgetMode, Effect, Effects, ErrorClass, Growth, HoldReason, OnInterrupted, Per, Retry,
    StepPolicy, Then, Verdict,
};
pub use schema::{Schema, SchemaError};
pub use scope::{RunRetry, Scope, Shape, Siblings, Target, UndoFailure, UndoPolicy};
pub use shared::{Labels, Policy, Shared, Usual};
pub use status::{FailureWords, RunStatus, StepStatus, Words};
pub use step::{Binding, Step, Undo};
pub use surroundings::{Context, FileIn, FileOut, Hook, HookAction, HookWhen, Memory, Trigger};
pub use work::{ArtifactIn, ArtifactOut, Capability, Isolation, Summary, Work, Worker};
pub use workflow::{Origin, Workflow};

pub(crate) use approval::{is_one, one};

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
